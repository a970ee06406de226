package weir

import (
	"time"

	"example.com/weir/connector"
	"example.com/weir/internal/engine"
)

// Stream is a stream of rows of type T, each at an event time.
type Stream[T any] struct{ s engine.Stream[T] }

// Out takes the output of a function.
//
//	Emit(v T)                    // at the event time of the row, timer or window at work
//	EmitAt(v T, at time.Time)    // at another one
type Out[T any] = engine.Out[T]

// DeadLetter is a record that a source could not hand to the job.
type DeadLetter = connector.DeadLetter

// TimeConfig says where a source's records get their event time from, and how watermarks follow.
//
//	EventTime       func(*T) time.Time   // of a row; nil: the record's own timestamp
//	OutOfOrderness  time.Duration        // how much earlier than the latest of its split a record may come without being late
//	MaxAhead        time.Duration        // a record further ahead of its own timestamp is rejected; 0: 1 h, negative: no bound
//	IdleAfter       time.Duration        // a split that has nothing more to read for so long holds event time back no longer; 0: never
//
// Event time is the least of the splits'. One that has had records and gets no more holds it back, and with
// it every window and timer, until IdleAfter has passed. What comes in that split afterwards can then be late.
// A split that is read to its end and has never had a record holds nothing back.
type TimeConfig[T any] = engine.SourceConfig[T]

// EventTime is the usual TimeConfig: the time is in the row, and a record may come up to
// outOfOrderness earlier than the latest one of its split. MaxAhead and IdleAfter can be set in what it returns.
func EventTime[T any](of func(*T) time.Time, outOfOrderness time.Duration) TimeConfig[T] {
	return TimeConfig[T]{EventTime: of, OutOfOrderness: outOfOrderness}
}

// From reads a source. A record that the source rejects (it does not decode, or its event time is too
// far ahead) stops the job by name: nothing is dropped in silence.
func From[T any](j *Job, uid string, src connector.Source[T], times TimeConfig[T]) Stream[T] {
	return Stream[T]{engine.Source(j.plan, uid, src, times, deadLetters())}
}

// FromWithDeadLetters reads a source, and gives the records that it rejects a stream of their own.
func FromWithDeadLetters[T any](
	j *Job, uid string, src connector.Source[T], times TimeConfig[T],
) (Stream[T], Stream[DeadLetter]) {
	dead := deadLetters()
	s := engine.Source(j.plan, uid, src, times, dead)
	return Stream[T]{s}, Stream[DeadLetter]{engine.Side(s, dead)}
}

func deadLetters() *engine.DeadLetters { return &engine.DeadLetters{Name: "dead-letters"} }

// Map turns each row into another one.
func Map[T, R any](s Stream[T], uid string, f func(*T) (R, error)) Stream[R] {
	return Stream[R]{engine.FlatMap(s.s, uid, "map", func(row *T, out *Out[R]) error {
		r, err := f(row)
		if err == nil {
			out.Emit(r)
		}
		return err
	})}
}

// Filter keeps the rows that f keeps.
func Filter[T any](s Stream[T], uid string, f func(*T) (bool, error)) Stream[T] {
	return Stream[T]{engine.FlatMap(s.s, uid, "filter", func(row *T, out *Out[T]) error {
		keep, err := f(row)
		if keep && err == nil {
			out.Emit(*row)
		}
		return err
	})}
}

// FlatMap turns each row into any number of rows.
func FlatMap[T, R any](s Stream[T], uid string, f func(*T, *Out[R]) error) Stream[R] {
	return Stream[R]{engine.FlatMap(s.s, uid, "flat-map", f)}
}

// Union is the stream of all rows of several streams: of several sources, of several operators, or of one
// stream twice, which then has each row twice. It has no uid, for it keeps nothing. Event time is the least
// of theirs, and streams that have ended hold nothing back. The rows of each stream stay in order; how the
// streams interleave is not determined, and what is late by a hair can depend on it.
func Union[T any](first Stream[T], more ...Stream[T]) Stream[T] {
	all := make([]engine.Stream[T], len(more))
	for i, s := range more {
		all[i] = s.s
	}
	return Stream[T]{engine.Union(first.s, all...)}
}

// Rebalance spreads the rows of each subtask evenly over the subtasks of the next operator, one row to
// each in turn. It is for a source with fewer busy splits than the job has subtasks, in front of work that
// takes long. Rows of one split go different ways and can overtake each other; in front of KeyBy, which
// spreads rows itself, it does nothing.
func Rebalance[T any](s Stream[T]) Stream[T] { return Stream[T]{s.s.WithExchange(engine.Rebalance)} }

// Broadcast gives every row to every subtask of the next operator: a sink behind it writes each row as
// often as the job has subtasks. What rows point to is then shared by goroutines, and not to be changed. A
// broadcast stream cannot be keyed.
func Broadcast[T any](s Stream[T]) Stream[T] { return Stream[T]{s.s.WithExchange(engine.Broadcast)} }

// SinkTo writes a stream to a sink.
func SinkTo[T any](s Stream[T], uid string, sink connector.Sink[T]) {
	engine.Sink(s.s, uid, sink)
}

// SideOutput names an additional output of a processor or an aggregator.
type SideOutput[S any] = engine.SideOutput[S]

// NewSideOutput returns a side output; its name is for messages.
func NewSideOutput[S any](name string) *SideOutput[S] { return &SideOutput[S]{Name: name} }

// Side returns the stream of what the operator behind s emits to a side output. Without it, what
// is emitted there goes nowhere.
func Side[S, T any](s Stream[T], tag *SideOutput[S]) Stream[S] {
	return Stream[S]{engine.Side(s.s, tag)}
}

// sideContext is a Context or a WindowContext.
type sideContext interface{ engine.SideEmitter }

// EmitSide emits v to a side output of the operator at work, at the event time of its row, timer
// or window.
func EmitSide[S any](ctx sideContext, tag *SideOutput[S], v S) { engine.EmitSide(ctx, tag, v) }
