package engine

import (
	"fmt"
	"iter"
	"time"

	"example.com/weir/connector"
	"example.com/weir/internal/state"
)

// StateOption changes how a state is kept.
type StateOption func(*stateOptions)

type stateOptions struct {
	ttl  state.TTL
	errs error
}

// TTL lets each entry of a state live for d of event time after its last write: the value of a key, an
// entry of a map, a value in a list. What has expired is not seen any more, and is removed from memory and
// checkpoints, also for keys that never come again.
//
// A write is dated with the event time of its row or timer, or with the watermark where that has come
// further. An entry has expired once the watermark has reached that date plus d. Get of a Value counts
// as a write, since the value may be written to; Peek does not. A timer in event time sees what had not expired
// at its own time, and one in processing time that fires because the input has ended what had not before the end.
func TTL(d time.Duration) StateOption {
	return func(o *stateOptions) { o.limit(state.TTL{After: d}) }
}

// TTLFromCreation is TTL, counted from the first write of an entry.
func TTLFromCreation(d time.Duration) StateOption {
	return func(o *stateOptions) { o.limit(state.TTL{After: d, FromCreation: true}) }
}

func (o *stateOptions) limit(ttl state.TTL) {
	if ttl.After < time.Microsecond {
		o.errs = fmt.Errorf("a time to live of %s: want at least 1µs", ttl.After)
	}
	o.ttl = ttl
}

// declaring does what every kind of state begins with.
func declaring[V any, K comparable](
	o *OpenContext[K], name string, codec connector.Codec[V], options []StateOption,
) (connector.Codec[V], state.TTL, error) {
	var all stateOptions
	for _, option := range options {
		option(&all)
	}
	err := all.errs
	if codec == nil && err == nil {
		codec, err = state.NewCBOR[V]()
	}
	if err != nil {
		err = fmt.Errorf("operator %s: state %q: %w", o.base.uid, name, err)
	}
	return codec, all.ttl, err
}

