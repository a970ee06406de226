package kafka

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// part is a partition on its way through the reader's goroutines. One of them has it at a time, the
// router or a fetcher, and only that one touches it.
type part struct {
	split     int // index in the reader's splits
	id        string
	partition int32
	pos       Position // where to fetch next, ahead of what Read has returned

	// reset is where the user has accepted to go on, until it has been told (see chunk).
	reset *Position

	lead     leader
	failures int // in a row, of any kind
	lastErr  error
	tellAt   time.Time // when the log is told of them next; zero: there are none
}

func (p *part) failed(err error) {
	p.failures++
	p.lastErr = err
}

// chunk is what one answer held of one partition.
type chunk struct {
	split   int
	records []*kgo.Record // none at or beyond the split's end
	slabs   [][]kgo.Record
	next    int64 // where the partition goes on after this chunk
	epoch   int32 // the leader epoch of what lies before next
	// reached reports that nothing lay after next when the broker answered.
	reached bool
	at      time.Time // when it answered
	limit   int64     // up to where there was something to read then; -1 is unknown
	// reset, if it is there, takes the place of the position so far, in front of the records.
	reset *Position
	// silent reports that there is no answer: the broker does not say, or the partition is without a
	// leader. The other fields but split are then empty.
	silent bool
}

// late is how much longer than asked an answer may take before its partitions count as silent.
const late = 2 * time.Second

// fetcher fetches the partitions that one broker leads, one request at a time. It parses the answers,
// so that the reader's goroutine is left with decoding.
//
// A partition whose answer is an error goes back to the router, after the records before it have been
// handed on: the reader sees those of the next leader behind them (S5).
type fetcher struct {
	r     *fetching
	node  int32
	in    mailbox
	parts []*part // in the order to ask for them
	fresh bool    // one of them has not been answered by this broker yet
}

func (f *fetcher) run(ctx context.Context) {
	for f.gather(ctx) {
		chunks, lost, err := f.fetch(ctx)
		if err != nil {
			f.r.fail(err)
			return
		}
		if len(chunks) > 0 && !f.r.deliver(ctx, chunks) {
			return
		}
		f.r.lost.put(lost...)
	}
}

// gather takes in the partitions that the router has sent, and waits for one if there is none.
func (f *fetcher) gather(ctx context.Context) bool {
	for {
		if len(f.parts) == 0 {
			select {
			case parts := <-f.in:
				f.parts, f.fresh = append(f.parts, parts...), true
				continue
			case <-ctx.Done():
				return false
			}
		}
		select {
		case parts := <-f.in:
			f.parts, f.fresh = append(f.parts, parts...), true
		default:
			return ctx.Err() == nil
		}
	}
}

func (f *fetcher) request() *kmsg.FetchRequest {
	cfg := f.r.cfg
	req := kmsg.NewPtrFetchRequest()
	req.MinBytes = 1
	req.MaxBytes = cfg.FetchMaxBytes
	req.IsolationLevel = cfg.Isolation.level()
	if !f.fresh { // what is asked for the first time may be at its end already, and should say so at once
		req.MaxWaitMillis = int32(cfg.FetchMaxWait.Milliseconds())
	}
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = cfg.Topic, f.parts[0].pos.TopicID
	topic.Partitions = make([]kmsg.FetchRequestTopicPartition, 0, len(f.parts))
	for _, p := range f.parts {
		part := kmsg.NewFetchRequestTopicPartition()
		part.Partition, part.FetchOffset, part.CurrentLeaderEpoch = p.partition, p.pos.Next, p.lead.epoch
		part.PartitionMaxBytes = cfg.FetchMaxPartitionBytes
		topic.Partitions = append(topic.Partitions, part)
	}
	req.Topics = append(req.Topics, topic)
	return req
}

// fetch asks once. Lost partitions are for the router; a partition that has ended is nobody's.
func (f *fetcher) fetch(ctx context.Context) (chunks []chunk, lost []*part, err error) {
	resp, err := f.ask(ctx, f.request())
	f.fresh = false
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		lost, f.parts = f.parts, nil
		for _, p := range lost {
			p.failed(fmt.Errorf("fetch from broker %d: %w", f.node, err))
			chunks = append(chunks, chunk{split: p.split, silent: true})
		}
		return chunks, lost, nil
	}
	answers := make(map[int32]*kmsg.FetchResponseTopicPartition, len(f.parts))
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			rp := &resp.Topics[i].Partitions[j]
			answers[rp.Partition] = rp
		}
	}
	var quiet, busy []*part
	for _, p := range f.parts {
		rp := answers[p.partition]
		if err := unusable(rp); err != nil {
			if hopeless(err) {
				return nil, nil, fmt.Errorf("split %s: fetch at offset %d: %w", p.id, p.pos.Next, err)
			}
			p.failed(fmt.Errorf("fetch from broker %d: %w", f.node, err))
			chunks, lost = append(chunks, chunk{split: p.split, silent: true}), append(lost, p)
			continue
		}
		p.failures, p.lastErr, p.tellAt = 0, nil, time.Time{}
		c, err := f.r.parse(p, rp)
		if err != nil {
			return nil, nil, err
		}
		chunks = append(chunks, c)
		switch {
		case p.pos.Ended():
		case len(rp.RecordBatches) > 0:
			busy = append(busy, p)
		default:
			quiet = append(quiet, p)
		}
	}
	// An answer is filled in the order of the question, up to its size: what got nothing is first now.
	f.parts = append(quiet, busy...)
	return chunks, lost, nil
}

