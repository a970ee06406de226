package weir

import "example.com/weir/internal/engine"

// KeyedStream is a stream distributed by key: all rows of a key reach the same subtask, in the
// order of their split.
type KeyedStream[K comparable, T any] struct{ k engine.KeyedStream[K, T] }

// KeyBy keys a stream. K is a string, an integer, a boolean, a struct or array of these, or brings its own
// canonical encoding (AppendKey([]byte) []byte and, on the pointer, DecodeKey([]byte) error).
func KeyBy[K comparable, T any](s Stream[T], key func(*T) K) KeyedStream[K, T] {
	return KeyedStream[K, T]{engine.KeyBy(s.s, key)}
}

// KeyByBytes keys a stream by bytes: key appends those of a row to dst, and keeps nothing of either. Rows whose bytes
// are equal have one key, and others do not. It costs less than KeyBy with a struct, for no key is made of a row, or
// checked. An operator finds the bytes in KeyBytes of its context; Key is a string of them, made anew each time.
func KeyByBytes[T any](s Stream[T], key func(dst []byte, row *T) []byte) KeyedStream[string, T] {
	return KeyedStream[string, T]{engine.KeyByBytes(s.s, key)}
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
//	KeyBytes() []byte              // the key's encoding, good until the call returns
//	EventTime() time.Time          // of the row or timer
//	Watermark() time.Time          // how far event time has come here
//	Now() time.Time                // processing time; state must not depend on it
//	SetTimer(at time.Time)         // OnTimer is called once the watermark has reached at
//	DeleteTimer(at time.Time)
//	SetProcessingTimer(at time.Time)   // OnTimer is called once the wall clock has reached at, or at the end of input
//	DeleteProcessingTimer(at time.Time)
//	TimerDomain() TimerDomain      // in OnTimer: by which clock the timer has fired
//	TimerTime() time.Time          // in OnTimer: the time it was set to
type Context[K comparable] = engine.Context[K]

// TimerDomain says by which clock a timer fires.
type TimerDomain = engine.TimerDomain

// The domains.
const (
	NoTimer         = engine.NoTimer // a row is at work
	EventTimer      = engine.EventTimer
	ProcessingTimer = engine.ProcessingTimer
	Deadline        = engine.Deadline // of a DeadlineState
)

// OpenContext is where a processor declares its state.
type OpenContext[K comparable] = engine.OpenContext[K]

// Connected are two keyed streams that one operator reads.
type Connected[K comparable, A, B any] struct{ c engine.Connected[K, A, B] }

// Connect lets one operator read two streams with keys of one type.
func Connect[K comparable, A, B any](first KeyedStream[K, A], second KeyedStream[K, B]) Connected[K, A, B] {
	return Connected[K, A, B]{engine.Connect(first.k, second.k)}
}

// TwoInputProcessor is a Processor of two streams. State and timers of a key are shared by its rows in
// both; event time is the lesser of theirs, and how the streams interleave is not determined.
//
//	Open(o *OpenContext[K]) error
//	Process1(ctx *Context[K], row *A, out *Out[R]) error       // handles a row of the first stream
//	Process2(ctx *Context[K], row *B, out *Out[R]) error       // handles a row of the second one
//	OnTimer(ctx *Context[K], out *Out[R]) error
type TwoInputProcessor[K comparable, A, B, R any] = engine.TwoInputProcessor[K, A, B, R]

// Process2 adds a keyed operator of two streams. newProcessor is called once for each subtask.
func Process2[K comparable, A, B, R any](
	c Connected[K, A, B], uid string, newProcessor func() TwoInputProcessor[K, A, B, R],
) Stream[R] {
	return Stream[R]{engine.Process2(c.c, uid, newProcessor)}
}

// Process adds a keyed operator. newProcessor is called once for each subtask.
func Process[K comparable, T, R any](
	k KeyedStream[K, T], uid string, newProcessor func() Processor[K, T, R],
) Stream[R] {
	return Stream[R]{engine.Process(k.k, uid, newProcessor)}
}
