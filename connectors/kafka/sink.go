package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/settle"
	"example.com/weir/connectors/kafka/txn"
)

// The guarantees a sink can be asked for.
const (
	None        = connector.None
	AtLeastOnce = connector.AtLeastOnce
	ExactlyOnce = connector.ExactlyOnce
)

// LostTransaction says what is done about a transaction whose checkpoint is complete and that was aborted
// all the same.
type LostTransaction = txn.LostTransaction

// What is done about a lost transaction.
const (
	Reemit = txn.Reemit // write its records again, from the checkpoint, when the job restores
	Fail   = txn.Fail   // stop the job
	Skip   = txn.Skip   // go on without them, and say so in the log
)

// ParseLostTransaction reads the words reemit, fail and skip.
func ParseLostTransaction(s string) (LostTransaction, error) { return txn.ParseLostTransaction(s) }

// Defaults of SinkConfig.
const (
	defaultTransactionTimeout = 15 * time.Minute
	defaultCommitDeadline     = 2 * time.Minute
	defaultLinger             = 5 * time.Millisecond
)

// markerGrace is how long the brokers may take from the end of a transaction at the coordinator to
// its markers in the log: half of the commit deadline at most. A marker that is not there then was
// lost.
const markerGrace = 10 * time.Second

// SinkConfig configures a sink. Producers are always idempotent and wait for all in-sync replicas.
type SinkConfig struct {
	Config

	// Topic is where records go. It must exist.
	Topic string

	// Guarantee is what the topic's consumers get. There is no default.
	Guarantee connector.Guarantee

	// TransactionalIDPrefix begins the transactional IDs of the sink. ExactlyOnce needs one that
	// no other sink of the cluster uses; the other guarantees refuse one.
	TransactionalIDPrefix string

	// TransactionTimeout is how long the brokers leave a transaction open. It must cover a
	// checkpoint and the longest restart, for past it the transaction is aborted; and it cannot
	// exceed the brokers' transaction.max.timeout.ms. ExactlyOnce only. Default: 15 minutes.
	TransactionTimeout time.Duration

	// CommitDeadline is how long a commit is tried, again and again with pauses, before the
	// generation fails; no request is sent after it. The transaction stays open then, and the next
	// generation goes on with it: a new process reaches brokers that this one perhaps cannot. Trying for longer
	// than the brokers leave a transaction open is of no use. ExactlyOnce only. Default: 2 minutes, or the
	// transaction timeout if that is shorter.
	CommitDeadline time.Duration

	// AcceptCompaction lets the topic be compacted sooner (min.compaction.lag.ms) than a record has done its
	// part in the proof of its commit. A commit that cannot be proved stops the job. ExactlyOnce only.
	AcceptCompaction bool

	// LostTransaction is what is done about a transaction whose checkpoint is complete and that was
	// aborted all the same: because the job was away for longer than TransactionTimeout, say. Default:
	// Reemit. ExactlyOnce only.
	LostTransaction LostTransaction

	// DoNotKeepRecords switches off that a checkpoint keeps the records of its transactions, which costs
	// the storage what they take (compressed) until they are committed. Reemit needs them. ExactlyOnce only.
	DoNotKeepRecords bool

	// Compression is none, gzip, snappy, lz4 or zstd. Default: none.
	Compression string

	// Linger is how long a record may wait for others to share a request with. Default: 5 ms;
	// negative is not at all.
	Linger time.Duration

	// Seams for tests: options of every client, another markerGrace, and what comes between two looks at
	// transactions of other lineages.
	clientOptions []kgo.Opt
	grace         time.Duration
	betweenLooks  func(context.Context) error
}

func (c SinkConfig) withDefaults(logger *slog.Logger) SinkConfig {
	c.clientOptions = append(slices.Clone(c.clientOptions), logTo(logger))
	if c.TransactionTimeout == 0 {
		c.TransactionTimeout = defaultTransactionTimeout
	}
	if c.CommitDeadline == 0 {
		c.CommitDeadline = min(defaultCommitDeadline, c.TransactionTimeout)
	}
	if c.Linger == 0 {
		c.Linger = defaultLinger
	}
	if c.grace == 0 {
		c.grace = min(markerGrace, c.CommitDeadline/2)
	}
	return c
}

