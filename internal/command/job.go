package command

import (
	"context"
	"log/slog"
	"time"

	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/engine"
	"example.com/weir/internal/protocol"
	"example.com/weir/internal/status"
)

// Job is a job as the commands know it; weir.Main makes one of a weir.Job.
type Job interface {
	Name() string
	Status() status.Status
	// Answer returns nil once whoever runs the job has answered.
	Answer(ctx context.Context) error
	Stop(drain bool)
	Savepoint(ctx context.Context, name string) (checkpoint.Savepoint, error)
	// Settings are the job's as its program wrote them.
	Settings() Settings
	// Apply replaces them, before Run.
	Apply(Settings)
	// Outside says what its sinks have outside, and where its checkpoints are.
	Outside() (Outside, error)
	// Graph describes the job, or says why it is not valid.
	Graph() (engine.Graph, error)
	// Run runs the job once.
	Run(ctx context.Context, owned Owned) (protocol.Outcome, error)
}

// Owned is called once the checkpoints in the store are this process's own. What it returns is called
// before they are given up.
type Owned func(checkpoint.Store) (giveUp func(), err error)

// Settings are what a command line may change of a job.
type Settings struct {
	Storage     string // address of the checkpoint storage; empty: no checkpoints
	Parallelism int
	Interval    time.Duration // between checkpoints
	HTTP        string        // address of the endpoint; empty: the default one; Off: none
	HTTPRemote  bool          // HTTP may be an address that other machines reach
	StopGrace   time.Duration // how long a signal lets a last checkpoint take; 0: DefaultStopGrace
	// StartTimeout is how long a first start is tried; 0: engine.DefaultStartTimeout, negative: for ever.
	StartTimeout time.Duration
	Logger       *slog.Logger // nil: what --log-format and --log-level say, or slog.Default()

	AcceptLineages []string
	Restore        engine.RestoreConfig

	// Reached is told each step of a commit by name (package fault); nil: nobody.
	Reached func(point string)
}

// Off is the address of an endpoint that is not opened.
const Off = "off"

// DefaultStopGrace is how long the first signal lets a last checkpoint and its commits take.
const DefaultStopGrace = 30 * time.Second
