package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/weir/connectors/kafka/settle"
	"example.com/weir/connectors/kafka/txn"
)

const (
	readUncommitted = 0
	readCommitted   = 1

	// scanBytes is how much a look for a marker reads at a time.
	scanBytes = 1 << 20
	// observers is how many partitions are read at a time.
	observers = 16
)

// Look reads what the log of every partition of a transaction shows. What cannot be seen is left out.
func (a *admin) Look(ctx context.Context, h *settle.Handle, doubt bool) settle.Observation {
	o := settle.Observation{Parts: make([]settle.PartSeen, len(h.Parts))}
	at, err := a.Place(ctx, h.Topic)
	if err != nil {
		return o
	}
	o.ClusterID, o.TopicID = at.ClusterID, at.TopicID
	if at.ClusterID != h.ClusterID || at.TopicID != h.TopicID {
		return o
	}
	truncated, err := a.truncated(ctx, h)
	if err != nil {
		return o
	}
	var wg sync.WaitGroup
	turn := make(chan struct{}, observers)
	for i := range h.Parts {
		wg.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			r := logReader{admin: a, handle: h, part: &h.Parts[i], at: at, doubt: doubt}
			seen, err := r.look(ctx)
			if err != nil {
				return // unanswered: it is waited for
			}
			seen.Truncated = seen.Truncated || truncated[i]
			o.Parts[i] = seen
		})
	}
	wg.Wait()
	a.addOpen(ctx, h, &o)
	return o
}

// addOpen asks the partitions that show no end whether the transaction is still open in them.
func (a *admin) addOpen(ctx context.Context, h *settle.Handle, o *settle.Observation) {
	var ask []int32
	for i := range h.Parts {
		if s := &o.Parts[i]; s.Answered && s.Stable <= h.Parts[i].First && s.Marker == settle.NoMarker {
			ask = append(ask, h.Parts[i].Partition)
		}
	}
	if len(ask) == 0 {
		return
	}
	open, err := a.Open(ctx, h.Topic, ask)
	if err != nil {
		return
	}
	start := make(map[int32]int64, len(ask))
	for _, t := range open {
		if t.ProducerID == h.ProducerID {
			start[t.Partition] = t.Start
		}
	}
	for i := range h.Parts {
		s := &o.Parts[i]
		if !s.Answered || s.Stable > h.Parts[i].First || s.Marker != settle.NoMarker {
			continue
		}
		s.OpenAt = -1
		if at, ok := start[h.Parts[i].Partition]; ok {
			s.OpenAt = at
		}
	}
}

// truncated asks each leader where the leader epoch of the handle ends now: at or below the last
// offset that was acknowledged, the log has lost records.
func (a *admin) truncated(ctx context.Context, h *settle.Handle) ([]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
	rt.Topic = h.Topic
	index := make(map[int32]int, len(h.Parts))
	for i := range h.Parts {
		index[h.Parts[i].Partition] = i
		if h.Parts[i].LeaderEpoch < 0 {
			continue
		}
		rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		rp.Partition, rp.LeaderEpoch = h.Parts[i].Partition, h.Parts[i].LeaderEpoch
		rt.Partitions = append(rt.Partitions, rp)
	}
	truncated := make([]bool, len(h.Parts))
	if len(rt.Partitions) == 0 {
		return truncated, nil
	}
	req.Topics = append(req.Topics, rt)
	for _, shard := range a.cl.RequestSharded(ctx, req) {
		if shard.Err != nil {
			return nil, shard.Err
		}
		for _, rt := range shard.Resp.(*kmsg.OffsetForLeaderEpochResponse).Topics {
			for i := range rt.Partitions {
				p := &rt.Partitions[i]
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return nil, err
				}
				if at, ok := index[p.Partition]; ok && p.EndOffset >= 0 {
					truncated[at] = p.EndOffset <= h.Parts[at].Last
				}
			}
		}
	}
	return truncated, nil
}

// logReader reads one partition of a transaction.
type logReader struct {
	admin  *admin
	handle *settle.Handle
	part   *settle.Part
	at     txn.Place
	// doubt says that EndTxn was not answered with NONE. Only then is a marker inside the
	// transaction looked for where the first record is committed, which reads all of it: after
	// NONE for a producer epoch that was never used again, a COMMIT inside changes nothing,
	// and an ABORT inside shows in the lists of aborted transactions.
	doubt bool
}

