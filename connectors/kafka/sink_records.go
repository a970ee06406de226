package kafka

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/weir/connector"
)

// scratchSize is the room that encode finds in Key and Value at first. It grows with the records.
const scratchSize = 512

// encoder turns rows into records for the client. Records, their bytes and their promises are used
// again once the broker has answered: nothing is allocated for each record.
type encoder[T any] struct {
	topic  string
	encode func(*T, *Record) error
	free   *sync.Pool // of *outgoing

	given      Record // what encode is given
	key, value []byte // its scratch memory, always the encoder's own
	headers    []connector.Header
}

func newEncoder[T any](topic string, encode func(*T, *Record) error) *encoder[T] {
	free := new(sync.Pool)
	free.New = func() any {
		// Never without memory: an empty value in none would be nil, and so a tombstone.
		o := &outgoing{home: free, buf: make([]byte, 0, scratchSize)}
		o.promise = o.answered
		return o
	}
	return &encoder[T]{
		topic: topic, encode: encode, free: free,
		key: make([]byte, 0, scratchSize), value: make([]byte, 0, scratchSize),
	}
}

// record encodes a row. now is the timestamp of a record that names none; taking it once a batch
// saves the clock's cost for each record.
func (e *encoder[T]) record(row *T, now time.Time) (*outgoing, error) {
	r := &e.given
	*r = Record{Partition: -1, Key: e.key, Value: e.value, Headers: e.headers}
	if err := e.encode(row, r); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	if r.Topic != "" && r.Topic != e.topic {
		return nil, fmt.Errorf("encode: the record names topic %q, and the sink writes %q", r.Topic, e.topic)
	}
	if len(r.Key) == 0 && unsafe.SliceData(r.Key) == unsafe.SliceData(e.key) {
		r.Key = nil // untouched
	}
	e.grow(r)
	out := e.free.Get().(*outgoing)
	out.fill(r, e.topic, now)
	return out, nil
}

// grow makes room for records like r. What encode left in r may be its own memory, so it is
// never taken for scratch.
func (e *encoder[T]) grow(r *Record) {
	if len(r.Key) > cap(e.key) {
		e.key = make([]byte, 0, 2*len(r.Key))
	}
	if len(r.Value) > cap(e.value) {
		e.value = make([]byte, 0, 2*len(r.Value))
	}
	if len(r.Headers) > cap(e.headers) {
		e.headers = make([]connector.Header, 0, 2*len(r.Headers))
	}
}

// outgoing is a record on its way to a broker, with the memory that it lives in.
type outgoing struct {
	rec     kgo.Record
	named   bool   // whether encode named the timestamp
	buf     []byte // key, value and header values, in this order
	headers []kgo.RecordHeader

	delivery *delivery
	txn      *transaction // nil outside of transactions
	home     *sync.Pool
	promise  func(*kgo.Record, error)
}

func (o *outgoing) fill(r *Record, topic string, now time.Time) {
	o.named = !r.Timestamp.IsZero()
	if o.named {
		now = r.Timestamp
	}
	buf := append(append(o.buf[:0], r.Key...), r.Value...)
	for i := range r.Headers {
		buf = append(buf, r.Headers[i].Value...)
	}
	o.buf = buf
	// Partition is read by the partitioner. The context is the record's own: the one given to
	// Write ends the wait for room, not the sending.
	o.rec = kgo.Record{Topic: topic, Partition: r.Partition, Timestamp: now, Context: context.Background()}
	k, v := len(r.Key), len(r.Value)
	if r.Key != nil {
		o.rec.Key = buf[:k:k]
	}
	if r.Value != nil {
		o.rec.Value = buf[k : k+v : k+v]
	}
	o.headers = o.headers[:0]
	at := k + v
	for i := range r.Headers {
		h := kgo.RecordHeader{Key: r.Headers[i].Key}
		if n := len(r.Headers[i].Value); r.Headers[i].Value != nil {
			h.Value = buf[at : at+n : at+n]
			at += n
		}
		o.headers = append(o.headers, h)
	}
	o.rec.Headers = o.headers
}

// answered is the record's promise. It runs on a goroutine of the client.
func (o *outgoing) answered(_ *kgo.Record, err error) {
	d, t := o.delivery, o.txn
	if err == nil && t != nil {
		err = t.answered(&o.rec)
	}
	if err != nil {
		d.fail(fmt.Errorf("send to %s/%d: %w", o.rec.Topic, o.rec.Partition, err))
	}
	o.delivery, o.txn = nil, nil
	o.home.Put(o)
	d.done.Add(1)
}

// delivery counts what was sent and what was answered, and keeps the first failure for ever: a
// record lost in the middle is not healed by the ones after it (C3).
type delivery struct {
	sent   int64        // by the writer's goroutine
	done   atomic.Int64 // by the client's
	once   sync.Once
	broken chan struct{} // closed after err is set
	err    error
}

func newDelivery() *delivery { return &delivery{broken: make(chan struct{})} }

func (d *delivery) fail(err error) {
	d.once.Do(func() {
		d.err = err
		close(d.broken)
	})
}

func (d *delivery) failure() error {
	select {
	case <-d.broken:
		return d.err
	default:
		return nil
	}
}

func (d *delivery) send(ctx context.Context, client *kgo.Client, out *outgoing, t *transaction) {
	out.delivery, out.txn = d, t
	d.sent++
	client.Produce(ctx, &out.rec, out.promise)
}

// flush waits until every record sent has been acknowledged.
func (d *delivery) flush(ctx context.Context, client *kgo.Client) error {
	if err := d.failure(); err != nil {
		return err
	}
	if client != nil {
		if err := client.Flush(ctx); err != nil {
			return fmt.Errorf("flush: %w", err)
		}
	}
	if d.done.Load() == d.sent {
		return d.failure()
	}
	// The client's Flush does not count a record that it refused before buffering it; the
	// promise of such a record brings its error a moment later.
	select {
	case <-d.broken:
		return d.err
	case <-ctx.Done():
		return fmt.Errorf("flush: %w", ctx.Err())
	}
}
