package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/settle"
	"example.com/weir/connectors/kafka/txn"
)

// Administer implements connector.Administered.
func (s *txnSink[T]) Administer(logger *slog.Logger) (connector.TransactionAdmin, error) {
	cfg := s.cfg.withDefaults(logger)
	adm, err := newAdmin(cfg)
	if err != nil {
		return nil, cfg.explain(err)
	}
	return &txnAdmin{cfg: cfg, admin: adm, course: cfg.transactions(adm, logger)}, nil
}

// txnAdmin looks at the transactions of one sink from beside the job, and ends them. It judges them as a
// restore does (package settle). A transaction that no committable names has no handle; one is made for
// it of what the brokers say, so that the same rules hold.
type txnAdmin struct {
	cfg    SinkConfig
	admin  *admin
	course txn.Config
}

// Prefix implements connector.TransactionAdmin.
func (a *txnAdmin) Prefix() string { return a.cfg.TransactionalIDPrefix }

// Owner implements connector.TransactionAdmin.
func (a *txnAdmin) Owner(id string) (connector.TransactionOwner, bool) {
	parsed, ok := settle.ParseID(id)
	if !ok || parsed.Prefix != a.cfg.TransactionalIDPrefix {
		return connector.TransactionOwner{}, false
	}
	return connector.TransactionOwner{Lineage: parsed.Lineage, Subtask: parsed.Subtask, Slot: parsed.Slot}, true
}

// ID implements connector.TransactionAdmin.
func (a *txnAdmin) ID(c connector.Committable) (string, error) {
	h, err := settle.DecodeHandle(c.Payload)
	if err != nil {
		return "", connector.Stop(fmt.Errorf("committable %s: %w", c.ID(), err))
	}
	return h.TransactionalID, nil
}

// Close implements connector.TransactionAdmin.
func (a *txnAdmin) Close() { a.admin.close() }

// List implements connector.TransactionAdmin.
func (a *txnAdmin) List(ctx context.Context, named []connector.Committable) ([]connector.OutsideTransaction, error) {
	all, err := a.list(ctx, named)
	return all, a.cfg.explain(err)
}

func (a *txnAdmin) list(ctx context.Context, named []connector.Committable) ([]connector.OutsideTransaction, error) {
	listed, err := a.admin.List(ctx, a.cfg.TransactionalIDPrefix)
	if err != nil {
		return nil, err
	}
	open, err := a.openAnywhere(ctx, []string{a.cfg.Topic})
	if err != nil {
		return nil, err
	}
	writers := map[int64]bool{}
	for _, o := range open {
		writers[o.ProducerID] = true
	}
	subjects := make([]subject, 0, len(named))
	handled := map[string]bool{}
	for i := range named {
		id, err := a.ID(named[i])
		if err != nil {
			return nil, err
		}
		handled[id] = true
		subjects = append(subjects, subject{id: id, named: &named[i]})
	}
	for _, l := range listed {
		id := l.ID.String()
		waits := l.State == settle.Ongoing || l.State == settle.PrepareCommit || l.State == settle.PrepareAbort
		if (waits || writers[l.ProducerID]) && !handled[id] {
			handled[id] = true // while a coordinator moves, two list it
			subjects = append(subjects, subject{id: id})
		}
	}
	return a.inspectAll(ctx, subjects)
}

// subject is a transaction to be looked at.
type subject struct {
	id    string
	named *connector.Committable // nil: whatever the coordinator holds under this ID
}

// inspectAll looks at transactions side by side, because each may have to be watched for a while.
func (a *txnAdmin) inspectAll(ctx context.Context, subjects []subject) ([]connector.OutsideTransaction, error) {
	found := make([][]connector.OutsideTransaction, len(subjects))
	errs := make([]error, len(subjects))
	var wg sync.WaitGroup
	turn := make(chan struct{}, observers)
	for i := range subjects {
		wg.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			found[i], errs[i] = a.inspectWithSuccessor(ctx, subjects[i])
		})
	}
	wg.Wait()
	var all []connector.OutsideTransaction
	for _, ts := range found {
		all = append(all, ts...)
	}
	return all, errors.Join(errs...)
}

