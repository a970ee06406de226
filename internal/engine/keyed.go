package engine

import (
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
	key   state.Key[K]
	time  int64
	err   error
	base  *keyedBase[K]
	sides sides
}

// Key returns the key of the row or timer at work.
func (c *Context[K]) Key() K { return c.key.Value }

// EventTime returns the event time of the row or timer at work (UTC, microseconds).
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
	// path is how event time is about to move, where that is known (pathSignal), and before where
	// it stood before the last step.
	path   []int64
	before int64
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
	t.oldest = b.keyed.Oldest
	return b
}

// restore reads the operator's part of the checkpoint, once its states are declared: of each
// subtask of the generation that wrote it, the chain of cuts.
func (b *keyedBase[K]) restore() error {
	for _, chain := range b.task.gen.state.chains[b.uid] {
		err := b.keyed.Restore(chain, func(g int, at int64) { b.floors[g-b.keyed.First] = at })
		if err != nil {
			return connector.Stop(fmt.Errorf("operator %s: restore: %w", b.uid, err))
		}
	}
	// Event time goes on where it stood: a timer that was set when its time had passed fires at the
	// next watermark after the restore, as it would have without one.
	b.watermark = slices.Min(b.floors)
	return nil
}

// advance moves the operator's watermark and fires the timers that are due.
func (b *keyedBase[K]) advance(to int64) error {
	if to <= b.watermark {
		return nil
	}
	b.before = b.watermark
	b.watermark = to
	var err error
	if b.keyed.Timers.Advance(to) {
		if b.due == nil {
			b.due = b.fireDue
		}
		err = b.keyed.Timers.Fire(to, b.due)
	}
	for len(b.path) > 0 && b.path[0] <= to {
		b.path = b.path[1:]
	}
	return err
}

// observe does what a signal asks of a keyed operator. done passes on what timers have emitted. It
// reports whether the signal goes no further: the operator's own rows carry their marks on.
func (b *keyedBase[K]) observe(s signal, done func() error) (taken bool, err error) {
	b.task.operator = b.uid
	switch s.kind {
	case watermarkSignal:
		if err := b.advance(s.time); err != nil {
			return false, err
		}
		return false, done()
	case barrierSignal:
		return false, b.snapshot()
	case pathSignal:
		b.follow(s.path)
		return true, nil
	case idleSignal, flushSignal: // nothing of its own
	}
	return false, nil
}

// fireDue fires a timer. What it emits was due before event time moved past it: it goes out at the
// watermark of that moment, which is the last one on the path that had not reached the timer.
func (b *keyedBase[K]) fireDue(k *state.Key[K], at int64) error {
	mark := b.before
	if i, _ := slices.BinarySearch(b.path, at); i > 0 {
		mark = max(mark, b.path[i-1])
	}
	b.stand(mark)
	return b.fire(k, at)
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

// snapshot writes the operator's section.
func (b *keyedBase[K]) snapshot() error {
	head, records, err := b.keyed.Cut(b.task.takeSpare(), b.watermarkOf)
	if err != nil {
		return fmt.Errorf("snapshot of %s: %w", b.uid, err)
	}
	b.stats.keys.Store(int64(b.keyed.Len()))
	b.stats.timers.Store(int64(b.keyed.Timers.Len()))
	return b.task.lastSection(b.uid, head, records)
}

// OpenContext is where a processor declares its state.
type OpenContext[K comparable] struct {
	// Subtask and Parallelism say which part of the keys the instance serves.
	Subtask, Parallelism int

	base *keyedBase[K]
	ctx  *Context[K]
}

// Value is one value for each key. Its methods work on the key that the context stands at.
type Value[V any] struct{ at valueAt[V] }

type valueAt[V any] interface {
	peek() *V
	get() *V
	put() (*V, error)
	clear()
}

// Peek returns the value, for reading only, or nil if there is none. What is written to it may be
// missing from the next checkpoint.
func (v Value[V]) Peek() *V { return v.at.peek() }

// Get returns the value, or nil if there is none. The pointer is good, for reading and writing,
// until the next Put or Clear or the end of the call.
func (v Value[V]) Get() *V { return v.at.get() }

// Put returns the value, which is zero if there was none, to be written to.
func (v Value[V]) Put() (*V, error) { return v.at.put() }

// Clear removes the value.
func (v Value[V]) Clear() { v.at.clear() }

type tableAt[K comparable, V any] struct {
	table *state.Table[K, V]
	ctx   *Context[K]
}

func (t tableAt[K, V]) peek() *V         { return t.table.Peek(&t.ctx.key) }
func (t tableAt[K, V]) get() *V          { return t.table.Get(&t.ctx.key) }
func (t tableAt[K, V]) put() (*V, error) { return t.table.Put(&t.ctx.key) }
func (t tableAt[K, V]) clear()           { t.table.Delete(&t.ctx.key) }

// NewValue declares a value state under a name that is unique in the operator. A nil codec is
// CBOR by field name.
func NewValue[V any, K comparable](
	o *OpenContext[K], name string, codec connector.Codec[V],
) (Value[V], error) {
	if codec == nil {
		var err error
		if codec, err = state.NewCBOR[V](); err != nil {
			return Value[V]{}, err
		}
	}
	table, err := state.Declare(o.base.keyed, name, codec)
	if err != nil {
		return Value[V]{}, fmt.Errorf("operator %s: %w", o.base.uid, err)
	}
	return Value[V]{at: tableAt[K, V]{table: table, ctx: o.ctx}}, nil
}

// Map is a map for each key.
type Map[MK comparable, V any] struct{ value Value[map[MK]V] }

// NewMap declares a map state under a name that is unique in the operator. It is encoded as
// CBOR.
func NewMap[MK comparable, V any, K comparable](
	o *OpenContext[K], name string,
) (Map[MK, V], error) {
	v, err := NewValue[map[MK]V](o, name, nil)
	return Map[MK, V]{value: v}, err
}

// Get returns the entry, and whether it is there.
func (m Map[MK, V]) Get(k MK) (v V, ok bool) {
	if all := m.value.Peek(); all != nil {
		v, ok = (*all)[k]
	}
	return v, ok
}

// Put sets an entry.
func (m Map[MK, V]) Put(k MK, v V) error {
	all, err := m.value.Put()
	if err != nil {
		return err
	}
	if *all == nil {
		*all = map[MK]V{}
	}
	(*all)[k] = v
	return nil
}

// Delete removes an entry.
func (m Map[MK, V]) Delete(k MK) {
	if all := m.value.Get(); all != nil {
		delete(*all, k)
		if len(*all) == 0 {
			m.value.Clear()
		}
	}
}

// Len returns the number of entries.
func (m Map[MK, V]) Len() int {
	if all := m.value.Peek(); all != nil {
		return len(*all)
	}
	return 0
}

// Entries returns the map itself, for reading; its order is Go's, which differs from run to run.
func (m Map[MK, V]) Entries() map[MK]V {
	if all := m.value.Peek(); all != nil {
		return *all
	}
	return nil
}
