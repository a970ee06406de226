package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/engine"
	"example.com/weir/internal/protocol"
	"example.com/weir/weirtest"
)

// windows is a job of one window operator over two splits, whose sink shows at once what it is given.
type windows struct {
	source *weirtest.Source[reading]
	sink   *weirtest.Sink[total]
	store  checkpoint.Store
	idle   time.Duration
}

func newWindows() *windows {
	return &windows{
		source: weirtest.NewSource[reading](2), sink: weirtest.NewSink[total](connector.AtLeastOnce),
		store: checkpoint.NewMemory("windows"),
	}
}

func (w *windows) run(ctx context.Context, stop *engine.Control) (protocol.Outcome, error) {
	p := engine.NewPlan("windows", 1, 16)
	s := engine.Source(p, "readings", w.source, engine.SourceConfig[reading]{
		EventTime: func(r *reading) time.Time { return r.At }, IdleAfter: w.idle,
	}, &engine.DeadLetters{})
	sums := engine.Aggregate(engine.KeyBy(s, func(r *reading) string { return r.Meter }), "sum",
		engine.WindowConfig[reading]{Size: time.Minute}, adder{})
	engine.Sink(sums, "sink", w.sink)
	return engine.Run(ctx, p, engine.RunConfig{Store: w.store, Interval: time.Second}, stop)
}

var ten = time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)

// A split that is quiet after a restart stands where it stood, and holds event time back as before.
func TestSplitThatIsQuietAfterARestartStillHoldsEventTimeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWindows()
		w.source.Add(0, reading{Meter: "a", At: ten, N: 1})
		w.source.Add(1, reading{Meter: "a", At: ten, N: 2})
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			_, err := w.run(ctx, nil)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			cancel()
			require.Empty(t, w.sink.Rows())
			w.source.Add(0, reading{Meter: "b", At: ten.Add(10 * time.Hour), N: 9})
		}
		w.source.Add(1, reading{Meter: "a", At: ten, N: 4}, reading{Meter: "b", At: ten.Add(10 * time.Hour), N: 9})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := w.run(ctx, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, []total{{Meter: "a", End: ten.Add(time.Minute), Sum: 7, Revision: 1}}, w.sink.Rows())
	})
}

// While the last checkpoint is being made durable, a split that has become idle lets nobody's event
// time go on: the window would be shown behind the cut, and again by the next start.
func TestEventTimeStandsStillBehindTheLastBarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWindows()
		memory := w.store
		w.idle = 5 * time.Second
		w.source.Add(0, reading{Meter: "a", At: ten, N: 1})
		ahead := func() { w.source.Add(1, reading{Meter: "b", At: ten.Add(10 * time.Hour), N: 2}) }
		time.AfterFunc(3*time.Second, ahead) // so that the other split is idle before this one
		stop := engine.NewControl()
		time.AfterFunc(3500*time.Millisecond, func() {
			w.store.(*slowManifests).delay = time.Minute
			stop.Stop(false)
		})
		w.store = &slowManifests{Store: memory}
		outcome, err := w.run(t.Context(), stop)
		require.NoError(t, err)
		require.Equal(t, protocol.Stopped, outcome)
		require.Empty(t, w.sink.Rows())

		w.store = memory
		time.AfterFunc(3*time.Second, ahead)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err = w.run(ctx, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, []total{{Meter: "a", End: ten.Add(time.Minute), Sum: 1, Revision: 1}}, w.sink.Rows())
	})
}

// While the job is held up, a split that was caught up gets records that nobody reads. That the clock has
// gone on meanwhile does not make it idle: its records would be late.
func TestASplitIsNotIdleBecauseTheJobStoodStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWindows()
		at := func(split int, meter string, after time.Duration, n int) {
			w.source.Add(split, reading{Meter: meter, At: ten.Add(after), N: n})
		}
		at(0, "a", 0, 1)
		at(1, "a", 0, 1)
		time.AfterFunc(5*time.Second, func() { at(0, "stand still", 0, 0) })
		time.AfterFunc(time.Minute, func() {
			at(0, "b", 2*time.Hour, 1)
			at(1, "a", 30*time.Second, 5)
			at(1, "b", 2*time.Hour, 1)
		})
		p := engine.NewPlan("windows", 1, 16)
		s := engine.Source(p, "readings", w.source, engine.SourceConfig[reading]{
			EventTime: func(r *reading) time.Time { return r.At }, IdleAfter: 2 * time.Minute,
		}, &engine.DeadLetters{})
		s = engine.FlatMap(s, "slow", "map", func(r *reading, out *engine.Out[reading]) error {
			if r.Meter == "stand still" {
				<-time.After(time.Hour)
			}
			out.Emit(*r)
			return nil
		})
		sums := engine.Aggregate(engine.KeyBy(s, func(r *reading) string { return r.Meter }), "sum",
			engine.WindowConfig[reading]{Size: time.Minute}, adder{})
		engine.Sink(sums, "sink", w.sink)
		ctx, cancel := context.WithTimeout(t.Context(), 61*time.Minute)
		defer cancel()
		_, err := engine.Run(ctx, p, engine.RunConfig{Store: w.store, Interval: time.Second, Timeout: 2 * time.Hour}, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Contains(t, w.sink.Rows(), total{Meter: "a", End: ten.Add(time.Minute), Sum: 7, Revision: 1})
	})
}
