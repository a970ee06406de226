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

// Windows says which windows a record lies in: Tumbling, Sliding or Session.
type Windows struct{ size, slide, gap time.Duration }

// Tumbling is windows of one size that do not overlap, aligned to 1970-01-01T00:00:00Z.
func Tumbling(size time.Duration) Windows { return Windows{size: size, slide: size} }

// Sliding is windows of one size, one of which begins at each multiple of slide since
// 1970-01-01T00:00:00Z. A record lies in size/slide of them; slide is at most size.
func Sliding(size, slide time.Duration) Windows { return Windows{size: size, slide: slide} }

// Session is windows that begin with a record, and end gap behind the last record that came less than gap
// behind another one. The aggregator is a Merger, for a record can make one session of two.
func Session(gap time.Duration) Windows { return Windows{gap: gap} }

// Window cuts a keyed stream into windows [start, end). A window fires once the watermark has reached its
// end.
func Window[K comparable, T any](
	k KeyedStream[K, T], windows Windows, options ...WindowOption,
) WindowedStream[K, T] {
	w := WindowedStream[K, T]{k: k.k, cfg: engine.WindowConfig[T]{
		Size: windows.size, Slide: windows.slide, Gap: windows.gap,
	}}
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

// Merger is implemented by aggregators of sessions:
//
//	Merge(into, from *A) error    // adds what another accumulator holds; from is not used again
type Merger[A any] = engine.Merger[A]

// Retractor may be implemented by aggregators of sessions. A session that has emitted a result, and becomes
// part of another one with other bounds, is given to
//
//	Retract(w *WindowContext[K], out *Out[R]) error
//
// with the bounds it had and the revision it emitted last, so that what was emitted can be taken back.
// Without it nothing takes it back, and a consumer that keys results by the beginning of a session keeps
// one that is no more. So sessions with an allowed lateness and without it are refused in front of a sink that is
// connector.Idempotent.
type Retractor[K comparable, R any] = engine.Retractor[K, R]

// WindowContext is the window that fires: Key, Start and End (UTC, half-open), Firing (counted from 1)
// and Revision (1 + the number of earlier firings that emitted a result).
type WindowContext[K comparable] = engine.WindowContext[K]

// Aggregate adds a windowed operator.
func Aggregate[K comparable, T, A, R any](
	w WindowedStream[K, T], uid string, agg Aggregator[K, T, A, R],
) Stream[R] {
	return Stream[R]{engine.Aggregate(w.k, uid, w.cfg, agg)}
}