func declared[K comparable](o *OpenContext[K], err error) error {
	if err != nil {
		return fmt.Errorf("operator %s: %w", o.base.uid, err)
	}
	return nil
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

type expiringAt[K comparable, V any] struct {
	table *state.Expiring[K, V]
	ctx   *Context[K]
}

func (t expiringAt[K, V]) peek() *V         { return t.table.Peek(&t.ctx.key, t.ctx.times()) }
func (t expiringAt[K, V]) get() *V          { return t.table.Get(&t.ctx.key, t.ctx.times()) }
func (t expiringAt[K, V]) put() (*V, error) { return t.table.Put(&t.ctx.key, t.ctx.times()) }
func (t expiringAt[K, V]) clear()           { t.table.Delete(&t.ctx.key) }

// NewValue declares a value state under a name that is unique in the operator. A nil codec is
// CBOR by field name.
func NewValue[V any, K comparable](
	o *OpenContext[K], name string, codec connector.Codec[V], options ...StateOption,
) (Value[V], error) {
	codec, ttl, err := declaring(o, name, codec, options)
	if err != nil {
		return Value[V]{}, err
	}
	if ttl.After > 0 {
		table, err := state.DeclareExpiring(o.base.keyed, name, codec, ttl)
		return Value[V]{at: expiringAt[K, V]{table: table, ctx: o.ctx}}, declared(o, err)
	}
	table, err := state.Declare(o.base.keyed, name, codec)
	return Value[V]{at: tableAt[K, V]{table: table, ctx: o.ctx}}, declared(o, err)
}

// DeadlineState is a Value that lives until its deadline, in event time. What Put adds has none yet, and lives for
// ever if it is given none; Clear removes the deadline with the value.
type DeadlineState[V any] struct {
	Value[V]
	deadlines deadlinesAt
}

// deadlinesAt are the deadlines of a state; its methods work on the key that the context stands at.
type deadlinesAt interface {
	deadline() (int64, bool)
	setDeadline(at int64)
}

// Deadline returns the deadline of the value; false if it has none.
func (d DeadlineState[V]) Deadline() (time.Time, bool) {
	at, ok := d.deadlines.deadline()
	if !ok {
		return time.Time{}, false
	}
	return time.UnixMicro(at).UTC(), true
}

// SetDeadline sets the deadline of the value, in the place of the one it had. Once the watermark has reached it,
// OnTimer is called for the key, with the TimerDomain Deadline; if OnTimer sets no other one, the value is
// gone after that. A deadline that event time has passed is one microsecond from where it stands. Without a
// value it is an error that fails the job.
func (d DeadlineState[V]) SetDeadline(at time.Time) { d.deadlines.setDeadline(at.UnixMicro()) }

type limitedAt[K comparable, V any] struct {
	table *state.Deadlines[K, V]
	ctx   *Context[K]
}

func (t limitedAt[K, V]) peek() *V                { return t.table.Peek(&t.ctx.key) }
func (t limitedAt[K, V]) get() *V                 { return t.table.Get(&t.ctx.key) }
func (t limitedAt[K, V]) put() (*V, error)        { return t.table.Put(&t.ctx.key) }
func (t limitedAt[K, V]) clear()                  { t.table.Delete(&t.ctx.key) }
func (t limitedAt[K, V]) deadline() (int64, bool) { return t.table.Deadline(&t.ctx.key) }

func (t limitedAt[K, V]) setDeadline(at int64) {
	if now := t.ctx.times().Now; at <= now {
		at = min(now, endTime-1) + 1
	}
	if err := t.table.SetDeadline(&t.ctx.key, at); err != nil && t.ctx.err == nil {
		t.ctx.err = err
	}
}

// NewDeadlineState declares a state with deadlines under a name that is unique in the operator, which has at
// most one of this kind. A nil codec encodes the values as CBOR by field name.
func NewDeadlineState[V any, K comparable](
	o *OpenContext[K], name string, codec connector.Codec[V],
) (DeadlineState[V], error) {
	codec, _, err := declaring(o, name, codec, nil)
	if err != nil {
		return DeadlineState[V]{}, err
	}
	table, err := state.DeclareDeadlines(o.base.keyed, name, codec)
	at := limitedAt[K, V]{table: table, ctx: o.ctx}
	return DeadlineState[V]{Value: Value[V]{at: at}, deadlines: at}, declared(o, err)
}

// Map is a map for each key of the stream. Its methods work on the key that the context stands at. Each
// entry goes into checkpoints by itself: a change costs what changes, however large the map is.
type Map[MK comparable, V any] struct{ at mapAt[MK, V] }

type mapAt[MK comparable, V any] interface {
	get(k MK) (V, bool)
	put(k MK, v V) error
	delete(k MK)
	clear()
	len() int
	all() iter.Seq2[MK, V]
}

// Get returns the entry, and whether it is there.
func (m Map[MK, V]) Get(k MK) (v V, ok bool) { return m.at.get(k) }

// Put sets an entry.
func (m Map[MK, V]) Put(k MK, v V) error { return m.at.put(k, v) }

// Delete removes an entry.
func (m Map[MK, V]) Delete(k MK) { m.at.delete(k) }

// Clear removes every entry.
func (m Map[MK, V]) Clear() { m.at.clear() }

// Len returns the number of entries. With a time to live it looks at each.
func (m Map[MK, V]) Len() int { return m.at.len() }

// All lists the entries in the order in which their keys were first put, which a restore keeps. A key that
// was deleted and put again comes last. Entries may be put and deleted meanwhile. What a value points
// to is not to be changed.
func (m Map[MK, V]) All() iter.Seq2[MK, V] { return m.at.all() }

type mapsAt[K, MK comparable, V any] struct {
	maps *state.Maps[K, MK, V]
	ctx  *Context[K]
}

func (m mapsAt[K, MK, V]) get(k MK) (V, bool)    { return m.maps.Get(&m.ctx.key, k, m.ctx.times()) }
func (m mapsAt[K, MK, V]) put(k MK, v V) error   { return m.maps.Put(&m.ctx.key, k, v, m.ctx.times()) }
func (m mapsAt[K, MK, V]) delete(k MK)           { m.maps.Delete(&m.ctx.key, k) }
func (m mapsAt[K, MK, V]) clear()                { m.maps.Clear(&m.ctx.key) }
func (m mapsAt[K, MK, V]) len() int              { return m.maps.Len(&m.ctx.key, m.ctx.times()) }
func (m mapsAt[K, MK, V]) all() iter.Seq2[MK, V] { return m.maps.All(&m.ctx.key, m.ctx.times()) }

// NewMap declares a map state under a name that is unique in the operator. MK is what a key may be
// (see KeyBy). A nil codec encodes the values as CBOR by field name.
func NewMap[MK comparable, V any, K comparable](
	o *OpenContext[K], name string, codec connector.Codec[V], options ...StateOption,
) (Map[MK, V], error) {
	codec, ttl, err := declaring(o, name, codec, options)
	if err != nil {
		return Map[MK, V]{}, err
	}
	names, err := state.NewKeyCodec[MK]()
	if err != nil {
		return Map[MK, V]{}, fmt.Errorf("operator %s: state %q: %w", o.base.uid, name, err)
	}
	maps, err := state.DeclareMap(o.base.keyed, name, names, codec, ttl)
	return Map[MK, V]{at: mapsAt[K, MK, V]{maps: maps, ctx: o.ctx}}, declared(o, err)
}

// List is a list for each key. Its methods work on the key that the context stands at.
type List[V any] struct{ at listAt[V] }

type listAt[V any] interface {
	append(v V) error
	all() iter.Seq[V]
	len() int
	clear()
}

// Append adds a value at the end. It costs what one value costs, also in the next checkpoint, however
// long the list is. What the value points to is not to be changed any more.
func (l List[V]) Append(v V) error { return l.at.append(v) }

// All lists the values in the order in which they were appended, which a restore keeps.
func (l List[V]) All() iter.Seq[V] { return l.at.all() }

// Len returns the number of values. With a time to live it looks at each.
func (l List[V]) Len() int { return l.at.len() }

// Clear removes every value.
func (l List[V]) Clear() { l.at.clear() }

type listsAt[K comparable, V any] struct {
	lists *state.Lists[K, V]
	ctx   *Context[K]
}

func (l listsAt[K, V]) append(v V) error { return l.lists.Append(&l.ctx.key, v, l.ctx.times()) }
func (l listsAt[K, V]) all() iter.Seq[V] { return l.lists.All(&l.ctx.key, l.ctx.times()) }
func (l listsAt[K, V]) len() int         { return l.lists.Len(&l.ctx.key, l.ctx.times()) }
func (l listsAt[K, V]) clear()           { l.lists.Clear(&l.ctx.key) }

// NewList declares a list state under a name that is unique in the operator. A nil codec encodes the
// values as CBOR by field name.
func NewList[V any, K comparable](
	o *OpenContext[K], name string, codec connector.Codec[V], options ...StateOption,
) (List[V], error) {
	codec, ttl, err := declaring(o, name, codec, options)
	if err != nil {
		return List[V]{}, err
	}
	lists, err := state.DeclareList(o.base.keyed, name, codec, ttl)
	return List[V]{at: listsAt[K, V]{lists: lists, ctx: o.ctx}}, declared(o, err)
}
