package engine_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// atSavepoint is a job with a savepoint "a" behind 1 and 2, which went on to 3: CURRENT names 3, and it
// is not committed.
func atSavepoint(t *testing.T) *numbers {
	n := newNumbers()
	n.source.Add(0, 1, 2)
	control, _ := n.beside(t)
	time.Sleep(1500 * time.Millisecond)
	_, err := control.Savepoint(t.Context(), "a")
	require.NoError(t, err)
	control.Stop(false)
	require.Eventually(t, func() bool { return control.Status().State == "ended" }, time.Minute, time.Millisecond)
	n.source.Add(0, 3)
	n.sink.commit = func(ctx context.Context, _ connector.Committable) error { <-ctx.Done(); return ctx.Err() }
	require.ErrorIs(t, n.runFor(t, 5*time.Second), context.DeadlineExceeded)
	require.Equal(t, []int{1, 2}, n.sink.rows())
	n.sink.commit, n.sink.restores = nil, nil
	return n
}

func (n *numbers) lineage(t *testing.T) string {
	current, err := n.store.Current(t.Context())
	require.NoError(t, err)
	return current.Lineage
}

// To go back behind what was committed is refused. Asked for by name, what CURRENT names is settled first,
// and a new lineage begins: sinks are told that it is fresh, and which one it follows.
func TestGoingBackSettlesFirstAndBeginsANewLineage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := atSavepoint(t)
		first := n.lineage(t)
		n.cfg.Restore.From = "a"
		err := n.runFor(t, 5*time.Second)
		require.ErrorIs(t, err, engine.ErrRewind)
		require.True(t, connector.IsStop(err))
		require.Empty(t, n.sink.restores, "nothing has begun")

		n.cfg.Restore.AcceptDuplicates = true
		require.ErrorIs(t, n.runFor(t, 5*time.Second), context.DeadlineExceeded)
		require.Equal(t, []int{1, 2, 3, 3}, n.sink.rows(), "3 was promised; and then it is read again")
		second := n.lineage(t)
		require.NotEqual(t, first, second)
		require.Len(t, n.sink.restores, 2)
		settles, begins := n.sink.restores[0], n.sink.restores[1]
		require.Equal(t, first, settles.Lineage)
		require.Len(t, settles.Named, 1)
		require.False(t, settles.Fresh)
		require.Equal(t, second, begins.Lineage)
		require.True(t, begins.Fresh)
		require.False(t, begins.Clean)
		require.Empty(t, begins.Named)
		require.Equal(t, []string{first}, begins.AcceptLineages)
		require.Greater(t, begins.Generation, settles.Generation)

		for range 10 { // the same words change nothing
			n.source.Add(0, 4)
			require.ErrorIs(t, n.runFor(t, 5*time.Second), context.DeadlineExceeded)
			require.Equal(t, second, n.lineage(t))
		}
		require.Equal(t, []int{1, 2, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}, n.sink.rows())
		require.False(t, n.sink.restores[2].Fresh)
	})
}

