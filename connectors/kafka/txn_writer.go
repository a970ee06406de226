package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/settle"
)

// txnWriter writes the records of a subtask into transactions: one is open and takes records while
// those of earlier checkpoints are committed.
type txnWriter[T any] struct {
	name    string
	cfg     SinkConfig
	wc      connector.WriterContext
	admin   *admin
	settler *settler
	pool    *pool

	// home is the topic as it was when the writer opened.
	home place
	// endTxn is the version that ends this writer's transactions: 5 where the cluster bumps the
	// epoch with it, 4 where it does not.
	endTxn int16

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
	w := &txnWriter[T]{
		name: name, cfg: cfg, wc: wc, admin: adm,
		settler: newSettler(cfg, adm, wc.Logger),
		pool: newPool(cfg.TransactionalIDPrefix, wc.Lineage, wc.Subtask,
			baseSlots+wc.TolerableCheckpointFailures),
		delivery: newDelivery(),
		encoder:  newEncoder(cfg.Topic, encode),
		turn:     make(chan struct{}, 1),
	}
	if w.home, err = topicOf(ctx, adm, cfg.Topic); err != nil {
		return nil, err
	}
	level, err := adm.transactionVersion(ctx)
	if err != nil {
		return nil, err
	}
	w.endTxn = 4
	if level >= transactionVersion2 {
		w.endTxn = 5
	}
	// The writer outlives the call that opens it.
	w.ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return w, nil
}

func newSettler(cfg SinkConfig, adm *admin, logger *slog.Logger) *settler {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &settler{admin: adm, logger: logger, deadline: cfg.CommitDeadline, grace: cfg.grace}
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
	client := w.open.slot.client
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
		client = w.open.slot.client
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
	// The client has a producer ID without an error, so this sends nothing.
	if err := s.client.BeginTransaction(); err != nil {
		w.drop(s)
		return fmt.Errorf("begin transaction %s: %w", s.txnID, err)
	}
	w.open = newTransaction(s)
	return nil
}

// ahead is a slot that is taken before it is needed: it costs several requests, and the rows behind a barrier
// would wait for them. What it holds is good once done is closed.
type ahead struct {
	done  chan struct{}
	slot  *slot
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
func (w *txnWriter[T]) ready(ctx context.Context) (*slot, error) {
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
			w.drop(a.slot)
		}
	}
	return w.takeFree(ctx)
}

// takeFree waits for a free slot and takes it.
func (w *txnWriter[T]) takeFree(ctx context.Context) (*slot, error) {
	s, err := w.pool.acquire(ctx)
	if err != nil {
		return nil, err
	}
	if err := w.take(ctx, s); err != nil {
		w.drop(s)
		return nil, fmt.Errorf("begin transaction %s: %w", s.txnID, err)
	}
	return s, nil
}

// drop frees a slot in which nothing was written.
func (w *txnWriter[T]) drop(s *slot) {
	s.discard()
	w.pool.giveBack(s)
}

// take gives a slot a client with an epoch of its own, and makes sure that nothing is left open
// under it. Whoever takes the ID after us leaves a later epoch in the log: then we ask
// whether we still own CURRENT, and begin again.
func (w *txnWriter[T]) take(ctx context.Context, s *slot) error {
	for try := 0; ; try++ {
		if err := w.wc.StillOwner(ctx); err != nil { // K2
			return err
		}
		if err := w.connect(ctx, s); err != nil {
			return err
		}
		later, err := w.leftOpen(ctx, s)
		if err != nil || !later {
			return err
		}
		s.discard()
		if err := pause(ctx, try); err != nil {
			return fmt.Errorf("taken again and again by somebody else: %w", err)
		}
	}
}

// connect makes a client for the slot: one InitProducerID, now, under ctx. BeginTransaction would
// send it by itself, without end.
func (w *txnWriter[T]) connect(ctx context.Context, s *slot) error {
	opts, err := w.cfg.producerOptions()
	if err != nil {
		return err
	}
	opts = append(opts, kgo.TransactionalID(s.txnID), kgo.TransactionTimeout(w.cfg.TransactionTimeout))
	if w.endTxn < 5 {
		opts = append(opts, kgo.MaxVersions(transactionVersion1Requests()))
	}
	if s.client, err = kgo.NewClient(opts...); err != nil {
		return err
	}
	s.producerID, s.epoch, err = s.client.ProducerID(ctx)
	if errors.Is(err, kerr.InvalidTransactionTimeout) {
		return timeoutTooLong(w.cfg.TransactionTimeout)
	}
	return err
}

