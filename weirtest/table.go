package weirtest

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"example.com/weir/connector"
)

// Table is a sink in memory that keeps the last row of each key, as a table with a primary key does.
// Writing a row again changes nothing, so a job whose sinks are tables may go back behind what it has
// written. It is safe for use by several goroutines.
type Table[K comparable, T any] struct {
	key func(*T) K

	mu     sync.Mutex
	rows   map[K]T
	writes int
}

// NewTable returns an empty table.
func NewTable[K comparable, T any](key func(*T) K) *Table[K, T] {
	return &Table[K, T]{key: key, rows: map[K]T{}}
}

// Rows returns what the table holds.
func (s *Table[K, T]) Rows() map[K]T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.rows)
}

// Writes returns how often a row was written.
func (s *Table[K, T]) Writes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// Guarantee implements connector.Sink.
func (s *Table[K, T]) Guarantee() connector.Guarantee { return connector.ExactlyOnce }

// Idempotent implements connector.Idempotent.
func (s *Table[K, T]) Idempotent() bool { return true }

// Validate implements connector.Sink.
func (s *Table[K, T]) Validate(checkpoints bool) error {
	if !checkpoints {
		return fmt.Errorf("%s needs checkpoints", s.Guarantee())
	}
	return nil
}

// Writer implements connector.Sink.
func (s *Table[K, T]) Writer(context.Context, connector.WriterContext) (connector.Writer[T], error) {
	return tableWriter[K, T]{s}, nil
}

type tableWriter[K comparable, T any] struct{ table *Table[K, T] }

// Write implements connector.Writer.
func (w tableWriter[K, T]) Write(_ context.Context, rows []T) error {
	w.table.mu.Lock()
	defer w.table.mu.Unlock()
	for i := range rows {
		w.table.rows[w.table.key(&rows[i])] = rows[i]
		w.table.writes++
	}
	return nil
}

// Flush implements connector.Writer.
func (w tableWriter[K, T]) Flush(context.Context, bool) error { return nil }

// Close implements connector.Writer.
func (w tableWriter[K, T]) Close() error { return nil }
