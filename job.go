package weir

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/command"
	"example.com/weir/internal/engine"
	"example.com/weir/internal/keygroup"
	"example.com/weir/internal/protocol"
	"example.com/weir/internal/status"
)

// Config configures a job. The zero value is a job of parallelism 1 without checkpoints.
type Config struct {
	// Parallelism is the number of subtasks of each operator, one number for all of them. Default 1.
	Parallelism int
	// MaxParallelism is the number of key groups, fixed when the job first starts. Default 128.
	MaxParallelism int
	Checkpoint     Checkpoint
	// Restart says whether and after how long a generation follows one that failed: ExponentialDelay,
	// FixedDelay, FailureRate or NoRestart. Default ExponentialDelay{}.
	Restart Restart
	// StartTimeout is how long a first start, one with no checkpoint yet to go on from, is tried again when it
	// fails: because brokers cannot be reached, for instance. Then the job fails (ErrNotBegun). A job that has a
	// checkpoint is restarted as Restart says. Default 1 min; negative: a first start is no exception.
	StartTimeout time.Duration
	// Restore says what the job goes on from; the zero value is CURRENT.
	Restore Restore
	// Logger receives what happens. Default: slog.Default(), or with Main what its flags say.
	Logger *slog.Logger
	// HTTP is where Main and Serve let a running job be reached.
	HTTP HTTP
	// StopGrace is how long Main and Serve let the last checkpoint and its commits take after SIGTERM
	// or SIGINT, before the job ends as it is. Default 30 s.
	StopGrace time.Duration
	// Observer is told about checkpoints and commits.
	Observer Observer
}

// Checkpoint configures checkpoints. Without a storage there are none: state does not outlive the
// process, and sinks that need checkpoints are refused.
type Checkpoint struct {
	// Storage is the address that checkpoints are kept at: file:///absolute/path.
	Storage string
	// Mode is what checkpoints promise of state. Default ExactlyOnce.
	Mode Mode
	// Interval between the beginnings of two checkpoints. Default 10 s.
	Interval time.Duration
	// Timeout after which a checkpoint is given up. Default 10 min.
	Timeout time.Duration
	// MinPause is the least time between the end of one checkpoint, completed or given up, and the
	// barrier of the next. It holds for those that come by Interval: not for the first one, a savepoint
	// or the last one. Default 0.
	MinPause time.Duration
	// Retain is how many completed checkpoints are kept. Default 3.
	Retain int
	// TolerableFailures is how many checkpoints in a row may be given up before the generation
	// fails. Default 0.
	TolerableFailures int
	// AcceptLineages names earlier lineages of the same sinks that a fresh start replaces.
	AcceptLineages []string
}

// Restore says what a job goes on from, if not from where it was (CURRENT). What was asked for is noted in
// the checkpoints that follow: started again with the same words, a job goes on from where it is. To go
// back to the same place once more, give it another name.
//
// From names a checkpoint by its number, or by what List of checkpoints calls it, or a savepoint. If it is
// CURRENT's own checkpoint, that is the ordinary start. An older one is a rewind: what CURRENT names is
// settled first, then a new lineage begins there. It is refused (ErrRewind) unless it is known that nothing has been shown
// since, or every sink is idempotent (connector.Idempotent), or AcceptDuplicates says that results may be written again.
//
// Fork is the address of another storage, whose job may be running. Its checkpoint (From, or its CURRENT)
// is copied into this job's storage, which must be empty (ErrForkTarget), and a new lineage begins there.
// What the parent has not committed, the parent commits. Sinks need names of their own (topics, prefixes).
//
// A checkpoint that is finished is gone on from if From names it, with NewLineage (else ErrFinished), and EventTime
// says where event time goes on: what lies before is late.
//
// A checkpoint directory that is a copy, or was put back from a backup, is refused unless
// AcceptCopiedDirectory is set: what was committed since it was copied would be written again.
//
// An operator that only the job or only the checkpoint has is refused (ErrIncompatible) unless its uid is
// in AllowNew or AllowDropped. AllowDropped may also name single states, as uid/state. What is dropped is gone with the
// first checkpoint.
type Restore = engine.RestoreConfig

// Mode says what checkpoints promise of state.
type Mode = engine.Mode

// The modes.
const (
	// ExactlyOnce: each record changes state once, whatever fails. An operator with several inputs waits,
	// at a barrier, until it has come on all of them.
	ExactlyOnce = engine.ExactlyOnce
	// AtLeastOnce: nothing is lost and no operator waits, but after a restart a record can count twice in
	// state, where an operator has several inputs. A sink that asks for exactly-once is refused, and so is
	// going on in ExactlyOnce from such a checkpoint, unless it was the last one before the job was stopped
	// or Restore.AcceptDuplicates says that what counted twice may stay.
	AtLeastOnce = engine.AtLeastOnce
)

