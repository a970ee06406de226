package engine

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/status"
)

// Control reaches a job from outside: to stop it, and to see how it does. It may be used before Run
// begins, while it runs and after it has ended, by any number of goroutines.
type Control struct {
	asked    chan struct{} // holds a token once somebody has asked to stop
	stopping chan struct{} // closed by the first request to stop
	drain    bool          // what that one asked for; written before stopping is closed
	// savepoints are taken by the generation that runs.
	savepoints chan savepointRequest
	ended      chan struct{} // closed by the end of Run
	alive      chan struct{} // whoever runs the job gives a token to who asks
	view       atomic.Pointer[view]
}

// ErrNotRunning reports that the job has ended before it could do what it was asked for.
var ErrNotRunning = errors.New("the job is not running")

// savepointRequest asks for the next checkpoint to be kept under a name.
type savepointRequest struct {
	name   string
	answer chan savepointAnswer // has room for one: the first counts
}

// savepointAnswer is the savepoint or why there is none.
type savepointAnswer struct {
	savepoint checkpoint.Savepoint
	err       error
}

func (r savepointRequest) reply(p checkpoint.Savepoint, err error) {
	select {
	case r.answer <- savepointAnswer{p, err}:
	default:
	}
}

// NewControl returns the control of a job that has not begun.
func NewControl() *Control {
	c := &Control{
		asked: make(chan struct{}, 1), stopping: make(chan struct{}),
		savepoints: make(chan savepointRequest), ended: make(chan struct{}),
		alive: make(chan struct{}),
	}
	c.view.Store(&view{now: time.Now, status: status.Status{State: status.Starting}})
	return c
}

// Stop asks the job to read no further and to end with a last checkpoint that is committed and
// settled. With drain, event time goes to the end first: timers fire, windows close, and the job is
// finished. It returns at once. The first request decides: a later one of the other kind changes
// nothing, in later generations too.
func (c *Control) Stop(drain bool) {
	select {
	case c.asked <- struct{}{}:
		c.drain = drain
		close(c.stopping)
	default:
	}
}

// Savepoint takes a checkpoint and keeps it under a name (see checkpoint.CheckSavepointName). While
// another one is in progress it waits for the next, and before the job runs, until it does. A
// checkpoint that is aborted, or a generation that fails, is an error: ask again. If ctx ends first,
// the savepoint may still come to be.
func (c *Control) Savepoint(ctx context.Context, name string) (checkpoint.Savepoint, error) {
	if err := checkpoint.CheckSavepointName(name); err != nil {
		return checkpoint.Savepoint{}, err
	}
	r := savepointRequest{name: name, answer: make(chan savepointAnswer, 1)}
	select {
	case c.savepoints <- r:
	case <-c.ended:
		return checkpoint.Savepoint{}, fmt.Errorf("savepoint %s: %w", name, ErrNotRunning)
	case <-ctx.Done():
		return checkpoint.Savepoint{}, fmt.Errorf("savepoint %s: %w", name, context.Cause(ctx))
	}
	select {
	case a := <-r.answer:
		return a.savepoint, a.err
	case <-ctx.Done():
		return checkpoint.Savepoint{}, fmt.Errorf("savepoint %s may still come to be: %w",
			name, context.Cause(ctx))
	}
}

// Status returns how the job does now.
func (c *Control) Status() status.Status {
	v := c.view.Load()
	s := v.status
	s.At = v.now().UTC()
	s.Operators = v.describe(v.now())
	s.Transactions = v.transactionsAt(s.At)
	return s
}

// Answer returns nil once the goroutine that runs the job has answered, and an error if it has not
// before ctx ends. It says that the job is alive, in a restart too, and not that it does well.
func (c *Control) Answer(ctx context.Context) error {
	select {
	case <-c.alive:
		return nil
	case <-c.ended:
		return ErrNotRunning
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stopRequested is closed once somebody has asked to stop. It is nil if that has been so already: a
// stop cuts the wait for a restart short, once, and while a last generation keeps failing, each
// delay is waited for.
func (c *Control) stopRequested() <-chan struct{} {
	select {
	case <-c.stopping:
		return nil
	default:
		return c.stopping
	}
}