// unusable is the error of an answer for a partition, if it has one: the router finds out what it
// means.
func unusable(rp *kmsg.FetchResponseTopicPartition) error {
	if rp == nil {
		return fmt.Errorf("the partition is not in the answer")
	}
	return kerr.ErrorForCode(rp.ErrorCode)
}

// ask sends a request. When the answer is late, its partitions are told to be silent meanwhile.
func (f *fetcher) ask(ctx context.Context, req *kmsg.FetchRequest) (*kmsg.FetchResponse, error) {
	type result struct {
		resp kmsg.Response
		err  error
	}
	results := make(chan result, 1)
	f.r.running.Go(func() {
		resp, err := f.r.client.Broker(int(f.node)).Request(ctx, req)
		results <- result{resp, err}
	})
	timer := time.NewTimer(f.r.cfg.FetchMaxWait + late)
	defer timer.Stop()
	var r result
	select {
	case r = <-results:
	case <-timer.C:
		chunks := make([]chunk, len(f.parts))
		for i, p := range f.parts {
			chunks[i] = chunk{split: p.split, silent: true}
		}
		f.r.deliver(ctx, chunks)
		r = <-results
	}
	if r.err != nil {
		return nil, r.err
	}
	return r.resp.(*kmsg.FetchResponse), nil
}

// parse makes a chunk of an answer and moves the partition on (S3, S4).
func (r *fetching) parse(p *part, rp *kmsg.FetchResponseTopicPartition) (chunk, error) {
	slabs := fetchSlabs{free: r.slabs}
	fetched, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: p.pos.Next, IsolationLevel: r.isolation,
		Topic: r.cfg.Topic, Partition: p.partition, Pools: []kgo.Pool{&slabs},
	}, rp, r.decompressor, nil)
	if fetched.Err != nil {
		return chunk{}, fmt.Errorf("split %s: fetch at offset %d: %w", p.id, p.pos.Next, fetched.Err)
	}
	c := chunk{split: p.split, records: fetched.Records, slabs: slabs.taken, next: next, reset: p.reset}
	p.reset = nil
	c.epoch = epochBefore(rp.RecordBatches, next, p.pos.LeaderEpoch)
	if end := p.pos.End; end >= 0 && next >= end {
		i, _ := slices.BinarySearchFunc(c.records, end, func(rec *kgo.Record, end int64) int {
			return int(min(1, max(-1, rec.Offset-end)))
		})
		c.records, c.next = c.records[:i], end
	}
	limit := rp.HighWatermark
	if r.cfg.Isolation == ReadCommitted {
		limit = rp.LastStableOffset
	}
	c.reached, c.limit, c.at = limit >= 0 && next >= limit, limit, time.Now()
	p.pos.Next, p.pos.LeaderEpoch = c.next, c.epoch
	return c, nil
}

// epochBefore is the leader epoch of the last batch before next. Batches without a record to read
// count too (markers, aborted ones): if a newer epoch than the last record's began with one of them,
// the older epoch ends before next, and the next check of the log would take that for a truncation.
func epochBefore(batches []byte, next int64, epoch int32) int32 {
	const header = 27 // up to and with the batch's last offset
	for len(batches) >= header {
		size := 12 + int(int32(binary.BigEndian.Uint32(batches[8:])))
		last := int64(binary.BigEndian.Uint64(batches)) + int64(int32(binary.BigEndian.Uint32(batches[23:])))
		if size < header || size > len(batches) || last >= next || batches[16] != 2 {
			return epoch
		}
		epoch = int32(binary.BigEndian.Uint32(batches[12:]))
		batches = batches[size:]
	}
	return epoch
}

// fetchSlabs is the library's pool of records for one call: it hands out slabs and remembers them, for
// the reader to give them back when it has gone through a whole chunk.
type fetchSlabs struct {
	free  chan []kgo.Record
	taken [][]kgo.Record
}

// slabsKept bounds how many slabs wait to be used again; each is of one batch on the broker.
const slabsKept = 256

// GetRecords implements kgo.PoolRecords.
func (s *fetchSlabs) GetRecords(n int) []kgo.Record {
	var slab []kgo.Record
	select {
	case slab = <-s.free:
	default:
	}
	if cap(slab) < n {
		slab = make([]kgo.Record, n)
	}
	slab = slab[:n]
	s.taken = append(s.taken, slab)
	return slab
}

// PutRecords implements kgo.PoolRecords. A slab of which no record was kept stays with the chunk.
func (s *fetchSlabs) PutRecords([]kgo.Record) {}

// recycle gives the slabs of a chunk back.
func (r *fetching) recycle(c *chunk) {
	for _, slab := range c.slabs {
		clear(slab) // or it would keep the memory of its fetch
		select {
		case r.slabs <- slab:
		default:
		}
	}
	c.records, c.slabs = nil, nil
}
