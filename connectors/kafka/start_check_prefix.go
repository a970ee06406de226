package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/settle"
)

// betweenLooks is how long a transaction of somebody else is watched. A job that writes moves much faster; what a dead
// one has left open does not move at all, but for its end by timeout.
const betweenLooks = 2 * time.Second

// checkPrefix stops the job if another one writes under the same prefix right now. Each start of one of them would end
// transactions of the other, whose records would be lost or, written again, be there beside its rival's.
//
// Lineages tell the jobs apart. What is there of another lineage is no proof by itself: it may be what this job
// was before a rewind, or a job that is long gone. So it is looked at twice, and only what moves in between is alive:
//
//	ours     look 1                                look 2: the open one has more records, so it is alive
//	theirs          write ... write ... commit
//
// That costs a moment, and is done only where it can tell something: where another lineage has a transaction that
// has not ended, or that began lately, or where this lineage begins.
func (c *startCheck) checkPrefix(ctx context.Context) error {
	others, begins, err := c.otherLineages(ctx)
	if err != nil || len(others) == 0 {
		return err
	}
	before, err := c.look(ctx, others)
	if err != nil {
		return err
	}
	lately := time.Now().Add(-time.Minute).UnixMilli() // the coordinators' clocks may differ: it only decides to look again
	active := func(f footprint) bool { return f.underWay() || f.began > lately }
	if !begins && !slices.ContainsFunc(slices.Collect(maps.Values(before)), active) {
		return nil
	}
	if err := c.between(ctx); err != nil {
		return err
	}
	// Listed again: IDs that have come up in between are a sign of life, too.
	if others, _, err = c.otherLineages(ctx); err != nil {
		return err
	}
	after, err := c.look(ctx, others)
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(after)) {
		earlier, known := before[id]
		if sign := earlier.moved(known, after[id]); sign != "" {
			return c.prefixTaken(id, sign)
		}
	}
	return nil
}

func (c *startCheck) prefixTaken(id, sign string) error {
	parsed, _ := settle.ParseID(id)
	return connector.Stop(fmt.Errorf("another job writes under the transactional ID prefix %q right now: while it was "+
		"looked at, %s in transaction %s (lineage %s). Two jobs under one prefix end each other's transactions. Give "+
		"one of them another prefix, or stop the other job, and start again", c.cfg.TransactionalIDPrefix, sign, id,
		parsed.Lineage))
}

func (c *startCheck) between(ctx context.Context) error {
	if c.cfg.betweenLooks != nil {
		return c.cfg.betweenLooks(ctx)
	}
	return wallClock{}.Sleep(ctx, betweenLooks)
}

// otherLineages returns the IDs that the coordinators know under exactly this prefix in other lineages, and
// whether they know none of this one.
func (c *startCheck) otherLineages(ctx context.Context) (others []string, begins bool, err error) {
	all, err := c.admin.List(ctx, c.cfg.TransactionalIDPrefix)
	begins = true
	for _, t := range all {
		if t.ID.Lineage == c.rc.Lineage {
			begins = false
			continue
		}
		others = append(others, t.ID.String())
	}
	return others, begins, err
}

// footprint is what a transactional ID shows at one moment.
type footprint struct {
	state      settle.State
	producerID int64
	epoch      int16
	began      int64 // when its last transaction began, by the coordinator's clock; negative: not told
	written    map[topicPartition]int32
}

type topicPartition struct {
	topic     string
	partition int32
}

// underWay reports whether the transaction has not ended.
func (f footprint) underWay() bool {
	switch f.state {
	case settle.Ongoing, settle.PrepareCommit, settle.PrepareAbort:
		return true
	case settle.Unreached, settle.NoHistory, settle.CompleteCommit, settle.CompleteAbort:
	}
	return false
}

// moved says what has happened between two footprints of an ID that only a living process does, or nothing. known is
// whether there was a first one. That a transaction was aborted is no such sign: its timeout does that, and so
// does an administrator.
func (f footprint) moved(known bool, now footprint) string {
	same := known && f.producerID == now.producerID && f.epoch == now.epoch
	switch now.state {
	case settle.Ongoing:
		if !same || f.state != settle.Ongoing || f.began != now.began {
			return "a transaction began"
		}
		for at, sequence := range now.written {
			if before, there := f.written[at]; !there || before != sequence {
				return fmt.Sprintf("records were written to %s/%d", at.topic, at.partition)
			}
		}
	case settle.PrepareCommit, settle.CompleteCommit:
		if !known || f.state != settle.PrepareCommit && f.state != settle.CompleteCommit || f.began != now.began {
			return "a transaction was committed"
		}
	case settle.PrepareAbort, settle.CompleteAbort:
		if !known || !f.underWay() && !same {
			return "a transaction began and was aborted"
		}
	case settle.NoHistory:
		if !same || f.underWay() {
			return "the ID was taken by a new producer"
		}
	case settle.Unreached:
	}
	return ""
}

// look looks at the IDs: at their coordinators first, and then at the partitions that open transactions have written.
func (c *startCheck) look(ctx context.Context, ids []string) (map[string]footprint, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = ids
	seen := make(map[string]footprint, len(ids))
	ask := map[string][]int32{}
	for _, shard := range c.admin.cl.RequestSharded(ctx, req) {
		if shard.Err != nil {
			return nil, fmt.Errorf("describe the transactions of other lineages: %w", shard.Err)
		}
		resp := shard.Resp.(*kmsg.DescribeTransactionsResponse)
		for i := range resp.TransactionStates {
			t := &resp.TransactionStates[i]
			switch err := kerr.ErrorForCode(t.ErrorCode); {
			case errors.Is(err, kerr.TransactionalIDNotFound): // expired since it was listed
				continue
			case err != nil:
				return nil, fmt.Errorf("describe transaction %s: %w", t.TransactionalID, err)
			}
			seen[t.TransactionalID] = footprint{
				state: settle.ParseState(t.State), producerID: t.ProducerID, epoch: t.ProducerEpoch,
				began: t.StartTimestamp, written: map[topicPartition]int32{},
			}
			for _, rt := range t.Topics {
				ask[rt.Topic] = append(ask[rt.Topic], rt.Partitions...)
			}
		}
	}
	return seen, c.addWritten(ctx, ask, seen)
}

// addWritten notes how far each producer has come in the partitions named. Topics that this client may not read, since
// they are another sink's, are left out.
func (c *startCheck) addWritten(ctx context.Context, ask map[string][]int32, seen map[string]footprint) error {
	byProducer := make(map[int64]footprint, len(seen))
	for _, f := range seen {
		byProducer[f.producerID] = f
	}
	for topic, partitions := range ask {
		slices.Sort(partitions)
		producers, err := c.admin.producers(ctx, topic, slices.Compact(partitions))
		if unauthorized(err) {
			continue
		}
		if err != nil {
			return err
		}
		for i := range producers {
			p := &producers[i]
			if f, ok := byProducer[p.ProducerID]; ok {
				f.written[topicPartition{topic, p.partition}] = p.LastSequence
			}
		}
	}
	return nil
}
