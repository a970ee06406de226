package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"time"

	"example.com/weir/connector"
	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/protocol"
	"example.com/weir/internal/state"
)

// task is one subtask: a chain of operators and the goroutine that owns it.
type task struct {
	id          protocol.SubtaskID
	subtask     int
	parallelism int
	gen         *generation
	ctx         context.Context
	logger      *slog.Logger

	main    runnable
	closers []func() error
	// operator is the uid of the operator at work, for errors.
	operator string
	// cut is the snapshot being taken while a barrier passes through the chain.
	cut *cut
	// written hands snapshots to the goroutine that makes them durable.
	written chan *cut
	// giveBack takes the records of cuts that have been written, to use their memory again.
	giveBack func(records [][]byte)
	// oldest says from which cut on a restore needs them, if the subtask's state is a chain of
	// cuts; nil: the last one has everything.
	oldest func() uint64
	cuts   uint64
	stats  *SubtaskStats
}

// cut is one subtask's part of a checkpoint, as it is collected from the operators of its chain.
type cut struct {
	checkpoint   uint64
	number       uint64 // counted from 1
	oldest       uint64 // the first cut that a restore needs with this one
	encoded      []byte
	records      [][]byte // behind it: handed over and not copied, for they are many
	preCommits   []*preCommit
	committables []connector.Committable // what came of them
	kept         []*checkpoint.Records   // to be made durable before the committables are handed over
}

// TaskError says which subtask and operator failed.
type TaskError struct {
	Subtask  protocol.SubtaskID
	Operator string // uid of the operator at work
	Position string // how far the subtask had come, as far as it knows
	Err      error
}

// Error names operator and position before the cause.
func (e *TaskError) Error() string {
	s := "operator " + e.Operator
	if e.Position != "" {
		s += " (" + e.Position + ")"
	}
	return s + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *TaskError) Unwrap() error { return e.Err }

// run runs the subtask until its context ends or it fails. A panic in a user's function is a
// failure of the generation, not of the process.
func (t *task) run() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = t.fail(panicError(p))
		}
	}()
	defer t.running()()
	if err := t.main.run(t.ctx); err != nil {
		return t.fail(err)
	}
	return nil
}

func (t *task) fail(err error) error {
	e := &TaskError{Subtask: t.id, Operator: t.operator, Err: err}
	if p, ok := t.main.(interface{ position() string }); ok {
		e.Position = p.position()
	}
	return e
}

// pass lets a barrier through the chain and hands the snapshot on to be written. The stream
// stands still for as long as forward takes.
func (t *task) pass(barrier signal, alignedSince time.Time, forward func(signal) error) error {
	began := t.now()
	t.cut = &cut{checkpoint: barrier.checkpoint}
	if err := forward(barrier); err != nil {
		return err
	}
	t.cuts++
	t.cut.number, t.cut.oldest = t.cuts, t.cuts
	if t.oldest != nil {
		t.cut.oldest = t.oldest()
	}
	done := t.now()
	t.barrierPassed(barrier.checkpoint, began.Sub(alignedSince), done.Sub(began))
	select {
	case t.written <- t.cut:
		t.cut = nil
		return nil
	case <-t.ctx.Done():
		return t.ctx.Err()
	}
}

// lastSection appends an operator's part to the snapshot being taken, of which the records stay
// where they are. No other section follows: a subtask has one keyed operator.
func (t *task) lastSection(uid string, head []byte, records [][]byte) error {
	size := len(head) + length(records)
	if uint64(size) > math.MaxUint32 {
		return fmt.Errorf("snapshot of %s: %d bytes are too many for one checkpoint", uid, size)
	}
	t.cut.encoded = state.AppendString(t.cut.encoded, uid)
	t.cut.encoded = binary.LittleEndian.AppendUint32(t.cut.encoded, uint32(size))
	t.cut.encoded = append(t.cut.encoded, head...)
	t.cut.records = records
	return nil
}

// section appends an operator's part to the snapshot being taken.
func (t *task) section(uid string, fill func([]byte) ([]byte, error)) error {
	if t.cut.records != nil {
		return fmt.Errorf("snapshot of %s: behind the last section", uid)
	}
	t.cut.encoded = state.AppendString(t.cut.encoded, uid)
	encoded, err := state.AppendSized(t.cut.encoded, fill)
	if err != nil {
		return fmt.Errorf("snapshot of %s: %w", uid, err)
	}
	t.cut.encoded = encoded
	return nil
}

// length returns how many bytes parts have together.
func length(parts [][]byte) (n int) {
	for _, p := range parts {
		n += len(p)
	}
	return n
}

func (t *task) close() error {
	var first error
	for i := len(t.closers) - 1; i >= 0; i-- {
		if err := guard(t.closers[i]); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// guard makes a panic an error.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicError(p)
		}
	}()
	return f()
}

func (t *task) onClose(f func() error) { t.closers = append(t.closers, f) }

func (t *task) now() time.Time { return t.gen.now() }
