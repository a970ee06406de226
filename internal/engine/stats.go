package engine

import (
	"sync/atomic"
	"time"

	"example.com/weir/internal/protocol"
)

// SubtaskStats are the counters of a subtask. Its goroutine writes them once a batch; anyone may
// read them.
type SubtaskStats struct {
	Subtask       protocol.SubtaskID
	RecordsIn     atomic.Int64 // read from a source or received from an exchange
	RecordsOut    atomic.Int64 // written to sinks
	Late          atomic.Int64 // later than the allowed lateness
	Rejected      atomic.Int64 // dead letters
	Backpressured atomic.Int64 // nanoseconds that the subtask waited for one behind it
	Idle          atomic.Int64 // nanoseconds that it waited for input
	Watermark     atomic.Int64 // of a source subtask, microseconds; the earliest time if none
}

func (t *task) received(rows int)  { t.stats.RecordsIn.Add(int64(rows)) }
func (t *task) sent(rows int)      { t.stats.RecordsOut.Add(int64(rows)) }
func (t *task) late(rows int)      { t.stats.Late.Add(int64(rows)) }
func (t *task) rejected(rows int)  { t.stats.Rejected.Add(int64(rows)) }
func (t *task) watermark(at int64) { t.stats.Watermark.Store(at) }
func (t *task) waited(began time.Time) {
	t.stats.Idle.Add(int64(t.now().Sub(began)))
}

func (t *task) backpressured(began time.Time) {
	t.stats.Backpressured.Add(int64(t.now().Sub(began)))
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
	// BarrierPassed: a subtask aligned for this long, and stood still for that long to take
	// its snapshot and flush.
	BarrierPassed func(subtask protocol.SubtaskID, checkpoint uint64, aligned, stood time.Duration)
}

func (o *Observer) barrierPassed(s protocol.SubtaskID, n uint64, aligned, stood time.Duration) {
	if o.BarrierPassed != nil {
		o.BarrierPassed(s, n, aligned, stood)
	}
}
