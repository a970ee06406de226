package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// notes collects what an operator is handed.
type notes struct{ all []string }

func (n *notes) batch(b *Batch[int]) error {
	for i, v := range b.Rows {
		n.all = append(n.all, fmt.Sprintf("%d after %s", v, text(b.Marks[i])))
	}
	return nil
}

func (n *notes) signal(s signal) error {
	switch s.kind {
	case watermarkSignal:
		n.all = append(n.all, "watermark "+text(s.time))
	case idleSignal:
		n.all = append(n.all, "idle")
	case barrierSignal:
		n.all = append(n.all, fmt.Sprint("barrier ", s.checkpoint))
	case flushSignal:
		n.all = append(n.all, "flush")
	}
	return nil
}

func text(at int64) string {
	switch at {
	case noTime:
		return "none"
	case endTime:
		return "end"
	}
	return fmt.Sprint(at)
}

// bench is a receiver with inputs that a test writes to.
type bench struct {
	*receiver[int]
	got *notes
}

func newBench(inputs int) *bench {
	g := &generation{cfg: RunConfig{Now: func() time.Time { return time.Unix(0, 0) }}}
	t := &task{gen: g, ctx: context.Background(), written: make(chan *cut, 100), stats: &SubtaskStats{}}
	got := &notes{}
	return &bench{receiver: newReceiver(t, newChannels[int](inputs, 1), false, Collector[int](got)), got: got}
}

func (b *bench) send(input int, s signal) { b.in[input] <- message[int]{signal: s} }
func (b *bench) row(input, v int, mark int64) {
	b.in[input] <- message[int]{batch: &Batch[int]{Rows: []int{v}, Times: []int64{0}, Marks: []int64{mark}}}
}

func (b *bench) watermark(input int, at int64) {
	b.send(input, signal{kind: watermarkSignal, time: at})
}

func (b *bench) barrier(input int, n uint64) {
	b.send(input, signal{kind: barrierSignal, checkpoint: n})
}

// poll lets the receiver take what it may, and returns what it has passed on since the last time.
func (b *bench) drain(t require.TestingT) string {
	for {
		worked, err := b.receiver.poll()
		require.NoError(t, err)
		if !worked {
			break
		}
	}
	all := strings.Join(b.got.all, ", ")
	b.got.all = nil
	return all
}

func TestNoRowIsHandledBeforeEveryInputHasSaidWhereItStands(t *testing.T) {
	b := newBench(2)
	b.watermark(0, 10)
	b.row(0, 1, 10)
	require.Empty(t, b.drain(t))
	b.watermark(1, noTime)
	require.Equal(t, "watermark none, 1 after none", b.drain(t))
	b.watermark(1, 7)
	require.Equal(t, "watermark 7", b.drain(t))
}

func TestInputBehindABarrierWaitsForTheOthers(t *testing.T) {
	b := newBench(2)
	b.watermark(0, 1)
	b.watermark(1, 1)
	require.Equal(t, "watermark 1", b.drain(t))
	b.barrier(0, 5)
	b.row(0, 100, 1)
	b.row(1, 1, 1)
	require.Equal(t, "1 after 1", b.drain(t), "the row behind the barrier waits, the others do not")
	b.row(1, 2, 1)
	b.barrier(1, 5)
	require.Equal(t, "2 after 1, barrier 5, 100 after 1", b.drain(t))
}

// In at-least-once mode nothing waits: what comes behind the barrier of its input is in the cut.
func TestWithoutAlignmentNoInputWaits(t *testing.T) {
	b := newBench(2)
	b.mode = AtLeastOnce
	b.watermark(0, 1)
	b.row(0, 99, 1)
	require.Empty(t, b.drain(t), "before every input has said where it stands, even this mode waits")
	b.watermark(1, 1)
	require.Equal(t, "watermark 1, 99 after 1", b.drain(t))
	b.barrier(0, 5)
	b.row(0, 100, 1)
	require.Equal(t, "100 after 1", b.drain(t))
	b.row(1, 1, 1)
	b.barrier(1, 5)
	b.row(1, 2, 1)
	require.Equal(t, "1 after 1, barrier 5, 2 after 1", b.drain(t))

	b.barrier(0, 6) // given up: the other input never delivers it
	b.barrier(0, 7)
	b.barrier(1, 7)
	b.barrier(1, 6)
	require.Equal(t, "barrier 7", b.drain(t))
}

