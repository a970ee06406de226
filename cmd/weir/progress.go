package main

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"example.com/weir"
)

// progress logs how far the job has read, beside what the engine says. Package rig reads the same lines.
type progress struct {
	logger *slog.Logger
	// every is the time between two lines about how far the sources have read, and turns on those
	// about where barriers cut the input and what was committed. 0: none of them.
	every time.Duration

	subtasks atomic.Pointer[[]*weir.SubtaskStats] // of the generation that runs
}

func (p *progress) observer() weir.Observer {
	o := weir.Observer{
		GenerationStarted: func(_ weir.Current, subtasks []*weir.SubtaskStats) {
			p.subtasks.Store(&subtasks)
		},
		CheckpointCompleted: func(weir.Current, time.Duration, []*weir.SubtaskStats) {},
	}
	if p.every > 0 {
		o.BarrierPassed = p.barrierPassed
		o.CheckpointCompleted = func(_ weir.Current, _ time.Duration, subtasks []*weir.SubtaskStats) { p.log(subtasks) }
		o.Settled = func(id string, took time.Duration) {
			p.logger.Info("transaction committed", "committable", id, "took", took)
		}
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
			p.logger.Info("barrier passed", "operator", id.Operator, "subtask", id.Index, "checkpoint", checkpoint,
				"events", s.RecordsIn.Load())
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
				p.log(*subtasks)
			}
		case <-done:
			return
		}
	}
}

func (p *progress) log(subtasks []*weir.SubtaskStats) {
	in, watermark := totals(subtasks)
	p.logger.Info("progress", "events", in, "watermark", watermark)
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
