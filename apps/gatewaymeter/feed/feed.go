package feed

import (
	"context"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/weir/apps/gatewaymeter/replay"
)

// Paced returns the records at the times they bear, speedup times as fast: with 60, what comes in
// a minute of the replay comes in a second. The first one comes at once. Zero is as fast as they
// are taken. It ends early once ctx has ended.
func Paced(ctx context.Context, records iter.Seq[replay.Record], speedup float64) iter.Seq[replay.Record] {
	if speedup <= 0 {
		return untilDone(ctx, records)
	}
	return func(yield func(replay.Record) bool) {
		var first time.Time
		began := time.Now()
		timer := time.NewTimer(0)
		defer timer.Stop()
		for r := range untilDone(ctx, records) {
			if first.IsZero() {
				first = r.At
			}
			due := time.Duration(float64(r.At.Sub(first)) / speedup)
			if wait := due - time.Since(began); wait > 0 {
				timer.Reset(wait)
				select {
				case <-timer.C:
				case <-ctx.Done():
					return
				}
			}
			if !yield(r) {
				return
			}
		}
	}
}

func untilDone(ctx context.Context, records iter.Seq[replay.Record]) iter.Seq[replay.Record] {
	return func(yield func(replay.Record) bool) {
		for r := range records {
			if ctx.Err() != nil || !yield(r) {
				return
			}
		}
	}
}

// Options returns what a client for ToTopic needs beside its brokers.
func Options() []kgo.Opt {
	return []kgo.Opt{
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), // a replay names partitions
		kgo.ProducerLinger(5 * time.Millisecond),
		kgo.MetadataMinAge(100 * time.Millisecond), // a fresh topic else takes up to 5 s to be written to
		kgo.DisableClientMetrics(),
	}
}

// ToTopic writes records, which name partitions, to a topic through a client with Options, and returns
// how many were acknowledged once all were, or one was not. acknowledged, if it is not nil, is told of each as it is.
func ToTopic(
	ctx context.Context, client *kgo.Client, topic string, records iter.Seq[replay.Record],
	acknowledged func(),
) (int64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	var written int64
	for r := range untilDone(ctx, records) {
		rec := &kgo.Record{Topic: topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Timestamp: r.At}
		client.Produce(ctx, rec, func(rec *kgo.Record, err error) {
			if err != nil {
				cancel(fmt.Errorf("write request %s to %s: %w", rec.Key, topic, err))
				return
			}
			mu.Lock()
			written++
			mu.Unlock()
			if acknowledged != nil {
				acknowledged()
			}
		})
	}
	err := client.Flush(ctx)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	mu.Lock()
	defer mu.Unlock()
	return written, err
}

// ToLines writes the values of records, one a line and each with one call of Write, and returns how
// many.
func ToLines(ctx context.Context, to io.Writer, records iter.Seq[replay.Record]) (written int64, err error) {
	for r := range untilDone(ctx, records) {
		if _, err := to.Write(append(r.Value, '\n')); err != nil {
			return written, err
		}
		written++
	}
	return written, context.Cause(ctx)
}

// Partitions returns how many partitions a topic has.
func Partitions(ctx context.Context, client *kgo.Client, topic string) (int, error) {
	n, err := partitions(ctx, client, topic)
	if err != nil {
		return 0, fmt.Errorf("partitions of topic %s: %w", topic, err)
	}
	return n, nil
}
