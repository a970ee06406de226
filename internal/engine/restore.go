package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"example.com/weir/connector"
	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/keygroup"
	"example.com/weir/internal/state"
)

// restored is what a checkpoint holds, by operator.
type restored struct {
	// chains are, of each operator, the sections of each old subtask, oldest cut first.
	chains   map[string][][][]byte
	splits   map[string][]assignedSplit // of each source
	manifest checkpoint.Manifest        // zero at checkpoint 0
}

// compatible reports why a checkpoint does not fit the job. To go on would lose state in
// silence, or give keys to subtasks that do not hold their state. Operators that are on one side only
// are allowed by name.
func (p *Plan) compatible(m checkpoint.Manifest, allowed RestoreConfig) error {
	if m.MaxParallelism != p.maxParallelism {
		return fmt.Errorf("checkpoint %d has max parallelism %d and the job %d: it is fixed when a job first "+
			"starts, since keys are assigned by it; set it to %d, which allows a parallelism of up to that",
			m.Checkpoint, m.MaxParallelism, p.maxParallelism, m.MaxParallelism)
	}
	if m.KeyHash != keygroup.HashName {
		return fmt.Errorf("checkpoint %d assigns keys by %q, and this program by %q",
			m.Checkpoint, m.KeyHash, keygroup.HashName)
	}
	if m.Unaligned && p.mode == ExactlyOnce && !allowed.AcceptDuplicates {
		return fmt.Errorf("checkpoint %d was taken in at-least-once mode while the job ran: records behind it can be in "+
			"its state already, and would count twice. Start the job in that mode once more and stop it, for a last "+
			"checkpoint is exact; or accept that by name: --accept-duplicates", m.Checkpoint)
	}
	had := map[string]string{}
	for _, o := range m.Operators {
		had[o.UID] = o.Kind
	}
	for _, o := range p.operators {
		if !o.durable() {
			continue
		}
		kind, ok := had[o.UID]
		switch {
		case !ok && slices.Contains(allowed.AllowNew, o.UID):
		case !ok:
			return fmt.Errorf("%s %q is not in checkpoint %d, which has %s: was its uid changed? "+
				"If it is new, say so: --allow-new-state %s",
				o.Kind, o.UID, m.Checkpoint, uids(m.Operators), o.UID)
		case kind != o.Kind:
			return fmt.Errorf("%q is a %s, and was a %s in checkpoint %d", o.UID, o.Kind, kind, m.Checkpoint)
		}
		delete(had, o.UID)
	}
	for _, o := range m.Operators {
		if _, left := had[o.UID]; left && !slices.Contains(allowed.AllowDropped, o.UID) {
			return fmt.Errorf("checkpoint %d holds %s %q, which the job does not have: "+
				"was its uid changed? If it is to go, with all that it holds, say so: --allow-dropped-state %s",
				m.Checkpoint, o.Kind, o.UID, o.UID)
		}
	}
	return nil
}

// durable reports whether a checkpoint knows the operator.
func (o *Operator) durable() bool { return o.Stateful || o.Kind == "sink" }

func uids(ops []checkpoint.Operator) string {
	s := ""
	for i, o := range ops {
		if i > 0 {
			s += ", "
		}
		s += o.UID
	}
	return s
}

// describe lists the operators for a manifest.
func (p *Plan) describe() []checkpoint.Operator {
	var all []checkpoint.Operator
	for _, o := range p.operators {
		if o.durable() {
			all = append(all, checkpoint.Operator{
				UID: o.UID, Kind: o.Kind, Parallelism: p.parallelism, Stateful: o.Stateful,
			})
		}
	}
	return all
}

