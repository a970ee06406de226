package weir

import (
	"time"

	"example.com/weir/connector"
	"example.com/weir/internal/engine"
)

// Value is one value for each key. Its methods work on the key that the context stands at.
//
//	Get() *V            // for reading and writing, or nil; good until the call of the processor returns
//	Peek() *V           // for reading only, or nil
//	Put() (*V, error)   // for writing; zero if there was none
//	Clear()
type Value[V any] = engine.Value[V]

// MapState is a map for each key. Each entry goes into checkpoints by itself, so a Put costs what it
// changes, however large the map is.
//
//	Get(k MK) (V, bool)
//	Put(k MK, v V) error
//	Delete(k MK)
//	Clear()
//	Len() int
//	All() iter.Seq2[MK, V]   // in the order in which the keys were first put; a restore keeps it
type MapState[MK comparable, V any] = engine.Map[MK, V]

// ListState is a list for each key. Append costs what one value costs, however long the list is.
//
//	Append(v V) error
//	All() iter.Seq[V]   // in the order of Append; a restore keeps it
//	Len() int
//	Clear()
type ListState[V any] = engine.List[V]

// DeadlineState is one value for each key that lives until its deadline, in event time.
//
//	Get() *V             // for reading and writing, or nil; good until the call of the processor returns
//	Peek() *V            // for reading only, or nil
//	Put() (*V, error)    // for writing; zero, and without a deadline, if there was none
//	Clear()
//	SetDeadline(at time.Time)
//	Deadline() (time.Time, bool)
//
// A value has one deadline: to set it is to move it. Once the watermark has reached it, OnTimer is called for the
// key, with the TimerDomain Deadline, in the order of time with the timers of the operator; if OnTimer sets no
// other deadline, the value is gone after that. A value without one lives for ever. A deadline costs a part of
// what a timer costs, and nothing in a checkpoint beside the value.
type DeadlineState[V any] = engine.DeadlineState[V]

// StateOption changes how a state is kept.
type StateOption = engine.StateOption

// TTL lets the value of a key, the entry of a map and the value in a list live for d of event time after
// its last write, at least 1 µs. What has expired is not seen any more, and is removed from memory and
// checkpoints, also for keys that never come again.
//
// A write is dated with the event time of its row or timer, or with the watermark where that has come
// further; an entry has expired once the watermark has reached that date plus d. Get of a Value counts as a
// write, Peek does not. A timer in event time sees what had not expired at its own time, and one in processing
// time that fires because the input has ended what had not before the end.
func TTL(d time.Duration) StateOption { return engine.TTL(d) }

// TTLFromCreation is TTL, counted from the first write of an entry.
func TTLFromCreation(d time.Duration) StateOption { return engine.TTLFromCreation(d) }

// NewValue declares a value state under a name that is unique in the operator. A nil codec
// encodes it as CBOR by field name.
func NewValue[V any, K comparable](
	o *OpenContext[K], name string, codec connector.Codec[V], options ...StateOption,
) (Value[V], error) {
	return engine.NewValue(o, name, codec, options...)
}

// NewMapState declares a map state under a name that is unique in the operator. MK is what a key of a
// stream may be (see KeyBy). A nil codec encodes the values as CBOR by field name.
func NewMapState[MK comparable, V any, K comparable](
	o *OpenContext[K], name string, codec connector.Codec[V], options ...StateOption,
) (MapState[MK, V], error) {
	return engine.NewMap[MK](o, name, codec, options...)
}

// NewListState declares a list state under a name that is unique in the operator. A nil codec encodes the
// values as CBOR by field name.
func NewListState[V any, K comparable](
	o *OpenContext[K], name string, codec connector.Codec[V], options ...StateOption,
) (ListState[V], error) {
	return engine.NewList(o, name, codec, options...)
}

// NewDeadlineState declares a state with deadlines under a name that is unique in the operator, which has at most
// one of this kind. A nil codec encodes the values as CBOR by field name.
func NewDeadlineState[V any, K comparable](
	o *OpenContext[K], name string, codec connector.Codec[V],
) (DeadlineState[V], error) {
	return engine.NewDeadlineState(o, name, codec)
}
