package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// openTransaction is a transaction of the job that its coordinator shows as not ended.
type openTransaction struct {
	ID    string
	State string
	Since time.Time // by the broker's clock
}

// open returns the job's transactions that have not ended.
func (b *broker) open(ctx context.Context) ([]openTransaction, error) {
	listed, err := b.admin.ListTransactions(ctx, nil, []string{"Ongoing", "PrepareCommit", "PrepareAbort"})
	if err != nil {
		return nil, fmt.Errorf("list transactions: %w", err)
	}
	var ids []string
	for _, t := range listed.Sorted() {
		if strings.HasPrefix(t.TxnID, b.prefix+"-") {
			ids = append(ids, t.TxnID)
		}
	}
	if len(ids) == 0 {
		return nil, nil // asking about none would describe all
	}
	described, err := b.admin.DescribeTransactions(ctx, ids...)
	if err != nil {
		return nil, fmt.Errorf("describe transactions: %w", err)
	}
	var open []openTransaction
	for _, t := range described.Sorted() {
		if t.Err != nil {
			return nil, fmt.Errorf("describe transaction %s: %w", t.TxnID, t.Err)
		}
		if t.State == "Ongoing" || strings.HasPrefix(t.State, "Prepare") {
			open = append(open, openTransaction{ID: t.TxnID, State: t.State, Since: time.UnixMilli(t.StartTimestamp)})
		}
	}
	return open, nil
}

// offsets are offsets of the partitions of a topic.
type offsets map[int32]int64

func offsetsOf(listed kadm.ListedOffsets) (offsets, error) {
	if err := listed.Error(); err != nil {
		return nil, err
	}
	o := offsets{}
	listed.Each(func(l kadm.ListedOffset) { o[l.Partition] = l.Offset })
	return o, nil
}

// ends returns where the partitions of a topic end, open transactions included.
func (b *broker) ends(ctx context.Context, topic string) (offsets, error) {
	listed, err := b.admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("ends of %s: %w", topic, err)
	}
	return offsetsOf(listed)
}

// undecided returns how many offsets of a topic lie behind its last stable one: the records of open
// transactions, and whatever they hold back.
func (b *broker) undecided(ctx context.Context, topic string) (int64, error) {
	ends, err := b.ends(ctx, topic)
	if err != nil {
		return 0, err
	}
	listed, err := b.admin.ListCommittedOffsets(ctx, topic)
	if err != nil {
		return 0, fmt.Errorf("last stable offsets of %s: %w", topic, err)
	}
	stable, err := offsetsOf(listed)
	if err != nil {
		return 0, err
	}
	return ends.beyond(stable), nil
}

// beyond returns how many offsets of o lie behind those of other.
func (o offsets) beyond(other offsets) (n int64) {
	for p, end := range o {
		n += max(end-other[p], 0)
	}
	return n
}

// begunSince reports whether a transaction that is open has its first record of some partition of a topic
// at the given offset or behind it.
func (b *broker) begunSince(ctx context.Context, topic string, since offsets) (bool, error) {
	var set kadm.TopicsSet
	for p := range since {
		set.Add(topic, p)
	}
	described, err := b.admin.DescribeProducers(ctx, set)
	if err != nil {
		return false, fmt.Errorf("describe producers of %s: %w", topic, err)
	}
	for _, p := range described.SortedPartitions() {
		if p.Err != nil {
			return false, fmt.Errorf("describe producers of %s/%d: %w", topic, p.Partition, p.Err)
		}
		if slices.ContainsFunc(p.ActiveProducers.Sorted(), func(a kadm.DescribedProducer) bool {
			return a.CurrentTxnStartOffset >= since[p.Partition]
		}) {
			return true, nil
		}
	}
	return false, nil
}

// firedSince reports whether records of the sink lie on tenant-cost behind the given offsets that no
// barrier has come behind, if none has come since these were its ends.
func (b *broker) firedSince(ctx context.Context, guarantee string, since offsets) (bool, error) {
	if guarantee == exactlyOnce {
		return b.begunSince(ctx, b.topics.TenantCost, since)
	}
	ends, err := b.ends(ctx, b.topics.TenantCost)
	return ends.beyond(since) > 0, err
}
