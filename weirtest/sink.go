package weirtest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"

	"example.com/weir/connector"
)

// Sink is a sink in memory, and the outside that its consumer reads. It is safe for use by several
// goroutines.
type Sink[T any] struct {
	guarantee connector.Guarantee

	mu       sync.Mutex
	visible  []T
	prepared map[string][]T // by committable
	commits  map[string]int // how often each was committed
	changed  chan struct{}
}

// NewSink returns an empty sink with a guarantee. With ExactlyOnce rows are visible once their
// checkpoint is committed; otherwise at once.
func NewSink[T any](g connector.Guarantee) *Sink[T] {
	return &Sink[T]{
		guarantee: g, prepared: map[string][]T{}, commits: map[string]int{}, changed: make(chan struct{}),
	}
}

// Rows returns what a consumer has seen so far, in order.
func (s *Sink[T]) Rows() []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]T(nil), s.visible...)
}

// Await waits until a consumer has seen n rows, and returns them all.
func (s *Sink[T]) Await(ctx context.Context, n int) ([]T, error) {
	for {
		s.mu.Lock()
		got, changed := len(s.visible), s.changed
		s.mu.Unlock()
		if got >= n {
			return s.Rows(), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return s.Rows(), fmt.Errorf("%d rows of %d: %w", got, n, ctx.Err())
		}
	}
}

// Guarantee implements connector.Sink.
func (s *Sink[T]) Guarantee() connector.Guarantee { return s.guarantee }

// Validate implements connector.Sink.
func (s *Sink[T]) Validate(checkpoints bool) error {
	if s.guarantee > connector.None && !checkpoints {
		return fmt.Errorf("%s needs checkpoints", s.guarantee)
	}
	return nil
}

// Writer implements connector.Sink.
func (s *Sink[T]) Writer(_ context.Context, wc connector.WriterContext) (connector.Writer[T], error) {
	return &writer[T]{sink: s, lineage: wc.Lineage, uid: wc.Operator, subtask: wc.Subtask}, nil
}

// Restore implements connector.TwoPhaseSink.
func (s *Sink[T]) Restore(_ context.Context, rc connector.RestoreContext) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range rc.Named {
		if err := s.commit(c); err != nil {
			return err
		}
	}
	return nil
}

// commit makes a committable visible, once however often it is committed.
func (s *Sink[T]) commit(c connector.Committable) error {
	id := string(c.Payload)
	rows, ok := s.prepared[id]
	if !ok {
		return connector.Stop(fmt.Errorf("%s was never prepared", c.ID()))
	}
	if s.commits[id] == 0 {
		s.visible = append(s.visible, rows...)
		close(s.changed)
		s.changed = make(chan struct{})
	}
	s.commits[id]++
	return nil
}

type writer[T any] struct {
	sink    *Sink[T]
	lineage string
	uid     string
	subtask int
	pending []T
}

// Write implements connector.Writer.
func (w *writer[T]) Write(_ context.Context, rows []T) error {
	if w.sink.guarantee == connector.ExactlyOnce {
		w.pending = append(w.pending, rows...)
		return nil
	}
	w.sink.mu.Lock()
	defer w.sink.mu.Unlock()
	w.sink.visible = append(w.sink.visible, rows...)
	close(w.sink.changed)
	w.sink.changed = make(chan struct{})
	return nil
}

// Flush implements connector.Writer.
func (w *writer[T]) Flush(context.Context, bool) error { return nil }

// PrepareCommit implements connector.TwoPhaseWriter.
func (w *writer[T]) PrepareCommit(_ context.Context, checkpoint uint64) (*connector.Committable, error) {
	if len(w.pending) == 0 {
		return nil, nil
	}
	w.sink.mu.Lock()
	defer w.sink.mu.Unlock()
	id := fmt.Sprintf("%s/%s/%d/%d/%d", w.lineage, w.uid, w.subtask, checkpoint, len(w.sink.prepared))
	w.sink.prepared[id] = w.pending
	c := &connector.Committable{
		Payload: []byte(id), Digest: sha256.Sum256(fmt.Append(nil, w.pending)),
	}
	w.pending = nil
	return c, nil
}

// Commit implements connector.TwoPhaseWriter.
func (w *writer[T]) Commit(ctx context.Context, c connector.Committable) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	w.sink.mu.Lock()
	defer w.sink.mu.Unlock()
	return w.sink.commit(c)
}

// Release implements connector.TwoPhaseWriter.
func (w *writer[T]) Release(connector.Committable) {}

// Close implements connector.Writer.
func (w *writer[T]) Close() error {
	if w.sink == nil {
		return errors.New("closed twice")
	}
	w.sink = nil
	return nil
}
