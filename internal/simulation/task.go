package simulation

import (
	"context"
	"fmt"
	"iter"
	"runtime/debug"
	"time"

	"example.com/weir/connectors/kafka/txn"
)

// taskState is what a task waits for.
//
//	ready ──▶ (runs) ──▶ asking ──▶ (performed) ──▶ ready
//	              ├────▶ sleeping ── its time comes ──▶ ready
//	              ├────▶ waiting ── its condition holds ──▶ ready
//	              └────▶ done
type taskState uint8

const (
	ready taskState = iota
	asking
	sleeping
	waiting
	done
)

// task is one thread of a process: code that blocks, run as a coroutine. It gives control away in every
// call that leaves the process, and nowhere else.
type task struct {
	w    *world
	p    *process
	name string
	// taking says that it takes an ID for a new transaction.
	taking bool

	resume func() (struct{}, bool)
	kill   func()
	yield  func(struct{}) bool

	state taskState
	since uint64 // when it became able to go on: what has waited longest goes first
	wake  time.Duration
	until func() bool // what a waiting task waits for
	req   *request    // what an asking task asks
}

// killed unwinds the stack of a task whose process has died.
type killed struct{}

// request is one call that leaves a process.
type request struct {
	name string
	// do performs it and says what the answer is, for the trace.
	do func() string
	// late performs it after its sender has given up. It is nil where that changes nothing.
	late     func() string
	question bool // it changes nothing; anything else is an order
	first    bool // it writes the first record of a transaction
	got      outcome
}

// outcome is what comes of a request.
type outcome uint8

const (
	answered outcome = iota // it happened, and the answer came
	lost                    // it happened, and no answer came
	failed                  // it did not happen
	delayed                 // it is on its way, and nobody waits for it any more
)

func (o outcome) String() string {
	return [...]string{"answered", "ANSWER LOST", "FAILED", "DELAYED, given up"}[o]
}

// spawn starts a task of a process.
func (w *world) spawn(p *process, name string, body func()) *task {
	t := &task{w: w, p: p, name: name, since: w.tick()}
	t.resume, t.kill = iter.Pull(func(yield func(struct{}) bool) {
		t.yield = yield
		defer func() {
			switch e := recover().(type) {
			case nil, killed:
			default:
				w.wrong("PANIC in %s: %v\n%s", t, e, debug.Stack())
			}
		}()
		body()
	})
	w.tasks = append(w.tasks, t)
	return t
}

func (t *task) String() string { return fmt.Sprintf("%s %s", t.p, t.name) }

// run lets the task go on until it gives control away.
func (t *task) run() {
	t.state = ready
	t.w.running = t
	if _, more := t.resume(); !more {
		t.state = done
	}
	t.w.running = nil
}

// park gives control away.
func (t *task) park(s taskState) {
	t.state = s
	t.since = t.w.tick()
	if !t.yield(struct{}{}) {
		panic(killed{})
	}
}

// ask makes a request in the name of the running task, and returns what came of it.
func (w *world) ask(name string, do, late func() string) outcome {
	return w.request(&request{name: name, do: do, late: late})
}

func (w *world) request(r *request) outcome {
	t := w.running
	t.req = r
	t.park(asking)
	t.req = nil
	return r.got
}

// read asks a question that changes nothing: it is answered, or it is not.
func (w *world) read(name string, do func() string) error {
	if got := w.request(&request{name: name, do: do, question: true}); got != answered {
		return errNoAnswer
	}
	return nil
}

// plain asks a question that is not worth a line in the trace if it is answered.
func (w *world) plain(do func() string) error {
	return w.read("", do)
}

// pass is a point at which a process can die between two things that it does.
func (w *world) pass(name string) {
	if t := w.running; t != nil {
		w.say("%s: %s", t, name)
		if name == txn.StepLostFound {
			w.counts.LostFound++
		}
		t.park(ready)
	}
}

// wait waits until something holds within the process.
func (w *world) wait(until func() bool) {
	if until() {
		return
	}
	t := w.running
	t.until = until
	t.park(waiting)
	t.until = nil
}

// sleep lets time pass for the running task.
func (w *world) sleep(d time.Duration) {
	t := w.running
	t.wake = max(t.wake, w.now+d)
	t.park(sleeping)
}

// clock is the time of the world, for code that takes one. It implements txn.Clock.
type clock struct{ w *world }

// Now implements txn.Clock.
func (c clock) Now() time.Time { return c.w.time() }

// Sleep implements txn.Clock.
func (c clock) Sleep(ctx context.Context, d time.Duration) error {
	c.w.sleep(d)
	return ctx.Err()
}

// WithTimeout implements txn.Clock.
func (c clock) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	x := &deadline{Context: ctx, w: c.w, at: c.w.now + d}
	return x, func() { x.cancelled = true }
}

// deadline is a context that ends in the time of the world. It is asked, and never waited for.
type deadline struct {
	context.Context
	w         *world
	at        time.Duration
	cancelled bool
}

// Deadline implements context.Context.
func (d *deadline) Deadline() (time.Time, bool) { return epoch.Add(d.at), true }

// Err implements context.Context.
func (d *deadline) Err() error {
	switch {
	case d.Context.Err() != nil:
		return d.Context.Err()
	case d.cancelled:
		return context.Canceled
	case d.w.now >= d.at:
		return context.DeadlineExceeded
	}
	return nil
}
