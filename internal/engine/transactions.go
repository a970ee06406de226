package engine

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"example.com/weir/connector"
	"example.com/weir/internal/protocol"
	"example.com/weir/internal/status"
)

// transaction is what a sink has open outside: what it writes, and, once a barrier has come, the
// committable until it is known to be settled.
type transaction struct {
	sink       string
	subtask    int
	checkpoint uint64 // 0 before the barrier
	handle     string // as the outside names it
	opened     time.Time
	timeout    time.Duration // 0: it has none
	kept       int64         // bytes of its records in the storage
}

// transactionOf describes a committable. One that a release wrote which did not note when it was opened
// was opened before its checkpoint at any rate.
func (p *Plan) transactionOf(c connector.Committable, before time.Time) transaction {
	t := transaction{sink: c.Sink, subtask: c.Subtask, checkpoint: c.Checkpoint, opened: c.Opened, kept: c.Kept.Size}
	if t.opened.IsZero() {
		t.opened = before
	}
	for _, s := range p.sinks {
		if s.uid == c.Sink && s.transactional != nil {
			t.timeout, t.handle = s.transactional.TransactionTimeout(), s.transactional.TransactionName(c)
		}
	}
	return t
}

// passBarrier notes that a barrier has come for what a sink writes: it is no more being written, and not
// prepared yet.
func (o *operatorStats) passBarrier(t transaction, checkpoint uint64) *transaction {
	t.checkpoint = checkpoint
	if r := o.keeping.Load(); r != nil {
		t.kept = r.Size()
	}
	o.prepared.Store(&t)
	return &t
}

func (t *transaction) at(now time.Time) status.Transaction {
	id := connector.CommittableID{Sink: t.sink, Subtask: t.subtask, Checkpoint: t.checkpoint}
	d := status.Transaction{
		ID: id.String(), Sink: t.sink, Subtask: t.subtask, Checkpoint: t.checkpoint, Handle: t.handle, Kept: t.kept,
		Age: max(now.Sub(t.opened), 0), Timeout: t.timeout,
	}
	if t.checkpoint == 0 {
		d.ID = protocol.SubtaskID{Operator: t.sink, Index: t.subtask}.String()
	}
	return d
}

// opened lists what is open: what the coordinator knows of, what is on its way to it, and what is
// being written.
func (v *view) opened() []transaction {
	all := slices.Clone(v.transactions)
	for _, s := range v.subtasks {
		for _, o := range s.operators {
			for _, t := range []*transaction{o.prepared.Load(), o.writing.Load()} {
				if t == nil || slices.ContainsFunc(all, t.same) {
					continue
				}
				all = append(all, *t)
				if r := o.keeping.Load(); t.checkpoint == 0 && r != nil {
					all[len(all)-1].kept = r.Size()
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b transaction) int {
		return cmp.Or(cmp.Compare(a.sink, b.sink), a.subtask-b.subtask, a.opened.Compare(b.opened))
	})
	return all
}

func (t *transaction) same(other transaction) bool {
	return t.sink == other.sink && t.subtask == other.subtask && t.checkpoint == other.checkpoint
}

// transactionID is a transaction through its life: it is opened once, and gets a checkpoint later.
type transactionID struct {
	placeID
	opened int64
}

// overdue finds the transactions of which half of the timeout is up, and that are not among those it
// found before. It returns what it is to be given the next time.
func overdue(all []transaction, before map[transactionID]bool, now time.Time) (found []status.Transaction, after map[transactionID]bool) {
	after = map[transactionID]bool{}
	for i := range all {
		t := all[i].at(now)
		if !t.Overdue() {
			continue
		}
		id := transactionID{placeID{all[i].sink, all[i].subtask}, all[i].opened.UnixNano()}
		if !before[id] {
			found = append(found, t)
		}
		after[id] = true
	}
	return found, after
}

// watchTransactions warns of each transaction that passes half of its timeout, once, whatever the job
// is doing: settling after an outage is when it matters. The function it returns ends it.
func watchTransactions(p *Plan, cfg RunConfig, control *Control) (end func()) {
	every := time.Duration(0)
	for _, s := range p.sinks {
		if s.transactional == nil {
			continue
		}
		if timeout := s.transactional.TransactionTimeout(); timeout > 0 && (every == 0 || timeout/16 < every) {
			every = max(timeout/16, time.Millisecond)
		}
	}
	if every == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		warned := map[transactionID]bool{}
		for {
			select {
			case <-ticker.C:
				var found []status.Transaction
				found, warned = overdue(control.view.Load().opened(), warned, cfg.Now())
				for i := range found {
					warnOverdue(cfg.Logger, &found[i])
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}

func warnOverdue(logger *slog.Logger, t *status.Transaction) {
	what := []any{"operator", t.Sink, "subtask", t.Subtask}
	if t.Checkpoint != 0 { // before its barrier it has neither
		what = append(what, "checkpoint", t.Checkpoint)
	}
	if t.Handle != "" {
		what = append(what, "transaction", t.Handle)
	}
	logger.Warn("a transaction has passed half of its timeout: readers of what it wrote wait, and past the "+
		"timeout it is lost outside", append(what, "age", t.Age, "timeout", t.Timeout)...)
}
