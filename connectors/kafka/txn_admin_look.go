package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/settle"
	"example.com/weir/connectors/kafka/txn"
)

// described is all that a coordinator says of a transactional ID.
type described struct {
	settle.Coordinator
	word    string    // its own for the state
	broker  string    // who it is
	began   time.Time // zero: nothing is open
	timeout time.Duration
	topics  []string // that the open transaction has been told of
}

// describeFully asks the coordinator of a transactional ID for more than a judgement needs.
func (a *admin) describeFully(ctx context.Context, id string) (described, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{id}
	for _, shard := range a.cl.RequestSharded(ctx, req) {
		if shard.Err != nil {
			return described{}, fmt.Errorf("describe transaction %s: %w", id, shard.Err)
		}
		for _, s := range shard.Resp.(*kmsg.DescribeTransactionsResponse).TransactionStates {
			if s.TransactionalID != id {
				continue
			}
			d := describedOf(&s)
			d.broker = fmt.Sprintf("broker %d at %s:%d", shard.Meta.NodeID, shard.Meta.Host, shard.Meta.Port)
			if err := kerr.ErrorForCode(s.ErrorCode); err != nil && !errors.Is(err, kerr.TransactionalIDNotFound) {
				return described{}, fmt.Errorf("describe transaction %s: %w", id, err)
			}
			return d, nil
		}
	}
	return described{}, fmt.Errorf("describe transaction %s: an incomplete answer", id)
}

func describedOf(s *kmsg.DescribeTransactionsResponseTransactionState) described {
	if s.ErrorCode != 0 { // it knows no such ID: the word of verdicts for that
		none := settle.Coordinator{State: settle.NoHistory, ProducerID: -1, Epoch: -1}
		return described{word: none.State.String(), Coordinator: none}
	}
	d := described{
		Coordinator: settle.Coordinator{State: settle.ParseState(s.State), ProducerID: s.ProducerID, Epoch: s.ProducerEpoch},
		word:        s.State, timeout: time.Duration(s.TimeoutMillis) * time.Millisecond,
	}
	if s.StartTimestamp > 0 {
		d.began = time.UnixMilli(s.StartTimestamp)
	}
	for i := range s.Topics {
		d.topics = append(d.topics, s.Topics[i].Topic)
	}
	return d
}

// openPart is an open transaction of a producer in a partition of some topic.
type openPart struct {
	topic string
	at    txn.Place
	txn.Open
}

func (o *openPart) name() string { return fmt.Sprintf("%s/%d", o.topic, o.Partition) }

// openAnywhere lists what is open in topics. One that is not there holds nothing open.
func (a *txnAdmin) openAnywhere(ctx context.Context, topics []string) ([]openPart, error) {
	topics = slices.Clone(topics)
	slices.Sort(topics)
	var all []openPart
	for _, topic := range slices.Compact(topics) {
		at, err := a.admin.Place(ctx, topic)
		if err != nil {
			return nil, err
		}
		if len(at.Leaders) == 0 {
			continue
		}
		open, err := a.admin.Open(ctx, topic, at.Partitions())
		if err != nil {
			return nil, err
		}
		for _, o := range open {
			all = append(all, openPart{topic: topic, at: at, Open: o})
		}
	}
	return all, nil
}

// finding is what was seen of a transaction, and what it is judged to be.
type finding struct {
	described described
	handle    *settle.Handle
	observed  settle.Observation
	verdict   settle.Verdict
	ends      map[int32]int64 // of the topic's partitions
	ended     bool            // nothing of it is open, and nobody says where it wrote
	counted   bool            // the handle's records and last offsets are known
}

// missing returns the partitions that hold the transaction open after it has ended.
func (f *finding) missing() []settle.Part {
	var all []settle.Part
	for i := range f.handle.Parts {
		p, seen := f.handle.Parts[i], &f.observed.Parts[i]
		if seen.Stable <= p.First && seen.Marker == settle.NoMarker && seen.OpenAt == p.First {
			all = append(all, p)
		}
	}
	return all
}

// look looks at a transaction. count has the records counted of one that no committable names.
func (a *txnAdmin) look(ctx context.Context, s subject, count bool) (finding, error) {
	var f finding
	if s.named != nil {
		h, err := settle.DecodeHandle(s.named.Payload)
		if err != nil {
			return f, connector.Stop(fmt.Errorf("committable %s: %w", s.named.ID(), err))
		}
		f.handle, f.counted = h, true
	} else if err := a.find(ctx, s.id, count, &f); err != nil || f.verdict.Reason != "" {
		return f, err
	}
	if err := a.judge(ctx, &f); err != nil {
		return f, err
	}
	ends, err := kadm.NewClient(a.admin.cl).ListEndOffsets(ctx, f.handle.Topic)
	if err == nil {
		f.ends = map[int32]int64{}
		ends.Each(func(o kadm.ListedOffset) {
			if o.Err == nil {
				f.ends[o.Partition] = o.Offset
			}
		})
	}
	return f, ctx.Err()
}

