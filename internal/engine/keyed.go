package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/weir/connector"
	"example.com/weir/internal/keygroup"
	"example.com/weir/internal/state"
)

// Processor is a user's keyed operator. One instance serves one subtask, and one goroutine.
type Processor[K comparable, T, R any] interface {
	// Open declares the state, before the first row.
	Open(o *OpenContext[K]) error
	// Process handles a row. ctx stands at the row's key and event time.
	Process(ctx *Context[K], row *T, out *Out[R]) error
	// OnTimer handles a timer that is due. ctx stands at the timer's key and time.
	OnTimer(ctx *Context[K], out *Out[R]) error
}

// Context is where a keyed operator stands: at a key, an event time and a watermark.
type Context[K comparable] struct {
	key    state.Key[K]
	time   int64
	domain TimerDomain // of the timer at work
	timer  int64       // its time
	err    error
	base   *keyedBase[K]
	sides  sides
}

// TimerDomain says by which clock a timer fires.
type TimerDomain uint8

const (
	// NoTimer: a row is at work.
	NoTimer TimerDomain = iota
	// EventTimer fires when the watermark reaches it.
	EventTimer
	// ProcessingTimer fires when the wall clock reaches it.
	ProcessingTimer
	// Deadline is that of the key's entry in a state with deadlines; the watermark has reached it.
	Deadline
)

// Key returns the key of the row or timer at work.
func (c *Context[K]) Key() K { return c.key.Value() }

// KeyBytes returns the encoding of the key of the row or timer at work; behind KeyByBytes, the key itself. It is good
// until the call returns, and not to be changed.
func (c *Context[K]) KeyBytes() []byte { return c.key.Encoded }

// EventTime returns the event time of the row or timer at work (UTC, microseconds); for a timer in
// processing time, the watermark, or 1970 where nothing is known of event time.
func (c *Context[K]) EventTime() time.Time { return time.UnixMicro(c.time).UTC() }

// Watermark returns how far event time has come at this subtask. Before anything is known it is
// earlier than every date, and after the end of the input later than every date.
func (c *Context[K]) Watermark() time.Time {
	return time.UnixMicro(c.base.watermarkOf(c.key.Group)).UTC()
}

// Now returns the processing time. State must not depend on it: a replay reads another one.
func (c *Context[K]) Now() time.Time { return c.base.task.now() }

// SetTimer calls OnTimer for the current key once the watermark has reached at. Setting the same
// time twice is setting it once; a time that has passed fires at the next watermark.
func (c *Context[K]) SetTimer(at time.Time) {
	if err := c.base.keyed.Timers.Set(&c.key, at.UnixMicro()); err != nil && c.err == nil {
		c.err = err
	}
}

// DeleteTimer undoes SetTimer.
func (c *Context[K]) DeleteTimer(at time.Time) {
	if err := c.base.keyed.Timers.Delete(&c.key, at.UnixMicro()); err != nil && c.err == nil {
		c.err = err
	}
}

// SetProcessingTimer calls OnTimer for the current key once the wall clock has reached at, also when no
// row comes. Setting the same time twice is setting it once. Timers are in the checkpoint: one that comes
// due while the job is down fires once, soon after the restart. At the end of the input every pending
// one fires, whatever its time, and what fires then sets none any more.
func (c *Context[K]) SetProcessingTimer(at time.Time) {
	if c.base.ended {
		return
	}
	if err := c.base.keyed.Clock.Set(&c.key, at.UnixMicro()); err != nil && c.err == nil {
		c.err = err
	}
}

// DeleteProcessingTimer undoes SetProcessingTimer.
func (c *Context[K]) DeleteProcessingTimer(at time.Time) {
	if err := c.base.keyed.Clock.Delete(&c.key, at.UnixMicro()); err != nil && c.err == nil {
		c.err = err
	}
}

// TimerDomain says by which clock the timer at work has fired.
func (c *Context[K]) TimerDomain() TimerDomain { return c.domain }

// TimerTime returns the time that the timer at work was set to, in its domain; zero for a row.
func (c *Context[K]) TimerTime() time.Time {
	if c.domain == NoTimer {
		return time.Time{}
	}
	return time.UnixMicro(c.timer).UTC()
}

// times are what states with a time to live are told. A timer sees what was there at its own time,
// however far event time went on in one step; one in processing time that fires because the input has ended
// sees what was there before the end. What it writes before anything is known of event time has no date yet.
func (c *Context[K]) times() state.Times {
	now := c.base.watermarkOf(c.key.Group)
	switch {
	case c.domain == EventTimer, c.domain == Deadline:
		now = max(c.base.beforeOf(c.key.Group), c.timer)
	case c.domain == ProcessingTimer && c.base.ended:
		now = c.base.beforeOf(c.key.Group)
	}
	if c.domain == ProcessingTimer {
		return state.Times{Now: now, Write: now}
	}
	return state.Times{Now: now, Write: max(now, c.time)}
}

