package weir_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/weir"
	"example.com/weir/connector"
	"example.com/weir/weirtest"
)

// event is what the test jobs read.
type event struct {
	Tenant string
	At     time.Time
	N      int
}

func (e *event) eventTime() time.Time { return e.At }
func (e *event) tenant() string       { return e.Tenant }

// minute is what the test jobs write: the sum of a tenant's minute.
type minute struct {
	Tenant   string
	End      time.Time
	Sum      int
	Revision int
}

func (m minute) String() string {
	return fmt.Sprintf("%s %s %d #%d", m.Tenant, m.End.Format("15:04"), m.Sum, m.Revision)
}

type sum struct{}

func (sum) Add(acc *int, e *event) error { *acc += e.N; return nil }
func (sum) Fire(w *weir.WindowContext[string], acc *int, out *weir.Out[minute]) error {
	if *acc != 0 {
		out.Emit(minute{Tenant: w.Key, End: w.End, Sum: *acc, Revision: w.Revision})
	}
	return nil
}

var start = time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)

func at(offset time.Duration, tenant string, n int) event {
	return event{Tenant: tenant, At: start.Add(offset), N: n}
}

// world is what is outside of a job: it outlives every run.
type world struct {
	source  *weirtest.Source[event]
	minutes *weirtest.Sink[minute]
	late    *weirtest.Sink[event]
	dead    *weirtest.Sink[weir.DeadLetter]
	storage string
}

func newWorld(t testing.TB, splits int) *world {
	return &world{
		source:  weirtest.NewSource[event](splits),
		minutes: weirtest.NewSink[minute](connector.ExactlyOnce),
		late:    weirtest.NewSink[event](connector.ExactlyOnce),
		dead:    weirtest.NewSink[weir.DeadLetter](connector.ExactlyOnce),
		storage: "file://" + t.TempDir(),
	}
}

func (w *world) config(parallelism int) weir.Config {
	return weir.Config{
		Parallelism: parallelism,
		Checkpoint:  weir.Checkpoint{Storage: w.storage, Interval: time.Second},
		Logger:      slog.New(slog.DiscardHandler),
	}
}

// job sums events per tenant and minute, with an hour of allowed lateness.
func (w *world) job(cfg weir.Config) *weir.Job {
	j := weir.NewJob("sums", cfg)
	events, dead := weir.FromWithDeadLetters(j, "events", w.source,
		weir.EventTime((*event).eventTime, 5*time.Second))
	weir.SinkTo(dead, "sink-dead", w.dead)
	late := weir.NewSideOutput[event]("late")
	minutes := weir.Aggregate(weir.Window(weir.KeyBy(events, (*event).tenant),
		weir.Tumbling(time.Minute), weir.AllowedLateness(time.Hour), weir.LateTo(late)), "sum", sum{})
	weir.SinkTo(minutes, "sink-minutes", w.minutes)
	weir.SinkTo(weir.Side(minutes, late), "sink-late", w.late)
	return j
}

func texts[T fmt.Stringer](rows []T) []string {
	all := make([]string, len(rows))
	for i, r := range rows {
		all[i] = r.String()
	}
	slices.Sort(all)
	return all
}

func await[T any](t *testing.T, s *weirtest.Sink[T], n int) []T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // of a bubble's time
	defer cancel()
	rows, err := s.Await(ctx, n)
	require.NoError(t, err)
	return rows
}

func TestBoundedJobGivesTheSameAnswerAtEveryParallelism(t *testing.T) {
	for _, parallelism := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(parallelism), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 3)
				for i := range 300 {
					w.source.Add(i%3, at(time.Duration(i)*time.Second, string(rune('a'+i%7)), 1))
				}
				w.source.End()
				outcome, err := weirtest.Start(t, w.job(w.config(parallelism))).Wait()
				require.NoError(t, err)
				require.Equal(t, weir.Finished, outcome)
				total, keys := 0, map[string]bool{}
				for _, m := range w.minutes.Rows() {
					require.Equal(t, 1, m.Revision)
					require.False(t, keys[m.String()])
					keys[m.String()] = true
					total += m.Sum
				}
				require.Equal(t, 300, total)
				require.Len(t, keys, 35)
				require.Empty(t, w.late.Rows())

				w.source.Add(0, at(0, "more", 1)) // behind the end that was found at the start
				outcome, err = weirtest.Start(t, w.job(w.config(parallelism))).Wait()
				require.NoError(t, err)
				require.Equal(t, weir.Finished, outcome)
				require.Len(t, w.minutes.Rows(), 35, "a finished job changes nothing when it is started again")
			})
		})
	}
}