// allOptions are the options of every client of the sink.
func (c *SinkConfig) allOptions() []kgo.Opt { return append(c.options(), c.clientOptions...) }

// Sink describes a sink of rows of type T. With ExactlyOnce it is a connector.TwoPhaseSink.
//
// encode fills in a record: Key, Value, Headers, and optionally Timestamp (truncated to
// milliseconds; default: when the row is written) and Partition, which is -1 at first: the
// partition follows from the key as it does for Kafka's own producer. Topic may stay empty. Key and
// Value are empty slices with room at first, for encode to append to; what encode puts into the
// record is copied before encode is called again. A key that encode does not touch is no key.
func Sink[T any](cfg SinkConfig, encode func(row *T, r *Record) error) connector.Sink[T] {
	d := description[T]{cfg: cfg, encode: encode}
	if cfg.Guarantee == ExactlyOnce {
		return &txnSink[T]{description: d}
	}
	return &plainSink[T]{description: d}
}

// description is what both kinds of sink are made of.
type description[T any] struct {
	cfg    SinkConfig
	encode func(*T, *Record) error
}

// Guarantee returns the guarantee the sink was asked for.
func (d *description[T]) Guarantee() connector.Guarantee { return d.cfg.Guarantee }

// Validate reports what makes the configuration impossible, a pair of options that would weaken
// the guarantee in silence included.
func (d *description[T]) Validate(checkpoints bool) error {
	if d.encode == nil {
		return fmt.Errorf("kafka sink to topic %q: no encode function", d.cfg.Topic)
	}
	if err := d.cfg.check(checkpoints); err != nil {
		return fmt.Errorf("kafka sink to topic %q: %w", d.cfg.Topic, err)
	}
	return nil
}

func (c *SinkConfig) check(checkpoints bool) error {
	if err := c.validate(); err != nil {
		return err
	}
	if c.Topic == "" {
		return errors.New("no topic")
	}
	if _, err := codec(c.Compression); err != nil {
		return err
	}
	switch c.Guarantee {
	case None:
		return c.checkPlain()
	case AtLeastOnce:
		if !checkpoints {
			return errors.New("at-least-once needs checkpoints: without them a restart loses what was " +
				"not flushed; switch them on, or say none")
		}
		return c.checkPlain()
	case ExactlyOnce:
		if !checkpoints {
			return errors.New("exactly-once needs checkpoints: a transaction is committed after its " +
				"checkpoint; switch them on, or say none")
		}
		return c.checkTransactions()
	case connector.Unstated:
	}
	return fmt.Errorf("guarantee %s: say none, at-least-once or exactly-once; there is no default", c.Guarantee)
}

// checkPlain refuses options that only transactions have: whoever sets one expects exactly-once.
func (c *SinkConfig) checkPlain() error {
	switch {
	case c.TransactionalIDPrefix != "":
		return fmt.Errorf("a transactional ID prefix with guarantee %s: transactions would be switched off "+
			"in silence; say exactly-once, or drop the prefix", c.Guarantee)
	case c.TransactionTimeout != 0, c.CommitDeadline != 0:
		return fmt.Errorf("a transaction timeout or commit deadline with guarantee %s: there are no "+
			"transactions; say exactly-once, or drop it", c.Guarantee)
	case c.AcceptCompaction:
		return fmt.Errorf("compaction accepted with guarantee %s: there are no commits to prove, and any topic "+
			"will do; say exactly-once, or drop it", c.Guarantee)
	case c.LostTransaction != Reemit, c.DoNotKeepRecords:
		return fmt.Errorf("a policy for lost transactions, or records not to be kept, with guarantee %s: there are "+
			"no transactions; say exactly-once, or drop it", c.Guarantee)
	}
	return nil
}

