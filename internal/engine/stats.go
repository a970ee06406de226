package engine

import (
	"slices"
	"sync/atomic"
	"time"

	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/protocol"
)

// SubtaskStats are the counters of a subtask of one generation. Its goroutine writes them once a
// batch; anyone may read them. Nothing is counted for each record, and nobody waits for anybody.
type SubtaskStats struct {
	Subtask   protocol.SubtaskID
	RecordsIn atomic.Int64 // read from a source or received from an exchange
	// Watermark is what the subtask has passed on last, in microseconds: the earliest time if
	// nothing is known, the latest at the end of the input.
	Watermark atomic.Int64

	base          time.Time    // when the generation started: what the stopwatches count from
	ran           stopwatch    // since the subtask began
	idle          stopwatch    // waited for input
	backpressured stopwatch    // waited for who takes its output
	busy          atomic.Int64 // the rest, as it was last told
	aligned       atomic.Int64
	paused        atomic.Int64 // nanoseconds, at the last barrier
	operators     []*operatorStats
	splits        atomic.Pointer[[]*splitStats] // of a source
	positionText  func(position []byte) string  // of a source, set before it starts; nil: unknown
	// releaseFailures counts how often positions could not be told to the outside (group offsets).
	releaseFailures atomic.Int64
}

func newSubtaskStats(id protocol.SubtaskID, base time.Time) *SubtaskStats {
	s := &SubtaskStats{Subtask: id, base: base}
	s.Watermark.Store(noTime)
	return s
}

// operatorStats are the counters of one operator in one subtask.
type operatorStats struct {
	uid         string
	recordsIn   atomic.Int64
	recordsOut  atomic.Int64 // to whatever is behind it and to its side outputs, or to the outside
	late        atomic.Int64 // later than the allowed lateness
	deadLetters atomic.Int64
	keys        atomic.Int64 // in its state at the last barrier
	timers      atomic.Int64
	// writing is what a sink that commits has written since the last barrier, nil if nothing, and
	// prepared what it pre-committed at that barrier, until the coordinator knows of it.
	writing, prepared atomic.Pointer[transaction]
	// keeping are the records that it keeps of what it writes.
	keeping atomic.Pointer[checkpoint.Records]
}

// operator returns the counters of an operator of the chain. All are asked for while the subtask is
// built; afterwards the list does not change.
func (s *SubtaskStats) operator(uid string) *operatorStats {
	i := slices.IndexFunc(s.operators, func(o *operatorStats) bool { return o.uid == uid })
	if i < 0 {
		i = len(s.operators)
		s.operators = append(s.operators, &operatorStats{uid: uid})
	}
	return s.operators[i]
}

// splitStats are where a source subtask stands in one split.
type splitStats struct {
	id       string
	position atomic.Pointer[[]byte] // as in a checkpoint; never changed once stored
	released atomic.Pointer[[]byte] // the one last told to the outside; nil: none
	behind   atomic.Int64           // records to the end of the split, -1 if unknown
	idle     atomic.Bool
	// watermark is how far the split's own event time has come; endTime at its end.
	watermark atomic.Int64
}

// stopwatch adds up the time that its owner spends in something, and anyone may read it meanwhile.
// What is read never goes back.
//
// One number says both how long it was and whether it is running: the total, or, while it runs, the
// total less the moment it was started at, less 1. Moments are nanoseconds since a fixed one; no more
// has been added up than has passed, so the second is always below zero.
type stopwatch struct {
	v     atomic.Int64
	shown atomic.Int64 // the most that read has returned
}

func (w *stopwatch) start(at time.Duration) {
	if v := w.v.Load(); v >= 0 {
		w.v.Store(v - int64(at) - 1)
	}
}

func (w *stopwatch) stop(at time.Duration) {
	if v := w.v.Load(); v < 0 {
		w.v.Store(max(v+int64(at)+1, 0))
	}
}

func (w *stopwatch) read(at time.Duration) time.Duration {
	v := w.v.Load()
	if v < 0 {
		v = max(v+int64(at)+1, 0)
	}
	return time.Duration(raise(&w.shown, v))
}

// raise returns the higher of v and what it has returned before. The owner of a stopwatch looks at the
// clock and then stops it; one who reads it in between may have seen more than it will have counted:
// a total that went back would be taken for a process that began anew.
func raise(shown *atomic.Int64, v int64) int64 {
	for {
		before := shown.Load()
		if v <= before {
			return before
		}
		if shown.CompareAndSwap(before, v) {
			return v
		}
	}
}

// enter notes which operator of the chain is at work, and on how many rows.
func (t *task) enter(o *operatorStats, rows int) {
	t.operator = o.uid
	o.recordsIn.Add(int64(rows))
}

func (t *task) received(rows int)  { t.stats.RecordsIn.Add(int64(rows)) }
func (t *task) watermark(at int64) { t.stats.Watermark.Store(at) }

// moment is now, as the subtask's stopwatches count it.
func (t *task) moment() time.Duration { return t.now().Sub(t.stats.base) }

// running starts the stopwatch of the subtask's life, and the function it returns stops all of them:
// the subtask may have ended while it waited.
func (t *task) running() func() {
	t.stats.ran.start(t.moment())
	return func() {
		end := t.moment()
		t.stats.idle.stop(end)
		t.stats.backpressured.stop(end)
		t.stats.ran.stop(end)
	}
}

func (t *task) waits()  { t.stats.idle.start(t.moment()) }
func (t *task) waited() { t.stats.idle.stop(t.moment()) }

func (t *task) heldBack() { t.stats.backpressured.start(t.moment()) }
func (t *task) goesOn()   { t.stats.backpressured.stop(t.moment()) }

func (t *task) barrierPassed(checkpoint uint64, aligned, paused time.Duration) {
	t.stats.aligned.Store(int64(aligned))
	t.stats.paused.Store(int64(paused))
	t.gen.observe().barrierPassed(t.id, checkpoint, aligned, paused)
}

// Observer is told what happens. Nil functions are not called. They are called by the goroutine
// that does the work and must return at once.
type Observer struct {
	// GenerationStarted: the subtasks of a generation have started.
	GenerationStarted func(current protocol.Current, subtasks []*SubtaskStats)
	// CheckpointCompleted: a checkpoint exists, took this long since its barrier was injected.
	CheckpointCompleted func(current protocol.Current, took time.Duration, subtasks []*SubtaskStats)
	// CheckpointAborted: a checkpoint will not complete.
	CheckpointAborted func(checkpoint uint64, err error)
	// Settled: a committable is committed and known to be.
	Settled func(id string, took time.Duration)
	// BarrierPassed: a subtask aligned for this long, and stood still for that long to take its
	// snapshot and to pass the barrier on.
	BarrierPassed func(subtask protocol.SubtaskID, checkpoint uint64, aligned, stood time.Duration)
}

func (o *Observer) barrierPassed(s protocol.SubtaskID, n uint64, aligned, stood time.Duration) {
	if o.BarrierPassed != nil {
		o.BarrierPassed(s, n, aligned, stood)
	}
}
