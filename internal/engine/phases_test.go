package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
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

// slowStore takes a second for everything, so that a kill can come in between.
type slowStore struct {
	checkpoint.Store
	calledBack *bool // a swap's context ended while it was out
}

func (s slowStore) Current(ctx context.Context) (protocol.Current, error) {
	<-time.After(time.Second)
	return s.Store.Current(ctx)
}

func (s slowStore) Swap(ctx context.Context, old, next protocol.Current) (protocol.Current, error) {
	<-time.After(time.Second)
	if ctx.Err() != nil {
		*s.calledBack = true
	}
	return s.Store.Swap(ctx, old, next)
}

func (s slowStore) PutSnapshot(
	ctx context.Context, name checkpoint.SnapshotName, payload ...[]byte,
) (protocol.Handle, error) {
	<-time.After(time.Second)
	return s.Store.PutSnapshot(ctx, name, payload...)
}

func (s slowStore) PutManifest(ctx context.Context, m checkpoint.Manifest) (checkpoint.Ref, error) {
	<-time.After(time.Second)
	return s.Store.PutManifest(ctx, m)
}

func (s slowStore) GetSnapshot(ctx context.Context, h protocol.Handle) ([]byte, error) {
	<-time.After(time.Second)
	return s.Store.GetSnapshot(ctx, h)
}

// Killed in each phase of its start, its checkpoints and its commits, a job ends with the reason
// it was given, leaves no goroutine (the bubble would not end) and is the same afterwards.
func TestEndedInEveryPhaseAJobLeavesNothingAndLosesNothing(t *testing.T) {
	for half := range 40 {
		t.Run(fmt.Sprint(half), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNumbers()
				calledBack := false
				n.cfg.Store = slowStore{n.store, &calledBack}
				n.source.Add(0, 1, 2)
				for range 3 {
					err := n.runFor(t, time.Duration(half)*500*time.Millisecond+100*time.Millisecond)
					require.ErrorIs(t, err, context.DeadlineExceeded)
				}
				n.source.Add(0, 3)
				require.ErrorIs(t, n.runFor(t, time.Minute), context.DeadlineExceeded)
				require.Equal(t, []int{1, 2, 3}, n.sink.rows())
				require.False(t, calledBack, "whether CURRENT was swapped has to be known")
			})
		})
	}
}

// Stopped in each phase, it ends in good order.
func TestStoppedInEveryPhaseAJobEndsInGoodOrder(t *testing.T) {
	for half := range 40 {
		t.Run(fmt.Sprint(half), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNumbers()
				calledBack := false
				n.cfg.Store = slowStore{n.store, &calledBack}
				n.source.Add(0, 1, 2)
				for range 2 {
					stop := engine.NewControl()
					time.AfterFunc(time.Duration(half)*500*time.Millisecond+100*time.Millisecond, func() { stop.Stop(false) })
					outcome, err := n.run(t.Context(), stop)
					require.NoError(t, err)
					require.Equal(t, protocol.Stopped, outcome)
					current, err := n.store.Current(t.Context())
					require.NoError(t, err)
					require.True(t, current.Clean && current.Settled, current)
				}
				require.ErrorIs(t, n.runFor(t, time.Minute), context.DeadlineExceeded)
				require.Equal(t, []int{1, 2}, n.sink.rows())
				require.False(t, calledBack)
			})
		})
	}
}

func TestCauseOfTheEndIsReportedEvenWhereTheStrategyGivesUp(t *testing.T) {
	for range 50 { // the end and the failure that follows from it come at once
		synctest.Test(t, func(t *testing.T) {
			n := newNumbers()
			reason := errors.New("the reason")
			ctx, cancel := context.WithCancelCause(t.Context())
			n.store.before = func(protocol.Current, protocol.Current) error {
				cancel(reason)
				return checkpoint.ErrSwapUnknown
			}
			_, err := n.run(ctx, nil)
			require.ErrorIs(t, err, reason)
			require.NotErrorIs(t, err, engine.ErrNotRestarted)
		})
	}
}

// stuck makes the snapshots of one checkpoint wait for a minute.
type stuck struct {
	checkpoint.Store
	checkpoint uint64
}

func (s stuck) PutSnapshot(
	ctx context.Context, name checkpoint.SnapshotName, payload ...[]byte,
) (protocol.Handle, error) {
	if name.Checkpoint == s.checkpoint {
		<-time.After(time.Minute)
	}
	return s.Store.PutSnapshot(ctx, name, payload...)
}

func TestCheckpointThatTimesOutIsAbortedAndItsRecordsComeWithTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers()
		n.cfg.Store, n.cfg.Timeout, n.cfg.TolerableFailures = stuck{n.store, 2}, 25*time.Second, 5
		aborted := []uint64{}
		n.cfg.Observer.CheckpointAborted = func(c uint64, err error) {
			require.ErrorContains(t, err, "timed out")
			aborted = append(aborted, c)
		}
		n.source.Add(0, 1, 2)
		require.ErrorIs(t, n.runFor(t, 2*time.Minute), context.DeadlineExceeded)
		require.Equal(t, []uint64{2, 3}, aborted)
		require.Equal(t, []int{1, 2}, n.sink.rows())
	})
}