func TestLateRecordsFireAgainAndLaterOnesGoAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		r := weirtest.Start(t, w.job(w.config(2)))
		w.source.Add(0, at(0, "a", 1), at(65*time.Second, "a", 10))
		require.Equal(t, []string{"a 10:01 1 #1"}, texts(await(t, w.minutes, 1)))
		w.source.Add(0, at(10*time.Second, "a", 2), at(20*time.Second, "a", 3))
		require.Equal(t, []string{"a 10:01 1 #1", "a 10:01 3 #2", "a 10:01 6 #3"}, texts(await(t, w.minutes, 3)))
		w.source.AdvanceTo(start.Add(61 * time.Minute))
		w.source.Add(0, at(30*time.Second, "a", 4))
		require.Equal(t, 4, await(t, w.late, 1)[0].N)
		_, err := r.Stop()
		require.NoError(t, err)
		require.Len(t, w.minutes.Rows(), 4) // and 10:02
	})
}

func TestStragglerAfterARestartIsLateNotANewWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, parallelism := range [][2]int{{1, 1}, {2, 2}} {
			w := newWorld(t, 2)
			r := weirtest.Start(t, w.job(w.config(parallelism[0])))
			w.source.Add(0, at(0, "a", 1))
			w.source.AdvanceTo(start.Add(3 * time.Hour)) // fires, closes and purges the window
			await(t, w.minutes, 1)
			r.Kill()
			w.source.Add(1, at(30*time.Second, "a", 2)) // the first record that the new run reads
			r = weirtest.Start(t, w.job(w.config(parallelism[1])))
			require.Equal(t, 2, await(t, w.late, 1)[0].N)
			r.Kill()
			require.Equal(t, []string{"a 10:01 1 #1"}, texts(w.minutes.Rows()))
		}
	})
}

func TestBadRecordsAndFarFutureGoToTheDeadLettersAndHoldNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.source.Add(0, at(0, "a", 1))
		w.source.AddBad(0, "not JSON")
		w.source.AddAt(0, start, event{Tenant: "a", At: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), N: 100})
		w.source.AddAt(0, start, at(time.Hour, "a", 5)) // exactly an hour ahead is not too far
		w.source.AddAt(0, start, at(time.Hour+time.Microsecond, "a", 50))
		w.source.End()
		_, err := weirtest.Start(t, w.job(w.config(1))).Wait()
		require.NoError(t, err)
		require.Equal(t, []string{"a 10:01 1 #1", "a 11:01 5 #1"}, texts(w.minutes.Rows()))
		dead := w.dead.Rows()
		require.Len(t, dead, 3)
		require.Equal(t, "not JSON", dead[0].Reason)
		require.Equal(t, int64(1), dead[0].Offset)
		require.Contains(t, dead[1].Reason, "event time 9999-01-01T00:00:00Z is more than 1h0m0s ahead")
		require.Contains(t, dead[2].Reason, "event time 2026-03-02T11:00:00.000001Z")
	})
}

// What is late depends on the order of the records alone, not on how they were read: here all
// of them may come in one batch.
func TestStragglerInTheSameBatchIsJudgedByTheRecordsBeforeIt(t *testing.T) {
	for _, parallelism := range []int{1, 2, 4} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1)
			w.source.Add(0, at(0, "a", 1), at(66*time.Second, "a", 10), at(30*time.Second, "a", 2),
				at(61*time.Minute+5*time.Second, "b", 1), at(31*time.Second, "a", 4), at(61*time.Minute, "b", 2))
			w.source.End()
			_, err := weirtest.Start(t, w.job(w.config(parallelism))).Wait()
			require.NoError(t, err)
			require.Equal(t, []string{"a 10:01 1 #1", "a 10:01 3 #2", "a 10:02 10 #1", "b 11:02 3 #1"},
				texts(w.minutes.Rows()))
			require.Equal(t, []event{at(31*time.Second, "a", 4)}, w.late.Rows())
		})
	}
}

func TestSplitThatStallsMakesNothingLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		cfg := w.config(2)
		cfg.Checkpoint.Interval = 10 * time.Minute
		r := weirtest.Start(t, w.job(cfg))
		w.source.Add(1, at(0, "b", 1))
		time.Sleep(time.Second)
		w.source.Add(0, at(0, "a", 1), at(10*time.Hour, "a", 1))
		time.Sleep(time.Hour) // of the bubble's time: without idleness the quiet split holds event time back
		w.source.Add(1, at(0, "a", 2), at(10*time.Hour, "a", 2))
		require.Equal(t, []string{"a 10:01 3 #1", "b 10:01 1 #1"}, texts(await(t, w.minutes, 2)))
		r.Kill()
		require.Empty(t, w.late.Rows())
	})
}

// Whatever the moments at which a job is killed, its consumer sees what it would have seen.
func TestKilledAtAnyMomentTheAnswerIsTheSame(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { killRepeatedly(t, seed) })
		})
	}
}

func killRepeatedly(t *testing.T, seed uint64) {
	random := newRandom(seed)
	w := newWorld(t, 3)
	parallelism := []int{1, 2, 4}[seed%3]
	want := map[string]int{}
	for i := range 200 {
		r := weirtest.Start(t, w.job(w.config(parallelism)))
		for range random.IntN(20) {
			e := at(time.Duration(i*3+random.IntN(3))*time.Second, string(rune('a'+random.IntN(5))), 1+random.IntN(9))
			w.source.Add(random.IntN(3), e)
			want[e.Tenant+" "+e.At.Truncate(time.Minute).Add(time.Minute).Format("15:04")] += e.N
		}
		time.Sleep(time.Duration(random.IntN(2500)) * time.Millisecond)
		r.Kill()
		if i == 14 {
			break
		}
	}
	w.source.End()
	// The ends are fixed when a lineage starts, so this job runs on until it is stopped: drain
	// it by moving event time past every window.
	w.source.AdvanceTo(start.Add(24 * time.Hour))
	r := weirtest.Start(t, w.job(w.config(parallelism)))
	time.Sleep(10 * time.Second)
	outcome, err := r.Stop()
	require.NoError(t, err)
	require.Equal(t, weir.Stopped, outcome)

	got, revisions := map[string]int{}, map[string]int{}
	for _, m := range w.minutes.Rows() {
		key := m.Tenant + " " + m.End.Format("15:04")
		require.Equal(t, revisions[key]+1, m.Revision, "%s: a revision is missing or doubled", key)
		revisions[key], got[key] = m.Revision, m.Sum
	}
	require.Equal(t, want, got)
	require.Empty(t, w.late.Rows())
}

func TestJobThatWasStoppedGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		r := weirtest.Start(t, w.job(w.config(1)))
		w.source.Add(0, at(0, "a", 1))
		time.Sleep(10 * time.Millisecond)
		outcome, err := r.Stop()
		require.NoError(t, err)
		require.Equal(t, weir.Stopped, outcome)
		require.Empty(t, w.minutes.Rows())
		w.source.Add(0, at(time.Second, "a", 2), at(2*time.Minute, "a", 1))
		r = weirtest.Start(t, w.job(w.config(1)))
		require.Equal(t, []string{"a 10:01 3 #1"}, texts(await(t, w.minutes, 1)))
		r.Kill()
	})
}

func TestRenamedOperatorStopsTheRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		r := weirtest.Start(t, w.job(w.config(1)))
		time.Sleep(3 * time.Second)
		r.Kill()
		j := weir.NewJob("sums", w.config(1))
		events := weir.From(j, "renamed", w.source, weir.EventTime((*event).eventTime, 0))
		weir.SinkTo(events, "sink-minutes", weirtest.NewSink[event](connector.ExactlyOnce))
		_, err := weirtest.Start(t, j).Wait()
		require.ErrorIs(t, err, weir.ErrIncompatible)
		require.ErrorContains(t, err, `source "renamed" is not in checkpoint`)
		require.Equal(t, weir.ExitRefused, weir.ExitCode(err))
	})
}

func TestStorageOfAnotherJobIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.source.End()
		_, err := weirtest.Start(t, w.job(w.config(1))).Wait()
		require.NoError(t, err)
		j := weir.NewJob("other", w.config(1))
		weir.SinkTo(weir.From(j, "events", w.source, weir.TimeConfig[event]{}), "sink", weirtest.NewSink[event](connector.None))
		_, err = weirtest.Start(t, j).Wait()
		require.ErrorContains(t, err, `checkpoints of job "sums", not of job "other"`)
	})
}

func TestJobsThatCannotBeRightDoNotBuild(t *testing.T) {
	w := newWorld(t, 1)
	for name, c := range map[string]struct {
		build func(j *weir.Job)
		cfg   weir.Config
		want  string
	}{
		"no guarantee": {func(j *weir.Job) {
			weir.SinkTo(weir.From(j, "s", w.source, weir.TimeConfig[event]{}), "k", weirtest.NewSink[event](connector.Unstated))
		}, w.config(1), "sink k states no guarantee"},
		"exactly-once without checkpoints": {func(j *weir.Job) {
			weir.SinkTo(weir.From(j, "s", w.source, weir.TimeConfig[event]{}), "k", weirtest.NewSink[event](connector.ExactlyOnce))
		}, weir.Config{}, "exactly-once needs checkpoints"},
		"exactly-once without alignment": {
			func(j *weir.Job) {
				weir.SinkTo(weir.From(j, "s", w.source, weir.TimeConfig[event]{}), "k", weirtest.NewSink[event](connector.ExactlyOnce))
			},
			weir.Config{Checkpoint: weir.Checkpoint{Storage: w.storage, Mode: weir.AtLeastOnce}},
			"sink k asks for exactly-once, and the job's checkpoints are at-least-once",
		},
		"same uid twice": {func(j *weir.Job) {
			s := weir.From(j, "s", w.source, weir.TimeConfig[event]{})
			weir.SinkTo(s, "s", weirtest.NewSink[event](connector.None))
		}, w.config(1), `uid "s" names a source and a sink`},
		"no source": {func(*weir.Job) {}, w.config(1), "the job has no source"},
		"key without encoding": {func(j *weir.Job) {
			weir.KeyBy(weir.From(j, "s", w.source, weir.TimeConfig[event]{}), func(*event) float64 { return 0 })
		}, w.config(1), "key type float64 has no canonical encoding"},
		"too parallel": {func(j *weir.Job) {
			weir.From(j, "s", w.source, weir.TimeConfig[event]{})
		}, weir.Config{Parallelism: 129}, "parallelism 129: want 1 to max parallelism, which is 128"},
	} {
		t.Run(name, func(t *testing.T) {
			j := weir.NewJob("bad", c.cfg)
			c.build(j)
			_, err := j.Run(t.Context())
			require.ErrorContains(t, err, c.want)
			require.ErrorIs(t, err, weir.ErrInvalid)
			require.Equal(t, weir.ExitUsage, weir.ExitCode(err))
		})
	}
}

func TestPanicInAUsersFunctionFailsTheGenerationByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		cfg := w.config(1)
		cfg.Restart = weir.ExponentialDelay{MaxRestarts: 2}
		j := weir.NewJob("panics", cfg)
		s := weir.Map(weir.From(j, "events", w.source, weir.TimeConfig[event]{}), "divide",
			func(e *event) (int, error) { return 1 / e.N, nil })
		weir.SinkTo(s, "sink", weirtest.NewSink[int](connector.None))
		w.source.Add(0, event{N: 0})
		_, err := weirtest.Start(t, j).Wait()
		require.ErrorIs(t, err, weir.ErrNotRestarted)
		require.ErrorContains(t, err, "subtask events[0]: operator divide (split split/0): panic: runtime error: integer divide by zero")
	})
}