// Where nothing was shown since a checkpoint, going back to it shows nothing twice, and nobody has to accept that.
// What was shown, what may have been, and what nobody knows of are refused as ever.
func TestGoingBackIsRefusedOnlyIfSomethingWasShownSince(t *testing.T) {
	stuck := func(ctx context.Context, _ connector.Committable) error { <-ctx.Done(); return ctx.Err() }
	for name, c := range map[string]struct {
		since   func(n *numbers) // what happens behind the savepoint
		runs    []time.Duration  // each is killed
		refused bool
		shown   []int
	}{
		"nothing":  {since: func(*numbers) {}, shown: []int{1, 2}},
		"restarts": {since: func(*numbers) {}, runs: []time.Duration{2500, 500, 2500}, shown: []int{1, 2}},
		"a result": {since: func(n *numbers) { n.source.Add(0, 3) }, refused: true, shown: []int{1, 2, 3}},
		"a result, and long nothing": {
			since: func(n *numbers) { n.source.Add(0, 3) }, runs: []time.Duration{9500}, refused: true, shown: []int{1, 2, 3},
		},
		"a result that is promised": {since: func(n *numbers) {
			n.source.Add(0, 3)
			n.sink.commit = stuck
		}, refused: true, shown: []int{1, 2}},
		"a checkpoint that was given up with its result": {since: func(n *numbers) {
			n.source.Add(0, 3)
			failures := 2
			n.store.manifest = func(checkpoint.Manifest) error {
				if failures--; failures < 0 {
					return nil
				}
				return os.ErrDeadlineExceeded
			}
			n.cfg.TolerableFailures = 3
		}, refused: true, shown: []int{1, 2, 3}},
		"a result that nobody was promised": {since: func(n *numbers) {
			n.source.Add(0, 3, 4)
			n.cfg.Interval = time.Hour
		}, runs: []time.Duration{500, 500}, shown: []int{1, 2}},
		"what an earlier release did not note": {since: func(n *numbers) {
			n.store.noted = func(m *checkpoint.Manifest) { m.QuietSince = 0 }
		}, refused: true, shown: []int{1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNumbers()
				n.source.Add(0, 1, 2)
				control, wait := n.beside(t)
				time.Sleep(1500 * time.Millisecond)
				_, err := control.Savepoint(t.Context(), "a")
				require.NoError(t, err)
				control.Stop(false)
				require.NoError(t, wait())
				c.since(n)
				for _, ms := range append(c.runs, 4500) {
					require.ErrorIs(t, n.runFor(t, ms*time.Millisecond), context.DeadlineExceeded)
				}
				require.Equal(t, c.shown, n.sink.rows())
				first := n.lineage(t)

				n.sink.commit, n.store.manifest, n.cfg.Interval = nil, nil, time.Second
				n.cfg.Restore.From = "a"
				if c.refused {
					require.ErrorIs(t, n.runFor(t, 5*time.Second), engine.ErrRewind)
					return
				}
				n.source.Add(0, 9)
				require.ErrorIs(t, n.runFor(t, 5*time.Second), context.DeadlineExceeded)
				rows := n.sink.rows()
				require.Equal(t, rows, slices.Compact(slices.Clone(rows)), "each is shown once")
				require.Equal(t, []int{1, 2}, rows[:2])
				require.Equal(t, 9, rows[len(rows)-1])
				require.NotEqual(t, first, n.lineage(t))
			})
		})
	}
}

// A sink that shows results before the checkpoint exists may have shown some since any checkpoint.
func TestWhatIsShownWithoutACommitIsNeverQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, store := weirtest.NewSource[int](1), checkpoint.NewMemory("plain")
		out := weirtest.NewSink[int](connector.AtLeastOnce)
		run := func(restore engine.RestoreConfig) error {
			p := engine.NewPlan("plain", 1, 16)
			engine.Sink(engine.Source(p, "numbers", source, engine.SourceConfig[int]{}, &engine.DeadLetters{}), "sink", out)
			ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
			defer cancel()
			_, err := engine.Run(ctx, p, engine.RunConfig{
				Store: store, Interval: time.Second, Restart: protocol.NoRestart{}, Restore: restore,
			}, nil)
			return err
		}
		source.Add(0, 1)
		require.ErrorIs(t, run(engine.RestoreConfig{}), context.DeadlineExceeded)
		require.ErrorIs(t, run(engine.RestoreConfig{From: "2"}), engine.ErrRewind)
	})
}

// What is said of a checkpoint where none is named is refused before anything is claimed: it would be done again at
// each start with the same words.
func TestGoingOnFromTheEndNamesACheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, restore := range []engine.RestoreConfig{
			{NewLineage: true}, {NewLineage: true, EventTime: ten},
		} {
			n := newNumbers()
			n.cfg.Restore = restore
			err := n.runFor(t, time.Second)
			require.ErrorIs(t, err, engine.ErrInvalid)
			require.ErrorContains(t, err, "name it: --restore N --new-lineage --event-time TIME")
			require.Empty(t, n.sink.restores)
		}
	})
}

// lostSwaps makes the swap to another lineage and loses the answer, once.
type lostSwaps struct {
	checkpoint.Store
	lost bool
}

func (s *lostSwaps) Swap(ctx context.Context, old, next protocol.Current) (protocol.Current, error) {
	got, err := s.Store.Swap(ctx, old, next)
	if err == nil && !s.lost && old.Lineage != next.Lineage && old.Exists() {
		s.lost = true
		return protocol.Current{}, checkpoint.ErrSwapUnknown
	}
	return got, err
}

