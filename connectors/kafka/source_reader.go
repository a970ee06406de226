package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/weir/connector"
)

// reader hands out what was fetched, in batches. It runs in the engine's goroutine and has its state to
// itself.
type reader[T any] struct {
	source   *source[T]
	client   *kgo.Client
	logger   *slog.Logger
	fetching *fetching // nil where there is nothing left to fetch
	decode   func(*Record, *T) error
	admit    func(*T, int64) (int64, error)
	maxBatch int

	splits  []splitState
	chunks  []chunk   // what is left of an answer; the first may be partly returned
	raw     rawRecord // at work
	record  Record    // what decode is given of it
	failure error     // why Read returns no more
}

// splitState is what Read has told of a split.
type splitState struct {
	id        string
	partition int32
	pos       Position
	caughtUp  bool
	toldAt    time.Time // when a batch last said that it is caught up
	ended     bool
}

// Reader opens a reader over some of the partitions.
func (s *source[T]) Reader(
	ctx context.Context, rc connector.ReaderContext[T], splits []connector.Split,
) (connector.Reader[T], error) {
	r, err := s.open(ctx, rc, splits)
	if err != nil {
		return nil, fmt.Errorf("kafka source %s[%d] of topic %q: %w", rc.Operator, rc.Subtask, s.cfg.Topic,
			s.cfg.explain(err))
	}
	return r, nil
}

func (s *source[T]) open(
	ctx context.Context, rc connector.ReaderContext[T], splits []connector.Split,
) (*reader[T], error) {
	if err := s.cfg.validate(); err != nil {
		return nil, connector.Stop(err)
	}
	logger := rc.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	client, err := s.cfg.newClient(logTo(logger), kgo.RetryTimeout(askedAgain))
	if err != nil {
		return nil, connector.Stop(err)
	}
	r := &reader[T]{
		source: s, client: client, logger: logger, decode: s.decode, admit: rc.Admit, maxBatch: s.cfg.MaxBatch,
	}
	parts, err := r.take(splits)
	if err == nil && len(parts) > 0 {
		err = r.start(ctx, parts, true)
	}
	if err != nil {
		client.Close()
		return nil, err
	}
	return r, nil
}