func (c *Context[K]) emitter() *sides { return &c.sides }

// EmitAt passes v on at an event time of its own.
func (o *Out[T]) EmitAt(v T, at time.Time) { o.emitAt(v, at.UnixMicro()) }

// keyedBase is what keyed operators share: state by key group, the watermark, and their part of
// a snapshot.
type keyedBase[K comparable] struct {
	task      *task
	uid       string
	stats     *operatorStats
	keyed     *state.Keyed[K]
	watermark int64
	// stand sets the watermark that goes with what the operator emits, fire handles a timer:
	// the operator's own, kept here so that a row needs no closure.
	stand func(mark int64)
	fire  func(k *state.Key[K], at int64) error
	due   func(k *state.Key[K], at int64) error // fireDue, made once
	// end handles a deadline; nil: the operator has no state with deadlines. ending is fireEnd, made once.
	end, ending func(k *state.Key[K], at int64) error
	// clock handles a timer in processing time; nil: the operator has none.
	clock  func(k *state.Key[K], at, eventTime int64) error
	groups []uint16 // the key groups of the batch at work
	// path is how event time is about to move, where that is known (pathSignal), and before where
	// it stood before the last step.
	path   []int64
	before int64
	ended  bool // event time has come to its end
	// floors are the watermarks that the snapshot holds for each key group: after a rescale
	// they differ, and event time must go back for none.
	floors []int64
}

func newKeyedBase[K comparable](t *task, uid string, codec state.KeyCodec[K]) *keyedBase[K] {
	first, end := keygroup.Range(t.subtask, t.gen.plan.maxParallelism, t.parallelism)
	b := &keyedBase[K]{
		task: t, uid: uid, stats: t.stats.operator(uid), keyed: state.NewKeyed(first, end, codec, t.gen.cfg.Interval > 0),
		watermark: noTime, floors: make([]int64, end-first),
	}
	for i := range b.floors {
		b.floors[i] = noTime
	}
	t.oldest, t.giveBack = b.keyed.Oldest, b.keyed.GiveBack
	return b
}

// restore reads the operator's part of the checkpoint, once its states are declared: of each
// subtask of the generation that wrote it, the chain of cuts.
func (b *keyedBase[K]) restore() error {
	b.keyed.Dropped = func(name string) bool { return b.task.gen.cfg.mayDrop(b.uid, name) }
	for _, chain := range b.task.gen.state.chains[b.uid] {
		err := b.keyed.Restore(chain, func(g int, at int64) { b.floors[g-b.keyed.First] = at })
		if err != nil {
			return connector.Stop(fmt.Errorf("operator %s: restore: %w", b.uid, incompatible(err)))
		}
	}
	for i := range b.floors {
		var err error
		if b.floors[i], err = b.task.gen.reopen(b.floors[i]); err != nil {
			return fmt.Errorf("operator %s: %w", b.uid, err)
		}
	}
	// Event time goes on where it stood: a timer that was set when its time had passed fires at the
	// next watermark after the restore, as it would have without one.
	b.watermark = slices.Min(b.floors)
	return nil
}

// prefetch notes the key groups of a batch and reads what the look-ups of its keys will read.
func (b *keyedBase[K]) prefetch(hashes []uint64) {
	b.groups = b.groups[:0]
	for _, h := range hashes {
		b.groups = append(b.groups, uint16(keygroup.Of(h, b.task.gen.plan.maxParallelism)))
	}
	b.keyed.Prefetch(b.groups, hashes)
}

// advance moves the operator's watermark and fires the timers that are due.
func (b *keyedBase[K]) advance(to int64) error {
	if to <= b.watermark {
		return nil
	}
	b.before = b.watermark
	b.watermark = to
	b.keyed.Timers.Advance(to)
	err := b.fireUpTo(to)
	if err == nil && to == endTime {
		if err = b.endClock(); err == nil {
			err = b.fireUpTo(to) // what those have set
		}
	}
	if err == nil {
		err = b.keyed.Expire(to)
	}
	for len(b.path) > 0 && b.path[0] <= to {
		b.path = b.path[1:]
	}
	return err
}

