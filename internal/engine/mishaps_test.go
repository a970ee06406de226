package engine_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"example.com/weir/connector"
	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/protocol"
	"example.com/weir/weirtest"
)

var errMishap = errors.New("a mishap")

// mishaps are faults by name. One that was asked for befalls the next call of its kind.
type mishaps struct {
	mu       sync.Mutex
	asked    map[string]int
	happened map[string]int
}

func newMishaps() *mishaps { return &mishaps{asked: map[string]int{}, happened: map[string]int{}} }

func everyMishap() []string {
	return []string{
		"a processor panics", "a timer fails",
		"a reader cannot be opened", "a read fails", "a reader does not close",
		"a writer cannot be opened", "a write fails", "a flush fails", "a pre-commit fails",
		"a commit fails", "the answer to a commit is lost", "a restore fails",
		"a snapshot fails", "a snapshot is slow", "a snapshot cannot be read", "a manifest fails",
		"CURRENT cannot be read", "a swap is refused", "a swap is unknown, and it was not", "a swap is unknown, and it was",
	}
}

// ask asks for one of them.
func (m *mishaps) ask(random *rand.Rand) {
	all := everyMishap()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked[all[random.IntN(len(all))]]++
}

// forget takes back what was asked for and has not happened.
func (m *mishaps) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.asked)
}

// befalls reports whether it happens now.
func (m *mishaps) befalls(kind string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.asked[kind] == 0 {
		return false
	}
	m.asked[kind]--
	m.happened[kind]++
	return true
}

// openings counts readers and writers.
type openings struct{ opened, closed, closedTwice atomic.Int64 }

// opening is one of them.
type opening struct {
	all    *openings
	closed atomic.Bool
}

func (o *openings) open() *opening {
	o.opened.Add(1)
	return &opening{all: o}
}

func (o *opening) close() {
	if o.closed.Swap(true) {
		o.all.closedTwice.Add(1)
		return
	}
	o.all.closed.Add(1)
}

// mishapSource is a source whose readers fail.
type mishapSource[T any] struct {
	*weirtest.Source[T]
	faults *mishaps
	open   *openings
}

func (s mishapSource[T]) Reader(
	ctx context.Context, rc connector.ReaderContext[T], splits []connector.Split,
) (connector.Reader[T], error) {
	if s.faults.befalls("a reader cannot be opened") {
		return nil, errMishap
	}
	r, err := s.Source.Reader(ctx, rc, splits)
	if err != nil {
		return nil, err
	}
	return &mishapReader[T]{r, s.faults, s.open.open()}, nil
}

type mishapReader[T any] struct {
	connector.Reader[T]
	faults  *mishaps
	opening *opening
}

func (r *mishapReader[T]) Read(ctx context.Context, b *connector.Batch[T]) error {
	if r.faults.befalls("a read fails") {
		return errMishap
	}
	return r.Reader.Read(ctx, b)
}

func (r *mishapReader[T]) Close() error {
	r.opening.close()
	if r.faults.befalls("a reader does not close") {
		return errMishap
	}
	return r.Reader.Close()
}

// mishapSink is a sink whose writers fail.
type mishapSink[T any] struct {
	*weirtest.Sink[T]
	faults *mishaps
	open   *openings
}

func (s mishapSink[T]) Restore(ctx context.Context, rc connector.RestoreContext) error {
	if s.faults.befalls("a restore fails") {
		return errMishap
	}
	return s.Sink.Restore(ctx, rc)
}

func (s mishapSink[T]) Writer(ctx context.Context, wc connector.WriterContext) (connector.Writer[T], error) {
	if s.faults.befalls("a writer cannot be opened") {
		return nil, errMishap
	}
	w, err := s.Sink.Writer(ctx, wc)
	if err != nil {
		return nil, err
	}
	return &mishapWriter[T]{w.(connector.TwoPhaseWriter[T]), s.faults, s.open.open()}, nil
}

type mishapWriter[T any] struct {
	connector.TwoPhaseWriter[T]
	faults  *mishaps
	opening *opening
}

func (w *mishapWriter[T]) Write(ctx context.Context, rows []T) error {
	if w.faults.befalls("a write fails") {
		return errMishap
	}
	return w.TwoPhaseWriter.Write(ctx, rows)
}

func (w *mishapWriter[T]) Flush(ctx context.Context, endOfInput bool) error {
	if w.faults.befalls("a flush fails") {
		return errMishap
	}
	return w.TwoPhaseWriter.Flush(ctx, endOfInput)
}

func (w *mishapWriter[T]) PrepareCommit(ctx context.Context, n uint64) (*connector.Committable, error) {
	if w.faults.befalls("a pre-commit fails") {
		return nil, errMishap
	}
	return w.TwoPhaseWriter.PrepareCommit(ctx, n)
}

func (w *mishapWriter[T]) Commit(ctx context.Context, c connector.Committable) error {
	if w.faults.befalls("a commit fails") {
		return errMishap
	}
	if err := w.TwoPhaseWriter.Commit(ctx, c); err != nil {
		return err
	}
	if w.faults.befalls("the answer to a commit is lost") {
		return errMishap
	}
	return nil
}

func (w *mishapWriter[T]) Close() error {
	w.opening.close()
	return w.TwoPhaseWriter.Close()
}

// mishapStore is a store that fails.
type mishapStore struct {
	checkpoint.Store
	faults *mishaps
}

func (s *mishapStore) Current(ctx context.Context) (protocol.Current, error) {
	if s.faults.befalls("CURRENT cannot be read") {
		return protocol.Current{}, errMishap
	}
	return s.Store.Current(ctx)
}

func (s *mishapStore) Swap(ctx context.Context, old, next protocol.Current) (protocol.Current, error) {
	switch {
	case s.faults.befalls("a swap is refused"):
		return protocol.Current{}, checkpoint.ErrSwapRefused
	case s.faults.befalls("a swap is unknown, and it was not"):
		return protocol.Current{}, checkpoint.ErrSwapUnknown
	case s.faults.befalls("a swap is unknown, and it was"):
		if _, err := s.Store.Swap(ctx, old, next); err != nil {
			return protocol.Current{}, err
		}
		return protocol.Current{}, checkpoint.ErrSwapUnknown
	}
	return s.Store.Swap(ctx, old, next)
}

func (s *mishapStore) PutSnapshot(
	ctx context.Context, name checkpoint.SnapshotName, payload ...[]byte,
) (protocol.Handle, error) {
	switch {
	case s.faults.befalls("a snapshot fails"):
		return protocol.Handle{}, errMishap
	case s.faults.befalls("a snapshot is slow"):
		select {
		case <-time.After(7 * time.Second):
		case <-ctx.Done():
			return protocol.Handle{}, ctx.Err()
		}
	}
	return s.Store.PutSnapshot(ctx, name, payload...)
}

func (s *mishapStore) GetSnapshot(ctx context.Context, h protocol.Handle) ([]byte, error) {
	if s.faults.befalls("a snapshot cannot be read") {
		return nil, errMishap
	}
	return s.Store.GetSnapshot(ctx, h)
}

func (s *mishapStore) PutManifest(ctx context.Context, m checkpoint.Manifest) (checkpoint.Ref, error) {
	if s.faults.befalls("a manifest fails") {
		return checkpoint.Ref{}, errMishap
	}
	return s.Store.PutManifest(ctx, m)
}
