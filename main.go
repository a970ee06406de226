package weir

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"example.com/weir/connector"
	"example.com/weir/internal/checkpoint"
)

// Exit codes of Main, and of every command that runs a job.
const (
	ExitOK         = 0 // finished, or stopped as asked
	ExitFailed     = 1 // the job failed and the restart strategy gave up
	ExitUsage      = 2 // the job or its configuration is wrong
	ExitSuperseded = 3 // another process owns the checkpoints
	ExitRefused    = 4 // going on could lose or double an effect, or the checkpoint does not fit
)

// Main runs a job until it ends, and returns the exit code. SIGTERM and SIGINT take a last
// checkpoint, commit it and end; a second one ends at once, and loses nothing.
func Main(j *Job) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	defer signal.Stop(signals)
	go func() {
		select {
		case s := <-signals:
			j.cfg.Logger.Info("stopping after a last checkpoint; a second signal ends at once",
				slog.String("job", j.name), slog.String("signal", s.String()))
			j.Stop(false)
		case <-ctx.Done():
			return
		}
		select {
		case <-signals:
			cancel(errInterrupted)
		case <-ctx.Done():
		}
	}()
	outcome, err := j.Run(ctx)
	if err != nil {
		j.cfg.Logger.Error("job ended", slog.String("job", j.name), slog.Any("error", err))
		return ExitCode(err)
	}
	j.cfg.Logger.Info("job ended", slog.String("job", j.name), slog.String("outcome", outcome.String()))
	return ExitOK
}

var errInterrupted = errors.New("ended by a second signal: the next start goes on from the last checkpoint")

// ExitCode returns the exit code that stands for an error of Job.Run.
func ExitCode(err error) int {
	var locked *LockedError
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, ErrInvalid), errors.Is(err, checkpoint.ErrAddress):
		return ExitUsage
	case errors.As(err, &locked), errors.Is(err, connector.ErrSuperseded):
		return ExitSuperseded
	case connector.IsStop(err):
		return ExitRefused
	}
	return ExitFailed
}
