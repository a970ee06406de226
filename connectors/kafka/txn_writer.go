package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/txn"
)

// txnWriter writes the records of a subtask into transactions: one is open and takes records while
// those of earlier checkpoints are committed.
type txnWriter[T any] struct {
	name      string
	wc        connector.WriterContext
	admin     *admin
	pool      *txn.Pool
	taker     txn.Taker
	committer txn.Committer

	// home is the topic as it was when the writer opened.
	home txn.Place

	delivery *delivery
	encoder  *encoder[T]
	open     *transaction // nil until something is written
	next     *ahead       // what the transaction after it will be written in, if that is on its way

	// ctx ends with Close; turn is held while a commit runs.
	ctx    context.Context
	cancel context.CancelFunc
	turn   chan struct{}
}

func openTxnWriter[T any](
	ctx context.Context, cfg SinkConfig, encode func(*T, *Record) error, wc connector.WriterContext,
) (_ *txnWriter[T], err error) {
	name := sinkName(wc.Operator, wc.Subtask)
	adm, err := newAdmin(cfg)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer func() {
		if err != nil {
			adm.close()
			err = fmt.Errorf("%s: %w", name, cfg.explain(err))
		}
	}()
	if cfg.DoNotKeepRecords {
		wc.Keep = nil
	}
	course := cfg.transactions(adm, wc.Logger)
	course.Reached = wc.Reached
	pool := txn.NewPool(cfg.TransactionalIDPrefix, wc.Lineage, wc.Subtask, wc.TolerableCheckpointFailures)
	w := &txnWriter[T]{
		name: name, wc: wc, admin: adm, pool: pool,
		taker:     txn.Taker{Config: course, StillOwner: wc.StillOwner},
		committer: txn.Committer{Config: course, Pool: pool},
		delivery:  newDelivery(),
		encoder:   newEncoder(cfg.Topic, encode),
		turn:      make(chan struct{}, 1),
	}
	if w.home, err = txn.Find(ctx, adm, cfg.Topic); err != nil {
		return nil, err
	}
	if _, err := adm.endTxnVersion(ctx); err != nil {
		return nil, err
	}
	// The writer outlives the call that opens it.
	w.ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return w, nil
}

// Write hands the rows to the open transaction, and begins one if there is none.
func (w *txnWriter[T]) Write(ctx context.Context, rows []T) error {
	if err := w.delivery.failure(); err != nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}
	if len(rows) == 0 {
		return nil
	}
	if w.open == nil {
		if err := w.begin(ctx); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	now := time.Now()
	client := w.open.by.client
	for i := range rows {
		out, err := w.encoder.record(&rows[i], now)
		if err != nil {
			return fmt.Errorf("%s: row %d of the batch: %w", w.name, i, err)
		}
		w.open.add(out, out.rec.Partition)
		w.delivery.send(ctx, client, out, w.open)
	}
	return nil
}

// Flush waits until every record written is acknowledged. It is the pre-commit.
func (w *txnWriter[T]) Flush(ctx context.Context, _ bool) error {
	var client *kgo.Client
	if w.open != nil {
		client = w.open.by.client
	}
	if err := w.delivery.flush(ctx, client); err != nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}
	return nil
}

// begin opens a transaction under a free ID.
func (w *txnWriter[T]) begin(ctx context.Context) error {
	s, err := w.ready(ctx)
	if err != nil {
		return err
	}
	var keeper connector.Keeper
	if w.wc.Keep != nil {
		keeper = w.wc.Keep()
	}
	w.open = newTransaction(s, s.Producer.(*producer), keeper) // this writer's cluster makes no other ones
	return nil
}

// ahead is a slot that is taken before it is needed: it costs several requests, and the rows behind a barrier
// would wait for them. What it holds is good once done is closed.
type ahead struct {
	done  chan struct{}
	slot  *txn.Slot
	err   error
	since time.Time
}

// maxAhead is how long a slot may wait to be needed. Brokers forget transactional IDs that are not used, after a
// week if nothing else is configured.
const maxAhead = 10 * time.Minute

// takeAhead begins to take a slot for the next transaction.
func (w *txnWriter[T]) takeAhead() {
	a := &ahead{done: make(chan struct{}), since: time.Now()}
	w.next = a
	go func() {
		defer close(a.done)
		a.slot, a.err = w.takeFree(w.ctx)
	}()
}

