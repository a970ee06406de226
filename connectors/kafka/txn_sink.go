package kafka

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/settle"
)

// txnSink is a sink with transactions: exactly-once.
type txnSink[T any] struct{ description[T] }

// ExclusiveName implements connector.Exclusive: two sinks with one prefix would fence each other.
func (s *txnSink[T]) ExclusiveName() string {
	return fmt.Sprintf("transactional-ID prefix %q", s.cfg.TransactionalIDPrefix)
}

// TransactionTimeout implements connector.Transactional.
func (s *txnSink[T]) TransactionTimeout() time.Duration {
	return s.cfg.withDefaults(nil).TransactionTimeout
}

// TransactionName implements connector.Transactional: it is the transactional ID.
func (s *txnSink[T]) TransactionName(c connector.Committable) string {
	h, err := settle.DecodeHandle(c.Payload)
	if err != nil { // whoever settles it says so
		return ""
	}
	return h.TransactionalID
}

// named is a committable that CURRENT names.
type named struct {
	id     connector.CommittableID
	handle *settle.Handle
}

// Writer opens the writer of one subtask.
func (s *txnSink[T]) Writer(ctx context.Context, wc connector.WriterContext) (connector.Writer[T], error) {
	return openTxnWriter(ctx, s.cfg.withDefaults(wc.Logger), s.encode, wc)
}

// Restore settles what CURRENT names, and ends whatever else the lineage left open.
func (s *txnSink[T]) Restore(ctx context.Context, rc connector.RestoreContext) error {
	names, err := decodeNamed(rc.Named)
	if err == nil {
		err = s.restore(ctx, rc, names)
	}
	if err != nil {
		return fmt.Errorf("restore of topic %s: %w", s.cfg.Topic, s.cfg.explain(err))
	}
	return nil
}

func decodeNamed(cs []connector.Committable) ([]named, error) {
	names := make([]named, 0, len(cs))
	for _, c := range cs {
		h, err := settle.DecodeHandle(c.Payload)
		if err != nil {
			return nil, connector.Stop(fmt.Errorf("committable %s: %w", c.ID(), err))
		}
		names = append(names, named{id: c.ID(), handle: h})
	}
	return names, nil
}