func (c *SinkConfig) checkTransactions() error {
	if c.TransactionalIDPrefix == "" {
		return errors.New("exactly-once needs a transactional ID prefix that no other sink uses")
	}
	if _, err := ParseLostTransaction(c.LostTransaction.String()); err != nil {
		return err
	}
	if c.LostTransaction == Reemit && c.DoNotKeepRecords {
		return errors.New("lost transactions are to be written again (reemit), and their records are not kept: " +
			"re-emission needs the records; keep them, or say fail or skip")
	}
	full := c.withDefaults(nil)
	if full.TransactionTimeout < time.Second || full.TransactionTimeout.Milliseconds() > math.MaxInt32 {
		return fmt.Errorf("transaction timeout %s: want at least 1s and less than 25 days", full.TransactionTimeout)
	}
	if full.CommitDeadline < time.Second {
		return fmt.Errorf("commit deadline %s: want at least 1s", full.CommitDeadline)
	}
	return settle.ID{Prefix: c.TransactionalIDPrefix, Lineage: "0000000000000000"}.Check()
}

func codec(name string) (kgo.CompressionCodec, error) {
	switch name {
	case "", "none":
		return kgo.NoCompression(), nil
	case "gzip":
		return kgo.GzipCompression(), nil
	case "snappy":
		return kgo.SnappyCompression(), nil
	case "lz4":
		return kgo.Lz4Compression(), nil
	case "zstd":
		return kgo.ZstdCompression(), nil
	}
	return kgo.CompressionCodec{}, fmt.Errorf("compression %q: want none, gzip, snappy, lz4 or zstd", name)
}

// maxBuffered is how many bytes of records a writer holds that no broker has acknowledged: Write blocks then. The
// client's own limit counts records alone, 10,000 of them, however large they are.
const maxBuffered = 32 << 20

// producerOptions are the options of every client that writes records.
func (c *SinkConfig) producerOptions() ([]kgo.Opt, error) {
	compression, err := codec(c.Compression)
	if err != nil {
		return nil, err
	}
	opts := append([]kgo.Opt{kgo.MaxBufferedBytes(maxBuffered)}, c.allOptions()...)
	return append(opts,
		kgo.ProducerBatchCompression(compression),
		kgo.ProducerLinger(max(c.Linger, 0)),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(newPartitioner()),
	), nil
}

// plainSink is a sink without transactions.
type plainSink[T any] struct{ description[T] }

// Writer opens the writer of one subtask.
func (s *plainSink[T]) Writer(ctx context.Context, wc connector.WriterContext) (connector.Writer[T], error) {
	cfg := s.cfg.withDefaults(wc.Logger)
	if err := findTopic(ctx, cfg); err != nil {
		return nil, err
	}
	opts, err := cfg.producerOptions()
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	return &plainWriter[T]{
		name:     sinkName(wc.Operator, wc.Subtask),
		client:   client,
		delivery: newDelivery(),
		encoder:  newEncoder(cfg.Topic, s.encode),
	}, nil
}

// findTopic stops the job if the topic is not there: a first record that cannot be sent, perhaps days
// later, would be a worse time to say so.
func findTopic(ctx context.Context, cfg SinkConfig) error {
	adm, err := newAdmin(cfg)
	if err != nil {
		return err
	}
	defer adm.close()
	return cfg.explain(awaitTopic(ctx, adm, cfg.Topic, cfg.grace))
}

// plainWriter writes records outside of transactions: at-least-once, and none.
type plainWriter[T any] struct {
	name     string
	client   *kgo.Client
	delivery *delivery
	encoder  *encoder[T]
}

// Write hands the rows to the client.
func (w *plainWriter[T]) Write(ctx context.Context, rows []T) error {
	if err := w.delivery.failure(); err != nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}
	now := time.Now()
	for i := range rows {
		out, err := w.encoder.record(&rows[i], now)
		if err != nil {
			return fmt.Errorf("%s: row %d of the batch: %w", w.name, i, err)
		}
		w.delivery.send(ctx, w.client, out, nil)
	}
	return nil
}

// Flush waits until every record written is acknowledged. That is all that at-least-once is.
func (w *plainWriter[T]) Flush(ctx context.Context, _ bool) error {
	if err := w.delivery.flush(ctx, w.client); err != nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}
	return nil
}

// Close releases the client and drops what is not yet sent.
func (w *plainWriter[T]) Close() error {
	w.client.Close()
	return nil
}

func sinkName(operator string, subtask int) string {
	return fmt.Sprintf("sink %s[%d]", operator, subtask)
}