// Cut short at any of its swaps, going back comes to the same place when it is asked for again.
func TestGoingBackThatIsCutShortComesToTheSamePlace(t *testing.T) {
	for k := 1; k <= 8; k++ {
		synctest.Test(t, func(t *testing.T) {
			n := atSavepoint(t)
			n.cfg.Restore = engine.RestoreConfig{From: "a", AcceptDuplicates: true}
			swaps, died := 0, false
			n.store.before = func(protocol.Current, protocol.Current) error {
				if swaps++; swaps == k {
					died = true
					return checkpoint.ErrSwapUnknown
				}
				return nil
			}
			err := n.runFor(t, 3500*time.Millisecond)
			if !died {
				require.Greater(t, k, 5, "claim, settle, new lineage, claim, settle")
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			require.ErrorIs(t, n.runFor(t, 5*time.Second), context.DeadlineExceeded)
			require.Equal(t, []int{1, 2, 3, 3}, n.sink.rows(), "cut short at swap %d", k)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		n := atSavepoint(t)
		n.cfg.Restore = engine.RestoreConfig{From: "a", AcceptDuplicates: true}
		n.cfg.Store = &lostSwaps{Store: n.store}
		require.ErrorIs(t, n.runFor(t, 5*time.Second), checkpoint.ErrSwapUnknown)
		second := n.lineage(t)
		require.ErrorIs(t, n.runFor(t, 5*time.Second), context.DeadlineExceeded)
		require.Equal(t, second, n.lineage(t), "it had begun")
		require.True(t, n.sink.restores[1].Fresh, "and had not been restored")
		require.Equal(t, []int{1, 2, 3, 3}, n.sink.rows())
	})
}

// A name that stands for CURRENT's own checkpoint is the ordinary start, and stays one when the job has
// gone on: a supervisor starts it again with the same words.
func TestANameOfCurrentIsTheOrdinaryStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers()
		n.source.Add(0, 1)
		control, wait := n.beside(t)
		time.Sleep(1500 * time.Millisecond)
		control.Stop(false)
		require.NoError(t, wait())
		current, err := n.store.Current(t.Context())
		require.NoError(t, err)
		_, err = n.store.PutSavepoint(t.Context(), "stopped",
			checkpoint.Ref{Name: current.Manifest, Digest: current.ManifestDigest})
		require.NoError(t, err)
		n.cfg.Restore.From = "stopped"
		for i := range 5 {
			n.source.Add(0, i+2)
			require.ErrorIs(t, n.runFor(t, 5*time.Second), context.DeadlineExceeded)
		}
		require.Equal(t, []int{1, 2, 3, 4, 5, 6}, n.sink.rows())
		require.Equal(t, current.Lineage, n.lineage(t))

		n.cfg.Restore.From = "nothing"
		err = n.runFor(t, time.Second)
		require.ErrorIs(t, err, checkpoint.ErrNoCheckpoint)
		require.ErrorContains(t, err, "savepoint stopped")
		require.True(t, connector.IsStop(err))
		// The same name for another checkpoint is another question.
		require.NoError(t, n.store.DeleteSavepoint(t.Context(), "stopped"))
		all, err := checkpoint.List(t.Context(), n.store)
		require.NoError(t, err)
		_, err = n.store.PutSavepoint(t.Context(), "stopped", all[1].Ref)
		require.NoError(t, err)
		n.cfg.Restore.From = ""
		n.source.Add(0, 7) // what is shown since
		require.ErrorIs(t, n.runFor(t, 5*time.Second), context.DeadlineExceeded)
		n.cfg.Restore.From = "stopped"
		require.ErrorIs(t, n.runFor(t, time.Second), engine.ErrRewind)
	})
}

// totals is a job whose sink keeps the last row of each key.
func totals(source *weirtest.Source[reading], table *weirtest.Table[string, total]) *engine.Plan {
	p := engine.NewPlan("totals", 2, 16)
	s := engine.Source(p, "readings", source, engine.SourceConfig[reading]{
		EventTime: func(r *reading) time.Time { return r.At },
	}, &engine.DeadLetters{})
	sums := engine.Aggregate(engine.KeyBy(s, func(r *reading) string { return r.Meter }), "sum",
		engine.WindowConfig[reading]{Size: time.Minute}, adder{})
	engine.Sink(sums, "sink", table)
	return p
}

func totalKey(r *total) string { return r.Meter + " " + r.End.Format("15:04") }

// runUntil runs a plan for some of the bubble's time and kills it, or until it ends.
func runUntil(t *testing.T, p *engine.Plan, cfg engine.RunConfig, d time.Duration) (protocol.Outcome, error) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return engine.Run(ctx, p, cfg, nil)
}

