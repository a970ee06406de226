package engine

import (
	"sync/atomic"
	"time"

	"example.com/weir/internal/status"
)

// Control reaches a job from outside: to stop it, and to see how it does. It may be used before Run
// begins, while it runs and after it has ended, by any number of goroutines.
type Control struct {
	asked    chan struct{} // holds a token once somebody has asked to stop
	stopping chan struct{} // closed by the first request to stop
	drain    bool          // what that one asked for; written before stopping is closed
	view     atomic.Pointer[view]
}

// NewControl returns the control of a job that has not begun.
func NewControl() *Control {
	c := &Control{asked: make(chan struct{}, 1), stopping: make(chan struct{})}
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

// Status returns how the job does now.
func (c *Control) Status() status.Status {
	v := c.view.Load()
	s := v.status
	s.At = v.now().UTC()
	s.Operators = describeOperators(v.subtasks, s.At)
	s.Transactions = v.transactionsAt(s.At)
	return s
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