// fireUpTo fires timers and deadlines in the order of their times; for one time the timers come first.
func (b *keyedBase[K]) fireUpTo(to int64) error {
	if b.due == nil {
		b.due, b.ending = b.fireDue, b.fireEnd
	}
	for {
		at, due := b.keyed.Due(to)
		if !due {
			at = to
		}
		// Of one time only: what fires may set a deadline that comes before the next timer.
		fired, err := b.keyed.Timers.FireNext(at, b.due)
		if err == nil && !fired && due {
			err = b.keyed.FireDeadlines(at, b.ending)
		}
		if err != nil || !fired && !due {
			return err
		}
	}
}

// observe does what a signal asks of a keyed operator, before it goes on. done passes on what timers have
// emitted.
func (b *keyedBase[K]) observe(s signal, done func() error) error {
	b.task.operator = b.uid
	switch s.kind {
	case watermarkSignal:
		if err := b.advance(s.time); err != nil {
			return err
		}
		return done()
	case barrierSignal:
		return b.snapshot()
	case pathSignal:
		b.follow(s.path)
	case idleSignal, flushSignal: // nothing of its own
	}
	return nil
}

// fireDue fires a timer.
func (b *keyedBase[K]) fireDue(k *state.Key[K], at int64) error {
	b.standBefore(at)
	return b.fire(k, at)
}

// fireEnd fires a deadline.
func (b *keyedBase[K]) fireEnd(k *state.Key[K], at int64) error {
	b.standBefore(at)
	return b.end(k, at)
}

// standBefore stands where event time had come before it reached a timer. What that emits was due before event
// time moved past it: it goes out at the watermark of that moment, which is the last one on the path that had
// not reached the timer.
func (b *keyedBase[K]) standBefore(at int64) {
	mark := b.before
	if i, _ := slices.BinarySearch(b.path, at); i > 0 {
		mark = max(mark, b.path[i-1])
	}
	b.stand(mark)
}

// follow notes how event time is about to move.
func (b *keyedBase[K]) follow(path []int64) {
	last := b.watermark
	if n := len(b.path); n > 0 {
		last = b.path[n-1]
	}
	for _, at := range path {
		if at > last {
			b.path = append(b.path, at)
			last = at
		}
	}
}

func (b *keyedBase[K]) watermarkOf(group int) int64 {
	return max(b.watermark, b.floors[group-b.keyed.First])
}

// beforeOf is watermarkOf before the last step.
func (b *keyedBase[K]) beforeOf(group int) int64 {
	return max(b.before, b.floors[group-b.keyed.First])
}

// clockDue returns a time (microseconds) before which no timer in processing time is due.
func (b *keyedBase[K]) clockDue() int64 { return b.keyed.Clock.Next() }

// fireClock fires the timers in processing time that are due.
func (b *keyedBase[K]) fireClock(now int64) error {
	b.task.operator = b.uid
	if !b.keyed.Clock.Advance(now) {
		return nil
	}
	b.stand(b.watermark)
	return b.keyed.Clock.Fire(now, func(k *state.Key[K], at int64) error {
		return b.clock(k, at, known(b.watermarkOf(k.Group)))
	})
}

// endClock fires every pending timer in processing time: what waits for one would be lost.
func (b *keyedBase[K]) endClock() error {
	b.ended = true
	if b.clock == nil || b.clockDue() == endTime {
		return nil
	}
	b.stand(b.before)
	return b.keyed.Clock.Fire(endTime-1, func(k *state.Key[K], at int64) error {
		return b.clock(k, at, known(b.beforeOf(k.Group)))
	})
}

// known is an event time that rows can have.
func known(at int64) int64 {
	if at == noTime {
		return 0
	}
	return at
}

// incompatible marks what a change of the job makes unreadable.
func incompatible(err error) error {
	var changed *state.ChangedError
	var undeclared *state.UndeclaredError
	if errors.As(err, &changed) || errors.As(err, &undeclared) {
		return fmt.Errorf("%w: %w", ErrIncompatible, err)
	}
	return err
}

// snapshot writes the operator's section.
func (b *keyedBase[K]) snapshot() error {
	head, records, err := b.keyed.Cut(b.watermarkOf)
	if err != nil {
		return fmt.Errorf("snapshot of %s: %w", b.uid, err)
	}
	b.stats.keys.Store(int64(b.keyed.Len()))
	b.stats.timers.Store(int64(b.keyed.Pending()))
	return b.task.lastSection(b.uid, head, records)
}

// OpenContext is where a processor declares its state.
type OpenContext[K comparable] struct {
	// Subtask and Parallelism say which part of the keys the instance serves.
	Subtask, Parallelism int

	base *keyedBase[K]
	ctx  *Context[K]
}