// look reads what the partition shows of the transaction.
func (r *logReader) look(ctx context.Context) (settle.PartSeen, error) {
	seen := settle.PartSeen{OpenAt: settle.StartUnknown}
	got, err := r.fetch(ctx, r.part.First, readCommitted, 1)
	if errors.Is(err, kerr.OffsetOutOfRange) {
		return r.outOfRange(ctx)
	}
	if err != nil {
		return seen, err
	}
	seen.Answered = true
	seen.Stable, seen.LogStart = got.LastStableOffset, got.LogStartOffset
	if seen.Stable <= r.part.First {
		return r.lookBehind(ctx, seen)
	}
	for i := range got.AbortedTransactions {
		if t := &got.AbortedTransactions[i]; t.ProducerID == r.handle.ProducerID && t.FirstOffset == r.part.First {
			seen.Aborted = true
		}
	}
	var last int64
	seen.First, last = r.judge(got.RecordBatches)
	if last < r.part.Last {
		if seen.AbortedInside, err = r.abortedInside(ctx); err != nil {
			return settle.PartSeen{}, err
		}
	}
	gaps := r.part.Last-r.part.First+1 != r.part.Records
	if seen.Aborted || r.doubt && gaps {
		seen.Marker, seen.MarkerAt, err = r.scan(ctx, got.HighWatermark)
	}
	if err != nil {
		return settle.PartSeen{}, err
	}
	return seen, nil
}

// lookBehind reads a partition whose first offset is not stable: ours is open, or ended behind
// somebody else's that is.
func (r *logReader) lookBehind(ctx context.Context, seen settle.PartSeen) (settle.PartSeen, error) {
	got, err := r.fetch(ctx, r.part.First, readUncommitted, 1)
	if err != nil {
		return settle.PartSeen{}, err
	}
	if len(got.RecordBatches) == 0 {
		return settle.PartSeen{}, fmt.Errorf("offset %d is not replicated yet", r.part.First)
	}
	seen.First, _ = r.judge(got.RecordBatches)
	seen.Marker, seen.MarkerAt, err = r.scan(ctx, got.HighWatermark)
	if err != nil {
		return settle.PartSeen{}, err
	}
	return seen, nil
}

// outOfRange tells retention from truncation.
func (r *logReader) outOfRange(ctx context.Context) (settle.PartSeen, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = r.handle.Topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp = r.part.Partition, -2 // the earliest
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, r.admin.cl)
	if err != nil {
		return settle.PartSeen{}, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return settle.PartSeen{}, errors.New("list offsets: an incomplete answer")
	}
	got := &resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
		return settle.PartSeen{}, err
	}
	return settle.PartSeen{
		Answered: true, LogStart: got.Offset, Truncated: got.Offset <= r.part.First, OpenAt: settle.StartUnknown,
	}, nil
}

// judge tells whose batch was found at the first offset, and its last offset.
func (r *logReader) judge(batches []byte) (settle.Batch, int64) {
	b, ok := nextBatch(batches)
	switch {
	case !ok || b.first > r.part.First || b.last < r.part.First:
		return settle.BatchGone, -1
	case b.producerID != r.handle.ProducerID || b.epoch != r.handle.Epoch || !b.transactional || b.control:
		return settle.BatchForeign, b.last
	}
	return settle.BatchOurs, b.last
}

// abortedInside reports whether the list of aborted transactions at the last offset names the
// producer above the first.
func (r *logReader) abortedInside(ctx context.Context) (bool, error) {
	got, err := r.fetch(ctx, r.part.Last, readCommitted, 1)
	if err != nil {
		return false, err
	}
	for i := range got.AbortedTransactions {
		t := &got.AbortedTransactions[i]
		if t.ProducerID == r.handle.ProducerID && t.FirstOffset > r.part.First && t.FirstOffset <= r.part.Last {
			return true, nil
		}
	}
	return false, nil
}

