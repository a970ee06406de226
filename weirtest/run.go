package weirtest

import (
	"context"
	"errors"
	"testing"

	"example.com/weir"
)

// Running is a job that runs beside the test.
type Running struct {
	cancel  context.CancelCauseFunc
	stop    chan struct{}
	ended   chan struct{}
	outcome weir.Outcome
	err     error
}

var errKilled = errors.New("killed by the test")

// Start runs a job. It is killed at the end of the test if it still runs.
func Start(t testing.TB, j *weir.Job) *Running {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	r := &Running{cancel: cancel, stop: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.outcome, r.err = j.Run(ctx, r.stop)
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
	close(r.stop)
	return r.Wait()
}

// Kill ends the job without a checkpoint, as the end of its process would, and waits for it.
func (r *Running) Kill() {
	r.cancel(errKilled)
	<-r.ended
}
