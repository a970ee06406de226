package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"example.com/weir/connector"
	"example.com/weir/internal/protocol"
)

// grows reports whether a source can get more splits than it has.
func grows(source any) bool {
	g, ok := source.(connector.Growing)
	return ok && g.GrowthInterval() > 0
}

// grow asks a source for the splits that are not among known.
func (s *sourceNode) grow(ctx context.Context, known []connector.Split) ([]connector.Split, error) {
	more, err := s.growing.Grow(ctx, slices.Clone(known))
	if err != nil {
		return nil, fmt.Errorf("source %s: look for new splits: %w", s.uid, err)
	}
	// One that is known already would be read twice.
	return slices.DeleteFunc(more, func(sp connector.Split) bool {
		return slices.ContainsFunc(known, func(k connector.Split) bool { return k.ID == sp.ID })
	}), nil
}

// watchSources says what the sources cannot promise, and starts looking for new splits, in one goroutine
// for each source that can get some.
func (g *generation) watchSources() {
	for i := range g.plan.sources {
		src := &g.plan.sources[i]
		if !src.replayable {
			g.logger.Warn("this source cannot be read again: what was read and is in no checkpoint yet is lost by a "+
				"crash, and what is sent while the job is down is lost, too; no guarantee covers that", "source", src.uid)
		}
		if !grows(src.growing) {
			continue
		}
		known := justSplits(g.state.splits[src.uid])
		g.wg.Go(func() {
			err := guard(func() error { return g.watchSource(src, known) })
			if err != nil && g.ctx.Err() == nil {
				g.post(protocol.SubtaskFailed{Subtask: protocol.SubtaskID{Operator: src.uid}, Err: err})
			}
		})
	}
}

// watchSource asks one source again and again, and hands what is new to the subtasks. What it finds is in no
// checkpoint before a subtask has passed the next barrier with it. A crash before that loses nothing:
// the restore asks again, and the new split begins where it began now.
func (g *generation) watchSource(src *sourceNode, known []connector.Split) error {
	ticker := time.NewTicker(src.growing.GrowthInterval())
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-g.ctx.Done():
			return nil
		}
		more, err := src.grow(g.ctx, known)
		switch {
		case connector.IsStop(err):
			return err
		case err != nil && g.ctx.Err() == nil:
			g.logger.Warn("new splits, if there are any, are not read yet", "error", err)
		}
		for subtask, splits := range assign(known, more, g.plan.parallelism) {
			g.handOver(src.uid, subtask, splits)
		}
		known = append(known, more...)
	}
}

// assign says which subtask reads each new split: the one that a restore would give it to.
func assign(known, more []connector.Split, parallelism int) map[int][]connector.Split {
	all := slices.Concat(known, more)
	slices.SortFunc(all, func(a, b connector.Split) int { return compareSplitIDs(a.ID, b.ID) })
	to := map[int][]connector.Split{}
	for place, sp := range all {
		if slices.ContainsFunc(more, func(m connector.Split) bool { return m.ID == sp.ID }) {
			subtask := readBy(place, parallelism)
			to[subtask] = append(to[subtask], sp)
		}
	}
	return to
}

// handOver waits until the subtask takes the splits. Behind its last barrier it takes none, and they
// wait for the next start.
func (g *generation) handOver(uid string, subtask int, splits []connector.Split) {
	for _, c := range g.sourceControls {
		if c.uid != uid || c.subtask != subtask {
			continue
		}
		select {
		case c.grow <- splits:
		case <-g.ctx.Done():
		}
	}
}

func justSplits(assigned []assignedSplit) []connector.Split {
	splits := make([]connector.Split, len(assigned))
	for i, a := range assigned {
		splits[i] = a.split
	}
	return splits
}
