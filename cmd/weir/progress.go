package main

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"example.com/weir"
)

// progress logs what a reader of the log wants to follow. Package demo reads the same lines.
type progress struct {
	logger *slog.Logger
	// every is the time between two lines about how far the sources have read, and turns on those
	// about where barriers cut the input. 0: neither.
	every time.Duration

	subtasks atomic.Pointer[[]*weir.SubtaskStats] // of the generation that runs
}

func (p *progress) observer() weir.Observer {
	o := weir.Observer{
		GenerationStarted: func(c weir.Current, subtasks []*weir.SubtaskStats) {
			p.logger.Info("generation started", "lineage", c.Lineage, "generation", c.Generation,
				"checkpoint", c.Checkpoint)
			p.subtasks.Store(&subtasks)
		},
		CheckpointCompleted: func(c weir.Current, took time.Duration, subtasks []*weir.SubtaskStats) {
			in, watermark := totals(subtasks)
			p.logger.Info("checkpoint completed", "checkpoint", c.Checkpoint, "took", took,
				"events", in, "watermark", watermark)
		},
		Settled: func(id string, took time.Duration) {
			p.logger.Info("transaction committed", "committable", id, "took", took)
		},
	}
	if p.every > 0 {
		o.BarrierPassed = p.barrierPassed
	}
	return o
}

// barrierPassed logs how many events of the generation lie before a checkpoint's cut, once for each
// subtask of the source. Its goroutine calls it between two batches, and before the checkpoint can
// exist: whatever checkpoint a process leaves behind, it has logged the cut of.
func (p *progress) barrierPassed(id weir.SubtaskID, checkpoint uint64, _, _ time.Duration) {
	subtasks := p.subtasks.Load()
	if subtasks == nil || !reads(id) {
		return
	}
	for _, s := range *subtasks {
		if s.Subtask == id {
			p.logger.Info("barrier passed", "checkpoint", checkpoint, "subtask", id.String(), "events", s.RecordsIn.Load())
		}
	}
}

// tick logs how far the sources have read, until done is closed.
func (p *progress) tick(done <-chan struct{}) {
	if p.every <= 0 {
		return
	}
	ticker := time.NewTicker(p.every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if subtasks := p.subtasks.Load(); subtasks != nil {
				in, watermark := totals(*subtasks)
				p.logger.Info("progress", "events", in, "watermark", watermark)
			}
		case <-done:
			return
		}
	}
}

// reads reports whether a subtask reads the events.
func reads(id weir.SubtaskID) bool { return strings.HasPrefix(id.Operator, "gateway-events") }

// totals sums what the sources have read in this generation, and finds the lowest of their watermarks:
// none before anything is known, end at the end of bounded input.
func totals(subtasks []*weir.SubtaskStats) (events int64, watermark string) {
	lowest := int64(1<<63 - 1)
	for _, s := range subtasks {
		if !reads(s.Subtask) {
			continue
		}
		events += s.RecordsIn.Load()
		lowest = min(lowest, s.Watermark.Load())
	}
	switch lowest {
	case -1 << 63:
		return events, "none"
	case 1<<63 - 1:
		return events, "end"
	}
	return events, time.UnixMicro(lowest).UTC().Format(time.RFC3339Nano)
}
