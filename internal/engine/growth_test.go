package engine_test

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/weir/connector"
	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/engine"
	"example.com/weir/internal/protocol"
	"example.com/weir/weirtest"
)

// growingNumbers is newNumbers over a source that may get more splits, looked for each minute.
func growingNumbers() *numbers {
	n := newNumbers()
	n.source.Grows(time.Minute)
	return n
}

func (n *numbers) addSplit(rows ...int) int {
	i := n.source.AddSplit()
	n.source.Add(i, rows...)
	return i
}

func requireRows(t require.TestingT, n *numbers, want ...int) {
	got := n.sink.rows()
	slices.Sort(got)
	require.Equal(t, want, got)
}

func TestANewSplitIsReadFromItsStartWithoutARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := growingNumbers()
		generations := 0
		n.cfg.Observer.GenerationStarted = func(protocol.Current, []*engine.SubtaskStats) { generations++ }
		n.source.Add(0, 1, 2)
		time.AfterFunc(90*time.Second, func() { n.addSplit(3, 4) })
		time.AfterFunc(150*time.Second, func() {
			requireRows(t, n, 1, 2, 3, 4)
			n.source.Add(1, 5)
			n.addSplit(6)
			n.addSplit()
		})
		require.ErrorIs(t, n.runFor(t, 5*time.Minute), context.DeadlineExceeded)
		requireRows(t, n, 1, 2, 3, 4, 5, 6)
		require.Equal(t, 1, generations)
	})
}

func TestASplitFoundAfterTheLastCheckpointIsFoundAgainAtItsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := growingNumbers()
		n.cfg.Interval = time.Hour // the first checkpoint, and then none before the kill
		n.source.Add(0, 1)
		n.addSplit(2) // known from the first checkpoint on
		time.AfterFunc(30*time.Second, func() { n.addSplit(3, 4) })
		require.ErrorIs(t, n.runFor(t, 90*time.Second), context.DeadlineExceeded)
		require.Empty(t, n.sink.rows())

		n.cfg.Interval = time.Second
		n.source.Add(2, 5)
		require.ErrorIs(t, n.runFor(t, 10*time.Second), context.DeadlineExceeded) // by the restore, not a minute later
		requireRows(t, n, 1, 2, 3, 4, 5)
	})
}

func TestASplitThatCameWhileTheJobWasDownIsReadAtTheNextStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := growingNumbers()
		n.source.Add(0, 1)
		require.ErrorIs(t, n.runFor(t, 10*time.Second), context.DeadlineExceeded)
		n.addSplit(2, 3)
		require.ErrorIs(t, n.runFor(t, 10*time.Second), context.DeadlineExceeded)
		requireRows(t, n, 1, 2, 3)
		require.ErrorIs(t, n.runFor(t, 10*time.Second), context.DeadlineExceeded)
		requireRows(t, n, 1, 2, 3)
	})
}

func TestABoundedReadKeepsItsSplitsAndItsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := growingNumbers()
		n.source.Add(0, 1)
		n.source.End()
		n.cfg.Store = slowStore{n.store, new(bool)}                     // so that it runs for a while
		time.AfterFunc(2500*time.Millisecond, func() { n.addSplit(2) }) // the ends are found after 2 s
		outcome, err := n.run(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, protocol.Finished, outcome)
		requireRows(t, n, 1)
	})
}

// While a new split is behind, no window fires that it may have records of; what it has of windows
// that were closed before it came is late, and opens none of them again.
func TestANewSplitLowersNoWatermarkAndHoldsEventTimeBackWhileItIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWindows()
		w.source.Grows(time.Minute)
		at := func(split, minute, n int) {
			w.source.Add(split, reading{Meter: "a", At: ten.Add(time.Duration(minute) * time.Minute), N: n})
		}
		for _, minute := range []int{0, 30} {
			at(0, minute, 1)
			at(1, minute, 1)
		}
		first := total{Meter: "a", End: ten.Add(time.Minute), Sum: 2, Revision: 1}
		time.AfterFunc(70*time.Second, func() {
			require.Equal(t, []total{first}, w.sink.Rows())
			split := w.source.AddSplit()
			at(split, 0, 100) // late
			at(split, 30, 1)
		})
		time.AfterFunc(3*time.Minute, func() {
			at(0, 60, 1)
			at(1, 60, 1)
		})
		time.AfterFunc(4*time.Minute, func() {
			require.Equal(t, []total{first}, w.sink.Rows(), "the new split is still in minute 30")
			at(2, 60, 1)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		_, err := w.run(ctx, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, []total{first, {Meter: "a", End: ten.Add(31 * time.Minute), Sum: 3, Revision: 1}}, w.sink.Rows())
	})
}

