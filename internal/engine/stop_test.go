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
	"example.com/weir/internal/status"
	"example.com/weir/weirtest"
)

// slowWindows is a job of one window operator, over a source that takes its time for each row.
type slowWindows struct {
	source *weirtest.Source[reading]
	sink   *weirtest.Sink[total]
	store  *hookedStore
	takes  time.Duration

	restore engine.RestoreConfig
}

func newSlowWindows(takes time.Duration) *slowWindows {
	return &slowWindows{
		source: weirtest.NewSource[reading](1), sink: weirtest.NewSink[total](connector.ExactlyOnce),
		store: &hookedStore{Store: checkpoint.NewMemory("windows")}, takes: takes,
	}
}

func (w *slowWindows) run(ctx context.Context, control *engine.Control) (protocol.Outcome, error) {
	p := engine.NewPlan("windows", 1, 16)
	s := engine.Source(p, "readings", w.source, engine.SourceConfig[reading]{
		EventTime: func(r *reading) time.Time { return r.At },
	}, &engine.DeadLetters{})
	slow := engine.FlatMap(s, "slow", "map", func(r *reading, out *engine.Out[reading]) error {
		time.Sleep(w.takes)
		out.Emit(*r)
		return nil
	})
	sums := engine.Aggregate(engine.KeyBy(slow, func(r *reading) string { return r.Meter }), "sum",
		engine.WindowConfig[reading]{Size: time.Minute}, adder{})
	engine.Sink(sums, "sink", w.sink)
	return engine.Run(ctx, p, engine.RunConfig{
		Store: w.store, Interval: time.Second, Restore: w.restore,
	}, control)
}

// runFor runs the job for some of the bubble's time and kills it.
func (w *slowWindows) runFor(t *testing.T, d time.Duration, control *engine.Control) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	_, err := w.run(ctx, control)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestDrainingClosesOpenWindowsAndFinishesTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSlowWindows(0)
		w.source.Add(0, reading{Meter: "a", At: ten, N: 1}, reading{Meter: "b", At: ten.Add(time.Second), N: 2})
		control := engine.NewControl()
		time.AfterFunc(3500*time.Millisecond, func() {
			require.Empty(t, w.sink.Rows())
			control.Stop(true)
		})
		outcome, err := w.run(t.Context(), control)
		require.NoError(t, err)
		require.Equal(t, protocol.Finished, outcome)
		want := []total{
			{Meter: "a", End: ten.Add(time.Minute), Sum: 1, Revision: 1},
			{Meter: "b", End: ten.Add(time.Minute), Sum: 2, Revision: 1},
		}
		require.ElementsMatch(t, want, w.sink.Rows())

		w.source.Add(0, reading{Meter: "a", At: ten, N: 9})
		outcome, err = w.run(t.Context(), nil) // started again, it changes nothing
		require.NoError(t, err)
		require.Equal(t, protocol.Finished, outcome)
		require.ElementsMatch(t, want, w.sink.Rows())
	})
}

// A barrier that was injected before the job was told to drain goes before the end of event time. If
// the process dies before the last checkpoint exists, the job goes on as if nobody had asked.
func TestNoCutHoldsTheEndOfEventTimeWithInputLeftToRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSlowWindows(5 * time.Second)
		w.source.Add(0, reading{Meter: "a", At: ten, N: 1})
		control := engine.NewControl()
		time.AfterFunc(2*time.Second, func() { control.Stop(true) }) // the barrier waits behind the row
		w.store.before = func(_, next protocol.Current) error {
			if next.Finished {
				return checkpoint.ErrSwapUnknown
			}
			return nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5500*time.Millisecond)
		defer cancel()
		_, err := w.run(ctx, control)
		require.Error(t, err)
		current, err := w.store.Current(t.Context())
		require.NoError(t, err)
		require.Equal(t, uint64(2), current.Checkpoint, "the barrier that was on its way has made a checkpoint")
		require.Empty(t, w.sink.Rows())

		w.store.before = nil
		w.source.Add(0, reading{Meter: "a", At: ten.Add(30 * time.Second), N: 2})
		w.source.AdvanceTo(ten.Add(time.Hour))
		w.runFor(t, 20*time.Second, nil)
		require.Equal(t, []total{{Meter: "a", End: ten.Add(time.Minute), Sum: 3, Revision: 1}}, w.sink.Rows())
	})
}