// find makes a handle for a transaction that no committable names: of what the coordinator and the
// leaders say is open. Where there is nothing to make one of it gives a verdict at once.
func (a *txnAdmin) find(ctx context.Context, id string, count bool, f *finding) error {
	d, err := a.admin.describeFully(ctx, id)
	if err != nil {
		return err
	}
	f.described = d
	f.handle = &settle.Handle{TransactionalID: id, ProducerID: d.ProducerID, Epoch: d.Epoch}
	open, err := a.openAnywhere(ctx, append(slices.Clone(d.topics), a.cfg.Topic))
	if err != nil {
		return err
	}
	open = slices.DeleteFunc(open, func(o openPart) bool { return o.ProducerID != d.ProducerID })
	if len(open) == 0 {
		f.verdict, f.ended = nothingOpen(d)
		return nil
	}
	if f.handle.EndTxnVersion, err = a.admin.endTxnVersion(ctx); err != nil {
		return err
	}
	return a.handleOf(ctx, open, count, f)
}

// nothingOpen judges a transaction of which no partition shows anything open, and reports whether it has
// ended.
func nothingOpen(d described) (v settle.Verdict, ended bool) {
	switch d.State {
	case settle.Ongoing:
		return settle.Verdict{
			Kind: settle.Open, Reason: "the coordinator waits for its end, and no partition holds a record of it",
		}, false
	case settle.PrepareCommit, settle.PrepareAbort:
		return settle.Verdict{Kind: settle.Wait, Reason: "the coordinator is in " + d.word}, false
	case settle.Unreached, settle.NoHistory, settle.CompleteCommit, settle.CompleteAbort:
	}
	return settle.Verdict{Kind: settle.Wait, Reason: "nothing is open under this ID; its coordinator says " + d.word}, true
}

// handleOf fills in the handle of a transaction from the partitions that hold it open.
func (a *txnAdmin) handleOf(ctx context.Context, open []openPart, count bool, f *finding) error {
	h := f.handle
	h.Topic, h.ClusterID, h.TopicID = open[0].topic, open[0].at.ClusterID, open[0].at.TopicID
	f.counted = count
	for i := range open {
		o := &open[i]
		if o.topic != h.Topic {
			f.verdict = settle.Verdict{Kind: settle.Unknown, Reason: fmt.Sprintf("it writes to %s and to %s, which no sink does", h.Topic, o.topic)}
			return nil
		}
		r := logReader{admin: a.admin, handle: h, part: &settle.Part{Partition: o.Partition, First: o.Start}, at: o.at}
		epoch, err := r.epochAtFirst(ctx)
		if err != nil {
			return fmt.Errorf("%s at offset %d: %w", o.name(), o.Start, err)
		}
		if i > 0 && epoch != h.Epoch {
			f.verdict = settle.Verdict{Kind: settle.Unknown, Reason: fmt.Sprintf(
				"its producer holds open what it wrote with epoch %d and with epoch %d", h.Epoch, epoch)}
			return nil
		}
		// The transaction is of the epoch of its first batch, whatever the coordinator has by now.
		h.Epoch = epoch
		part := settle.Part{Partition: o.Partition, First: o.Start, Last: o.Start, LeaderEpoch: -1, Records: 1}
		if count {
			known, err := r.count(ctx, &part)
			if err != nil {
				return fmt.Errorf("%s from offset %d: %w", o.name(), o.Start, err)
			}
			f.counted = f.counted && known
		}
		h.Parts = append(h.Parts, part)
	}
	return nil
}

// epochAtFirst reads the producer's epoch from the batch at the first offset.
func (r *logReader) epochAtFirst(ctx context.Context) (int16, error) {
	got, err := r.fetch(ctx, r.part.First, readUncommitted, 1)
	if err != nil {
		return 0, err
	}
	b, ok := nextBatch(got.RecordBatches)
	if !ok || b.producerID != r.handle.ProducerID {
		return 0, errors.New("the batch that opened the transaction is not there")
	}
	return b.epoch, nil
}

const (
	// countBytes bounds how much of a partition is read to count the records of a transaction.
	countBytes   = 256 << 20
	offsetCount  = 57 // of the number of records, in a batch
	lengthOfInts = 4
)