// take adds splits to those of the reader and returns the partitions that there is something to fetch
// of.
func (r *reader[T]) take(splits []connector.Split) ([]*part, error) {
	var parts []*part
	for _, split := range splits {
		index := len(r.splits)
		p, err := r.source.newPart(index, split)
		if err != nil {
			return nil, connector.Stop(err)
		}
		if err := judgeBounds(&r.source.cfg, p.id, p.pos); err != nil {
			return nil, err
		}
		r.splits = append(r.splits, splitState{id: p.id, partition: p.partition, pos: p.pos})
		if p.pos.Ended() { // told by the first batch of it
			r.chunks = append(r.chunks, chunk{split: index, next: p.pos.Next, epoch: p.pos.LeaderEpoch, limit: unknown})
			continue
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// AddSplits adds partitions. What is wrong with them is an error of Read.
func (r *reader[T]) AddSplits(ctx context.Context, splits []connector.Split) error {
	parts, err := r.take(splits)
	if err != nil || len(parts) == 0 {
		return err
	}
	if r.fetching == nil {
		return r.start(ctx, parts, false)
	}
	r.fetching.lost.put(parts...)
	return nil
}

// newPart reads a split.
func (s *source[T]) newPart(index int, split connector.Split) (*part, error) {
	name, ok := strings.CutPrefix(split.ID, s.cfg.Topic+"/")
	partition, err := strconv.ParseInt(name, 10, 32)
	if !ok || err != nil || split.ID != splitID(s.cfg.Topic, int32(partition)) {
		return nil, fmt.Errorf("split %q is not a partition of this topic", split.ID)
	}
	pos, err := ParsePosition(split.Position)
	if err != nil {
		return nil, fmt.Errorf("split %s: %w", split.ID, err)
	}
	return &part{split: index, id: split.ID, partition: int32(partition), pos: pos}, nil
}

// start starts fetching. With check it first holds the positions against the cluster.
func (r *reader[T]) start(ctx context.Context, parts []*part, check bool) error {
	cfg := &r.source.cfg
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	f := &fetching{
		cfg: cfg, client: r.client, logger: r.logger, isolation: kgo.ReadUncommitted(),
		splitter: newSplitter(cfg.Isolation),
		out:      make(chan []chunk, 1), failed: make(chan error, 1), lost: newMailbox(), stop: stop,
	}
	if cfg.Isolation == ReadCommitted {
		f.isolation = kgo.ReadCommitted()
	}
	router := &router{
		fetching: f, lookup: lookup{client: r.client, topic: cfg.Topic},
		fetchers: map[int32]*fetcher{}, pending: parts, known: parts[0].pos,
	}
	if check {
		opening := context.AfterFunc(ctx, stop)
		err := router.open(running)
		if !opening() {
			err = errors.Join(ctx.Err(), err)
		}
		if err != nil {
			f.close()
			return err
		}
	}
	f.running.Go(func() { router.run(running) })
	r.fetching = f
	return nil
}

func (r *fetching) close() {
	r.stop()
	r.running.Wait()
}

// Close releases the connections and goroutines.
func (r *reader[T]) Close() error {
	if r.fetching != nil {
		r.fetching.close()
		r.fetching = nil
	}
	r.client.Close()
	r.failure, r.chunks = errors.New("kafka source: the reader is closed"), nil
	return nil
}

// Read fills b from the next partition that has something to tell.
func (r *reader[T]) Read(ctx context.Context, b *connector.Batch[T]) error {
	b.Reset()
	if err := ctx.Err(); err != nil {
		return err
	}
	for {
		told, err := r.next(b)
		if told {
			return nil
		}
		if err != nil {
			r.failure = err
		}
		if r.failure != nil {
			return r.failure
		}
		if err := r.await(ctx); err != nil {
			return err
		}
	}
}

// await waits for chunks. When the context ends first, nothing has been taken: it is here for the next
// Read.
func (r *reader[T]) await(ctx context.Context) error {
	if r.fetching == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	select {
	case r.chunks = <-r.fetching.out:
		return nil
	case err := <-r.fetching.failed:
		r.failure = r.source.cfg.explain(err)
		return r.failure
	case <-ctx.Done():
		return ctx.Err()
	}
}

// next fills b from the first chunk that has something to tell, and reports whether there was one.
func (r *reader[T]) next(b *connector.Batch[T]) (told bool, err error) {
	for len(r.chunks) > 0 {
		c := &r.chunks[0]
		s := &r.splits[c.split]
		b.Split, b.CaughtUp, b.Ended, b.Behind, b.At = c.split, false, false, unknown, time.Time{} // a chunk with nothing to tell may have been before
		if c.silent {
			told = s.caughtUp && !s.ended
			s.caughtUp = false
		} else if told, err = r.fill(b, c, s); err != nil {
			return false, err
		}
		if c.empty() {
			r.chunks = r.chunks[1:]
		}
		if told {
			b.Position = s.pos.AppendTo(b.Position[:0])
			return true, nil
		}
	}
	return false, nil
}

// tellAgain is how often a split that stays caught up says so.
const tellAgain = time.Second

// fill takes rows from a chunk, and says whether the batch has something to tell: rows or rejected
// records, a position that has moved (over transaction markers, say), a split that has ended or is now
// caught up, and, each second, that it still is.
func (r *reader[T]) fill(b *connector.Batch[T], c *chunk, s *splitState) (told bool, err error) {
	reset := c.reset != nil
	if reset {
		s.pos, c.reset = *c.reset, nil
	}
	from := s.pos.Next
	if err := r.rows(b, c, s); err != nil {
		return false, fmt.Errorf("split %s: %w", s.id, err)
	}
	if c.empty() {
		s.pos.Next, s.pos.LeaderEpoch = c.next, c.epoch
		b.CaughtUp = c.reached
		b.Ended = s.pos.Ended() && !s.ended
	} else {
		s.pos.Next, s.pos.LeaderEpoch = c.from, r.raw.epoch
	}
	now := time.Now()
	b.Behind, b.At = behind(s.pos, c.limit), c.at
	told = reset || s.pos.Next != from || b.Ended || b.CaughtUp != s.caughtUp ||
		b.CaughtUp && now.Sub(s.toldAt) >= tellAgain
	if told && b.CaughtUp {
		s.toldAt = now
	}
	s.caughtUp, s.ended = b.CaughtUp, s.ended || b.Ended
	return told, nil
}

// behind is how many offsets lie between a position and the end of what can be read; -1 is unknown.
func behind(pos Position, limit int64) int64 {
	if pos.End >= 0 {
		limit = pos.End
	}
	if limit < 0 {
		return unknown
	}
	return max(0, limit-pos.Next)
}

// rows decodes records of a chunk into b: each goes to the rows or, whole, to the rejected (C2).
func (r *reader[T]) rows(b *connector.Batch[T], c *chunk, s *splitState) error {
	var zero T
	for range r.maxBatch {
		if ok, err := c.take(&r.raw); !ok {
			return err
		}
		r.set(s.partition)
		b.Rows = append(b.Rows, zero)
		row := &b.Rows[len(b.Rows)-1]
		micros := r.raw.millis * 1000
		err := r.decode(&r.record, row)
		if err == nil {
			var eventTime int64
			if eventTime, err = r.admit(row, micros); err == nil {
				b.Times = append(b.Times, eventTime)
				continue
			}
		}
		*row = zero
		b.Rows = b.Rows[:len(b.Rows)-1]
		r.set(s.partition) // as it was, whatever the decoder has done with it
		b.Rejected = append(b.Rejected, deadLetter(&r.record, micros, err))
	}
	return nil
}

// set makes the decoder's record of the raw one at work.
func (r *reader[T]) set(partition int32) {
	r.record = Record{
		Topic: r.source.cfg.Topic, Partition: partition, Offset: r.raw.offset, Timestamp: time.UnixMilli(r.raw.millis).UTC(),
		Key: r.raw.key, Value: r.raw.value, Headers: r.raw.appendHeaders(r.record.Headers[:0]),
	}
}

// deadLetter copies a record whole: it may be kept for long, and would keep its fetch in memory.
func deadLetter(from *Record, micros int64, reason error) connector.DeadLetter {
	d := connector.DeadLetter{
		Topic: from.Topic, Partition: from.Partition, Offset: from.Offset, Timestamp: micros,
		Key: bytes.Clone(from.Key), Value: bytes.Clone(from.Value), Reason: reason.Error(),
	}
	for _, h := range from.Headers {
		d.Headers = append(d.Headers, connector.Header{Key: strings.Clone(h.Key), Value: bytes.Clone(h.Value)})
	}
	return d
}
