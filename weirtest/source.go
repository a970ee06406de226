package weirtest

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"example.com/weir/connector"
)

// Source is a replayable source in memory. Its splits only grow. It is safe for use by several
// goroutines.
type Source[T any] struct {
	mu      sync.Mutex
	splits  [][]entry[T]
	bounded bool
	grows   time.Duration // how often a job looks for more splits; 0: never
	changed chan struct{} // closed and replaced when anything is added
}

// entry is a row, an event time that the split has reached, or a record that does not decode.
type entry[T any] struct {
	row     T
	at      time.Time // the record's own timestamp
	reached bool
	bad     string
}

// NewSource returns an empty source with a number of splits.
func NewSource[T any](splits int) *Source[T] {
	return &Source[T]{splits: make([][]entry[T], splits), changed: make(chan struct{})}
}

// Add appends rows to a split. Their own timestamps are the end of time, so that no event time is
// too far ahead of them.
func (s *Source[T]) Add(split int, rows ...T) {
	entries := make([]entry[T], len(rows))
	for i, r := range rows {
		entries[i] = entry[T]{row: r, at: farFuture()}
	}
	s.append(split, entries...)
}

// AddAt appends a row with a timestamp of its own.
func (s *Source[T]) AddAt(split int, at time.Time, row T) {
	s.append(split, entry[T]{row: row, at: at})
}

// AddBad appends a record that does not decode, for a reason.
func (s *Source[T]) AddBad(split int, reason string) {
	s.append(split, entry[T]{bad: reason, at: farFuture()})
}

// AdvanceTo moves the event time of every split: what comes before it is late.
func (s *Source[T]) AdvanceTo(at time.Time) {
	s.mu.Lock()
	splits := len(s.splits)
	s.mu.Unlock()
	for i := range splits {
		s.append(i, entry[T]{reached: true, at: at})
	}
}

// Grows makes jobs look for more splits once an interval, as they do where a topic may get more
// partitions. Without it a job has the splits that were there at its fresh start.
func (s *Source[T]) Grows(every time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grows = every
}

// AddSplit adds an empty split and returns its index.
func (s *Source[T]) AddSplit() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.splits = append(s.splits, nil)
	return len(s.splits) - 1
}

// End bounds the source: what has been added so far is all that a job that starts from now on
// reads.
func (s *Source[T]) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bounded = true
	s.notify()
}

func (s *Source[T]) append(split int, entries ...entry[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.splits[split] = append(s.splits[split], entries...)
	s.notify()
}

func (s *Source[T]) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func farFuture() time.Time { return time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC) }

// Replayable implements connector.Source.
func (s *Source[T]) Replayable() bool { return true }

// Discover implements connector.Source.
func (s *Source[T]) Discover(context.Context) ([]connector.Split, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var splits []connector.Split
	for i := range s.splits {
		p := position{end: -1}
		if s.bounded {
			p.end = int64(len(s.splits[i]))
		}
		splits = append(splits, connector.Split{ID: splitID(i), Position: p.append(nil)})
	}
	return splits, nil
}

// GrowthInterval implements connector.Growing.
func (s *Source[T]) GrowthInterval() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bounded {
		return 0
	}
	return s.grows
}

// Grow implements connector.Growing.
func (s *Source[T]) Grow(_ context.Context, known []connector.Split) ([]connector.Split, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var splits []connector.Split
	for i := range s.splits {
		id := splitID(i)
		if !slices.ContainsFunc(known, func(k connector.Split) bool { return k.ID == id }) {
			splits = append(splits, connector.Split{ID: id, Position: position{end: -1}.append(nil)})
		}
	}
	return splits, nil
}

func splitID(i int) string { return fmt.Sprintf("split/%d", i) }

// position is where a split goes on and, in a bounded read, ends.
type position struct{ next, end int64 }

func (p position) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(p.next))
	return binary.BigEndian.AppendUint64(dst, uint64(p.end))
}

// Reader implements connector.Source.
func (s *Source[T]) Reader(
	_ context.Context, rc connector.ReaderContext[T], splits []connector.Split,
) (connector.Reader[T], error) {
	r := &reader[T]{source: s, admit: rc.Admit}
	return r, r.AddSplits(context.Background(), splits)
}

// AddSplits implements connector.SplitAdder.
func (r *reader[T]) AddSplits(_ context.Context, splits []connector.Split) error {
	for _, sp := range splits {
		var i int
		if _, err := fmt.Sscanf(sp.ID, "split/%d", &i); err != nil || len(sp.Position) != 16 {
			return connector.Stop(fmt.Errorf("split %q is not of this source", sp.ID))
		}
		r.splits = append(r.splits, assigned{index: i, at: position{
			next: int64(binary.BigEndian.Uint64(sp.Position)),
			end:  int64(binary.BigEndian.Uint64(sp.Position[8:])),
		}})
	}
	return nil
}

type assigned struct {
	index int
	at    position
	told  bool // that it is caught up, or has ended, where it stands
}

type reader[T any] struct {
	source *Source[T]
	admit  func(*T, int64) (int64, error)
	splits []assigned
	turn   int
}

// maxRows is how many entries a batch holds at most: few, so that tests see many batches.
const maxRows = 16

// Read implements connector.Reader.
func (r *reader[T]) Read(ctx context.Context, b *connector.Batch[T]) error {
	b.Reset()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		r.source.mu.Lock()
		found, changed := r.next(b), r.source.changed
		r.source.mu.Unlock()
		if found {
			return nil
		}
		select {
		case <-changed:
		case <-time.After(tellAgain):
			r.forget()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tellAgain is how often a split that stays caught up says so.
const tellAgain = time.Second

func (r *reader[T]) forget() {
	for i := range r.splits {
		a := &r.splits[i]
		a.told = a.at.next == a.at.end // an end is told once
	}
}

// next fills b from the next split that has something to tell.
func (r *reader[T]) next(b *connector.Batch[T]) bool {
	for range r.splits {
		i := r.turn
		r.turn = (r.turn + 1) % len(r.splits)
		a := &r.splits[i]
		all := r.source.splits[a.index]
		end := int64(len(all))
		if a.at.end >= 0 {
			end = min(end, a.at.end)
		}
		if a.at.next == end && a.told {
			continue
		}
		for n := 0; a.at.next < end && n < maxRows && !b.HasReached; n++ {
			r.take(b, a.index, a.at.next, &all[a.at.next])
			a.at.next++
		}
		a.told = a.at.next == end
		b.Split, b.Position = i, a.at.append(b.Position)
		b.CaughtUp, b.Ended, b.Behind = a.told, a.at.next == a.at.end, end-a.at.next
		return true
	}
	return false
}

func (r *reader[T]) take(b *connector.Batch[T], split int, offset int64, e *entry[T]) {
	if e.reached {
		b.Reached, b.HasReached = e.at.UnixMicro(), true
		return
	}
	reason := e.bad
	if reason == "" {
		row := e.row
		at, err := r.admit(&row, e.at.UnixMicro())
		if err == nil {
			b.Rows, b.Times = append(b.Rows, row), append(b.Times, at)
			return
		}
		reason = err.Error()
	}
	b.Rejected = append(b.Rejected, connector.DeadLetter{
		Topic: "split", Partition: int32(split), Offset: offset,
		Timestamp: e.at.UnixMicro(), Value: fmt.Append(nil, e.row), Reason: reason,
	})
}

// Close implements connector.Reader.
func (r *reader[T]) Close() error { return nil }

// Entries returns the number of entries of a split.
func (s *Source[T]) Entries(split int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.splits[split])
}
