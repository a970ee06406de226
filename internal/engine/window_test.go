package engine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type summing struct{}

func (summing) Add(acc *int, row *int) error { *acc += *row; return nil }
func (summing) Merge(into, from *int) error  { *into += *from; return nil }
func (summing) Fire(_ *WindowContext[int], acc *int, out *Out[int]) error {
	out.Emit(*acc)
	return nil
}

// A session takes or refuses a row by what its sender knew, too.
func TestRowIsLateForItsSessionByWhatItsSenderKnew(t *testing.T) {
	plan := NewPlan("test", 1, 8)
	g := &generation{cfg: RunConfig{Interval: time.Second}.withDefaults(), plan: plan, state: &restored{}}
	own := &task{parallelism: 1, gen: g, ctx: context.Background(), stats: &SubtaskStats{}}
	keyed := KeyBy(streamOf(plan, &Operator{UID: "source"}, &outputs[int]{}, nil), same)
	op, err := buildSessions(own, "sum", keyed, WindowConfig[int]{Gap: 10 * time.Microsecond},
		Aggregator[int, int, int, int](summing{}), Merger[int](summing{}), &outputs[int]{}, &sideOutputs{})
	require.NoError(t, err)
	for _, bound := range []int64{90, 91} {
		require.NoError(t, op.batch(&Batch[int]{
			Rows: []int{1}, Times: []int64{90}, Marks: []int64{noTime}, Hashes: []uint64{1}, Keys: make([]byte, 8),
			KeyEnds: []uint32{8}, Bounds: []int64{bound + 20*(bound-90)},
		}))
	}
	require.EqualValues(t, 1, own.stats.operator("sum").late.Load(), "its session ended at 100, and event time is at 111")
	sessions := op.(*sessions[int, int, int, int]).table
	require.NoError(t, op.signal(signal{kind: watermarkSignal, time: 100}))
	require.Zero(t, sessions.Len(), "a session that is closed for good leaves nothing")
}

// With several inputs a subtask may not have been told yet how far event time has come. A row is late
// by what its sender had merged, which is the same in every run.
func TestRowIsLateByWhatItsSenderKnew(t *testing.T) {
	plan := NewPlan("test", 1, 8)
	g := &generation{cfg: RunConfig{Interval: time.Second}.withDefaults(), plan: plan, state: &restored{}}
	own := &task{parallelism: 1, gen: g, ctx: context.Background(), stats: &SubtaskStats{}}
	late, aside, got := &SideOutput[int]{Name: "late"}, &notes{}, &notes{}
	side, outs := &sideOutputs{}, &outputs[int]{}
	side.builders = append(side.builders, sideBuilder{tag: late, build: func(*task) (sideOut, error) {
		return newOut[int](own, aside, &operatorStats{}), nil
	}})
	outs.attach(func(*task) (Collector[int], error) { return got, nil })
	keyed := KeyBy(streamOf(plan, &Operator{UID: "source"}, &outputs[int]{}, nil), same)
	op, err := buildWindows(own, "sum", keyed, WindowConfig[int]{
		Size: time.Minute, Slide: time.Minute, Late: late, AllowedLateness: time.Minute,
	}, Aggregator[int, int, int, int](summing{}), outs, side)
	require.NoError(t, err)

	const second = int64(1_000_000)
	row := func(v int, bound int64) *Batch[int] {
		return &Batch[int]{
			Rows: []int{v}, Times: []int64{10 * second}, Marks: []int64{noTime}, Hashes: []uint64{1}, Keys: make([]byte, 8), KeyEnds: []uint32{8},
			Bounds: []int64{bound},
		}
	}
	require.NoError(t, op.batch(row(1, 120*second-1)))
	require.NoError(t, op.batch(row(2, 120*second)))
	require.Equal(t, []string{"2 after none"}, aside.all)
	require.EqualValues(t, 1, own.stats.operator("sum").late.Load())
	require.NoError(t, op.signal(signal{kind: watermarkSignal, time: 60 * second}))
	require.Equal(t, []string{"1 after none", "watermark 60000000"}, got.all)

	panes := op.(*windows[int, int, int, int]).panes
	require.Equal(t, 1, panes.Len(), "it takes late rows until its lateness has passed")
	require.NoError(t, op.signal(signal{kind: watermarkSignal, time: 120 * second}))
	require.Zero(t, panes.Len(), "a window that is closed for good leaves nothing")
}
