package txn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/settle"
)

// Restore settles what CURRENT names, ends whatever else the lineage left open, and writes again what was
// lost, if that is the policy:
//
//	settle named ──▶ end the rest ──▶ settle lost again ──▶ write R ──▶ Replace ──▶ commit R
//	                                         ▲                                         │
//	                                         └──────────────── the next one ───────────┘
//
// A crash anywhere leads back here, with what CURRENT names by then: R in place of T from the Replace on,
// and before it T, with R one of those that no CURRENT names.
func Restore(ctx context.Context, cfg Config, rc connector.RestoreContext) error {
	cfg.Reached = rc.Reached
	r := &restorer{Config: cfg, rc: rc}
	var err error
	if r.named, err = decodeNamed(rc.Named); err != nil {
		return err
	}
	lost, err := r.settleNamed(ctx)
	if err != nil || rc.Clean && len(lost) == 0 {
		return err
	}
	left, err := r.leftovers(ctx)
	if err != nil {
		return err
	}
	if err := r.end(ctx, left); err != nil {
		return err
	}
	return r.writeAgain(ctx, lost)
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
	// named is what CURRENT names, in the order of checkpoints within each subtask.
	named []named
}

// settleNamed brings every named transaction to its end, one at a time and in order: the next EndTxn goes out
// only once the transaction before is settled in the log (K3). Only then may anything be ended:
// ending one of these would be the loss itself. It returns what is to be written again.
//
// Once one of a subtask is lost, its later ones cannot be committed before that one is written again: they are
// ended, and lost too. (A zombie may have their permits, and is held back by K3 as well.)
func (r *restorer) settleNamed(ctx context.Context) (again []*named, err error) {
	behind := map[int]bool{} // a loss, by subtask
	for i := range r.named {
		n := &r.named[i]
		end := r.commitOpen
		if behind[n.of.Subtask] {
			end = r.endOpen
		}
		v, err := r.settle(ctx, n.of, n.handle, settle.NotAsked, end)
		if err != nil {
			return nil, err
		}
		if v.Kind == settle.Committed {
			if behind[n.of.Subtask] {
				r.logger().Error("a later transaction of a subtask is committed already: what is written again will be "+
					"behind it", "sink", n.of.Sink, "subtask", n.of.Subtask, "checkpoint", n.of.Checkpoint,
					"transaction", n.handle.TransactionalID)
			}
			continue
		}
		var toBeWritten *lostError
		if err := r.lostFor(n.of, n.handle, v); err != nil && !errors.As(err, &toBeWritten) {
			return nil, err
		}
		if toBeWritten == nil {
			continue // skipped
		}
		// Before anything is ended on account of it.
		if err := r.checkKept(ctx, n, v); err != nil {
			return nil, err
		}
		behind[n.of.Subtask] = true
		again = append(again, n)
	}
	slices.SortStableFunc(again, func(a, b *named) int { return cmp.Compare(a.of.Checkpoint, b.of.Checkpoint) })
	return again, nil
}

// endOpen ends a named transaction that cannot be committed any more, for it to be written again (K5). The
// coordinator shows it Ongoing under our epoch; an InitProducerID on another one would erase how it
// ended.
func (r *restorer) endOpen(ctx context.Context, h *settle.Handle) (settle.Answer, error) {
	if err := r.rc.StillOwner(ctx); err != nil { // K2
		return settle.NotAsked, err
	}
	r.logger().Info("ending a transaction that follows a lost one, to write both again", "transaction", h.TransactionalID)
	if err := r.Cluster.Fence(ctx, h.TransactionalID, r.TransactionTimeout); err != nil {
		r.logger().Debug("not ended yet", "transaction", h.TransactionalID, "error", err)
	}
	return settle.NotAsked, nil
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
			"cluster knows of another lineage: %s. If another job or sink uses the prefix, or this job is a fork of one "+
			"that does: give this one a prefix of its own. If the job ran before: restore it, for afresh it writes its "+
			"results again. To take the prefix over all the same, accept that lineage by name (accept lineages: "+
			"--accept-lineage of weir run): what it has open is then aborted, so let its job first commit what its "+
			"CURRENT names (start that job and stop it, or weir txn commit --from-checkpoint on its storage)", r.Prefix, strings.Join(strangers, ", ")))
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

// seeNothingOpen waits until no partition of the topic shows an open transaction of these producers. Where the
// brokers have had their time, an ABORT marker was lost, and is written.
func (r *restorer) seeNothingOpen(ctx context.Context, left []Listed) error {
	ids := make(map[int64]string, len(left))
	for _, t := range left {
		ids[t.ProducerID] = t.ID.String()
	}
	ours := func(producerID int64) bool { return ids[producerID] != "" }
	since := r.Clock.Now()
	for try := 0; ; try++ {
		open, err := r.openOf(ctx, ours)
		if err == nil && len(open) == 0 {
			return nil
		}
		if err == nil && r.Clock.Now().Sub(since) > r.Grace {
			for i := range open {
				if err := r.markLeftover(ctx, ids[open[i].ProducerID], &open[i]); err != nil {
					return err
				}
			}
			since = r.Clock.Now()
		}
		if pauseErr := r.pause(ctx, try); pauseErr != nil {
			if err == nil {
				err = fmt.Errorf("%s/%d: transaction %s is still open", r.Topic, open[0].Partition, ids[open[0].ProducerID])
			}
			return fmt.Errorf("see that nothing is left open: %w (%w)", err, pauseErr)
		}
	}
}

// markLeftover writes the lost ABORT marker of a transaction that no checkpoint names, under the epoch that the
// coordinator ended it with (K7): its own now or, after an InitProducerID, the one before.
func (r *restorer) markLeftover(ctx context.Context, id string, t *Open) error {
	c, err := r.Cluster.Describe(ctx, id)
	if err != nil {
		return nil // asked again
	}
	epoch := int32(c.Epoch)
	switch c.State {
	case settle.Unreached, settle.PrepareCommit, settle.PrepareAbort:
		return nil
	case settle.Ongoing:
		return fmt.Errorf("transaction %s is open again: another process writes", id)
	case settle.CompleteAbort:
	case settle.NoHistory:
		epoch--
	case settle.CompleteCommit:
		epoch = -1
	}
	// The look before was at a log that may have got its marker since: the coordinator first, and the log after it.
	open, err := r.openOf(ctx, func(producerID int64) bool { return producerID == t.ProducerID })
	if err != nil || !slices.Contains(open, *t) {
		return nil // looked at again
	}
	if err := r.rc.StillOwner(ctx); err != nil { // K2: all that took its time
		return err
	}
	if c.ProducerID != t.ProducerID || epoch < t.Epoch {
		return connector.Stop(fmt.Errorf("%s/%d: transaction %s (producer %d, epoch %d, from offset %d) is open in the log, "+
			"no checkpoint names it, and its coordinator does not say that it was aborted (%s of producer %d, epoch %d): "+
			"find out whose it is, end it there (kafka-transactions.sh), and start the job again",
			r.Topic, t.Partition, id, t.ProducerID, t.Epoch, t.Start, c.State, c.ProducerID, c.Epoch))
	}
	return r.markAborted(ctx, id, t, int16(epoch))
}