// leftOpen looks at every partition of the topic for an open transaction of the slot's producer.
// One under a later epoch is somebody else's, and is reported. One under an earlier epoch is ours
// and has ended at the coordinator: its marker was lost, and the next marker of this producer would
// decide its records too.
func (w *txnWriter[T]) leftOpen(ctx context.Context, s *slot) (later bool, err error) {
	lost, later, err := w.openOf(ctx, s)
	since := time.Now()
	for try := 0; err == nil && !later && lost != nil; try++ {
		if time.Since(since) > w.settler.grace {
			return false, abortMarkerLost(w.cfg.Topic, s.txnID, lost)
		}
		if err := pause(ctx, try); err != nil {
			return false, err
		}
		lost, later, err = w.openOf(ctx, s)
	}
	return later, err
}

func (w *txnWriter[T]) openOf(ctx context.Context, s *slot) (earlier *openTxn, later bool, err error) {
	at, err := topicOf(ctx, w.admin, w.cfg.Topic)
	if err != nil {
		return nil, false, err
	}
	open, err := w.admin.openIn(ctx, w.cfg.Topic, at.partitions())
	if err != nil {
		return nil, false, err
	}
	for i := range open {
		switch t := &open[i]; {
		case t.producerID != s.producerID:
		case t.epoch > int32(s.epoch):
			return nil, true, nil
		default:
			earlier = t
		}
	}
	return earlier, false, nil
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
	if err := w.delivery.flush(ctx, t.slot.client); err != nil {
		return nil, err
	}
	at, err := topicOf(ctx, w.admin, w.cfg.Topic)
	if err != nil {
		return nil, err
	}
	if at.topicID != w.home.topicID || at.clusterID != w.home.clusterID {
		return nil, connector.Stop(fmt.Errorf("topic %s was deleted and made again while it was written "+
			"(topic ID %x, now %x)", w.cfg.Topic, w.home.topicID, at.topicID))
	}
	epochs, err := w.admin.leaderEpochs(ctx, w.cfg.Topic)
	if err != nil {
		return nil, err
	}
	h := &settle.Handle{
		ClusterID: at.clusterID, Topic: w.cfg.Topic, TopicID: at.topicID, TransactionalID: t.slot.txnID,
		ProducerID: t.producerID, Epoch: t.epoch, EndTxnVersion: w.endTxn, Parts: t.written(),
	}
	for i := range h.Parts {
		if e, ok := epochs[h.Parts[i].Partition]; ok {
			h.Parts[i].LeaderEpoch = e
		}
	}
	if n := h.Records(); n != t.records {
		return nil, fmt.Errorf("transaction %s: %d records sent, %d acknowledged", t.slot.txnID, t.records, n)
	}
	payload, err := h.Encode()
	if err != nil {
		return nil, err
	}
	// The client that wrote the transaction does not end it. Where it believes that none of its
	// records arrived it aborts when it is told to commit, and after an error it may begin anew
	// by itself, which aborts too. A raw EndTxn does what it says (K6).
	t.slot.discard()
	w.pool.pend(t.slot, h, checkpoint)
	w.open = nil
	w.takeAhead()
	return &connector.Committable{
		Sink: w.wc.Operator, Subtask: w.wc.Subtask, Checkpoint: checkpoint, Digest: t.digest(), Payload: payload,
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

	h, err := settle.DecodeHandle(c.Payload)
	if err != nil {
		return connector.Stop(fmt.Errorf("%s: commit %s: %w", w.name, c.ID(), err))
	}
	s := w.pool.find(h)
	if s == nil {
		return w.settler.settle(ctx, c.ID(), h, settle.NotAsked)
	}
	if w.pool.isSettled(s) {
		return nil
	}
	if err := w.pool.inTurn(s.checkpoint); err != nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}
	if err := w.settler.settle(ctx, c.ID(), h, w.admin.commit(ctx, h)); err != nil {
		return err
	}
	w.pool.settled(s)
	return nil
}

// Release frees the transactional ID of a committable that no CURRENT names.
func (w *txnWriter[T]) Release(c connector.Committable) {
	h, err := settle.DecodeHandle(c.Payload)
	if err == nil {
		err = w.pool.release(h)
	}
	if err != nil {
		w.settler.logger.Error("a committable was released that is not settled; its transactional ID stays taken",
			"checkpoint", c.Checkpoint, "error", err)
	}
}

// Close releases clients and goroutines. Whatever is open stays open (K5).
func (w *txnWriter[T]) Close() error {
	w.cancel()
	if w.next != nil {
		<-w.next.done
	}
	w.turn <- struct{}{} // a commit under way ends first; none begins after
	defer func() { <-w.turn }()
	w.pool.close()
	w.admin.close()
	return nil
}
