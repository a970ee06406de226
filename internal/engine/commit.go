package engine

import (
	"context"
	"fmt"
	"io"
	"slices"

	"example.com/weir/connector"
	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/fault"
	"example.com/weir/internal/protocol"
)

// committer is the part of a two-phase writer that runs beside the stream.
type committer interface {
	Commit(ctx context.Context, c connector.Committable) error
	Release(c connector.Committable)
}

type committerID struct {
	sink    string
	subtask int
}

// commitQueue commits the committables of one sink subtask, one after the other.
type commitQueue struct {
	committer committer
	queue     chan permitted
}

// permitted is a committable with the permit to commit it.
type permitted struct {
	permit      protocol.CommitPermit
	committable connector.Committable
}

func (g *generation) addCommitter(uid string, subtask int, c committer) {
	// More cannot be under way than a pool has slots for.
	depth := 16 + 2*g.cfg.TolerableFailures
	g.committers[committerID{uid, subtask}] = &commitQueue{committer: c, queue: make(chan permitted, depth)}
}

// commit hands committables to the queues of their sinks' subtasks.
func (g *generation) commit(a protocol.Commit) {
	for _, c := range a.Committables {
		q, ok := g.committers[committerID{c.Sink, c.Subtask}]
		if !ok {
			g.post(protocol.CommitFailed{ID: c.ID(), Err: connector.Stop(
				fmt.Errorf("this generation has no writer for it"))})
			continue
		}
		select {
		case q.queue <- permitted{permit: a.Permit, committable: c}:
		case <-g.ctx.Done():
			return
		}
	}
}

func (q *commitQueue) run(g *generation) {
	for {
		select {
		case p := <-q.queue:
			g.post(g.commitOne(q.committer, p))
		case <-g.ctx.Done():
			return
		}
	}
}

// commitOne is the one place that calls Commit (E6).
func (g *generation) commitOne(c committer, p permitted) protocol.Event {
	id := p.committable.ID()
	if !p.permit.Covers(id) {
		return protocol.CommitFailed{ID: id, Err: connector.Stop(
			fmt.Errorf("%s does not cover it", p.permit))}
	}
	g.cfg.Reached(fault.BeforeCommit)
	began := g.now()
	if err := guard(func() error { return c.Commit(g.ctx, p.committable) }); err != nil {
		return protocol.CommitFailed{ID: id, Err: err}
	}
	g.cfg.Reached(fault.AfterCommit)
	took := g.now().Sub(began)
	if f := g.cfg.Observer.Settled; f != nil {
		f(id.String(), took)
	}
	g.logger.Debug("committable committed", "operator", id.Sink, "subtask", id.Subtask,
		"checkpoint", id.Checkpoint, "took", took)
	return protocol.CommitSettled{ID: id}
}

// release lets go what was held for committables that no CURRENT names any more: their writers' slots, and
// their records.
func (g *generation) release(cs []connector.Committable) {
	var records []string
	for _, c := range cs {
		if q, ok := g.committers[committerID{c.Sink, c.Subtask}]; ok {
			q.committer.Release(c)
		}
		if c.Kept.Name != "" && c.Kept.Inline == nil {
			records = append(records, c.Kept.Name)
		}
	}
	if len(records) > 0 {
		g.work <- func() { g.deleteRecords(records) }
	}
}

// restoreSinks settles what CURRENT names, sink by sink, and ends what was left open.
func (g *generation) restoreSinks(a protocol.Restore) error {
	bySink := map[string][]connector.Committable{}
	for _, c := range a.Named {
		if !a.Permit.Covers(c.ID()) {
			return connector.Stop(fmt.Errorf("%s does not cover %s", a.Permit, c.ID()))
		}
		bySink[c.Sink] = append(bySink[c.Sink], c)
	}
	for _, s := range g.plan.sinks {
		named := bySink[s.uid]
		delete(bySink, s.uid)
		if s.restore == nil && len(named) > 0 {
			return connector.Stop(fmt.Errorf("sink %s: the checkpoint names %d committables, and the "+
				"sink does not commit: was its guarantee changed?", s.uid, len(named)))
		}
		if s.restore == nil {
			continue
		}
		if err := s.restore(g.ctx, g.restoreContext(s.uid, named, a)); err != nil {
			return fmt.Errorf("sink %s: %w", s.uid, err)
		}
	}
	for uid := range bySink {
		return connector.Stop(fmt.Errorf("the checkpoint names committables of sink %q, which the job "+
			"does not have", uid))
	}
	return nil
}

func (g *generation) restoreContext(
	uid string, named []connector.Committable, a protocol.Restore,
) connector.RestoreContext {
	return connector.RestoreContext{
		Job: g.plan.name, Lineage: a.Current.Lineage, Generation: a.Current.Generation,
		Operator: uid, Parallelism: g.plan.parallelism, Logger: g.logger.With("operator", uid),
		Named: named, Fresh: a.Fresh, AcceptLineages: slices.Concat(g.cfg.AcceptLineages, g.lineage.ancestors), Clean: a.Clean,
		CheckpointTimeout: g.cfg.Timeout, RestartBudget: g.cfg.Restart.Longest(), StillOwner: g.stillOwner,
		Replace: func(_ context.Context, c connector.Committable) error { return g.replace(uid, c) },
		Kept: func(ctx context.Context, k connector.Kept) (io.ReadCloser, error) {
			return checkpoint.ReadRecords(ctx, g.store, k)
		},
		Reached: g.cfg.Reached,
	}
}
