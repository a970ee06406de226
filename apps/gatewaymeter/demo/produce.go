package demo

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/weir/apps/gatewaymeter/feed"
	"example.com/weir/apps/gatewaymeter/gateway"
	"example.com/weir/apps/gatewaymeter/replay"
)

// lateMax bounds how late a record of the demonstration comes: everything late has come soon after the
// last request.
const lateMax = 4 * time.Minute

// producer replays events onto gateway-events.
type producer struct {
	client     *kgo.Client
	topic      string
	partitions int
	speedup    float64
	start, end time.Time // of the requests
	generator  *replay.Generator

	sent atomic.Int64  // records that the broker acknowledged
	done chan struct{} // closed once all were, or one was not
	last time.Time     // of the last record; after done
	err  error         // after done
}

func newProducer(b *broker, in *feed.Input, cfg *Config, now time.Time) (*producer, error) {
	p := &producer{
		topic: b.topics.Events, partitions: eventPartitions(cfg), speedup: cfg.Speedup, done: make(chan struct{}),
	}
	span := time.Duration(float64(cfg.Duration) * cfg.Speedup)
	// It all lies in the past, and ends about now: no broker refuses it for its timestamps.
	start := now.Add(-span - lateMax - completionTimeout() - 15*time.Minute).Truncate(time.Minute)
	p.start, p.end = start, start.Add(span)
	shares := replay.Usual()
	shares.Bad = 0.001
	var err error
	p.generator, err = replay.New(replay.Config{
		Seed: cfg.Seed, Trace: in.Trace, Models: in.Models, Tenants: cfg.Tenants, Partitions: p.partitions,
		Duration: span, Rate: cfg.Rate / cfg.Speedup, LateMax: lateMax, Shares: shares,
		Start: start,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	p.client, err = kgo.NewClient(append(feed.Options(),
		kgo.SeedBrokers(b.addresses...), kgo.ClientID("weir-demo-gateway"))...)
	return p, err
}

// eventPartitions is how many partitions gateway-events has: no subtask is without.
func eventPartitions(cfg *Config) int { return max(4, cfg.Parallelism) }

// tailSpeedup is how fast event time passes at the least once no more requests come: what is late then
// is written within seconds.
const tailSpeedup = 120

// run writes the replay.
func (p *producer) run(ctx context.Context) {
	defer close(p.done)
	next, more := p.generator.Next()
	records := func(before time.Time) iter.Seq[replay.Record] {
		return func(yield func(replay.Record) bool) {
			for more && (before.IsZero() || next.At.Before(before)) {
				r := next
				p.last = r.At
				next, more = p.generator.Next()
				if !yield(r) {
					return
				}
			}
		}
	}
	all := func(yield func(replay.Record) bool) {
		for r := range feed.Paced(ctx, records(p.end), p.speedup) {
			if !yield(r) {
				return
			}
		}
		for r := range feed.Paced(ctx, records(time.Time{}), max(p.speedup, tailSpeedup)) {
			if !yield(r) {
				return
			}
		}
	}
	_, p.err = feed.ToTopic(ctx, p.client, p.topic, all, func() { p.sent.Add(1) })
}

// finish moves event time far enough for every request to be billed, as a quiet hour's first request does:
// a RequestStarted in each partition, which nothing completes and nobody is billed for. It returns the
// watermark that they bring about.
func (p *producer) finish(ctx context.Context) (time.Time, error) {
	at := p.last.Add(completionTimeout() + 2*time.Minute).Truncate(time.Microsecond)
	records := func(yield func(replay.Record) bool) {
		for i := range p.partitions {
			id := fmt.Sprintf("after-the-replay-%d", i)
			value := gateway.AppendEvent(nil, &gateway.Event{
				Kind: gateway.Started, EventID: id, TenantID: "after-the-replay", RequestID: id,
				Provider: "none", Model: "none", Time: at.UnixMicro(),
			})
			if !yield(replay.Record{At: at, Partition: int32(i), Key: []byte(id), Value: value}) {
				return
			}
		}
	}
	_, err := feed.ToTopic(ctx, p.client, p.topic, records, func() { p.sent.Add(1) })
	return at.Add(-outOfOrderness()), err
}