// A generation that fails while it drains is followed by one that drains again, from before the end.
func TestDrainingThatFailsBeginsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSlowWindows(0)
		w.source.Add(0, reading{Meter: "a", At: ten, N: 1})
		failed := false
		w.store.before = func(_, next protocol.Current) error {
			if next.Finished && !failed {
				failed = true
				return checkpoint.ErrSwapUnknown
			}
			return nil
		}
		control := engine.NewControl()
		time.AfterFunc(1500*time.Millisecond, func() { control.Stop(true) })
		outcome, err := w.run(t.Context(), control)
		require.NoError(t, err)
		require.True(t, failed)
		require.Equal(t, protocol.Finished, outcome)
		require.Equal(t, []total{{Meter: "a", End: ten.Add(time.Minute), Sum: 1, Revision: 1}}, w.sink.Rows())
	})
}

// The first request decides, whichever it is and whenever it comes.
func TestTheFirstRequestToStopDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSlowWindows(0)
		w.source.Add(0, reading{Meter: "a", At: ten, N: 1})
		control := engine.NewControl()
		control.Stop(false)
		control.Stop(true)
		outcome, err := w.run(t.Context(), control)
		require.NoError(t, err)
		require.Equal(t, protocol.Stopped, outcome)

		control = engine.NewControl()
		control.Stop(true) // before it begins: it starts, reads nothing and closes what is open
		control.Stop(false)
		outcome, err = w.run(t.Context(), control)
		require.NoError(t, err)
		require.Equal(t, protocol.Finished, outcome)
		require.Empty(t, w.sink.Rows())
	})
}

// What a job says of itself follows it through its life.
func TestStatusFollowsTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers()
		n.cfg.Restart = protocol.FixedDelay{Delay: time.Minute}
		n.source.Add(0, 1, 2)
		control := engine.NewControl()
		require.Equal(t, status.Starting, control.Status().State)
		n.sink.commit = func(context.Context, connector.Committable) error {
			time.Sleep(10 * time.Second)
			return errStorage
		}
		ctx, cancel := context.WithCancel(t.Context())
		began, ended := time.Now().UTC(), make(chan error, 1)
		go func() {
			_, err := n.run(ctx, control)
			ended <- err
			close(ended)
		}()
		defer func() { cancel(); <-ended }()
		time.Sleep(5500 * time.Millisecond)
		s := control.Status()
		require.Equal(t, began, s.Started)
		require.Equal(t, time.Now().UTC(), s.At)
		require.True(t, s.Ready())
		require.Equal(t, uint64(1), s.Generation)
		require.Len(t, s.Lineage, 16)
		require.Equal(t, uint64(6), s.Checkpoints.Last)
		require.Positive(t, s.Checkpoints.LastFullSize)
		require.Equal(t, []status.Transaction{{
			ID: "sink[0]@2", Sink: "sink", Checkpoint: 2, Handle: "txn-2", Age: 5500 * time.Millisecond,
		}}, s.Transactions)
		require.Equal(t, int64(2), s.Operators[0].Subtasks[0].RecordsIn)

		time.Sleep(15 * time.Second)
		s = control.Status()
		require.Equal(t, status.Restarting, s.State)
		require.Equal(t, 1, s.Restarts)
		require.Contains(t, s.LastFailure, errStorage.Error())
		require.False(t, s.Ready())

		n.sink.commit = nil
		time.Sleep(time.Minute)
		s = control.Status()
		require.True(t, s.Ready())
		require.Equal(t, uint64(2), s.Generation)
		require.Empty(t, s.Transactions)
		control.Stop(false)
		require.NoError(t, <-ended)
		require.Equal(t, status.Ended, control.Status().State)
	})
}