// readState reads all snapshots of a manifest.
func readState(ctx context.Context, store checkpoint.Store, m checkpoint.Manifest) (*restored, error) {
	r := &restored{
		chains: map[string][][][]byte{}, splits: map[string][]assignedSplit{}, manifest: m,
	}
	for _, s := range m.Snapshots {
		own := map[string][][]byte{}
		for _, h := range s.Handles {
			payload, err := store.GetSnapshot(ctx, h)
			if err != nil {
				return nil, err
			}
			if err := readCuts(payload, own); err != nil {
				return nil, connector.Stop(fmt.Errorf("snapshot %s: %w", h.Name, err))
			}
		}
		for uid, sections := range own {
			r.chains[uid] = append(r.chains[uid], sections)
		}
	}
	return r, nil
}

// readCuts appends the sections of the cuts in a file to those of their operators.
func readCuts(payload []byte, sections map[string][][]byte) error {
	file := state.NewDecoder(payload)
	for !file.Empty() {
		cut := state.NewDecoder(file.Sized())
		for !cut.Empty() {
			uid, section := cut.String(), cut.Sized()
			if cut.Err() != nil {
				return cut.Err()
			}
			sections[uid] = append(sections[uid], section)
		}
	}
	return file.Err()
}

// resolveSplits finds the splits of every source: in the checkpoint, or, before the first one that has
// the source, by asking it.
func (r *restored) resolveSplits(ctx context.Context, p *Plan, known map[string]bool) error {
	for _, src := range p.sources {
		var all []assignedSplit
		if !known[src.uid] {
			found, err := src.discover(ctx)
			if err != nil {
				return fmt.Errorf("source %s: discover splits: %w", src.uid, err)
			}
			for _, sp := range found {
				all = append(all, assignedSplit{split: sp, watermark: noTime})
			}
		}
		for _, sections := range r.chains[src.uid] {
			splits, err := decodeSplits(sections[len(sections)-1])
			if err != nil {
				return connector.Stop(fmt.Errorf("source %s: positions: %w", src.uid, err))
			}
			all = append(all, splits...)
		}
		more, err := src.added(ctx, all, known[src.uid])
		if err != nil {
			return err
		}
		all = append(all, more...)
		slices.SortFunc(all, func(a, b assignedSplit) int { return compareSplitIDs(a.split.ID, b.split.ID) })
		r.splits[src.uid] = all
	}
	return nil
}

// added finds the splits that a source has got while the job was down.
func (s *sourceNode) added(ctx context.Context, known []assignedSplit, restored bool) ([]assignedSplit, error) {
	if !restored || !grows(s.growing) {
		return nil, nil
	}
	more, err := s.grow(ctx, justSplits(known))
	if err != nil {
		return nil, err
	}
	var all []assignedSplit
	for _, sp := range more {
		all = append(all, assignedSplit{split: sp, watermark: noTime})
	}
	return all, nil
}

// compareSplitIDs orders "t/2" before "t/10", so that splits spread evenly over subtasks.
func compareSplitIDs(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

// splitsOf returns the splits that a source subtask reads.
func (g *generation) splitsOf(uid string, subtask int) []assignedSplit {
	var own []assignedSplit
	for i, s := range g.state.splits[uid] {
		if readBy(i, g.plan.parallelism) == subtask {
			own = append(own, s)
		}
	}
	return own
}

// readBy returns the subtask that reads the split at a place in the order of all of them.
func readBy(place, parallelism int) int { return place % parallelism }

// fresh reports whether no checkpoint has a source yet: of a new lineage, or of one that was added.
func (g *generation) fresh(uid string) bool { return !g.lineage.knows[uid] }

// reopen returns where event time goes on that stood at a time in the checkpoint. It stands at its end
// where the input had ended; all that the job is to read now would be late.
func (g *generation) reopen(at int64) (int64, error) {
	from := g.cfg.Restore.EventTime
	switch {
	case at != endTime || !g.lineage.reopened:
		return at, nil
	case from.IsZero():
		return at, connector.Stop(fmt.Errorf("%w in the checkpoint: say where it goes on (--event-time, "+
			"Restore.EventTime); what lies before is late", ErrFinished))
	}
	return from.UnixMicro(), nil
}