func TestSourceWithoutSplitsOrRecordsFinishes(t *testing.T) {
	for _, splits := range []int{0, 1, 3} {
		for _, parallelism := range []int{1, 2, 4} {
			synctest.Test(t, func(t *testing.T) {
				m := newMeters(0, checkpoint.NewMemory("faults"))
				m.store.heal()
				m.source = weirtest.NewSource[reading](splits)
				m.source.End()
				for range 2 {
					outcome, err := engine.Run(t.Context(), m.plan(parallelism), engine.RunConfig{
						Store: m.store, Interval: time.Second, Restart: protocol.NoRestart{},
					}, nil)
					require.NoError(t, err)
					require.Equal(t, protocol.Finished, outcome)
				}
				require.Empty(t, m.sink.Rows())
			})
		}
	}
}

// Ends of input are restored: a split that had ended is not read further, and the job finishes.
func TestEndsOfInputAreRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers()
		n.source.Add(0, 1, 2, 3)
		n.source.End()
		n.sink.commit = func(ctx context.Context, _ connector.Committable) error {
			<-ctx.Done()
			return ctx.Err()
		}
		require.ErrorIs(t, n.runFor(t, 10*time.Second), context.DeadlineExceeded)
		n.source.Add(0, 4)
		n.sink.commit = nil
		for range 2 {
			outcome, err := n.run(t.Context(), nil)
			require.NoError(t, err)
			require.Equal(t, protocol.Finished, outcome)
			require.Equal(t, []int{1, 2, 3}, n.sink.rows())
		}
	})
}

// A barrier does not wait for records: what has been read is committed while the source is quiet,
// and a result does not wait for the next record.
func TestQuietSourceHoldsNothingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, sink := weirtest.NewSource[reading](1), weirtest.NewSink[string](connector.None)
		p := engine.NewPlan("quiet", 2, 16)
		s := engine.Source(p, "readings", source, engine.SourceConfig[reading]{}, &engine.DeadLetters{})
		meter := func(r *reading) string { return r.Meter }
		first := engine.Process(engine.KeyBy(s, meter), "first",
			func() engine.Processor[string, reading, reading] { return passOn{} })
		second := engine.Process(engine.KeyBy(first, meter), "second",
			func() engine.Processor[string, reading, reading] { return passOn{} })
		names := engine.FlatMap(second, "names", "map", func(r *reading, out *engine.Out[string]) error {
			out.Emit(r.Meter)
			return nil
		})
		engine.Sink(names, "sink", sink)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		ended := make(chan error)
		go func() {
			_, err := engine.Run(ctx, p, engine.RunConfig{Store: checkpoint.NewMemory("quiet")}, nil)
			ended <- err
		}()
		for i := range 20 {
			source.Add(0, reading{Meter: fmt.Sprint(i)})
			synctest.Wait() // no time passes: nothing but the record itself can have pushed it on
			require.Len(t, sink.Rows(), i+1)
		}
		cancel()
		<-ended
	})
}

type passOn struct{}

func (passOn) Open(*engine.OpenContext[string]) error                      { return nil }
func (passOn) OnTimer(*engine.Context[string], *engine.Out[reading]) error { return nil }
func (passOn) Process(_ *engine.Context[string], r *reading, out *engine.Out[reading]) error {
	out.Emit(*r)
	return nil
}

// overdue sets a timer in the past, and emits what it has seen when it fires: the timer fires at the
// next watermark, with the records in between counted, whenever a restart comes.
type overdue struct{ seen engine.Value[int] }

func (p *overdue) Open(o *engine.OpenContext[string]) (err error) {
	p.seen, err = engine.NewValue[int](o, "seen", nil)
	return err
}

func (p *overdue) Process(ctx *engine.Context[string], _ *reading, _ *engine.Out[int]) error {
	n, err := p.seen.Put()
	if *n++; *n == 1 {
		ctx.SetTimer(ctx.Watermark().Add(-time.Second))
	}
	return err
}

func (p *overdue) OnTimer(ctx *engine.Context[string], out *engine.Out[int]) error {
	if ctx.Key() == "x" {
		out.Emit(*p.seen.Get())
	}
	return nil
}

