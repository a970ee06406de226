package weir

import (
	"time"

	"example.com/weir/connector"
	"example.com/weir/internal/engine"
)

// KeyedStream is a stream distributed by key: all rows of a key reach the same subtask, in the
// order of their split.
type KeyedStream[K comparable, T any] struct{ k engine.KeyedStream[K, T] }

// KeyBy keys a stream. K is a string, an integer, a boolean, a struct or array of these, or brings its own
// canonical encoding (AppendKey([]byte) []byte and, on the pointer, DecodeKey([]byte) error).
func KeyBy[K comparable, T any](s Stream[T], key func(*T) K) KeyedStream[K, T] {
	return KeyedStream[K, T]{engine.KeyBy(s.s, key)}
}

// Processor is a keyed operator with state and timers. A row that it is handed is good until the call
// returns: its values may be kept, the pointer may not, for the memory of a batch is used again.
//
//	Open(o *OpenContext[K]) error                              // declares state, before the first row
//	Process(ctx *Context[K], row *T, out *Out[R]) error        // handles a row
//	OnTimer(ctx *Context[K], out *Out[R]) error                // handles a timer that is due
type Processor[K comparable, T, R any] = engine.Processor[K, T, R]

// Context is where a processor stands.
//
//	Key() K
//	EventTime() time.Time          // of the row or timer
//	Watermark() time.Time          // how far event time has come here
//	Now() time.Time                // processing time; state must not depend on it
//	SetTimer(at time.Time)         // OnTimer is called once the watermark has reached at
//	DeleteTimer(at time.Time)
type Context[K comparable] = engine.Context[K]

// OpenContext is where a processor declares its state.
type OpenContext[K comparable] = engine.OpenContext[K]

// Value is one value for each key. Its methods work on the key that the context stands at.
//
//	Get() *V            // for reading and writing, or nil; good until the call of the processor returns
//	Peek() *V           // for reading only, or nil
//	Put() (*V, error)   // for writing; zero if there was none
//	Clear()
type Value[V any] = engine.Value[V]

// MapState is a map for each key.
//
//	Get(k MK) (V, bool)
//	Put(k MK, v V) error
//	Delete(k MK)
//	Len() int
//	Entries() map[MK]V   // for reading; what a value points to is not to be changed
type MapState[MK comparable, V any] = engine.Map[MK, V]

// NewValue declares a value state under a name that is unique in the operator. A nil codec
// encodes it as CBOR by field name.
func NewValue[V any, K comparable](
	o *OpenContext[K], name string, codec connector.Codec[V],
) (Value[V], error) {
	return engine.NewValue[V](o, name, codec)
}

// NewMapState declares a map state under a name that is unique in the operator.
func NewMapState[MK comparable, V any, K comparable](
	o *OpenContext[K], name string,
) (MapState[MK, V], error) {
	return engine.NewMap[MK, V](o, name)
}

// Process adds a keyed operator. newProcessor is called once for each subtask.
func Process[K comparable, T, R any](
	k KeyedStream[K, T], uid string, newProcessor func() Processor[K, T, R],
) Stream[R] {
	return Stream[R]{engine.Process(k.k, uid, newProcessor)}
}

// WindowedStream is a keyed stream cut into windows.
type WindowedStream[K comparable, T any] struct {
	k   engine.KeyedStream[K, T]
	cfg engine.WindowConfig[T]
}

// WindowOption configures Window.
type WindowOption struct {
	lateness time.Duration
	late     any // *SideOutput[T] of the stream's T
}

// Tumbling is the size of windows that do not overlap, aligned to 1970-01-01T00:00:00Z.
type Tumbling time.Duration

// Window cuts a keyed stream into tumbling windows [start, end). A window fires once the watermark
// has reached its end.
func Window[K comparable, T any](
	k KeyedStream[K, T], size Tumbling, options ...WindowOption,
) WindowedStream[K, T] {
	w := WindowedStream[K, T]{k: k.k, cfg: engine.WindowConfig[T]{Size: time.Duration(size)}}
	for _, o := range options {
		w.cfg.AllowedLateness = max(w.cfg.AllowedLateness, o.lateness)
		if o.late == nil {
			continue
		}
		late, ok := o.late.(*SideOutput[T])
		if !ok {
			k.k.Plan.Reject("window behind %s: LateTo is given a %T, and the late records are %T",
				k.k.From.UID, o.late, *new(T))
		}
		w.cfg.Late = late
	}
	return w
}

// AllowedLateness keeps a window for d after its end: each record that still comes fires it
// again. Default 0.
func AllowedLateness(d time.Duration) WindowOption { return WindowOption{lateness: d} }

// LateTo sends records that come too late to a side output; without it they are only counted.
func LateTo[T any](late *SideOutput[T]) WindowOption { return WindowOption{late: late} }

// Aggregator turns the rows of a window into a result. Add's row is good until the call returns, as a
// Processor's.
//
//	Add(acc *A, row *T) error                                  // acc is zero at first
//	Fire(w *WindowContext[K], acc *A, out *Out[R]) error       // emits the result, or nothing
//
// One aggregator serves all subtasks at once, and keeps nothing itself. Accumulators are encoded as
// CBOR by field name, unless the aggregator is an AccumulatorCodec.
type Aggregator[K comparable, T, A, R any] = engine.Aggregator[K, T, A, R]

// AccumulatorCodec is implemented by aggregators whose accumulators have an encoding of their own:
// AccumulatorCodec() connector.Codec[A].
type AccumulatorCodec[A any] = engine.AccumulatorCodec[A]

// WindowContext is the window that fires: Key, Start and End (UTC, half-open), Firing (counted from 1)
// and Revision (1 + the number of earlier firings that emitted a result).
type WindowContext[K comparable] = engine.WindowContext[K]

// Aggregate adds a windowed operator.
func Aggregate[K comparable, T, A, R any](
	w WindowedStream[K, T], uid string, agg Aggregator[K, T, A, R],
) Stream[R] {
	return Stream[R]{engine.Aggregate(w.k, uid, w.cfg, agg)}
}