// ready returns a slot for the next transaction: the one that was taken ahead or, where there is none or it
// failed, another one.
func (w *txnWriter[T]) ready(ctx context.Context) (*txn.Slot, error) {
	if a := w.next; a != nil {
		select {
		case <-a.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for a transactional ID: %w", ctx.Err())
		}
		w.next = nil
		if a.err == nil && time.Since(a.since) < maxAhead {
			return a.slot, nil
		}
		if a.err == nil {
			w.pool.GiveBack(a.slot)
		}
	}
	return w.takeFree(ctx)
}

// takeFree waits for a free slot and takes it.
func (w *txnWriter[T]) takeFree(ctx context.Context) (*txn.Slot, error) {
	s, err := w.acquire(ctx)
	if err != nil {
		return nil, err
	}
	if s.Producer, err = w.taker.Take(ctx, s.ID); err != nil {
		w.pool.GiveBack(s)
		return nil, fmt.Errorf("begin transaction %s: %w", s.ID, err)
	}
	return s, nil
}

// acquire waits for a free slot. A full pool is backpressure; it hinders neither Commit nor Release.
func (w *txnWriter[T]) acquire(ctx context.Context) (*txn.Slot, error) {
	for {
		if s := w.pool.Acquire(); s != nil {
			return s, nil
		}
		select {
		case <-w.pool.Freed():
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for a free transactional ID (all %d hold a checkpoint that is not "+
				"released): %w", w.pool.Size(), ctx.Err())
		}
	}
}

// PrepareCommit names the flushed transaction in a committable. The next row begins another one,
// under another ID.
func (w *txnWriter[T]) PrepareCommit(ctx context.Context, checkpoint uint64) (*connector.Committable, error) {
	c, err := w.prepare(ctx, checkpoint)
	if err != nil {
		return nil, fmt.Errorf("%s: checkpoint %d: %w", w.name, checkpoint, err)
	}
	return c, nil
}

func (w *txnWriter[T]) prepare(ctx context.Context, checkpoint uint64) (*connector.Committable, error) {
	t := w.open
	if t == nil || t.records == 0 {
		return nil, w.delivery.failure() // an empty transaction cannot be committed
	}
	if err := w.delivery.flush(ctx, t.by.client); err != nil {
		return nil, err
	}
	h, err := w.taker.Handle(ctx, &w.home, txn.Written{
		TransactionalID: t.by.txnID, ProducerID: t.by.producerID, Epoch: t.by.epoch, EndTxnVersion: t.by.endTxn,
		Parts: t.written(),
	})
	if err != nil {
		return nil, err
	}
	if n := h.Records(); n != t.records {
		return nil, fmt.Errorf("transaction %s: %d records sent, %d acknowledged", t.by.txnID, t.records, n)
	}
	payload, err := h.Encode()
	if err != nil {
		return nil, err
	}
	w.pool.Pend(t.slot, h, checkpoint)
	w.open = nil
	w.takeAhead()
	return &connector.Committable{
		Sink: w.wc.Operator, Subtask: w.wc.Subtask, Checkpoint: checkpoint, Digest: t.digest(), Payload: payload,
		Kept: t.keep.seal(),
	}, nil
}

// Commit commits a transaction and returns once the log shows it. It runs beside Write.
func (w *txnWriter[T]) Commit(ctx context.Context, c connector.Committable) error {
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if w.ctx.Err() != nil {
		return fmt.Errorf("%s: commit %s: the writer is closed", w.name, c.ID())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.ctx, cancel)()

	return w.committer.Commit(ctx, c)
}

// Release frees the transactional ID of a committable that no CURRENT names.
func (w *txnWriter[T]) Release(c connector.Committable) { w.committer.Release(c) }

// Close releases clients and goroutines. Whatever is open stays open (K5).
func (w *txnWriter[T]) Close() error {
	w.cancel()
	if w.next != nil {
		<-w.next.done
	}
	w.turn <- struct{}{} // a commit under way ends first; none begins after
	defer func() { <-w.turn }()
	w.pool.Close()
	if w.open != nil {
		w.open.keep.discard()
	}
	w.admin.close()
	return nil
}
