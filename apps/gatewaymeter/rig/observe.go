package rig

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// OpenTransaction is a transaction of the job that its coordinator shows as not ended.
type OpenTransaction struct {
	ID    string
	State string
	Since time.Time // by the broker's clock
}

// Open returns the job's transactions that have not ended.
func (b *Broker) Open(ctx context.Context) ([]OpenTransaction, error) {
	listed, err := b.admin.ListTransactions(ctx, nil, []string{"Ongoing", "PrepareCommit", "PrepareAbort"})
	if err != nil {
		return nil, fmt.Errorf("list transactions: %w", err)
	}
	var ids []string
	for _, t := range listed.Sorted() {
		if strings.HasPrefix(t.TxnID, b.Prefix+"-") {
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
	var open []OpenTransaction
	for _, t := range described.Sorted() {
		if t.Err != nil {
			return nil, fmt.Errorf("describe transaction %s: %w", t.TxnID, t.Err)
		}
		if t.State == "Ongoing" || strings.HasPrefix(t.State, "Prepare") {
			open = append(open, OpenTransaction{ID: t.TxnID, State: t.State, Since: time.UnixMilli(t.StartTimestamp)})
		}
	}
	return open, nil
}

// TransactionState asks the coordinator of a transactional ID what it holds: Ongoing, CompleteAbort and so on.
func (b *Broker) TransactionState(ctx context.Context, id string) (string, error) {
	described, err := b.admin.DescribeTransactions(ctx, id)
	if err != nil {
		return "", fmt.Errorf("describe transaction %s: %w", id, err)
	}
	t, err := described.On(id, nil)
	if err == nil {
		err = t.Err
	}
	if err != nil {
		return "", fmt.Errorf("describe transaction %s: %w", id, err)
	}
	return t.State, nil
}

// Offsets are offsets of the partitions of a topic.
type Offsets map[int32]int64

func offsetsOf(listed kadm.ListedOffsets) (Offsets, error) {
	if err := listed.Error(); err != nil {
		return nil, err
	}
	o := Offsets{}
	listed.Each(func(l kadm.ListedOffset) { o[l.Partition] = l.Offset })
	return o, nil
}

// Ends returns where the partitions of a topic end, open transactions included.
func (b *Broker) Ends(ctx context.Context, topic string) (Offsets, error) {
	listed, err := b.admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("ends of %s: %w", topic, err)
	}
	return offsetsOf(listed)
}

// Undecided returns how many offsets of a topic lie behind its last stable one: the records of open
// transactions, and whatever they hold back.
func (b *Broker) Undecided(ctx context.Context, topic string) (int64, error) {
	ends, err := b.Ends(ctx, topic)
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
	return ends.Beyond(stable), nil
}

// Beyond returns how many offsets of o lie behind those of other.
func (o Offsets) Beyond(other Offsets) (n int64) {
	for p, end := range o {
		n += max(end-other[p], 0)
	}
	return n
}

// begunSince reports whether a transaction that is open has its first record of some partition of a topic
// at the given offset or behind it.
func (b *Broker) begunSince(ctx context.Context, topic string, since Offsets) (bool, error) {
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

// FiredSince reports whether records of the sink lie on tenant-cost behind the given offsets that no
// barrier has come behind, if none has come since these were its ends.
func (b *Broker) FiredSince(ctx context.Context, guarantee string, since Offsets) (bool, error) {
	if guarantee == ExactlyOnce {
		return b.begunSince(ctx, b.Topics.TenantCost, since)
	}
	ends, err := b.Ends(ctx, b.Topics.TenantCost)
	return ends.Beyond(since) > 0, err
}