// A new split that stays empty holds nothing back once it is known to be empty.
func TestANewEmptySplitHoldsNothingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWindows()
		w.source.Grows(time.Minute)
		at := func(minutes time.Duration) {
			for split := range 2 {
				w.source.Add(split, reading{Meter: "a", At: ten.Add(minutes * time.Minute), N: 1})
			}
		}
		at(0)
		time.AfterFunc(30*time.Second, func() { w.source.AddSplit() })
		time.AfterFunc(2*time.Minute, func() { at(60) })
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		_, err := w.run(ctx, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, []total{{Meter: "a", End: ten.Add(time.Minute), Sum: 2, Revision: 1}}, w.sink.Rows())
	})
}

// windowsAt is the job of windows at another parallelism.
func (w *windows) windowsAt(ctx context.Context, parallelism int) error {
	p := engine.NewPlan("windows", parallelism, 16)
	s := engine.Source(p, "readings", w.source, engine.SourceConfig[reading]{
		EventTime: func(r *reading) time.Time { return r.At },
	}, &engine.DeadLetters{})
	sums := engine.Aggregate(engine.KeyBy(s, func(r *reading) string { return r.Meter }), "sum",
		engine.WindowConfig[reading]{Size: time.Minute}, adder{})
	engine.Sink(sums, "sink", w.sink)
	_, err := engine.Run(ctx, p, engine.RunConfig{Store: w.store, Interval: time.Second}, nil)
	return err
}

// With more subtasks than splits, some have none. Their event time has not ended, or a split that they
// get later would be late with all it has.
func TestASubtaskWithoutSplitsHoldsNothingBackAndTakesALaterSplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWindows()
		w.source.Grows(time.Minute)
		at := func(split, minute int) {
			w.source.Add(split, reading{Meter: "a", At: ten.Add(time.Duration(minute) * time.Minute), N: 1})
		}
		at(0, 0)
		at(1, 0)
		at(0, 10)
		at(1, 10)
		first := total{Meter: "a", End: ten.Add(time.Minute), Sum: 2, Revision: 1}
		time.AfterFunc(30*time.Second, func() {
			require.Equal(t, []total{first}, w.sink.Rows())
			at(w.source.AddSplit(), 10)
		})
		time.AfterFunc(90*time.Second, func() {
			at(0, 20)
			at(1, 20)
		})
		time.AfterFunc(100*time.Second, func() {
			require.Equal(t, []total{first}, w.sink.Rows())
			at(2, 20)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		require.ErrorIs(t, w.windowsAt(ctx, 4), context.DeadlineExceeded)
		require.Equal(t, []total{first, {Meter: "a", End: ten.Add(11 * time.Minute), Sum: 3, Revision: 1}}, w.sink.Rows())
	})
}

// life is what happens while a job runs, and how long it does.
type life struct {
	interval time.Duration // of checkpoints
	changes  []change
	length   time.Duration
}

// change is a row in one of the splits, or in a new one.
type change struct {
	after    time.Duration
	newSplit bool
	split    int // modulo how many there are
}

func anyLives(t *rapid.T) []life {
	ms := func(most int, name string) time.Duration {
		return time.Duration(rapid.IntRange(1, most).Draw(t, name)) * time.Millisecond
	}
	changes := rapid.Custom(func(t *rapid.T) change {
		return change{
			after:    time.Duration(rapid.IntRange(0, 50_000).Draw(t, "after ms")) * time.Millisecond,
			newSplit: rapid.Bool().Draw(t, "new split"), split: rapid.IntRange(0, 5).Draw(t, "split"),
		}
	})
	lives := make([]life, rapid.IntRange(1, 4).Draw(t, "lives"))
	for i := range lives {
		lives[i] = life{
			interval: rapid.SampledFrom([]time.Duration{time.Second, 70 * time.Second}).Draw(t, "interval"),
			changes:  rapid.SliceOfN(changes, 0, 6).Draw(t, "changes"), length: ms(300_000, "length ms"),
		}
	}
	return lives
}

