package rig

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/weir/apps/gatewaymeter"
	"example.com/weir/apps/gatewaymeter/feed"
	"example.com/weir/apps/gatewaymeter/gateway"
	"example.com/weir/apps/gatewaymeter/replay"
)

// Replay says what a Producer writes. Rate and Duration are in real time.
type Replay struct {
	Seed       uint64
	Rate       float64       // requests in a second
	Duration   time.Duration // how long requests come
	Speedup    float64       // how much faster event time passes
	Tenants    int
	Partitions int
	LateMax    time.Duration // how late a record comes at the most
	// TailSpeedup is how fast event time passes at the least once no more requests come: what is late then is
	// written within seconds.
	TailSpeedup float64
	Shares      replay.Shares
}

// Producer replays events onto gateway-events.
type Producer struct {
	Start, End time.Time // of the requests, in event time

	replay    Replay
	client    *kgo.Client
	topic     string
	generator *replay.Generator
	enough    chan struct{}

	sent atomic.Int64  // records that the broker acknowledged
	done chan struct{} // closed once all were, or one was not
	last time.Time     // of the last record; after done
	err  error         // after done
}

// ErrReplay reports a replay that cannot be made.
var ErrReplay = errors.New("replay")

// NewProducer prepares a replay that ends, in event time, at about now: it all lies in the past, and no broker
// refuses it for its timestamps.
func (b *Broker) NewProducer(in *feed.Input, cfg Replay, now time.Time) (*Producer, error) {
	span := time.Duration(float64(cfg.Duration) * cfg.Speedup)
	start := now.Add(-span - cfg.LateMax - completionTimeout() - 15*time.Minute).Truncate(time.Minute)
	p := &Producer{
		Start: start, End: start.Add(span), replay: cfg, topic: b.Topics.Events, enough: make(chan struct{}),
		done: make(chan struct{}),
	}
	var err error
	p.generator, err = replay.New(replay.Config{
		Seed: cfg.Seed, Trace: in.Trace, Models: in.Models, Tenants: cfg.Tenants, Partitions: cfg.Partitions,
		Duration: span, Rate: cfg.Rate / cfg.Speedup, LateMax: cfg.LateMax, Shares: cfg.Shares, Start: start,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrReplay, err)
	}
	p.client, err = kgo.NewClient(append(feed.Options(),
		kgo.SeedBrokers(b.Addresses...), kgo.ClientID(b.who+"-gateway"))...)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Sent returns how many records the broker has acknowledged.
func (p *Producer) Sent() int64 { return p.sent.Load() }

// Done is closed once all has been written, or something could not be: Err says which.
func (p *Producer) Done() <-chan struct{} { return p.done }

// Err is what could not be written; after Done.
func (p *Producer) Err() error { return p.err }

// Close gives the client up.
func (p *Producer) Close() { p.client.Close() }

// Run writes the replay, up to its end or until End is called.
func (p *Producer) Run(ctx context.Context) {
	defer close(p.done)
	pacing, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-p.enough:
			cancel()
		case <-pacing.Done():
		}
	}()
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
		for r := range feed.Paced(pacing, records(p.End), p.replay.Speedup) {
			if !yield(r) {
				return
			}
		}
		for r := range feed.Paced(pacing, records(time.Time{}), max(p.replay.Speedup, p.replay.TailSpeedup)) {
			if !yield(r) {
				return
			}
		}
	}
	_, p.err = feed.ToTopic(ctx, p.client, p.topic, all, func() { p.sent.Add(1) })
}

// Enough ends the replay early. It is called once at the most.
func (p *Producer) Enough() { close(p.enough) }

// Finish moves event time far enough for every request to be billed, as a quiet hour's first request does:
// a RequestStarted in each partition, which nothing completes and nobody is billed for. It returns the
// watermark that they bring about. It is called after Done.
func (p *Producer) Finish(ctx context.Context) (time.Time, error) {
	at := p.last.Add(completionTimeout() + 2*time.Minute).Truncate(time.Microsecond)
	records := func(yield func(replay.Record) bool) {
		for i := range p.replay.Partitions {
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
	return at.Add(-gatewaymeter.Default().OutOfOrderness), err
}

func completionTimeout() time.Duration { return gatewaymeter.Default().CompletionTimeout }