// inspectWithSuccessor also returns what somebody has opened under the ID of a named transaction since.
func (a *txnAdmin) inspectWithSuccessor(ctx context.Context, s subject) ([]connector.OutsideTransaction, error) {
	f, err := a.look(ctx, s, false)
	if err != nil {
		return nil, err
	}
	all := []connector.OutsideTransaction{a.report(s, f)}
	taken := f.described.ProducerID != f.handle.ProducerID || f.described.Epoch != f.handle.Epoch
	if s.named == nil || f.described.State != settle.Ongoing || !taken {
		return all, nil
	}
	s.named = nil
	if f, err = a.look(ctx, s, false); err != nil {
		return nil, err
	}
	return append(all, a.report(s, f)), nil
}

// Inspect implements connector.TransactionAdmin.
func (a *txnAdmin) Inspect(
	ctx context.Context, id string, named *connector.Committable,
) (connector.OutsideTransaction, error) {
	s := subject{id: id, named: named}
	f, err := a.look(ctx, s, true)
	if err != nil {
		return connector.OutsideTransaction{}, a.cfg.explain(err)
	}
	return a.report(s, f), nil
}

// Settle implements connector.TransactionAdmin.
func (a *txnAdmin) Settle(ctx context.Context, named connector.Committable) error {
	h, err := settle.DecodeHandle(named.Payload)
	if err != nil {
		return connector.Stop(fmt.Errorf("committable %s: %w", named.ID(), err))
	}
	return a.cfg.explain(a.course.Settle(ctx, named, h))
}

// Abort implements connector.TransactionAdmin.
func (a *txnAdmin) Abort(ctx context.Context, t *connector.OutsideTransaction) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.CommitDeadline)
	defer cancel()
	return a.cfg.explain(a.abort(ctx, t))
}

func (a *txnAdmin) abort(ctx context.Context, t *connector.OutsideTransaction) error {
	for try := 0; ; try++ {
		d, err := a.admin.describeFully(ctx, t.ID)
		if err == nil {
			switch d.State {
			case settle.Ongoing:
				if d.ProducerID != t.ProducerID || int(d.Epoch) != t.Epoch {
					return fmt.Errorf("transaction %s was producer %d, epoch %d, and is producer %d, epoch %d by now: somebody "+
						"uses its ID; nothing was aborted", t.ID, t.ProducerID, t.Epoch, d.ProducerID, d.Epoch)
				}
				err = a.admin.Fence(ctx, t.ID, a.cfg.TransactionTimeout)
			case settle.PrepareCommit, settle.PrepareAbort, settle.Unreached:
			case settle.NoHistory, settle.CompleteCommit, settle.CompleteAbort:
				return a.seeClosed(ctx, t)
			}
		}
		if pauseErr := a.pause(ctx, try); pauseErr != nil {
			return fmt.Errorf("abort transaction %s (%s at its coordinator): %w", t.ID, d.word, errors.Join(err, pauseErr))
		}
	}
}

// seeClosed waits until no partition shows the transaction open.
func (a *txnAdmin) seeClosed(ctx context.Context, t *connector.OutsideTransaction) error {
	since := time.Now()
	for try := 0; ; try++ {
		still, err := a.stillOpen(ctx, t)
		switch {
		case err == nil && still == "":
			return nil
		case err == nil && time.Since(since) > a.cfg.grace:
			return fmt.Errorf("transaction %s has ended at its coordinator and is still open in %s: its marker was lost; "+
				"nothing may use its ID until it is written (txn repair, or kafka-transactions.sh abort)", t.ID, still)
		}
		if pauseErr := a.pause(ctx, try); pauseErr != nil {
			return fmt.Errorf("see that transaction %s is closed: %w", t.ID, errors.Join(err, pauseErr))
		}
	}
}

// stillOpen names a partition that holds the transaction open; empty if none does.
func (a *txnAdmin) stillOpen(ctx context.Context, t *connector.OutsideTransaction) (string, error) {
	first, topics := map[string]int64{}, []string(nil)
	for i := range t.Partitions {
		p := &t.Partitions[i]
		first[p.Name] = p.First
		topics = append(topics, p.Name[:strings.LastIndexByte(p.Name, '/')])
	}
	open, err := a.openAnywhere(ctx, topics)
	if err != nil {
		return "", err
	}
	for _, o := range open {
		if at, ok := first[o.name()]; ok && o.ProducerID == t.ProducerID && o.Start == at {
			return o.name(), nil
		}
	}
	return "", nil
}

