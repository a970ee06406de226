package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"
)

// job is the job that is demonstrated: one process after another, and what their logs tell.
type job struct {
	binary string
	args   []string
	tell   func(logLine, *journal) // told of each line, one at a time

	mu      sync.Mutex
	journal journal
	tail    logTail
	changed chan struct{} // closed and replaced when the journal changes

	child *child // of the goroutine that starts and kills
}

func newJob(binary string, args []string, tell func(logLine, *journal)) *job {
	return &job{binary: binary, args: args, tell: tell, changed: make(chan struct{})}
}

// start starts the job's process.
func (j *job) start() (err error) {
	j.child, err = startChild(j.binary, j.args, j.line)
	return err
}

func (j *job) line(text []byte) {
	l, ok := parseLine(text)
	j.mu.Lock()
	defer j.mu.Unlock()
	if l.Msg != progressed {
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

// now returns what the journal has.
func (j *job) now() journal {
	n, _ := j.look()
	return n
}

func (j *job) look() (journal, <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.journal.clone(), j.changed
}

// errDied reports a job that ended by itself.
var errDied = errors.New("the job ended by itself")

func (j *job) died() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return fmt.Errorf("%w: %s; the end of its log:\n%s", errDied, j.child.ended(), &j.tail)
}

// wait waits until the journal is as asked, and returns it.
func (j *job) wait(ctx context.Context, until func(*journal) bool) (journal, error) {
	for {
		n, changed := j.look()
		if until(&n) {
			return n, nil
		}
		select {
		case <-changed:
		case <-j.child.done:
			if n = j.now(); until(&n) {
				return n, nil
			}
			return n, j.died()
		case <-ctx.Done():
			return n, context.Cause(ctx)
		}
	}
}

// sleep waits, unless the job ends.
func (j *job) sleep(ctx context.Context, d time.Duration) error {
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

// kill kills the process, which must not have ended.
func (j *job) kill() error {
	if err := j.child.kill(); err != nil {
		return errors.Join(j.died(), err)
	}
	return nil
}

// stop asks the job for a last checkpoint and its end.
func (j *job) stop(ctx context.Context) error {
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

// end makes sure that no process is left.
func (j *job) end() {
	if j.child == nil {
		return
	}
	select {
	case <-j.child.done:
	default:
		_ = j.child.kill()
	}
}