// Where every sink takes a row again without showing it twice, going back needs no further word.
func TestGoingBackIsAllowedToIdempotentSinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, store := weirtest.NewSource[reading](2), checkpoint.NewMemory("totals")
		table := weirtest.NewTable[string](totalKey)
		cfg := engine.RunConfig{Store: store, Interval: time.Second, Retain: 100}
		for m := range 5 {
			source.Add(0, reading{Meter: "a", At: ten.Add(time.Duration(m) * time.Minute), N: m})
			source.AdvanceTo(ten.Add(time.Duration(m) * time.Minute))
			_, err := runUntil(t, totals(source, table), cfg, 5*time.Second)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		want, writes := table.Rows(), table.Writes()
		require.Len(t, want, 4)
		cfg.Restore.From = "7"
		_, err := runUntil(t, totals(source, table), cfg, 5*time.Second)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, want, table.Rows())
		require.Greater(t, table.Writes(), writes)
	})
}

// Behind a drained job there is nothing, until somebody says that there is, and where event time goes on.
func TestGoingOnFromAFinishedCheckpointIsANewLineage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSlowWindows(0)
		w.source.Add(0, reading{Meter: "a", At: ten, N: 1})
		control := engine.NewControl()
		time.AfterFunc(1500*time.Millisecond, func() { control.Stop(true) })
		_, err := w.run(t.Context(), control)
		require.NoError(t, err)
		current, err := w.store.Current(t.Context())
		require.NoError(t, err)
		require.Equal(t, uint64(3), current.Checkpoint)
		w.source.Add(0, reading{Meter: "a", At: ten.Add(30 * time.Second), N: 2},
			reading{Meter: "a", At: ten.Add(90 * time.Second), N: 4})
		w.source.AdvanceTo(ten.Add(time.Hour))

		w.restore.From = "3"
		outcome, err := w.run(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, protocol.Finished, outcome, "nobody has said that it goes on")
		w.restore.NewLineage = true
		_, err = w.run(t.Context(), nil)
		require.ErrorIs(t, err, engine.ErrFinished)
		require.True(t, connector.IsStop(err))
		require.ErrorContains(t, err, "operator sum")
		w.restore.EventTime = ten.Add(time.Minute)
		again := w.restore
		w.restore = engine.RestoreConfig{EventTime: again.EventTime} // the lineage has begun: only that was missing
		w.runFor(t, 5*time.Second, nil)
		w.restore = again
		for range 3 {
			w.runFor(t, 5*time.Second, nil)
		}
		require.Equal(t, []total{
			{Meter: "a", End: ten.Add(time.Minute), Sum: 1, Revision: 1},
			{Meter: "a", End: ten.Add(2 * time.Minute), Sum: 4, Revision: 1},
		}, w.sink.Rows(), "what lies before the minute that was drained is late")
		next, err := w.store.Current(t.Context())
		require.NoError(t, err)
		require.NotEqual(t, current.Lineage, next.Lineage)
	})
}

// An operator that only one side has is refused, unless its uid is allowed.
func TestOperatorsOfOneSideAreAllowedByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := checkpoint.NewMemory("sides")
		run := func(uids []string, restore engine.RestoreConfig) error {
			p := engine.NewPlan("sides", 1, 16)
			source := weirtest.NewSource[int](1)
			for _, uid := range uids {
				s := engine.Source(p, "from-"+uid, source, engine.SourceConfig[int]{}, &engine.DeadLetters{})
				engine.Sink(s, uid, weirtest.NewSink[int](connector.ExactlyOnce))
			}
			_, err := runUntil(t, p, engine.RunConfig{Store: store, Interval: time.Second, Restore: restore}, 3*time.Second)
			return err
		}
		require.ErrorIs(t, run([]string{"a", "b"}, engine.RestoreConfig{}), context.DeadlineExceeded)
		err := run([]string{"a", "c"}, engine.RestoreConfig{})
		require.ErrorIs(t, err, engine.ErrIncompatible)
		require.ErrorContains(t, err, "--allow-new-state from-c")
		err = run([]string{"a", "c"}, engine.RestoreConfig{AllowNew: []string{"c", "from-c"}})
		require.ErrorContains(t, err, "--allow-dropped-state from-b")
		allowed := engine.RestoreConfig{AllowNew: []string{"c", "from-c"}, AllowDropped: []string{"b", "from-b"}}
		require.ErrorIs(t, run([]string{"a", "c"}, allowed), context.DeadlineExceeded)
		require.ErrorIs(t, run([]string{"a", "c"}, engine.RestoreConfig{}), context.DeadlineExceeded,
			"it is in the checkpoints now")
	})
}

