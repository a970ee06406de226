package kafka

import (
	"context"
	"encoding/binary"
	"fmt"
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
	told     bool      // the log was told of them
}

func (p *part) failed(err error) {
	p.failures++
	p.lastErr = err
}

// chunk is what one answer held of one partition: records, which are taken out one by one, and what else it
// told.
type chunk struct {
	split int
	runs  []batchRun    // what is left of them
	whole []*kgo.Record // or, where the client library has taken the answer apart, these
	from  int64         // records before it do not count: they were read, or not asked for
	next  int64         // where the partition goes on after this chunk; records from there on do not count
	epoch int32         // the leader epoch of what lies before next
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
		f.r.answered(p)
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
	runs, next, ok := r.splitter.split(p.pos.Next, rp)
	c := chunk{split: p.split, runs: runs, from: p.pos.Next, reset: p.reset}
	if !ok {
		var err error
		if c.whole, next, err = r.leave(p, rp); err != nil {
			return chunk{}, err
		}
	}
	p.reset = nil
	c.next, c.epoch = next, epochBefore(rp.RecordBatches, next, p.pos.LeaderEpoch)
	if end := p.pos.End; end >= 0 {
		c.next = min(next, end)
	}
	limit := rp.HighWatermark
	if r.cfg.Isolation == ReadCommitted {
		limit = rp.LastStableOffset
	}
	c.reached, c.limit, c.at = limit >= 0 && next >= limit, limit, time.Now()
	p.pos.Next, p.pos.LeaderEpoch = c.next, c.epoch
	return c, nil
}

// leave leaves an answer to the client library.
func (r *fetching) leave(p *part, rp *kmsg.FetchResponseTopicPartition) ([]*kgo.Record, int64, error) {
	fetched, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: p.pos.Next, IsolationLevel: r.isolation, Topic: r.cfg.Topic, Partition: p.partition,
	}, rp, r.splitter.decompressor, nil)
	if fetched.Err != nil {
		return nil, 0, fmt.Errorf("split %s: fetch at offset %d: %w", p.id, p.pos.Next, fetched.Err)
	}
	return fetched.Records, next, nil
}

// take takes the next record that counts out of the chunk. It reports false where there is none.
func (c *chunk) take(r *rawRecord) (bool, error) {
	for len(c.runs) > 0 {
		run := &c.runs[0]
		if run.left == 0 {
			c.runs = c.runs[1:]
			continue
		}
		if !run.take(r) {
			return false, fmt.Errorf("a record at or behind offset %d cannot be read: its batch, which begins at offset "+
				"%d, is damaged", c.from, run.first)
		}
		if r.offset >= c.next {
			run.left = 0
			continue
		}
		if r.offset >= c.from {
			c.from = r.offset + 1
			return true, nil
		}
	}
	if len(c.whole) > 0 && c.whole[0].Offset < c.next {
		r.setWhole(c.whole[0])
		c.whole, c.from = c.whole[1:], r.offset+1
		return true, nil
	}
	c.whole = nil // the rest does not count
	return false, nil
}

// empty reports whether nothing is left in the chunk that counts.
func (c *chunk) empty() bool {
	for len(c.runs) > 0 && c.runs[0].left == 0 {
		c.runs = c.runs[1:]
	}
	return c.from >= c.next || len(c.runs) == 0 && len(c.whole) == 0
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