// HTTP says where metrics, health, profiles and the control endpoint of a running job are.
type HTTP struct {
	// Address is host:port, or "off" for none. Default: a free port of 127.0.0.1, written to
	// control.json beside the checkpoints; none for a job without checkpoints.
	Address string
	// Remote lets Address be one that other machines reach: metrics and health are answered to them,
	// control and profiles are not.
	Remote bool
}

// DefaultInterval is the interval between checkpoints of a job that names none.
const DefaultInterval = 10 * time.Second

// Restart is a restart strategy. What a generation had not put into a checkpoint is done again by the
// next one; errors that no restart heals end the job whatever the strategy.
type Restart = protocol.Restart

// ExponentialDelay is the default: the delay grows after each failure, and starts over once a generation
// has run well for a while. The zero value is 1 s, growing by half up to 1 min, with a jitter of a tenth,
// starting over after 1 h, without end.
//
//	InitialDelay    time.Duration   // after the first failure; default 1 s
//	MaxDelay        time.Duration   // no delay is longer; default 1 min
//	Multiplier      float64         // from one delay to the next, at least 1; default 1.5
//	ResetThreshold  time.Duration   // a generation that has run so long starts the delays over; default 1 h
//	Jitter          float64         // the part that is added or taken away at random; default 0.1, negative: none
//	MaxRestarts     int             // restarts without starting over, before the job fails; 0: no limit
type ExponentialDelay = protocol.ExponentialDelay

// FixedDelay waits the same time after each failure, 1 s by default; MaxRestarts, if it is set, counts
// the whole life of the process.
type FixedDelay = protocol.FixedDelay

// FailureRate waits the same time after each failure, 1 s by default, and gives up once more than
// MaxFailures (default 1) come within Interval (default 1 min).
type FailureRate = protocol.FailureRate

// NoRestart ends the job at its first failure: something outside starts the process again.
type NoRestart = protocol.NoRestart

// Observer is told what happens in a running job. Its functions may be nil; they must return at once.
//
//	GenerationStarted    func(current Current, subtasks []*SubtaskStats)
//	CheckpointCompleted  func(current Current, took time.Duration, subtasks []*SubtaskStats)
//	CheckpointAborted    func(checkpoint uint64, err error)
//	Settled              func(id string, took time.Duration)   // a committable is committed and known to be
//	BarrierPassed        func(subtask SubtaskID, checkpoint uint64, aligned, stood time.Duration)
type Observer = engine.Observer

// Current is what CURRENT holds: which checkpoint of which generation exists.
type Current = protocol.Current

// SubtaskID names a subtask of an operator.
type SubtaskID = protocol.SubtaskID

// SubtaskStats are the counters of a subtask.
type SubtaskStats = engine.SubtaskStats

// Status is a running job at one moment. Encoded as JSON it is what the command status prints with --format json:
// times are RFC 3339, durations nanoseconds, and sizes bytes.
type Status = status.Status

// Savepoint is a checkpoint that is kept under a name until it is deleted.
type Savepoint = checkpoint.Savepoint

// Outcome says why a job ended well.
type Outcome = protocol.Outcome

// The outcomes.
const (
	// Stopped: somebody asked for it; the job goes on from its last checkpoint when started.
	Stopped = protocol.Stopped
	// Finished: the bounded input has ended, or was drained; started again, the job changes nothing.
	Finished = protocol.Finished
)

// Errors a caller of Run may tell apart with errors.Is or errors.As.
var (
	// ErrInvalid: the job cannot be built as it is written.
	ErrInvalid = engine.ErrInvalid
	// ErrIncompatible: the checkpoint does not fit the job (a uid, the shape of a state, max parallelism).
	ErrIncompatible = engine.ErrIncompatible
	// ErrNotRestarted: the restart strategy gave up.
	ErrNotRestarted = engine.ErrNotRestarted
	// ErrNotBegun: a first start did not come to a checkpoint within Config.StartTimeout.
	ErrNotBegun = engine.ErrNotBegun
	// ErrRewind: the checkpoint lies behind what has been committed.
	ErrRewind = engine.ErrRewind
	// ErrFinished: the checkpoint is finished, and nobody has said that the job is to go on from it.
	ErrFinished = engine.ErrFinished
	// ErrForkTarget: a fork needs an empty storage, and this one holds another job's history.
	ErrForkTarget = engine.ErrForkTarget
	// ErrNoCheckpoint: no checkpoint and no savepoint is called so.
	ErrNoCheckpoint = checkpoint.ErrNoCheckpoint
	// ErrNotRunning: the job ended before it could do what it was asked for.
	ErrNotRunning = engine.ErrNotRunning
	// ErrSavepointName: no savepoint can have that name.
	ErrSavepointName = checkpoint.ErrSavepointName
	// ErrSavepointExists: a savepoint of that name exists.
	ErrSavepointExists = checkpoint.ErrSavepointExists
)

// LockedError says which process holds the checkpoints.
type LockedError = checkpoint.LockedError

// CorruptError says which file of a checkpoint is not what was written.
type CorruptError = checkpoint.CorruptError