func TestTimerSetInThePastFiresAtTheNextWatermarkWheneverARestartComes(t *testing.T) {
	for _, restart := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
			source, sink := weirtest.NewSource[reading](1), weirtest.NewSink[int](connector.ExactlyOnce)
			store := checkpoint.NewMemory("overdue")
			run := func(d time.Duration) {
				p := engine.NewPlan("overdue", 1, 16)
				s := engine.Source(p, "readings", source, engine.SourceConfig[reading]{
					EventTime: func(r *reading) time.Time { return r.At },
				}, &engine.DeadLetters{})
				key := engine.KeyBy(s, func(r *reading) string { return r.Meter })
				engine.Sink(engine.Process(key, "overdue",
					func() engine.Processor[string, reading, int] { return &overdue{} }), "sink", sink)
				ctx, cancel := context.WithTimeout(t.Context(), d)
				defer cancel()
				_, err := engine.Run(ctx, p, engine.RunConfig{Store: store, Interval: time.Second}, nil)
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			source.Add(0, reading{Meter: "other", At: begin}, reading{Meter: "x", At: begin})
			rest := func() {
				source.Add(0, reading{Meter: "x", At: begin}, reading{Meter: "x", At: begin})
				source.Add(0, reading{Meter: "z", At: begin.Add(time.Hour)}, reading{Meter: "z", At: begin.Add(time.Hour)})
			}
			if restart {
				run(5 * time.Second)
			}
			rest()
			run(5 * time.Second)
			require.Equal(t, []int{3}, sink.Rows(), "restart: %v", restart)
		})
	}
}

// A dead letter of an idle split moves no event time, and makes nobody wait for the split either.
func TestDeadLetterOfAnIdleSplitHoldsNoEventTimeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := weirtest.NewSource[reading](2)
		sink := weirtest.NewSink[int](connector.None)
		begin := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
		dead := &engine.DeadLetters{Name: "dead"}
		p := engine.NewPlan("dead", 2, 16)
		s := engine.Source(p, "readings", source, engine.SourceConfig[reading]{IdleAfter: time.Second}, dead)
		letters := engine.KeyBy(engine.Side(s, dead), func(d *connector.DeadLetter) string { return d.Reason })
		counts := engine.Aggregate(letters, "count", engine.WindowConfig[connector.DeadLetter]{
			Size: time.Minute,
		}, counter{})
		engine.Sink(counts, "sink", sink)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		ended := make(chan error)
		go func() {
			_, err := engine.Run(ctx, p, engine.RunConfig{Store: checkpoint.NewMemory("dead")}, nil)
			ended <- err
		}()
		source.AddAt(0, begin, reading{})
		source.AddAt(1, begin, reading{})
		time.Sleep(10 * time.Second) // both are idle
		source.AddBad(0, "bad")      // far in the future, as this source dates what it was given
		for i := range 3 {
			source.AddAt(1, begin.Add(time.Duration(i)*time.Hour), reading{})
			time.Sleep(200 * time.Millisecond)
		}
		source.AddAt(1, time.Date(9999, 12, 31, 23, 0, 0, 0, time.UTC), reading{})
		time.Sleep(10 * time.Second)
		require.Equal(t, []int{1}, sink.Rows())
		cancel()
		<-ended
	})
}

type counter struct{}

func (counter) Add(acc *int, _ *connector.DeadLetter) error { *acc++; return nil }
func (counter) Fire(_ *engine.WindowContext[string], acc *int, out *engine.Out[int]) error {
	out.Emit(*acc)
	return nil
}

// unhurriedSource is a source whose reads take a while to notice that they are called off.
type unhurriedSource struct {
	*weirtest.Source[int]
	closedWhileReading *bool
}

func (s unhurriedSource) Reader(
	ctx context.Context, rc connector.ReaderContext[int], splits []connector.Split,
) (connector.Reader[int], error) {
	r, err := s.Source.Reader(ctx, rc, splits)
	return &unhurriedReader{Reader: r, source: s}, err
}

type unhurriedReader struct {
	connector.Reader[int]
	source  unhurriedSource
	reading atomic.Bool
}

func (r *unhurriedReader) Read(ctx context.Context, b *connector.Batch[int]) error {
	r.reading.Store(true)
	defer r.reading.Store(false)
	err := r.Reader.Read(ctx, b)
	if ctx.Err() != nil {
		<-time.After(time.Second)
	}
	return err
}

func (r *unhurriedReader) Close() error {
	*r.source.closedWhileReading = *r.source.closedWhileReading || r.reading.Load()
	return r.Reader.Close()
}

// A reader is one goroutine's at a time: it is closed once its last read has returned, and the next generation
// begins behind that.
func TestAReaderIsClosedBehindItsLastRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, closedWhileReading := newNumbers(), false
		for range 3 {
			n.source.Add(0, 1)
			p := engine.NewPlan("numbers", 1, 16)
			s := engine.Source(p, "numbers", connector.Source[int](unhurriedSource{n.source, &closedWhileReading}),
				engine.SourceConfig[int]{}, &engine.DeadLetters{})
			engine.Sink(s, "sink", n.sink)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			began := time.Now()
			_, err := engine.Run(ctx, p, n.cfg, nil)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, 4*time.Second, time.Since(began))
			require.False(t, closedWhileReading)
		}
	})
}