// Splits come at any time, the job is killed at any time: each row has its one effect.
func TestWhateverSplitsComeAndWhateverKillsEachRowCountsOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		lives := anyLives(rt)
		var want, got []int
		synctest.Test(t, func(t *testing.T) {
			n := growingNumbers()
			splits := 1
			for _, l := range append(lives, life{interval: time.Second, length: 10 * time.Second}) {
				n.cfg.Interval = l.interval
				done := make(chan struct{})
				go func() {
					defer close(done)
					for _, c := range l.changes {
						time.Sleep(c.after)
						if c.newSplit {
							n.source.AddSplit()
							splits++
						}
						want = append(want, len(want))
						n.source.Add(c.split%splits, len(want)-1)
					}
				}()
				require.ErrorIs(t, n.runFor(t, l.length), context.DeadlineExceeded)
				<-done
			}
			got = n.sink.rows()
		})
		slices.Sort(got)
		require.Equal(rt, want, got)
	})
}

// told is a source whose readers tell positions: how many rows each split has come to.
type told struct {
	*weirtest.Source[int]
	mu    sync.Mutex
	calls []map[string]uint64
	err   error
	wait  bool
}

func (s *told) Reader(
	ctx context.Context, rc connector.ReaderContext[int], splits []connector.Split,
) (connector.Reader[int], error) {
	r, err := s.Source.Reader(ctx, rc, splits)
	return toldReader{r, r.(connector.SplitAdder), s}, err
}

type toldReader struct {
	connector.Reader[int]
	connector.SplitAdder
	to *told
}

func (r toldReader) ReleasePositions(ctx context.Context, splits []connector.Split) (bool, error) {
	if r.to.wait {
		<-ctx.Done()
		return false, ctx.Err()
	}
	r.to.mu.Lock()
	defer r.to.mu.Unlock()
	call := map[string]uint64{}
	for _, sp := range splits {
		call[sp.ID] = binary.BigEndian.Uint64(sp.Position)
	}
	r.to.calls = append(r.to.calls, call)
	return true, r.to.err
}

func (s *told) run(ctx context.Context, cfg engine.RunConfig, stop *engine.Control) (protocol.Outcome, error) {
	p := engine.NewPlan("numbers", 1, 16)
	rows := engine.Source(p, "numbers", s, engine.SourceConfig[int]{}, &engine.DeadLetters{})
	engine.Sink(rows, "sink", newLedger())
	return engine.Run(ctx, p, cfg, stop)
}

func newTold() *told { return &told{Source: weirtest.NewSource[int](1)} }

// The manifest takes a while. What is read meanwhile lies behind the cut, and is not told.
func TestThePositionsOfACompletedCheckpointAreToldAndNoneNewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTold()
		memory := checkpoint.NewMemory("numbers")
		cfg := engine.RunConfig{Store: &slowManifests{Store: memory, delay: 5 * time.Second}, Interval: 10 * time.Second}
		for second := range 60 {
			time.AfterFunc(time.Duration(second)*time.Second+500*time.Millisecond, func() { s.Add(0, second) })
		}
		stop := engine.NewControl()
		time.AfterFunc(62*time.Second, func() { stop.Stop(false) })
		outcome, err := s.run(t.Context(), cfg, stop)
		require.NoError(t, err)
		require.Equal(t, protocol.Stopped, outcome)
		var at []uint64
		for _, call := range s.calls {
			at = append(at, call["split/0"])
		}
		require.Equal(t, []uint64{0, 10, 20, 30, 40, 50, 60, 60}, at)
	})
}

func TestPositionsThatCannotBeToldStopNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, wait := range []bool{false, true} {
			s := newTold()
			s.err, s.wait = errors.New("no such group"), wait
			s.Add(0, 1)
			var log strings.Builder
			cfg := engine.RunConfig{
				Store: checkpoint.NewMemory("numbers"), Interval: time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			}
			stop := engine.NewControl()
			time.AfterFunc(150*time.Second, func() { stop.Stop(false) })
			outcome, err := s.run(t.Context(), cfg, stop)
			require.NoError(t, err)
			require.Equal(t, protocol.Stopped, outcome)
			require.Equal(t, 3, strings.Count(log.String(), "could not be told"), log.String())
		}
	})
}

// once is a source that cannot be read again.
type once struct{ *weirtest.Source[int] }

func (once) Replayable() bool { return false }

func TestAJobSaysAtItsStartThatASourceCannotBeReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, src := range []connector.Source[int]{once{weirtest.NewSource[int](1)}, weirtest.NewSource[int](1)} {
			p := engine.NewPlan("job", 1, 16)
			rows := engine.Source(p, "lines", src, engine.SourceConfig[int]{}, &engine.DeadLetters{})
			engine.Sink(rows, "sink", newLedger())
			var log strings.Builder
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			_, err := engine.Run(ctx, p, engine.RunConfig{
				Store: checkpoint.NewMemory("job"), Interval: time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			}, nil)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, !src.Replayable(), strings.Contains(log.String(), "this source cannot be read again"))
		}
	})
}