// A source that is added reads nothing before a checkpoint has fixed where it begins.
func TestAnAddedSourceWaitsForACheckpointThatHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers()
		n.source.Add(0, 1)
		require.ErrorIs(t, n.runFor(t, 3*time.Second), context.DeadlineExceeded)
		more, wrote := weirtest.NewSource[int](1), weirtest.NewSink[int](connector.AtLeastOnce)
		more.Add(0, 7)
		run := func(control *engine.Control) error {
			p := engine.NewPlan("numbers", 1, 16)
			s := engine.Source(p, "numbers", n.source, engine.SourceConfig[int]{}, &engine.DeadLetters{})
			engine.Sink(s, "sink", n.sink)
			s = engine.Source(p, "more", more, engine.SourceConfig[int]{}, &engine.DeadLetters{})
			engine.Sink(s, "wrote", wrote)
			n.cfg.Restore.AllowNew = []string{"more", "wrote"}
			ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
			defer cancel()
			_, err := engine.Run(ctx, p, n.cfg, control)
			return err
		}
		n.cfg.Store = &slowManifests{Store: n.store, delay: time.Minute}
		require.ErrorIs(t, run(nil), context.DeadlineExceeded)
		require.Empty(t, wrote.Rows())
		n.cfg.Store = n.store
		drained := engine.NewControl()
		drained.Stop(true)
		saved, err := n.store.Current(t.Context())
		require.NoError(t, err)
		require.NoError(t, run(drained), "a job that drains does not wait for it")
		require.Empty(t, wrote.Rows())
		back, err := n.store.Current(t.Context())
		require.NoError(t, err)
		saved.Generation = back.Generation // as if nobody had drained it
		_, err = n.store.Swap(t.Context(), back, saved)
		require.NoError(t, err)
		require.ErrorIs(t, run(nil), context.DeadlineExceeded)
		require.Equal(t, []int{7}, wrote.Rows())
	})
}

// A checkpoint that is damaged is named, with the one to go back to; and that works.
func TestADamagedCheckpointIsLeftByGoingBack(t *testing.T) {
	for _, what := range []string{"snapshot", "manifest", "missing manifest"} {
		synctest.Test(t, func(t *testing.T) {
			n := newNumbers()
			dir := t.TempDir()
			open := func() func() {
				store, err := checkpoint.Open("file://"+dir, checkpoint.Options{Job: "numbers"})
				require.NoError(t, err)
				n.store.Store = store
				return func() { require.NoError(t, store.Close()) }
			}
			closeStore := open()
			n.source.Add(0, 1, 2)
			require.ErrorIs(t, n.runFor(t, 3500*time.Millisecond), context.DeadlineExceeded)
			n.source.Add(0, 3)
			require.ErrorIs(t, n.runFor(t, 3500*time.Millisecond), context.DeadlineExceeded)
			current, m, err := checkpoint.Latest(t.Context(), n.store)
			require.NoError(t, err)
			closeStore()
			file := m.Snapshots[0].Handles[0].Name
			if what != "snapshot" {
				file = current.Manifest
			}
			if what == "missing manifest" {
				require.NoError(t, os.Remove(filepath.Join(dir, file)))
			} else {
				damageFile(t, dir, file)
			}

			defer open()()
			err = n.runFor(t, 5*time.Second)
			var corrupt *checkpoint.CorruptError
			require.ErrorAs(t, err, &corrupt)
			require.Equal(t, file, corrupt.File)
			_, number, found := strings.Cut(err.Error(), "--restore ")
			require.True(t, found, err)
			n.cfg.Restore = engine.RestoreConfig{From: number}
			if what != "snapshot" { // else the manifest says that nothing was shown since
				require.ErrorIs(t, n.runFor(t, 5*time.Second), engine.ErrRewind)
				n.cfg.Restore.AcceptDuplicates = true
			}
			n.source.Add(0, 4)
			require.ErrorIs(t, n.runFor(t, 5*time.Second), context.DeadlineExceeded)
			rows := n.sink.rows()
			require.Equal(t, []int{1, 2, 3}, rows[:3], what)
			require.Equal(t, 4, rows[len(rows)-1])
			require.ErrorIs(t, n.runFor(t, 5*time.Second), context.DeadlineExceeded)
			require.Equal(t, rows, n.sink.rows(), "the same words change nothing")
		})
	}
}

func damageFile(t *testing.T, dir, name string) {
	t.Helper()
	path := filepath.Join(dir, name)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	data[len(data)*2/3] ^= 1
	require.NoError(t, os.WriteFile(path, data, 0o600))
}