// Job is a dataflow under construction, and then what runs it.
type Job struct {
	name string
	cfg  Config
	plan *engine.Plan

	control *engine.Control
	reached func(point string) // see command.Settings
}

// NewJob returns an empty job. Mistakes in it are reported together by Run.
func NewJob(name string, cfg Config) *Job {
	if cfg.Parallelism == 0 {
		cfg.Parallelism = 1
	}
	if cfg.MaxParallelism == 0 {
		cfg.MaxParallelism = keygroup.DefaultMax
	}
	if cfg.Checkpoint.Interval == 0 {
		cfg.Checkpoint.Interval = DefaultInterval
	}
	plan := engine.NewPlan(name, cfg.Parallelism, cfg.MaxParallelism)
	plan.SetMode(cfg.Checkpoint.Mode)
	return &Job{name: name, cfg: cfg, plan: plan, control: engine.NewControl()}
}

// Name returns the job's name.
func (j *Job) Name() string { return j.name }

// checkpoints reports whether the job takes any.
func (j *Job) checkpoints() bool { return j.cfg.Checkpoint.Storage != "" }

// Stop asks the job to read no further, to take a last checkpoint, to commit it and to return from
// Run with Stopped. With drain, event time goes to the end first: timers fire, windows close, and Run
// returns Finished. Stop returns at once, and may come before Run. The first call decides which of
// the two it is.
func (j *Job) Stop(drain bool) { j.control.Stop(drain) }

// Savepoint takes a checkpoint and keeps it under a name until it is deleted. Names have 1 to 100
// characters of a–z, 0–9, dot, underscore and hyphen, begin with a letter or a digit and are no number;
// one that is taken is refused (ErrSavepointExists). While another checkpoint is in progress Savepoint
// waits for the next, and before the job runs, until it does. If that checkpoint is aborted or the
// generation fails, that is the error: ask again. If ctx ends first, the savepoint may still come to be.
func (j *Job) Savepoint(ctx context.Context, name string) (Savepoint, error) {
	if !j.checkpoints() {
		return Savepoint{}, fmt.Errorf("%w: job %s takes no checkpoints, so it has no savepoints", ErrInvalid, j.name)
	}
	return j.control.Savepoint(ctx, name)
}

// Answer returns nil once the goroutine that runs the job has answered, and an error if it has not before
// ctx ends, or the job has ended. It says that the job lives, in a restart too, and not that it does well.
func (j *Job) Answer(ctx context.Context) error { return j.control.Answer(ctx) }

// Status returns how the job does now. It may be asked at any time.
func (j *Job) Status() Status { return j.control.Status() }

// Run runs the job until its bounded input has ended, Stop is called, or it fails for good. A Job
// runs once.
//
// Ending ctx returns at once with its cause: nothing is lost or doubled by that, it is only done
// again.
func (j *Job) Run(ctx context.Context) (Outcome, error) {
	return j.run(ctx, func(checkpoint.Store) (func(), error) { return func() {}, nil })
}

// run is Run. It calls owned once the checkpoints are this process's own, and what that returns before
// they are given up.
func (j *Job) run(ctx context.Context, owned command.Owned) (Outcome, error) {
	if err := j.plan.Validate(j.checkpoints()); err != nil {
		return protocol.None, err
	}
	store, err := j.openStore()
	if err != nil {
		return protocol.None, fmt.Errorf("job %s: %w", j.name, err)
	}
	defer store.Close()
	giveUp, err := owned(store)
	if err != nil {
		return protocol.None, fmt.Errorf("job %s: %w", j.name, err)
	}
	defer giveUp()
	interval := j.cfg.Checkpoint.Interval
	if !j.checkpoints() {
		interval = 0
	}
	return engine.Run(ctx, j.plan, engine.RunConfig{
		Store: store, Interval: interval, Timeout: j.cfg.Checkpoint.Timeout,
		Retain: j.cfg.Checkpoint.Retain, TolerableFailures: j.cfg.Checkpoint.TolerableFailures,
		MinPause: j.cfg.Checkpoint.MinPause, Restart: j.cfg.Restart, StartTimeout: j.cfg.StartTimeout,
		AcceptLineages: j.cfg.Checkpoint.AcceptLineages, Restore: j.cfg.Restore, Reached: j.reached,
		Logger: j.logger().With("job", j.name), Observer: j.cfg.Observer,
	}, j.control)
}

func (j *Job) logger() *slog.Logger {
	if j.cfg.Logger == nil {
		return slog.Default()
	}
	return j.cfg.Logger
}

func (j *Job) openStore() (checkpoint.Store, error) {
	if !j.checkpoints() {
		return checkpoint.NewMemory(j.name), nil
	}
	return checkpoint.Open(j.cfg.Checkpoint.Storage, checkpoint.Options{
		Job: j.name, AcceptCopy: j.cfg.Restore.AcceptCopiedDirectory,
	})
}
