package weirtest

import (
	"context"
	"errors"
	"testing"

	"example.com/weir"
)

// Running is a job that runs beside the test.
type Running struct {
	job     *weir.Job
	cancel  context.CancelCauseFunc
	ended   chan struct{}
	outcome weir.Outcome
	err     error
}

var errKilled = errors.New("killed by the test")

// Start runs a job. It is killed at the end of the test if it still runs.
func Start(t testing.TB, j *weir.Job) *Running {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	r := &Running{job: j, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.outcome, r.err = j.Run(ctx)
	}()
	t.Cleanup(r.Kill)
	return r
}

// Wait waits until the job has ended, and returns why.
func (r *Running) Wait() (weir.Outcome, error) {
	<-r.ended
	return r.outcome, r.err
}

// Stop asks for a last checkpoint and waits until the job has ended.
func (r *Running) Stop() (weir.Outcome, error) {
	r.job.Stop(false)
	return r.Wait()
}

// Drain takes event time to the end, so that timers fire and windows close, asks for a last
// checkpoint and waits until the job has ended. The job is finished then.
func (r *Running) Drain() (weir.Outcome, error) {
	r.job.Stop(true)
	return r.Wait()
}

// Savepoint takes a savepoint, and fails the test if it cannot.
func (r *Running) Savepoint(t testing.TB, name string) weir.Savepoint {
	t.Helper()
	p, err := r.job.Savepoint(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Status returns how the job does now.
func (r *Running) Status() weir.Status { return r.job.Status() }

// Kill ends the job without a checkpoint, as the end of its process would, and waits for it.
func (r *Running) Kill() {
	r.cancel(errKilled)
	<-r.ended
}