func (a *txnAdmin) pause(ctx context.Context, try int) error {
	return txn.Pause(ctx, a.course.Clock, try)
}

// Repair implements connector.TransactionAdmin.
func (a *txnAdmin) Repair(ctx context.Context, id string, named *connector.Committable) ([]string, error) {
	repaired, err := a.repair(ctx, subject{id: id, named: named})
	return repaired, a.cfg.explain(err)
}

func (a *txnAdmin) repair(ctx context.Context, s subject) (repaired []string, err error) {
	f, err := a.look(ctx, s, false)
	if err != nil {
		return nil, err
	}
	if f.verdict.Kind != settle.Unmarked {
		return nil, connector.Stop(fmt.Errorf("transaction %s is %s (%s): no marker is proved, so none was written",
			s.id, f.verdict.Kind, f.verdict.Reason))
	}
	missing := f.missing()
	for _, p := range missing {
		name := fmt.Sprintf("%s/%d", f.handle.Topic, p.Partition)
		err := a.admin.WriteMarker(ctx, txn.MarkerOrder{
			Topic: f.handle.Topic, Partition: p.Partition, ProducerID: f.handle.ProducerID,
			Epoch: f.verdict.MarkerEpoch, Marker: f.verdict.Missing,
		})
		if errors.Is(err, txn.ErrNoRight) {
			return repaired, a.noRight(s.id, f, missing, err)
		}
		if err != nil {
			return repaired, fmt.Errorf("transaction %s, %s: %w", s.id, name, err)
		}
		repaired = append(repaired, name)
	}
	return repaired, a.seeEnded(ctx, s)
}

// seeEnded waits until the log shows the end of a repaired transaction in every partition. A marker is
// seen once it is replicated.
func (a *txnAdmin) seeEnded(ctx context.Context, s subject) error {
	since := time.Now()
	for try := 0; ; try++ {
		f, err := a.look(ctx, s, false)
		switch {
		case err != nil:
		case f.verdict.Kind == settle.Committed, f.verdict.Kind == settle.Aborted, f.ended:
			return nil
		case time.Since(since) > a.cfg.grace:
			return fmt.Errorf("transaction %s is %s after its markers were written: %s", s.id, f.verdict.Kind, f.verdict.Reason)
		}
		if pauseErr := a.pause(ctx, try); pauseErr != nil {
			return fmt.Errorf("see the end of transaction %s: %w", s.id, errors.Join(err, pauseErr))
		}
	}
}

// noRight says who can write the markers instead, and how.
func (a *txnAdmin) noRight(id string, f finding, missing []settle.Part, err error) error {
	server := strings.Join(a.cfg.Brokers, ",")
	var b strings.Builder
	fmt.Fprintf(&b, "transaction %s lacks its %s marker, and this login may not write one: that takes the right "+
		"ClusterAction or Alter on the cluster (kafka-acls.sh --bootstrap-server %s --add --allow-principal User:NAME --operation ClusterAction --cluster)",
		id, f.verdict.Missing, server)
	if f.verdict.Missing == settle.Commit {
		b.WriteString("; kafka-transactions.sh is no way out: it can only abort, which would lose these records")
	} else {
		b.WriteString("; or somebody who has it runs")
		for _, p := range missing {
			fmt.Fprintf(&b, "\n  kafka-transactions.sh --bootstrap-server %s abort --topic %s --partition %d --start-offset %d",
				server, f.handle.Topic, p.Partition, p.First)
		}
	}
	return fmt.Errorf("%s: %w", b.String(), err)
}

// IfAborted implements connector.TransactionAdmin.
func (a *txnAdmin) IfAborted(c connector.Committable) string {
	switch {
	case a.course.LostTransaction == Skip:
		return "its records are lost, and the next start goes on without them"
	case a.course.LostTransaction == Reemit && c.Kept.Name != "":
		return "the next start writes its records again, from the checkpoint"
	}
	return "its records are lost, and the next start stops and names them"
}