func (s *txnSink[T]) restore(ctx context.Context, rc connector.RestoreContext, names []named) error {
	cfg := s.cfg.withDefaults(rc.Logger)
	adm, err := newAdmin(cfg)
	if err != nil {
		return err
	}
	defer adm.close()
	r := &restorer{
		cfg: cfg, rc: rc, admin: adm, settler: newSettler(cfg, adm, rc.Logger),
	}
	if err := r.checkStart(ctx); err != nil {
		return err
	}
	// In the order of checkpoints within each subtask, and one at a time: the next EndTxn goes
	// out only once the transaction before is settled in the log (K3). Only then may anything
	// be ended: ending one of these would be the loss itself.
	for _, n := range names {
		if err := r.settler.settle(ctx, n.id, n.handle, settle.NotAsked); err != nil {
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

// restorer carries out one Restore.
type restorer struct {
	cfg     SinkConfig
	rc      connector.RestoreContext
	admin   *admin
	settler *settler
}

// checkStart holds the configuration against the cluster.
func (r *restorer) checkStart(ctx context.Context) error {
	if err := awaitTopic(ctx, r.admin, r.cfg.Topic, r.cfg.grace); err != nil {
		return err
	}
	timeout := r.cfg.TransactionTimeout
	if limit := r.admin.maxTransactionTimeout(ctx); limit > 0 && timeout > limit {
		return timeoutTooLong(timeout)
	}
	if need := r.rc.CheckpointTimeout + r.rc.RestartBudget; timeout < need {
		return connector.Stop(fmt.Errorf("transaction timeout %s is below checkpoint timeout %s plus restart "+
			"budget %s: a transaction would be aborted before its commit; raise the one or lower the others",
			timeout, r.rc.CheckpointTimeout, r.rc.RestartBudget))
	}
	return nil
}

// leftovers returns the transactions of this lineage, and of the accepted ones, that the
// coordinators know: of every subtask and slot, at whatever parallelism they were written. A
// fresh start that finds another lineage is refused.
func (r *restorer) leftovers(ctx context.Context) ([]listed, error) {
	all, err := r.admin.transactions(ctx, r.cfg.TransactionalIDPrefix)
	if err != nil {
		return nil, err
	}
	var left []listed
	var strangers []string
	for _, t := range all {
		switch {
		case t.id.Lineage == r.rc.Lineage, slices.Contains(r.rc.AcceptLineages, t.id.Lineage):
			left = append(left, t)
		case !slices.Contains(strangers, t.id.Lineage):
			strangers = append(strangers, t.id.Lineage)
		}
	}
	if r.rc.Fresh && len(strangers) > 0 {
		slices.Sort(strangers)
		return nil, connector.Stop(fmt.Errorf("a fresh start under the transactional ID prefix %q, where the "+
			"cluster knows of another lineage: %s. Either another sink uses the prefix: give this one its own. Or "+
			"the job ran before, and starting it afresh writes its results again: restore it, or accept that "+
			"lineage by name (accept lineages: --accept-lineage of weir run)", r.cfg.TransactionalIDPrefix, strings.Join(strangers, ", ")))
	}
	slices.SortFunc(left, func(a, b listed) int { return strings.Compare(a.id.String(), b.id.String()) })
	return left, nil
}

// end ends what is open and sees that nothing stays open. Named transactions are settled by now,
// so all of it was never named by a CURRENT: aborting it is right.
func (r *restorer) end(ctx context.Context, left []listed) error {
	if len(left) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CommitDeadline)
	defer cancel()
	for _, t := range left {
		if t.state == settle.Ongoing || t.state == settle.PrepareCommit || t.state == settle.PrepareAbort {
			if err := r.endOne(ctx, t.id.String()); err != nil {
				return err
			}
		}
	}
	return r.seeNothingOpen(ctx, left)
}

// endOne ends one transaction and waits until its coordinator says that it has ended.
func (r *restorer) endOne(ctx context.Context, txnID string) error {
	for try := 0; ; try++ {
		c, err := r.admin.describe(ctx, txnID)
		if err == nil {
			switch c.State {
			case settle.Ongoing:
				if err := r.rc.StillOwner(ctx); err != nil { // K2
					return err
				}
				r.settler.logger.Info("ending a transaction that no checkpoint names",
					"transaction", txnID)
				err = r.admin.fence(ctx, txnID, r.cfg.TransactionTimeout)
			case settle.PrepareCommit, settle.PrepareAbort, settle.Unreached:
			case settle.NoHistory, settle.CompleteCommit, settle.CompleteAbort:
				return nil
			}
		}
		if pauseErr := pause(ctx, try); pauseErr != nil {
			return fmt.Errorf("end transaction %s of a lost generation (%s at its coordinator): %w",
				txnID, c.State, orElse(err, pauseErr))
		}
	}
}

// seeNothingOpen waits until no partition of the topic shows an open transaction of these producers.
func (r *restorer) seeNothingOpen(ctx context.Context, left []listed) error {
	names := make(map[int64]string, len(left))
	for _, t := range left {
		names[t.producerID] = t.id.String()
	}
	since := time.Now()
	for try := 0; ; try++ {
		open, err := r.openOf(ctx, names)
		if err == nil && open == nil {
			return nil
		}
		if err == nil && time.Since(since) > r.settler.grace {
			txnID := names[open.producerID]
			if c, err := r.admin.describe(ctx, txnID); err != nil || c.State == settle.Ongoing {
				return fmt.Errorf("transaction %s is open again: another process writes", txnID)
			}
			return abortMarkerLost(r.cfg.Topic, txnID, open)
		}
		if pauseErr := pause(ctx, try); pauseErr != nil {
			return fmt.Errorf("see that nothing is left open: %w", orElse(err, pauseErr))
		}
	}
}

func (r *restorer) openOf(ctx context.Context, names map[int64]string) (*openTxn, error) {
	at, err := topicOf(ctx, r.admin, r.cfg.Topic)
	if err != nil {
		return nil, err
	}
	open, err := r.admin.openIn(ctx, r.cfg.Topic, at.partitions())
	if err != nil {
		return nil, err
	}
	for i := range open {
		if _, ok := names[open[i].producerID]; ok {
			return &open[i], nil
		}
	}
	return nil, nil
}

// abortMarkerLost is the error of a transaction that was never named by a checkpoint, has ended at its
// coordinator, and is still open in the log. Whatever marker comes next from this producer would
// decide its records.
func abortMarkerLost(topic, txnID string, t *openTxn) error {
	return connector.Stop(fmt.Errorf("%s/%d: transaction %s (producer %d, epoch %d, from offset %d) has ended at "+
		"its coordinator and is still open in the log: its ABORT marker was lost, and readers of committed "+
		"records wait there. No checkpoint names it: write an ABORT marker (kafka-transactions.sh abort), then "+
		"start the job again", topic, t.partition, txnID, t.producerID, t.epoch, t.start))
}

func timeoutTooLong(timeout time.Duration) error {
	return connector.Stop(fmt.Errorf("transaction timeout %s is above the brokers' transaction.max.timeout.ms: "+
		"lower the one or raise the other", timeout))
}

func orElse(err, other error) error {
	if err != nil {
		return err
	}
	return other
}
