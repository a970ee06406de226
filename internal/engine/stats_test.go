package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A stopwatch is started and stopped in any order, and read at any moment, as a model that keeps
// total and start apart.
func TestAStopwatchIsRightWhileItRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w stopwatch
		var now, total, since time.Duration
		running := false
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now += time.Duration(rapid.IntRange(0, 5).Draw(t, "passed"))
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				if w.start(now); !running {
					running, since = true, now
				}
			case 1:
				if w.stop(now); running {
					running, total = false, total+now-since
				}
			}
			want := total
			if running {
				want += now - since
			}
			require.Equal(t, want, w.read(now))
		}
	})
}

// counting returns what a map does with a batch, and what it counts.
func counting() (batch func() error, stats *operatorStats) {
	own := &task{gen: &generation{cfg: RunConfig{}.withDefaults()}, stats: &SubtaskStats{}}
	stats = own.stats.operator("map")
	out := newOut[int](&task{}, discard[int]{}, stats)
	f := &flatMap[int, int]{task: own, stats: stats, out: out, f: func(v *int, out *Out[int]) error {
		out.Emit(*v)
		return nil
	}}
	rows := &Batch[int]{Rows: make([]int, BatchSize), Times: make([]int64, BatchSize), Marks: make([]int64, BatchSize)}
	return func() error {
		own.waits()
		own.waited()
		return f.batch(rows)
	}, stats
}

func BenchmarkCounters(b *testing.B) {
	batch, _ := counting()
	b.ReportAllocs()
	for b.Loop() {
		if err := batch(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/BatchSize, "ns/record")
}

func TestCountingAllocatesNothing(t *testing.T) {
	batch, stats := counting()
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = batch() }))
	require.EqualValues(t, 101*BatchSize, stats.recordsIn.Load())
	require.EqualValues(t, 101*BatchSize, stats.recordsOut.Load())
}

// Its owner looks at the clock, somebody reads it, and only then it is stopped, at the earlier moment.
func TestWhatAStopwatchHasShownIsNotTakenBack(t *testing.T) {
	var w stopwatch
	w.start(0)
	require.EqualValues(t, 10, w.read(10))
	w.stop(8)
	require.EqualValues(t, 10, w.read(11))
	w.start(20)
	require.EqualValues(t, 13, w.read(25))
}
