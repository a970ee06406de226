package txn

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/settle"
)

// Restore settles what CURRENT names, and ends whatever else the lineage left open.
func Restore(ctx context.Context, cfg Config, rc connector.RestoreContext) error {
	names, err := decodeNamed(rc.Named)
	if err != nil {
		return err
	}
	r := &restorer{Config: cfg, rc: rc}
	// In the order of checkpoints within each subtask, and one at a time: the next EndTxn goes
	// out only once the transaction before is settled in the log (K3). Only then may anything
	// be ended: ending one of these would be the loss itself.
	for _, n := range names {
		if err := r.Settle(ctx, n.of.ID(), n.handle, settle.NotAsked); err != nil {
			return err
		}
	}
	if rc.Clean {
		return nil
	}
	left, err := r.leftovers(ctx)
	if err != nil {
		return err
	}
	return r.end(ctx, left)
}

// named is a committable that CURRENT names.
type named struct {
	of     connector.Committable
	handle *settle.Handle
}

func decodeNamed(cs []connector.Committable) ([]named, error) {
	names := make([]named, 0, len(cs))
	for _, c := range cs {
		h, err := settle.DecodeHandle(c.Payload)
		if err != nil {
			return nil, connector.Stop(fmt.Errorf("committable %s: %w", c.ID(), err))
		}
		names = append(names, named{of: c, handle: h})
	}
	return names, nil
}

// restorer carries out one Restore.
type restorer struct {
	Config
	rc connector.RestoreContext
}

// leftovers returns the transactions of this lineage, and of the accepted ones, that the
// coordinators know: of every subtask and slot, at whatever parallelism they were written. A
// fresh start that finds another lineage is refused.
func (r *restorer) leftovers(ctx context.Context) ([]Listed, error) {
	all, err := r.Cluster.List(ctx, r.Prefix)
	if err != nil {
		return nil, err
	}
	var left []Listed
	var strangers []string
	for _, t := range all {
		switch {
		case t.ID.Lineage == r.rc.Lineage, slices.Contains(r.rc.AcceptLineages, t.ID.Lineage):
			left = append(left, t)
		case !slices.Contains(strangers, t.ID.Lineage):
			strangers = append(strangers, t.ID.Lineage)
		}
	}
	if r.rc.Fresh && len(strangers) > 0 {
		slices.Sort(strangers)
		return nil, connector.Stop(fmt.Errorf("a fresh start under the transactional ID prefix %q, where the "+
			"cluster knows of another lineage: %s. Either another sink uses the prefix: give this one its own. Or "+
			"the job ran before, and starting it afresh writes its results again: restore it, or accept that "+
			"lineage by name (accept lineages: --accept-lineage of weir run)", r.Prefix, strings.Join(strangers, ", ")))
	}
	slices.SortFunc(left, func(a, b Listed) int { return strings.Compare(a.ID.String(), b.ID.String()) })
	return left, nil
}

// end ends what is open and sees that nothing stays open. Named transactions are settled by now,
// so all of it was never named by a CURRENT: aborting it is right.
func (r *restorer) end(ctx context.Context, left []Listed) error {
	if len(left) == 0 {
		return nil
	}
	ctx, cancel := r.Clock.WithTimeout(ctx, r.CommitDeadline)
	defer cancel()
	for _, t := range left {
		if t.State == settle.Ongoing || t.State == settle.PrepareCommit || t.State == settle.PrepareAbort {
			if err := r.endOne(ctx, t.ID.String()); err != nil {
				return err
			}
		}
	}
	return r.seeNothingOpen(ctx, left)
}

// endOne ends one transaction and waits until its coordinator says that it has ended.
func (r *restorer) endOne(ctx context.Context, id string) error {
	for try := 0; ; try++ {
		c, err := r.Cluster.Describe(ctx, id)
		if err == nil {
			switch c.State {
			case settle.Ongoing:
				if err := r.rc.StillOwner(ctx); err != nil { // K2
					return err
				}
				r.logger().Info("ending a transaction that no checkpoint names", "transaction", id)
				err = r.Cluster.Fence(ctx, id, r.TransactionTimeout)
			case settle.PrepareCommit, settle.PrepareAbort, settle.Unreached:
			case settle.NoHistory, settle.CompleteCommit, settle.CompleteAbort:
				return nil
			}
		}
		if pauseErr := r.pause(ctx, try); pauseErr != nil {
			return fmt.Errorf("end transaction %s of a lost generation (%s at its coordinator): %w",
				id, c.State, orElse(err, pauseErr))
		}
	}
}

// seeNothingOpen waits until no partition of the topic shows an open transaction of these producers.
func (r *restorer) seeNothingOpen(ctx context.Context, left []Listed) error {
	names := make(map[int64]string, len(left))
	for _, t := range left {
		names[t.ProducerID] = t.ID.String()
	}
	ours := func(producerID int64) bool { return names[producerID] != "" }
	since := r.Clock.Now()
	for try := 0; ; try++ {
		open, err := r.openOf(ctx, ours)
		if err == nil && len(open) == 0 {
			return nil
		}
		if err == nil && r.Clock.Now().Sub(since) > r.Grace {
			id := names[open[0].ProducerID]
			if c, err := r.Cluster.Describe(ctx, id); err != nil || c.State == settle.Ongoing {
				return fmt.Errorf("transaction %s is open again: another process writes", id)
			}
			return abortMarkerLost(r.Topic, id, &open[0])
		}
		if pauseErr := r.pause(ctx, try); pauseErr != nil {
			return fmt.Errorf("see that nothing is left open: %w", orElse(err, pauseErr))
		}
	}
}
