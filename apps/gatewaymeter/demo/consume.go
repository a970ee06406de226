package demo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/weir/apps/gatewaymeter/ledger"
	"example.com/weir/apps/gatewaymeter/truebill"
)

// consumer returns a client that reads a topic from its beginning, and of transactions only what is
// committed. It returns control records, too: they take offsets.
func (b *broker) consumer(topic string) (*kgo.Client, error) {
	return kgo.NewClient(
		kgo.SeedBrokers(b.addresses...), kgo.ClientID("weir-demo-billing"), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), kgo.FetchMaxWait(250*time.Millisecond),
		kgo.MetadataMinAge(100*time.Millisecond), kgo.DisableClientMetrics(),
	)
}

// billing is the consumer of tenant-cost that bills: it reads while the job runs and is killed.
type billing struct {
	client *kgo.Client
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	ledger  ledger.Ledger
	next    offsets // behind what was read
	err     error
	changed chan struct{}
}

func (b *broker) startBilling() (*billing, error) {
	client, err := b.consumer(b.topics.TenantCost)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &billing{
		client: client, cancel: cancel, done: make(chan struct{}), next: offsets{}, changed: make(chan struct{}),
	}
	go c.read(ctx)
	return c, nil
}

func (c *billing) read(ctx context.Context) {
	defer close(c.done)
	for ctx.Err() == nil {
		fetches := c.client.PollFetches(ctx)
		if ctx.Err() != nil {
			return
		}
		c.mu.Lock()
		c.take(fetches)
		failed := c.err != nil
		close(c.changed)
		c.changed = make(chan struct{})
		c.mu.Unlock()
		if failed {
			return
		}
	}
}

func (c *billing) take(fetches kgo.Fetches) {
	if err := fetches.Err(); err != nil {
		c.err = fmt.Errorf("read tenant-cost: %w", err)
		return
	}
	fetches.EachRecord(func(r *kgo.Record) {
		c.next[r.Partition] = r.Offset + 1
		if r.Attrs.IsControl() || c.err != nil {
			return
		}
		c.err = c.ledger.Add(r.Key, r.Value)
	})
}

// records returns how many records were read.
func (c *billing) records() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ledger.Records()
}

// minutes returns how many minutes of event time somebody was billed for, and how many records were read.
func (c *billing) minutes() (minutes, records int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ledger.Minutes(), c.ledger.Records()
}

// upTo waits until everything before the ends has been read.
func (c *billing) upTo(ctx context.Context, ends offsets) error {
	for {
		c.mu.Lock()
		left, err, changed := ends.beyond(c.next), c.err, c.changed
		c.mu.Unlock()
		if err != nil || left == 0 {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("the billing consumer has %d offsets of tenant-cost still to read: %w", left, context.Cause(ctx))
		}
	}
}

func (c *billing) close() {
	c.cancel()
	<-c.done
	c.client.Close()
}

// readEvents reads gateway-events up to its ends, for the true bill.
func (b *broker) readEvents(ctx context.Context) ([]truebill.Record, error) {
	ends, err := b.ends(ctx, b.topics.Events)
	if err != nil {
		return nil, err
	}
	client, err := b.consumer(b.topics.Events)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var records []truebill.Record
	next := offsets{}
	maps.DeleteFunc(ends, func(_ int32, end int64) bool { return end == 0 })
	for ends.beyond(next) > 0 {
		fetches := client.PollFetches(ctx)
		if err := errors.Join(fetches.Err(), ctx.Err()); err != nil {
			return nil, fmt.Errorf("read %s: %w", b.topics.Events, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			next[r.Partition] = r.Offset + 1
			if !r.Attrs.IsControl() {
				records = append(records, truebill.Record{
					Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp, Key: r.Key, Value: r.Value,
				})
			}
		})
	}
	return records, nil
}