func TestErrorOfAUsersFunctionRestartsTheJobFromItsCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		sink := weirtest.NewSink[int](connector.ExactlyOnce)
		failures := 0
		j := weir.NewJob("fails", w.config(1))
		s := weir.Map(weir.From(j, "events", w.source, weir.TimeConfig[event]{}), "flaky",
			func(e *event) (int, error) {
				if e.N == 3 && failures < 3 {
					failures++
					return 0, errors.New("not today")
				}
				return e.N, nil
			})
		weir.SinkTo(s, "sink", sink)
		for i := range 10 {
			w.source.Add(0, event{N: i})
		}
		r := weirtest.Start(t, j)
		require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, await(t, sink, 10))
		require.Equal(t, 3, failures)
		r.Kill()
	})
}

// What a job says of its checkpoints is kept to: one is given up after the timeout, as many in a row as are
// tolerated; and after each, completed or given up, there is a pause.
func TestCheckpointsKeepToTheirTimeoutPauseAndTolerableFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, hold := newWorld(t, 1), make(chan struct{})
		cfg := w.config(1)
		cfg.Checkpoint.Timeout, cfg.Checkpoint.MinPause, cfg.Checkpoint.TolerableFailures = 2*time.Second, 5*time.Second, 2
		cfg.Restart = weir.NoRestart{}
		began, completed, aborted := time.Now(), []time.Duration(nil), []time.Duration(nil)
		cfg.Observer.CheckpointCompleted = func(weir.Current, time.Duration, []*weir.SubtaskStats) {
			completed = append(completed, time.Since(began))
		}
		cfg.Observer.CheckpointAborted = func(uint64, error) { aborted = append(aborted, time.Since(began)) }
		j := weir.NewJob("held", cfg)
		held := weir.Map(w.events(j), "hold", func(e *event) (event, error) { <-hold; return *e, nil })
		weir.SinkTo(held, "sink", w.late)
		r := weirtest.Start(t, j)
		time.Sleep(6 * time.Second)
		w.source.Add(0, at(0, "a", 1))
		time.AfterFunc(time.Minute, func() { close(hold) })
		_, err := r.Wait()
		require.ErrorIs(t, err, weir.ErrNotRestarted)
		require.ErrorContains(t, err, "3 checkpoints in a row failed, 2 are tolerated")
		require.Equal(t, []time.Duration{0, 5 * time.Second}, completed)
		require.Equal(t, []time.Duration{12 * time.Second, 19 * time.Second, 26 * time.Second}, aborted)
	})
}

func TestNothingOutlivesAGeneration(t *testing.T) {
	w := newWorld(t, 3)
	ignore := goleak.IgnoreCurrent()
	for i := range 3 {
		r := weirtest.Start(t, w.job(w.config(4)))
		w.source.Add(i, at(time.Duration(i)*time.Minute, "a", 1))
		if i == 1 {
			_, err := r.Stop()
			require.NoError(t, err)
		}
		r.Kill()
		goleak.VerifyNone(t, ignore)
	}
}

func TestSecondProcessIsToldWhoHoldsTheCheckpoints(t *testing.T) {
	w := newWorld(t, 1)
	started := make(chan struct{})
	cfg := w.config(1)
	cfg.Observer.GenerationStarted = func(weir.Current, []*weir.SubtaskStats) { close(started) }
	r := weirtest.Start(t, w.job(cfg))
	<-started
	_, err := w.job(w.config(1)).Run(t.Context())
	require.ErrorContains(t, err, "only one process may run a job")
	require.Equal(t, weir.ExitSuperseded, weir.ExitCode(err))
	r.Kill()
}

func TestCorruptSnapshotIsNamedAndRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		r := weirtest.Start(t, w.job(w.config(1)))
		w.source.Add(0, at(0, "a", 1))
		time.Sleep(5 * time.Second)
		r.Kill()
		file := corruptOneSnapshot(t, strings.TrimPrefix(w.storage, "file://"))
		_, err := weirtest.Start(t, w.job(w.config(1))).Wait()
		require.ErrorContains(t, err, file)
		require.ErrorContains(t, err, "corrupt")
		require.Equal(t, weir.ExitRefused, weir.ExitCode(err))
	})
}
