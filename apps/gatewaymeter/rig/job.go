package rig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Job is one process of a job after another, and what their logs tell.
type Job struct {
	binary string
	args   []string
	tell   func(Line, *Journal) // told of each line, one at a time

	mu      sync.Mutex
	journal Journal
	tail    logTail
	changed chan struct{} // closed and replaced when the journal changes

	child *child // of the goroutine that starts and kills
}

// NewJob returns a job that has not been started. args are those of its command line, which must ask for a log in
// JSON on standard error; tell is told of each line of it, one at a time.
func NewJob(binary string, args []string, tell func(Line, *Journal)) *Job {
	return &Job{binary: binary, args: args, tell: tell, changed: make(chan struct{})}
}

// Start starts the job's process, with more arguments if there are any.
func (j *Job) Start(more ...string) (err error) {
	j.child, err = startChild(j.binary, slices.Concat(j.args, more), j.line)
	return err
}

func (j *Job) line(text []byte) {
	l, ok := ParseLine(text)
	j.mu.Lock()
	defer j.mu.Unlock()
	if l.Msg != Progressed {
		j.tail.add(text)
	}
	if !ok {
		return
	}
	j.journal.apply(l)
	j.tell(l, &j.journal)
	close(j.changed)
	j.changed = make(chan struct{})
}

// Now returns what the journal has.
func (j *Job) Now() Journal {
	n, _ := j.look()
	return n
}

func (j *Job) look() (Journal, <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.journal.clone(), j.changed
}

// ErrDied reports a job that ended by itself.
var ErrDied = errors.New("the job ended by itself")

func (j *Job) died() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return fmt.Errorf("%w: %s; the end of its log:\n%s", ErrDied, j.child.ended(), &j.tail)
}

// Wait waits until the journal is as asked, and returns it.
func (j *Job) Wait(ctx context.Context, until func(*Journal) bool) (Journal, error) {
	for {
		n, changed := j.look()
		if until(&n) {
			return n, nil
		}
		select {
		case <-changed:
		case <-j.child.done:
			if n = j.Now(); until(&n) {
				return n, nil
			}
			return n, j.died()
		case <-ctx.Done():
			return n, context.Cause(ctx)
		}
	}
}

// Sleep waits, unless the job ends.
func (j *Job) Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-j.child.done:
		return j.died()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Kill kills the process, which must not have ended.
func (j *Job) Kill() error {
	if err := j.child.kill(); err != nil {
		return errors.Join(j.died(), err)
	}
	return nil
}

// Stop asks the job for a last checkpoint and its end.
func (j *Job) Stop(ctx context.Context) error {
	if err := j.child.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return errors.Join(j.died(), err)
	}
	select {
	case <-j.child.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if j.child.err != nil {
		return fmt.Errorf("asked to stop: %w", j.died())
	}
	return nil
}

// Exit waits until the process has ended by itself, and returns its exit code and the end of its log.
func (j *Job) Exit(ctx context.Context) (code int, log string, err error) {
	select {
	case <-j.child.done:
	case <-ctx.Done():
		return 0, "", context.Cause(ctx)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.child.cmd.ProcessState.ExitCode(), j.tail.String(), nil
}

// End makes sure that no process is left.
func (j *Job) End() {
	if j.child == nil {
		return
	}
	select {
	case <-j.child.done:
	default:
		_ = j.child.kill()
	}
}
