package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"example.com/weir/internal/control"
)

// stopper is the command stop.
type stopper struct {
	storage
	drain, wait bool
	timeout     time.Duration
	out         io.Writer
}

func stopCommand(address string) *cobra.Command {
	var s stopper
	c := &cobra.Command{
		Use: "stop", Short: "Stop a running job: a last checkpoint, committed and settled",
		Long: "Asks a running job to read no further, take a last checkpoint, commit it and end, and waits until\n" +
			"that is so. Started again, the job goes on from there. With --drain event time goes to the end first:\n" +
			"timers fire and windows close, and the job is finished. Where no job runs it succeeds if the last one\n" +
			"ended in that way.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := interruptible(c.Context(), s.timeout)
			defer cancel()
			s.out = c.OutOrStdout()
			return failed(s.run(ctx))
		},
	}
	s.flag(c, address)
	c.Flags().BoolVar(&s.drain, "drain", false, "let event time go to the end first, so that every window closes")
	c.Flags().BoolVar(&s.wait, "wait", true, "wait until the job has ended")
	c.Flags().DurationVar(&s.timeout, "timeout", 0, "wait no longer than this; the job goes on stopping (0: no limit)")
	return c
}

// interruptible returns a context that ends at SIGINT, at SIGTERM, and after a while if that is not 0.
func interruptible(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	if after <= 0 {
		return ctx, stop
	}
	ctx, cancel := context.WithTimeout(ctx, after)
	return ctx, func() { cancel(); stop() }
}

func (s *stopper) run(ctx context.Context) error {
	dir, err := s.dir()
	if err != nil {
		return err
	}
	client, err := control.Find(dir)
	if err == nil {
		err = s.ask(ctx, client)
	}
	if errors.Is(err, control.ErrNotRunning) || errors.Is(err, control.ErrGone) {
		return s.judge(ctx, err)
	}
	return err
}

func (s *stopper) ask(ctx context.Context, client *control.Client) error {
	info := client.Info()
	if !s.wait {
		if err := client.Stop(ctx, s.drain); err != nil {
			return err
		}
		fmt.Fprintf(s.out, "job %s (process %d) was asked to stop\n", info.Job, info.PID)
		return nil
	}
	o, err := client.StopAndWait(ctx, s.drain)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("job %s was asked to stop, and goes on stopping: %s", info.Job, s.impatient(ctx))
	case err != nil:
		return err
	case o.ExitCode != ExitOK:
		return &Error{Code: o.ExitCode, Cause: fmt.Errorf("job %s ended, and did not stop: %s: %s", info.Job, o.Outcome, o.Error)}
	case s.drain && o.Outcome != "finished":
		return fmt.Errorf("job %s %s, and was not drained: somebody had asked it to stop before", info.Job, o.Outcome)
	}
	fmt.Fprintf(s.out, "job %s %s\n", info.Job, o.Outcome)
	return nil
}

// impatient says why the job was not waited for any longer.
func (s *stopper) impatient(ctx context.Context) string {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Sprintf("it did not end within --timeout %s; the command status shows how it does", s.timeout)
	}
	return "a signal ended the wait; the command status shows how it does"
}

// judge says from CURRENT whether a job that does not run ended as it was to. gone says why it is
// believed not to run.
func (s *stopper) judge(ctx context.Context, gone error) error {
	c, err := s.current(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("%w; what it left cannot be read: %w", gone, err)
	case !c.Exists():
		return fmt.Errorf("%w, and none has run", gone)
	case !inOrder(c):
		return fmt.Errorf("%w, and %s", gone, disorder(c))
	case s.drain && !c.Finished:
		return fmt.Errorf("%w; it was stopped at checkpoint %d, and not drained", gone, c.Checkpoint)
	case c.Finished:
		fmt.Fprintf(s.out, "job %s finished at checkpoint %d\n", c.Job, c.Checkpoint)
	default:
		fmt.Fprintf(s.out, "job %s stopped at checkpoint %d\n", c.Job, c.Checkpoint)
	}
	return nil
}