// The barrier of a checkpoint that was aborted may come on some inputs only.
func TestHigherBarrierEndsTheAlignmentOfAnAbortedOne(t *testing.T) {
	b := newBench(3)
	for i := range 3 {
		b.watermark(i, 1)
	}
	b.drain(t)
	b.barrier(0, 7)
	b.row(0, 70, 1)
	b.barrier(0, 8)
	b.row(0, 80, 1)
	require.Empty(t, b.drain(t))
	b.barrier(1, 8) // it has skipped 7
	require.Equal(t, "70 after 1", b.drain(t), "what was behind barrier 7 comes before 8")
	b.barrier(2, 7) // comes late, and counts for nothing
	b.row(2, 75, 1)
	require.Equal(t, "75 after 1", b.drain(t))
	b.barrier(2, 8)
	require.Equal(t, "barrier 8, 80 after 1", b.drain(t))
	b.barrier(0, 7) // stale: 8 has passed
	b.row(0, 90, 1)
	require.Equal(t, "90 after 1", b.drain(t))
}

func TestIdleInputIsLeftOutAndComesBack(t *testing.T) {
	b := newBench(2)
	b.watermark(0, 10)
	b.watermark(1, 5)
	require.Equal(t, "watermark 5", b.drain(t))
	b.send(1, signal{kind: idleSignal})
	require.Equal(t, "watermark 10", b.drain(t))
	b.send(0, signal{kind: idleSignal})
	require.Equal(t, "idle", b.drain(t))
	b.row(1, 1, 5) // a dead letter: it moves no event time
	require.Equal(t, "1 after 10", b.drain(t))
	b.send(1, signal{kind: idleSignal})
	require.Equal(t, "idle", b.drain(t), "who took the row has to be told again")
	b.watermark(1, 12)
	require.Equal(t, "watermark 12, watermark 12", b.drain(t))
	b.watermark(0, endTime)
	b.watermark(1, endTime)
	require.Equal(t, "watermark end", b.drain(t))
}

// Whatever barriers are skipped and however the inputs interleave, a barrier passes behind exactly
// the rows that were before it on every input.
func TestBarrierCutsEveryInputAtItsPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const last = 5
		inputs := rapid.IntRange(1, 4).Draw(t, "inputs")
		b := newBench(inputs)
		script := make([][]message[int], inputs)
		before := map[string]uint64{} // of each row, the next barrier on its input
		for i := range inputs {
			script[i] = append(script[i], message[int]{signal: signal{kind: watermarkSignal, time: 1}})
			row := 0
			for n := uint64(1); n <= last; n++ {
				for range rapid.IntRange(0, 3).Draw(t, "rows") {
					v := i*1000 + row
					row++
					script[i] = append(script[i], message[int]{batch: &Batch[int]{
						Rows: []int{v}, Times: []int64{0}, Marks: []int64{1},
					}})
					before[fmt.Sprintf("%d after 1", v)] = n
				}
				if n == last || rapid.Bool().Draw(t, "sends the barrier") {
					script[i] = append(script[i], message[int]{signal: signal{kind: barrierSignal, checkpoint: n}})
				}
			}
		}
		var all []string
		for left := inputs; left > 0; {
			i := rapid.IntRange(0, inputs-1).Draw(t, "input")
			if len(script[i]) > 0 && len(b.in[i]) < cap(b.in[i]) {
				b.in[i] <- script[i][0]
				if script[i] = script[i][1:]; len(script[i]) == 0 {
					left--
				}
			}
			if got := b.drain(t); got != "" {
				all = append(all, strings.Split(got, ", ")...)
			}
		}
		passed := slices.Index(all, fmt.Sprint("barrier ", last))
		require.GreaterOrEqual(t, passed, 0)
		requireCuts(t, all, before)
	})
}

// requireCuts requires each row to come before the barrier that is behind it.
func requireCuts(t require.TestingT, all []string, before map[string]uint64) {
	rows, reached := 0, uint64(0)
	for _, what := range all {
		if n, ok := before[what]; ok {
			require.Less(t, reached, n, "%s comes behind barrier %d: %v", what, reached, all)
			rows++
		}
		var n uint64
		if _, err := fmt.Sscanf(what, "barrier %d", &n); err == nil {
			require.Greater(t, n, reached)
			reached = n
		}
	}
	require.Len(t, before, rows)
}
