package command

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/control"
	"example.com/weir/internal/metrics"
	"example.com/weir/internal/protocol"
)

// Serve runs a job until it ends, listens to signals (M2), lets the job be reached meanwhile, and
// returns the exit code.
func Serve(j Job) int {
	if err := armCrash(j, os.Stderr); err != nil {
		s := j.Settings()
		s.logger().Error("the job was not started", slog.Any("error", err))
		return ExitUsage
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	defer signal.Stop(signals)
	return serve(j, signals)
}

// result is how a run ended.
type result struct {
	outcome protocol.Outcome
	err     error
}

func serve(j Job, signals <-chan os.Signal) int {
	s := j.Settings()
	logger := s.logger().With(slog.String("job", j.Name()))
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	ended := make(chan result, 1)
	go func() {
		door := &endpoint{job: j, settings: s, logger: logger}
		var r result
		r.outcome, r.err = j.Run(ctx, door.open)
		door.close(r)
		ended <- r
	}()
	r := await(j, signals, ended, cancel, logger)
	o := outcomeOf(r)
	attrs := []any{slog.String("outcome", o.Outcome), slog.Int("exit_code", o.ExitCode)}
	if r.err != nil {
		logger.Error("job ended", append(attrs, slog.Any("error", r.err))...)
		return o.ExitCode
	}
	logger.Info("job ended", attrs...)
	return o.ExitCode
}

// lastMoments is how long a job that was told to end at once may take to put its files and connections
// away, before the process ends without.
const lastMoments = 2 * time.Second

// await waits for the end of a run, and tells it what signals ask for.
func await(
	j Job, signals <-chan os.Signal, ended <-chan result, cancel context.CancelCauseFunc,
	logger *slog.Logger,
) result {
	s := j.Settings()
	grace := s.grace()
	var passed, over <-chan time.Time
	var why error
	atOnce := func(err error) {
		why = err
		cancel(err)
		over, passed, signals = time.After(lastMoments), nil, nil
	}
	for {
		select {
		case r := <-ended:
			return r
		case sig := <-signals:
			if passed != nil {
				atOnce(errInterrupted)
				continue
			}
			logger.Info("stopping after a last checkpoint; a second signal ends at once",
				slog.String("signal", sig.String()), slog.Duration("grace", grace))
			j.Stop(false)
			passed = time.After(grace)
		case <-passed:
			atOnce(errGrace)
		case <-over: // something of the user's holds on
			return result{err: why}
		}
	}
}

// outcomeOf says how a job ended, in a word and an exit code.
func outcomeOf(r result) control.Outcome {
	if r.err == nil {
		return control.Outcome{Outcome: r.outcome.String(), ExitCode: ExitOK}
	}
	o := control.Outcome{Outcome: "failed", ExitCode: ExitCode(r.err), Error: r.err.Error()}
	switch o.ExitCode {
	case ExitUsage:
		o.Outcome = "invalid"
	case ExitSuperseded:
		o.Outcome = "superseded"
	case ExitRefused:
		o.Outcome = "refused"
	case ExitInterrupted:
		o.Outcome = "interrupted"
	}
	return o
}

// endpoint opens and closes the HTTP endpoint of a run.
type endpoint struct {
	job      Job
	settings Settings
	logger   *slog.Logger
	server   *control.Server // nil: there is none
}

// open is told that the checkpoints are this process's own. A job without storage has an endpoint if it
// names an address.
func (e *endpoint) open(store checkpoint.Store) (giveUp func(), err error) {
	s := &e.settings
	if s.HTTP == Off || s.Storage == "" && s.HTTP == "" {
		return func() {}, nil
	}
	var dir string
	if s.Storage != "" {
		if dir, err = checkpoint.Dir(s.Storage); err != nil {
			return nil, err
		}
	}
	e.server, err = control.Open(control.Config{
		Name: e.job.Name(), Job: owner{e.job, store}, Address: s.HTTP, Remote: s.HTTPRemote, Dir: dir,
		Logger: e.logger, Now: time.Now,
		Open: map[string]http.Handler{
			"/metrics": metrics.Handler(e.job.Status),
			"/healthz": metrics.Health(e.job.Answer),
			"/readyz":  metrics.Ready(e.job.Status),
		},
	})
	if err != nil {
		return nil, err
	}
	e.logger.Info("the job can be reached", slog.String("address", "http://"+e.server.Address()))
	return func() { e.warn(e.server.Retire()) }, nil
}

// owner is a running job with the checkpoints that it owns.
type owner struct {
	Job
	store checkpoint.Store
}

// Savepoint implements control.Job.
func (o owner) Savepoint(ctx context.Context, name string) (control.Savepoint, error) {
	p, err := o.Job.Savepoint(ctx, name)
	return told(p), err
}

// DeleteSavepoint implements control.Job.
func (o owner) DeleteSavepoint(ctx context.Context, name string) error {
	return o.store.DeleteSavepoint(ctx, name)
}

// told is a savepoint as it is told over HTTP.
func told(p checkpoint.Savepoint) control.Savepoint {
	lineage, n := p.Checkpoint()
	return control.Savepoint{Name: p.Name, Lineage: lineage, Checkpoint: n}
}

// close tells whoever waits how the run ended.
func (e *endpoint) close(r result) {
	if e.server == nil {
		return
	}
	e.server.Ended(outcomeOf(r))
	e.warn(e.server.Close())
}

func (e *endpoint) warn(err error) {
	if err != nil {
		e.logger.Warn("closing the HTTP endpoint", slog.Any("error", err))
	}
}

func (s *Settings) logger() *slog.Logger {
	if s.Logger == nil {
		return slog.Default()
	}
	return s.Logger
}

func (s *Settings) grace() time.Duration {
	if s.StopGrace == 0 {
		return DefaultStopGrace
	}
	return s.StopGrace
}
