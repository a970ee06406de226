package main

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	"example.com/weir"
)

// pauses gathers how long subtasks stood still at barriers, to be logged when the job ends.
type pauses struct {
	mu          sync.Mutex
	stood       []time.Duration
	checkpoints int
}

// maxPauses bounds what is kept: of a job that runs for long, the last ones.
const maxPauses = 1 << 16

// observe returns an observer that also gathers.
func (p *pauses) observe(o weir.Observer) weir.Observer {
	passed := o.BarrierPassed
	o.BarrierPassed = func(id weir.SubtaskID, checkpoint uint64, aligned, stood time.Duration) {
		if passed != nil {
			passed(id, checkpoint, aligned, stood)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.stood) == maxPauses {
			p.stood = slices.Delete(p.stood, 0, maxPauses/2)
		}
		p.stood = append(p.stood, stood)
	}
	completed := o.CheckpointCompleted
	o.CheckpointCompleted = func(c weir.Current, took time.Duration, stats []*weir.SubtaskStats) {
		p.mu.Lock()
		p.checkpoints++
		p.mu.Unlock()
		completed(c, took, stats)
	}
	return o
}

func (p *pauses) log(logger *slog.Logger) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.stood) == 0 {
		return
	}
	slices.Sort(p.stood)
	logger.Info("barriers", "checkpoints", p.checkpoints, "pause_p50", p.stood[len(p.stood)/2],
		"pause_p99", p.stood[len(p.stood)*99/100], "pause_max", p.stood[len(p.stood)-1])
}