// count counts the producer's records from the first offset to the end of what is replicated. It reports
// false where that is too much to read.
func (r *logReader) count(ctx context.Context, part *settle.Part) (known bool, err error) {
	part.Records = 0
	read := 0
	for at := part.First; ; {
		got, err := r.fetch(ctx, at, readUncommitted, scanBytes)
		if err != nil {
			return false, err
		}
		rest, before := got.RecordBatches, at
		for {
			b, ok := nextBatch(rest)
			if !ok {
				break
			}
			if b.producerID == r.handle.ProducerID && !b.control {
				part.Records += int64(int32(binary.BigEndian.Uint32(rest[offsetCount : offsetCount+lengthOfInts])))
				part.Last = max(part.Last, b.last)
			}
			rest, at, read = rest[b.size:], b.last+1, read+b.size
		}
		switch {
		case at == before, at >= got.HighWatermark:
			return true, nil
		case read > countBytes:
			return false, nil
		}
	}
}

// judge looks until something can be said, as long as the brokers may take for their markers. The
// coordinator comes first and the log after it, as in a restore.
func (a *txnAdmin) judge(ctx context.Context, f *finding) error {
	since := time.Now()
	said := settle.Coordinator{}
	for try := 0; ; try++ {
		d, err := a.admin.describeFully(ctx, f.handle.TransactionalID)
		if err == nil {
			f.described = d
		}
		if d.Coordinator != said {
			said, since = d.Coordinator, time.Now()
		}
		f.observed = a.admin.Look(ctx, f.handle, true)
		f.observed.Coordinator, f.observed.Overdue = d.Coordinator, time.Since(since) > a.cfg.grace
		f.verdict = settle.Settle(f.handle, settle.NotAsked, &f.observed)
		if f.verdict.Kind != settle.Wait || f.observed.Overdue {
			return ctx.Err()
		}
		if err := a.pause(ctx, try); err != nil {
			return err
		}
	}
}

// report writes down what was found.
func (a *txnAdmin) report(s subject, f finding) connector.OutsideTransaction {
	owner, _ := a.Owner(s.id)
	t := connector.OutsideTransaction{
		ID: s.id, TransactionOwner: owner, State: f.described.word, Coordinator: f.described.broker,
		ProducerID: f.handle.ProducerID, Epoch: int(f.handle.Epoch), Began: f.described.began, Timeout: f.described.timeout,
		Found: foundOf(f), Why: f.verdict.Reason, Partitions: []connector.TransactionPartition{},
	}
	if s.named != nil {
		id := s.named.ID()
		t.Named = &id
		if !s.named.Opened.IsZero() {
			t.Began = s.named.Opened
		}
	}
	switch t.Found {
	case connector.FoundOpen, connector.FoundWait, connector.FoundUnmarked:
		if !t.Began.IsZero() {
			t.Age = max(time.Since(t.Began), 0)
		}
	case connector.FoundCommitted, connector.FoundAborted, connector.FoundEnded, connector.FoundUnknown:
		t.Began = time.Time{} // brokers go on telling it
	}
	if t.Timeout <= 0 {
		t.Timeout = a.cfg.TransactionTimeout
	}
	if f.verdict.Missing != settle.NoMarker {
		t.Missing = f.verdict.Missing.String()
	}
	for i := range f.handle.Parts {
		t.Partitions = append(t.Partitions, f.part(i))
	}
	return t
}

func foundOf(f finding) connector.TransactionFound {
	if f.ended {
		return connector.FoundEnded
	}
	return [...]connector.TransactionFound{
		settle.Wait: connector.FoundWait, settle.Open: connector.FoundOpen, settle.Committed: connector.FoundCommitted,
		settle.Aborted: connector.FoundAborted, settle.Unmarked: connector.FoundUnmarked, settle.Unknown: connector.FoundUnknown,
	}[f.verdict.Kind]
}

// part writes down what was found in one partition.
func (f *finding) part(i int) connector.TransactionPartition {
	p := &f.handle.Parts[i]
	r := connector.TransactionPartition{
		Name: fmt.Sprintf("%s/%d", f.handle.Topic, p.Partition), First: p.First, Last: p.Last, Records: p.Records, Stable: -1, End: -1, At: -1,
	}
	if !f.counted {
		r.Last, r.Records = -1, -1
	}
	if end, ok := f.ends[p.Partition]; ok {
		r.End = end
	}
	if i >= len(f.observed.Parts) || !f.observed.Parts[i].Answered {
		return r
	}
	seen := &f.observed.Parts[i]
	r.Stable, r.Open = seen.Stable, seen.OpenAt == p.First
	switch {
	case seen.Marker != settle.NoMarker:
		r.Marker, r.At = seen.Marker.String(), seen.MarkerAt
	case seen.Stable > p.First && seen.First == settle.BatchOurs && seen.Aborted:
		r.Marker = settle.Abort.String()
	case seen.Stable > p.First && seen.First == settle.BatchOurs:
		r.Marker = settle.Commit.String()
	}
	return r
}
