package weir

import (
	"time"

	"example.com/weir/internal/engine"
)

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