// scan looks for the producer's first control record above the first offset, as far as the log is
// replicated.
func (r *logReader) scan(ctx context.Context, end int64) (settle.Marker, int64, error) {
	for at := r.part.First; at < end; {
		got, err := r.fetch(ctx, at, readUncommitted, scanBytes)
		if err != nil {
			return settle.NoMarker, 0, err
		}
		rest, before := got.RecordBatches, at
		for {
			b, ok := nextBatch(rest)
			if !ok {
				break
			}
			rest, at = rest[b.size:], b.last+1
			if b.control && b.producerID == r.handle.ProducerID && b.first > r.part.First {
				m, err := b.marker()
				return m, b.first, err
			}
		}
		if at == before {
			break
		}
	}
	return settle.NoMarker, 0, nil
}

// fetch reads from an offset. A limit of one byte is one batch. The limit is the partition's and not
// the request's, which is never reached: kfake answers a request that was cut off by its own limit
// without the list of aborted transactions.
func (r *logReader) fetch(
	ctx context.Context, from int64, isolation int8, limit int32,
) (*kmsg.FetchResponseTopicPartition, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if int(r.part.Partition) >= len(r.at.Leaders) || r.at.Leaders[r.part.Partition] < 0 {
		return nil, kerr.LeaderNotAvailable
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.IsolationLevel, req.SessionEpoch = 64<<20, isolation, -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = r.handle.Topic, r.handle.TopicID
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = r.part.Partition, from, limit
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	kresp, err := r.admin.cl.Broker(int(r.at.Leaders[r.part.Partition])).RetriableRequest(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, errors.New("fetch: an incomplete answer")
	}
	got := &resp.Topics[0].Partitions[0]
	return got, kerr.ErrorForCode(got.ErrorCode)
}

// batch is the header of a record batch, as it lies in the log.
type batch struct {
	first, last   int64
	producerID    int64
	epoch         int16
	transactional bool
	control       bool
	size          int    // of the whole batch
	records       []byte // not decoded
}

// Layout of a record batch (magic 2).
const (
	batchOverhead    = 12 // base offset and length
	batchHeader      = 61
	flagTransaction  = 1 << 4
	flagControl      = 1 << 5
	offsetLength     = 8
	offsetAttributes = 21
	offsetLastDelta  = 23
	offsetProducerID = 43
	offsetEpoch      = 51
)

// nextBatch reads the first batch of a fetch answer. It reports false at the end, which may
// lie in the middle of a batch.
func nextBatch(src []byte) (batch, bool) {
	if len(src) < batchHeader {
		return batch{}, false
	}
	size := batchOverhead + int(int32(binary.BigEndian.Uint32(src[offsetLength:])))
	if size < batchHeader || size > len(src) {
		return batch{}, false
	}
	b := batch{
		first:      int64(binary.BigEndian.Uint64(src)),
		producerID: int64(binary.BigEndian.Uint64(src[offsetProducerID:])),
		epoch:      int16(binary.BigEndian.Uint16(src[offsetEpoch:])),
		size:       size,
		records:    src[batchHeader:size],
	}
	b.last = b.first + int64(int32(binary.BigEndian.Uint32(src[offsetLastDelta:])))
	attributes := binary.BigEndian.Uint16(src[offsetAttributes:])
	b.transactional, b.control = attributes&flagTransaction != 0, attributes&flagControl != 0
	return b, true
}

// marker reads the kind of a control batch.
func (b *batch) marker() (settle.Marker, error) {
	var rec kmsg.Record
	if err := rec.ReadFrom(b.records); err != nil {
		return settle.NoMarker, fmt.Errorf("control record at offset %d: %w", b.first, err)
	}
	var key kmsg.ControlRecordKey
	if err := key.ReadFrom(rec.Key); err != nil {
		return settle.NoMarker, fmt.Errorf("control record at offset %d: %w", b.first, err)
	}
	switch key.Type {
	case kmsg.ControlRecordKeyTypeAbort:
		return settle.Abort, nil
	case kmsg.ControlRecordKeyTypeCommit:
		return settle.Commit, nil
	}
	return settle.NoMarker, fmt.Errorf("control record at offset %d: type %d", b.first, key.Type)
}
