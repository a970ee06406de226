package engine

import (
	"context"
	"slices"

	"example.com/weir/connector"
	"example.com/weir/internal/checkpoint"
)

// recordKeeping keeps the records of one sink subtask: the streams that its writer has begun, until they
// are durable. It belongs to the goroutine of the subtask, but for the streams that have been sealed: those
// are finished beside it (cut.syncRecords).
type recordKeeping struct {
	recorder *checkpoint.Recorder
	stats    *operatorStats
	writing  []*checkpoint.Records // begun since the last barrier
	passed   []*checkpoint.Records // sealed in front of one, and perhaps not durable
}

func newRecordKeeping(t *task, uid string, stats *operatorStats) *recordKeeping {
	return &recordKeeping{stats: stats, recorder: checkpoint.NewRecorder(t.gen.store, checkpoint.RecordsName{
		Lineage: t.gen.current.Lineage, Generation: t.gen.current.Generation, Sink: uid, Subtask: t.subtask,
	})}
}

// begin is WriterContext.Keep.
func (k *recordKeeping) begin() connector.Keeper {
	r := k.recorder.Begin()
	k.writing = append(k.writing, r)
	k.stats.keeping.Store(r)
	return r
}

// sealed returns the streams that have been sealed since the last barrier.
func (k *recordKeeping) sealed() []*checkpoint.Records {
	k.stats.keeping.Store(nil)
	var all []*checkpoint.Records
	k.writing = slices.DeleteFunc(k.writing, func(r *checkpoint.Records) bool {
		if r.Sealed() {
			all = append(all, r)
		}
		return r.Sealed() || r.Done()
	})
	k.passed = append(slices.DeleteFunc(k.passed, (*checkpoint.Records).Done), all...)
	return all
}

// close takes away what is not durable yet: nothing names it.
func (k *recordKeeping) close() error {
	for _, r := range slices.Concat(k.writing, k.passed) {
		r.Discard()
	}
	return nil
}

// deleteRecords deletes kept records that are needed no more. What cannot be deleted now is collected by the
// next generation.
func (g *generation) deleteRecords(names []string) {
	if err := g.store.DeleteRecords(context.WithoutCancel(g.ctx), names); err != nil {
		g.logger.Warn("records that are needed no more could not be deleted", "files", names, "error", err)
	}
}
