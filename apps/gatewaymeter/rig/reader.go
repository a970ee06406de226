package rig

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/weir/apps/gatewaymeter/truebill"
)

// consumer returns a client that reads a topic from its beginning. It returns control records, too: they take
// offsets.
func (b *Broker) consumer(topic string, level kgo.IsolationLevel) (*kgo.Client, error) {
	return kgo.NewClient(
		kgo.SeedBrokers(b.Addresses...), kgo.ClientID(b.who+"-consumer"), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(level),
		kgo.KeepControlRecords(), kgo.FetchMaxWait(250*time.Millisecond),
		kgo.MetadataMinAge(100*time.Millisecond), kgo.DisableClientMetrics(),
	)
}

// Reader reads a topic from its beginning while the job runs and is killed, until it is closed.
type Reader struct {
	topic  string
	take   func(*kgo.Record) error
	client *kgo.Client
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	next    Offsets // behind what was read
	err     error
	changed chan struct{}
}

// StartReader reads a topic at an isolation level. take gets each record, control records included, one at a time;
// an error of it ends the reading.
func (b *Broker) StartReader(topic string, level kgo.IsolationLevel, take func(*kgo.Record) error) (*Reader, error) {
	client, err := b.consumer(topic, level)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &Reader{
		topic: topic, take: take, client: client, cancel: cancel, done: make(chan struct{}), next: Offsets{},
		changed: make(chan struct{}),
	}
	go r.read(ctx)
	return r, nil
}

func (r *Reader) read(ctx context.Context) {
	defer close(r.done)
	for ctx.Err() == nil {
		fetches := r.client.PollFetches(ctx)
		if ctx.Err() != nil {
			return
		}
		if r.takeAll(fetches) != nil {
			return
		}
	}
}

func (r *Reader) takeAll(fetches kgo.Fetches) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := fetches.Err(); err != nil {
		r.err = fmt.Errorf("read %s: %w", r.topic, err)
	}
	fetches.EachRecord(func(rec *kgo.Record) {
		if r.err == nil {
			r.next[rec.Partition] = rec.Offset + 1
			r.err = r.take(rec)
		}
	})
	close(r.changed)
	r.changed = make(chan struct{})
	return r.err
}

// Look calls f while nothing is taken.
func (r *Reader) Look(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// Wait waits until what was taken is as asked. until is called while nothing is taken.
func (r *Reader) Wait(ctx context.Context, until func() bool) error {
	for {
		r.mu.Lock()
		is, err, changed := until(), r.err, r.changed
		r.mu.Unlock()
		if err != nil || is {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// UpTo waits until everything before the ends has been read.
func (r *Reader) UpTo(ctx context.Context, ends Offsets) error {
	left := int64(0)
	err := r.Wait(ctx, func() bool { left = ends.Beyond(r.next); return left == 0 })
	if err != nil && left > 0 {
		return fmt.Errorf("the consumer of %s has %d offsets still to read: %w", r.topic, left, err)
	}
	return err
}

// Close ends the reading.
func (r *Reader) Close() {
	r.cancel()
	<-r.done
	r.client.Close()
}

// ReadEvents reads gateway-events up to its ends, for the true bill.
func (b *Broker) ReadEvents(ctx context.Context) ([]truebill.Record, error) {
	var records []truebill.Record
	err := b.ReadAll(ctx, b.Topics.Events, kgo.ReadCommitted(), func(r *kgo.Record) error {
		if !r.Attrs.IsControl() {
			records = append(records, truebill.Record{
				Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp, Key: r.Key, Value: r.Value,
			})
		}
		return nil
	})
	return records, err
}

// ReadAll reads a topic at an isolation level up to its ends. take gets each record, control records included.
func (b *Broker) ReadAll(
	ctx context.Context, topic string, level kgo.IsolationLevel, take func(*kgo.Record) error,
) error {
	ends, err := b.Ends(ctx, topic)
	if err != nil {
		return err
	}
	maps.DeleteFunc(ends, func(_ int32, end int64) bool { return end == 0 })
	reader, err := b.StartReader(topic, level, take)
	if err != nil {
		return err
	}
	defer reader.Close()
	return reader.UpTo(ctx, ends)
}
