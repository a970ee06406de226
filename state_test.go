package weir_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir"
	"example.com/weir/connector"
	"example.com/weir/weirtest"
)

// keeper is a processor made of functions.
type keeper struct {
	open    func(o *weir.OpenContext[string]) error
	process func(ctx *weir.Context[string], e *event, out *weir.Out[string]) error
	timer   func(ctx *weir.Context[string], out *weir.Out[string]) error
}

func (k *keeper) Open(o *weir.OpenContext[string]) error {
	if k.open == nil {
		return nil
	}
	return k.open(o)
}

func (k *keeper) Process(ctx *weir.Context[string], e *event, out *weir.Out[string]) error {
	return k.process(ctx, e, out)
}

func (k *keeper) OnTimer(ctx *weir.Context[string], out *weir.Out[string]) error {
	return k.timer(ctx, out)
}

// kept is what is outside of a job with one processor.
type kept struct {
	source *weirtest.Source[event]
	out    *weirtest.Sink[string]
	cfg    weir.Config
}

func newKept(t testing.TB) *kept {
	w := newWorld(t, 1)
	return &kept{source: w.source, out: weirtest.NewSink[string](connector.ExactlyOnce), cfg: w.config(1)}
}

// start runs the job with a keeper for each subtask.
func (w *kept) start(t testing.TB, newKeeper func() *keeper) *weirtest.Running {
	t.Helper()
	return weirtest.Start(t, w.job(newKeeper))
}

func (w *kept) job(newKeeper func() *keeper) *weir.Job {
	j := weir.NewJob("kept", w.cfg)
	events := weir.From(j, "events", w.source, weir.EventTime((*event).eventTime, 0))
	out := weir.Process(weir.KeyBy(events, (*event).tenant), "keeper",
		func() weir.Processor[string, event, string] { return newKeeper() })
	weir.SinkTo(out, "sink", w.out)
	return j
}

// alarms sets a timer of each kind N seconds on, and says when which one fires. A row with N = 0 deletes
// the one for 5 seconds on.
func alarms() *keeper {
	k := &keeper{}
	k.process = func(ctx *weir.Context[string], e *event, out *weir.Out[string]) error {
		if e.N == 0 {
			ctx.DeleteProcessingTimer(began.Add(5 * time.Second))
			return nil
		}
		ctx.SetProcessingTimer(ctx.Now().Add(time.Duration(e.N) * time.Second))
		ctx.SetTimer(e.At.Add(time.Duration(e.N) * time.Second))
		return nil
	}
	k.timer = func(ctx *weir.Context[string], out *weir.Out[string]) error {
		switch ctx.TimerDomain() {
		case weir.ProcessingTimer:
			out.Emit(fmt.Sprintf("%s clock %s at %s, event time %s", ctx.Key(), ctx.TimerTime().Sub(began),
				ctx.Now().Sub(began), ctx.EventTime().Format(time.TimeOnly)))
		case weir.EventTimer:
			out.Emit(fmt.Sprintf("%s event %s", ctx.Key(), ctx.TimerTime().Format(time.TimeOnly)))
		case weir.NoTimer:
			return fmt.Errorf("no timer is at work")
		}
		return nil
	}
	return k
}

// began is when a bubble's clock begins.
var began = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// The wall clock fires its timers when no row comes, the watermark its own; each knows which it is.
func TestTimersInProcessingTimeFireWithoutARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKept(t)
		w.source.Add(0, at(0, "a", 5), at(time.Second, "b", 3), at(2*time.Second, "c", 5), at(2*time.Second, "c", 0))
		job := w.start(t, alarms)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"b clock 3s at 3s, event time 10:00:02"}, w.out.Rows())
		time.Sleep(time.Minute)
		require.Equal(t, []string{
			"b clock 3s at 3s, event time 10:00:02", "a clock 5s at 5s, event time 10:00:02",
		}, w.out.Rows())
		w.source.AdvanceTo(start.Add(6 * time.Second))
		await(t, w.out, 4)
		require.ElementsMatch(t, []string{"b event 10:00:04", "a event 10:00:05"}, w.out.Rows()[2:])
		job.Kill()
	})
}

// What comes due while the job is down fires once when it is up again; what has fired does not.
func TestOverdueTimersInProcessingTimeFireOnceAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKept(t)
		for i := range 50 {
			w.source.Add(0, at(0, fmt.Sprint("k", i), 1+i))
		}
		job := w.start(t, alarms)
		time.Sleep(10*time.Second + 500*time.Millisecond) // ten have fired, and are in a checkpoint
		job.Kill()
		time.Sleep(10 * time.Second) // ten more come due
		for range 3 {
			job = w.start(t, alarms)
			time.Sleep(1500 * time.Millisecond)
			job.Kill()
		}
		w.cfg.Parallelism = 3
		job = w.start(t, alarms)
		time.Sleep(time.Minute)
		rows := w.out.Rows()
		require.Len(t, rows, 50)
		fired := map[string]bool{}
		for _, r := range rows {
			key, rest, _ := strings.Cut(r, " clock ")
			require.False(t, fired[key], key)
			fired[key] = true
			var due, when string
			_, err := fmt.Sscanf(strings.NewReplacer(",", "").Replace(rest), "%s at %s", &due, &when)
			require.NoError(t, err)
			d, err := time.ParseDuration(due)
			require.NoError(t, err)
			at, err := time.ParseDuration(when)
			require.NoError(t, err)
			require.GreaterOrEqual(t, at, d)
			require.LessOrEqual(t, at-d, 11*time.Second, r)
		}
		job.Kill()
	})
}

// At the end of the input nothing waits any more: every timer fires, also one that a timer in event time
// sets then; one that sets itself again and again comes to an end.
func TestEveryTimerInProcessingTimeFiresAtTheEndOfTheInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKept(t)
		w.source.Add(0, at(0, "a", 100), at(time.Second, "b", 200))
		w.source.End()
		outcome, err := w.start(t, func() *keeper {
			k := alarms()
			inner := k.timer
			k.timer = func(ctx *weir.Context[string], out *weir.Out[string]) error {
				ctx.SetProcessingTimer(ctx.Now().Add(time.Minute))
				return inner(ctx, out)
			}
			return k
		}).Wait()
		require.NoError(t, err)
		require.Equal(t, weir.Finished, outcome)
		rows := w.out.Rows()
		for i := range rows {
			rows[i], _, _ = strings.Cut(rows[i], ",")
		}
		require.ElementsMatch(t, []string{
			"a event 10:01:40", "a clock 1m0s at 0s", "a clock 1m40s at 0s",
			"b event 10:03:21", "b clock 1m0s at 0s", "b clock 3m20s at 0s",
		}, rows)
	})
}

// tardy is a sink that takes its time to commit.
type tardy[T any] struct{ *weirtest.Sink[T] }

func (s tardy[T]) Writer(ctx context.Context, wc connector.WriterContext) (connector.Writer[T], error) {
	w, err := s.Sink.Writer(ctx, wc)
	if err != nil {
		return nil, err
	}
	return tardyWriter[T]{w.(connector.TwoPhaseWriter[T])}, nil
}

type tardyWriter[T any] struct{ connector.TwoPhaseWriter[T] }

func (w tardyWriter[T]) Commit(ctx context.Context, c connector.Committable) error {
	<-time.After(3 * time.Second)
	return w.TwoPhaseWriter.Commit(ctx, c)
}

// A job that was stopped does nothing behind its last barrier, whatever the clock says while it commits: a sink
// that shows rows at once would show them again after the next start.
func TestNoTimerFiresBehindTheLastBarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, shown := newKept(t), weirtest.NewSink[string](connector.AtLeastOnce)
		w.cfg.Checkpoint.Interval = time.Hour
		for i := range 200 {
			w.source.Add(0, at(0, fmt.Sprint("k", i), 1+i))
		}
		for range 10 {
			j := weir.NewJob("kept", w.cfg)
			events := weir.From(j, "events", w.source, weir.EventTime((*event).eventTime, 0))
			out := weir.Process(weir.KeyBy(events, (*event).tenant), "keeper",
				func() weir.Processor[string, event, string] { return alarms() })
			weir.SinkTo(out, "sink", tardy[string]{w.out})
			weir.SinkTo(out, "at-once", shown)
			job := weirtest.Start(t, j)
			time.Sleep(7350 * time.Millisecond)
			outcome, err := job.Stop()
			require.NoError(t, err)
			require.Equal(t, weir.Stopped, outcome)
		}
		require.Equal(t, 10*(7350+3000)*time.Millisecond, time.Since(began))
		for _, rows := range [][]string{w.out.Rows(), shown.Rows()} {
			seen := map[string]bool{}
			for _, r := range rows {
				key, _, _ := strings.Cut(r, " ")
				require.False(t, seen[key], key)
				seen[key] = true
			}
			require.Len(t, seen, 100, "those that were due before the last barrier")
		}
	})
}

// A hundred thousand keys wait for timers of both clocks. The job is killed while they are set, while they
// wait and while they fire: each fires once.
func TestAHundredThousandTimersSurviveKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 100_000
		w := newKept(t)
		w.cfg.Parallelism = 2
		reached := make(chan struct{}, 1)
		var stopAt atomic.Int64 // how many timers fire before the job is killed; 0: it is not
		newKeeper := func() *keeper {
			k := &keeper{}
			k.process = func(ctx *weir.Context[string], e *event, out *weir.Out[string]) error {
				ctx.SetTimer(start.Add(time.Hour + time.Duration(e.N)*time.Millisecond))
				if e.N%10 == 0 {
					ctx.SetProcessingTimer(began.Add(time.Hour + time.Duration(e.N)*time.Millisecond))
				}
				return nil
			}
			k.timer = func(ctx *weir.Context[string], out *weir.Out[string]) error {
				if n := stopAt.Load(); n > 0 && stopAt.Add(-1) == 0 {
					reached <- struct{}{}
					return errors.New("killed")
				}
				if ctx.TimerDomain() == weir.ProcessingTimer {
					out.Emit("clock " + ctx.Key())
					return nil
				}
				out.Emit("event " + ctx.Key())
				return nil
			}
			return k
		}
		add := func(from, to int) {
			rows := make([]event, 0, to-from)
			for i := from; i < to; i++ {
				rows = append(rows, at(0, fmt.Sprint("k", i), i))
			}
			w.source.Add(0, rows...)
		}
		add(0, keys/2)
		job := w.start(t, newKeeper)
		time.Sleep(2500 * time.Millisecond)
		add(keys/2, keys)
		time.Sleep(time.Millisecond)
		job.Kill() // while timers are being set
		job = w.start(t, newKeeper)
		time.Sleep(2500 * time.Millisecond)
		job.Kill() // while they wait
		middle := 0
		for i := range 4 { // while they fire: a third of a step's, or all of them, or behind a checkpoint
			stopAt.Store(int64(i+1) * keys / 12)
			job = w.start(t, newKeeper)
			w.source.AdvanceTo(start.Add(time.Hour + time.Duration((i+1)*keys/4)*time.Millisecond))
			select {
			case <-reached:
				middle++
			case <-time.After(time.Duration(i) * 700 * time.Millisecond):
			}
			job.Kill()
		}
		require.Positive(t, middle, "no kill came in the middle of the firing")
		stopAt.Store(0)
		time.Sleep(time.Hour) // those of the wall clock are overdue
		job = w.start(t, newKeeper)
		rows := await(t, w.out, keys+keys/10)
		time.Sleep(time.Minute)
		require.Len(t, w.out.Rows(), keys+keys/10)
		seen := make(map[string]bool, len(rows))
		for _, r := range w.out.Rows() {
			require.False(t, seen[r], r)
			seen[r] = true
		}
		job.Kill()
	})
}

// counter counts the rows of a key in a value whose type is the test's.
func counter[V any](add func(v *V, n int) int, options ...weir.StateOption) func() *keeper {
	return func() *keeper {
		k := &keeper{}
		var counts weir.Value[V]
		k.open = func(o *weir.OpenContext[string]) (err error) {
			counts, err = weir.NewValue[V](o, "counts", nil, options...)
			return err
		}
		k.process = func(ctx *weir.Context[string], e *event, out *weir.Out[string]) error {
			v, err := counts.Put()
			if err == nil {
				out.Emit(fmt.Sprint(ctx.Key(), "=", add(v, e.N)))
			}
			return err
		}
		return k
	}
}

// A job is upgraded: a field added to its state is zero, one that is gone is ignored, a wider integer goes on
// where the narrower one stood. Any other change is refused with operator, state and field, before
// anything is read, and the old program goes on.
func TestStateThatChangesShape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKept(t)
		type v1 struct {
			Sum  int32
			Gone string
		}
		type v2 struct {
			Sum  int64
			Rows int
		}
		type v3 struct{ Sum string }
		one := counter(func(v *v1, n int) int { v.Sum += int32(n); v.Gone = "x"; return int(v.Sum) })
		two := counter(func(v *v2, n int) int { v.Sum += int64(n); v.Rows++; return int(v.Sum)*100 + v.Rows })
		three := counter(func(v *v3, n int) int { v.Sum += "x"; return n })
		run := func(newKeeper func() *keeper, rows int) {
			job := w.start(t, newKeeper)
			await(t, w.out, rows)
			_, err := job.Stop()
			require.NoError(t, err)
		}
		refused := func(newKeeper func() *keeper, want string) {
			_, err := w.start(t, newKeeper).Wait()
			require.ErrorIs(t, err, weir.ErrIncompatible)
			require.True(t, connector.IsStop(err))
			require.ErrorContains(t, err, want)
		}
		w.source.Add(0, at(0, "a", 5), at(0, "b", 1))
		run(one, 2)
		refused(three, `operator keeper: restore: the checkpoint does not fit the job: state "counts": field Sum `+
			`was int32 in the checkpoint and is string now`)
		w.source.Add(0, at(0, "a", 2))
		run(two, 3)
		refused(one, `state "counts": field Sum was int64 in the checkpoint and is int32 now`)
		w.source.Add(0, at(0, "a", 3))
		run(two, 4)
		require.Equal(t, []string{"a=5", "b=1", "a=701", "a=1002"}, w.out.Rows())

		none := func() *keeper { return &keeper{process: one().process} }
		refused(none, `the checkpoint holds state "counts", which the operator does not declare`)
		w.cfg.Restore.AllowDropped = []string{"keeper/other", "other/counts"}
		refused(none, `the checkpoint holds state "counts"`)
		w.cfg.Restore.AllowDropped = []string{"keeper/counts"}
		w.source.Add(0, at(0, "a", 4))
		run(func() *keeper {
			return &keeper{process: func(ctx *weir.Context[string], _ *event, out *weir.Out[string]) error {
				out.Emit(ctx.Key())
				return nil
			}}
		}, 5)
		w.cfg.Restore.AllowDropped = nil
		w.source.Add(0, at(0, "a", 1))
		run(one, 6)
		require.Equal(t, []string{"a", "a=1"}, w.out.Rows()[4:], "what was dropped is gone, and a new state begins empty")
	})
}

// A key of another type is refused: its keys would be looked for in other key groups.
func TestAChangedKeyTypeOfAJobIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKept(t)
		w.source.Add(0, at(0, "a", 5))
		job := w.start(t, counter(func(v *int, n int) int { *v += n; return *v }))
		await(t, w.out, 1)
		_, err := job.Stop()
		require.NoError(t, err)
		j := weir.NewJob("kept", w.cfg)
		events := weir.From(j, "events", w.source, weir.EventTime((*event).eventTime, 0))
		weir.SinkTo(weir.Process(weir.KeyBy(events, func(e *event) int { return e.N }), "keeper",
			func() weir.Processor[int, event, string] { return idle[int]{} }), "sink", w.out)
		_, err = weirtest.Start(t, j).Wait()
		require.ErrorIs(t, err, weir.ErrIncompatible)
		require.ErrorContains(t, err, "operator keeper: restore: the checkpoint does not fit the job: the key was string "+
			"in the checkpoint and is int64 now")
	})
}

// idle does nothing.
type idle[K comparable] struct{}

func (idle[K]) Open(*weir.OpenContext[K]) error                           { return nil }
func (idle[K]) Process(*weir.Context[K], *event, *weir.Out[string]) error { return nil }
func (idle[K]) OnTimer(*weir.Context[K], *weir.Out[string]) error         { return nil }

// remembering keeps rows in a map and a list with a time to live of ten minutes, and answers with what is
// there; a row with N = 0 only asks. A timer asks at its own time.
func remembering() *keeper {
	k := &keeper{}
	var byN weir.MapState[int, string]
	var all weir.ListState[int]
	var first weir.Value[int]
	k.open = func(o *weir.OpenContext[string]) (err error) {
		if byN, err = weir.NewMapState[int, string](o, "by-n", nil, weir.TTL(10*time.Minute)); err != nil {
			return err
		}
		if all, err = weir.NewListState[int](o, "all", nil, weir.TTL(10*time.Minute)); err != nil {
			return err
		}
		first, err = weir.NewValue[int](o, "first", nil, weir.TTLFromCreation(10*time.Minute))
		return err
	}
	tell := func(what string, ctx *weir.Context[string], out *weir.Out[string]) {
		s := what + " " + ctx.EventTime().Format("15:04") + ":"
		for n := range all.All() {
			s += fmt.Sprint(" ", n)
		}
		s += fmt.Sprint(" /", all.Len())
		for n, v := range byN.All() {
			s += fmt.Sprint(" ", n, v)
		}
		if v := first.Peek(); v != nil {
			s += fmt.Sprint(" first ", *v)
		}
		out.Emit(s)
	}
	k.process = func(ctx *weir.Context[string], e *event, out *weir.Out[string]) error {
		tell("row", ctx, out)
		if e.N == 0 {
			ctx.SetTimer(e.At.Add(5 * time.Minute))
			return nil
		}
		if err := byN.Put(e.N%2, e.At.Format("@15:04")); err != nil {
			return err
		}
		if v, err := first.Put(); err != nil {
			return err
		} else if *v == 0 {
			*v = e.N
		}
		return all.Append(e.N)
	}
	k.timer = func(ctx *weir.Context[string], out *weir.Out[string]) error {
		tell("timer", ctx, out)
		return nil
	}
	return k
}

// What has expired is not seen, as if it had never been; a timer sees what was there at its time,
// however far event time jumps; and none of it depends on whether the job was killed meanwhile.
func TestTimeToLiveFollowsEventTime(t *testing.T) {
	for _, kill := range []bool{false, true} {
		t.Run(fmt.Sprint("kill=", kill), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newKept(t)
				job := w.start(t, remembering)
				for i, e := range []event{
					at(0, "a", 1), at(5*time.Minute, "a", 2), at(9*time.Minute, "a", 3), at(10*time.Minute, "a", 0),
					at(11*time.Minute, "a", 0),
					at(60*time.Minute, "a", 0), // the watermark is still that of the row before
					at(60*time.Minute, "a", 4), // and now the timers at 15 and 16 have come first
					at(71*time.Minute, "a", 0),
					at(71*time.Minute, "a", 0),
				} {
					w.source.Add(0, e)
					await(t, w.out, i+1)
					if kill {
						job.Kill()
						job = w.start(t, remembering)
					}
				}
				require.Equal(t, []string{
					"row 10:00: /0",
					"row 10:05: 1 /1 1@10:00 first 1",
					"row 10:09: 1 2 /2 1@10:00 0@10:05 first 1",
					"row 10:10: 1 2 3 /3 1@10:09 0@10:05 first 1",
					"row 10:11: 2 3 /2 1@10:09 0@10:05",
					"row 11:00: 2 3 /2 1@10:09 0@10:05",
					"timer 10:15: 3 /1 1@10:09",
					"timer 10:16: 3 /1 1@10:09",
					"row 11:00: /0",
					"row 11:11: 4 /1 0@11:00 first 4",
					"timer 11:05: 4 /1 0@11:00 first 4",
					"row 11:11: /0",
				}, await(t, w.out, 12))
				job.Kill()
			})
		})
	}
}

// gathering keeps rows in states with a time to live of an hour, and tells of them by the wall clock, a second
// after each; it writes down whatever it tells of.
func gathering() *keeper {
	k := &keeper{}
	var all weir.ListState[int]
	var byN weir.MapState[int, bool]
	var last, told weir.Value[int]
	k.open = func(o *weir.OpenContext[string]) (err error) {
		if all, err = weir.NewListState[int](o, "all", nil, weir.TTL(time.Hour)); err != nil {
			return err
		}
		if byN, err = weir.NewMapState[int, bool](o, "by-n", nil, weir.TTL(time.Hour)); err != nil {
			return err
		}
		if told, err = weir.NewValue[int](o, "told", nil, weir.TTL(time.Hour)); err != nil {
			return err
		}
		last, err = weir.NewValue[int](o, "last", nil, weir.TTL(time.Hour))
		return err
	}
	k.process = func(ctx *weir.Context[string], e *event, _ *weir.Out[string]) error {
		ctx.SetProcessingTimer(ctx.Now().Add(time.Second))
		v, err := last.Put()
		if err == nil {
			*v = e.N
		}
		return errors.Join(err, all.Append(e.N), byN.Put(e.N, true))
	}
	k.timer = func(ctx *weir.Context[string], out *weir.Out[string]) error {
		s := ctx.Key()
		for n := range all.All() {
			s += fmt.Sprint(" ", n)
		}
		s += fmt.Sprint(" of ", byN.Len())
		if v := last.Peek(); v != nil {
			s += fmt.Sprint(", the last ", *v)
		}
		if v := told.Peek(); v != nil {
			s += fmt.Sprint(", told of ", *v)
		}
		v, err := told.Put()
		if err == nil {
			*v = all.Len()
		}
		out.Emit(s)
		return err
	}
	return k
}

// A timer in processing time that fires because the input has ended finds what it would have found before:
// that event time goes to its end makes nothing disappear that nobody has seen yet.
func TestTheEndOfTheInputTakesNothingFromTimersInProcessingTime(t *testing.T) {
	for _, end := range []string{"ended", "drained", "killed and drained"} {
		t.Run(end, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newKept(t)
				w.source.Add(0, at(0, "old", 1), at(30*time.Minute, "a", 5), at(80*time.Minute, "a", 3))
				old := "old of 0" // a row whose time was over
				if end == "ended" {
					w.source.End()
					old = "old 1 of 1, the last 1" // event time goes from the row before the last one to the end
				}
				job := w.start(t, gathering)
				time.Sleep(800 * time.Millisecond)
				if end == "killed and drained" {
					job.Kill()
					w.cfg.Parallelism = 3
					job = w.start(t, gathering)
					time.Sleep(100 * time.Millisecond)
				}
				outcome, err := job.Drain()
				require.NoError(t, err)
				require.Equal(t, weir.Finished, outcome)
				require.ElementsMatch(t, []string{old, "a 5 3 of 2, the last 3"}, w.out.Rows())
			})
		})
	}
}

// What a timer in processing time writes before anything is known of event time has not been written in 1970:
// it lives for as long as everything else, once event time begins.
func TestWhatATimerWritesBeforeEventTimeBeginsLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, other, hold := newKept(t), weirtest.NewSource[event](1), make(chan struct{})
		build := func() *weir.Job {
			j := weir.NewJob("kept", w.cfg)
			events := weir.From(j, "events", w.source, weir.EventTime((*event).eventTime, 0))
			held := weir.Map(weir.From(j, "other", other, weir.EventTime((*event).eventTime, 0)), "hold",
				func(e *event) (event, error) { <-hold; return *e, nil })
			out := weir.Process(weir.KeyBy(weir.Union(events, held), (*event).tenant), "keeper",
				func() weir.Processor[string, event, string] { return gathering() })
			weir.SinkTo(out, "sink", w.out)
			return j
		}
		w.source.Add(0, at(0, "a", 5))
		w.cfg.Checkpoint.Interval = time.Hour // the operator that is held up lets no barrier pass
		job := weirtest.Start(t, build())
		other.Add(0, at(0, "b", 1))
		time.Sleep(1500 * time.Millisecond)
		close(hold)
		time.Sleep(100 * time.Millisecond)
		w.source.Add(0, at(time.Minute, "a", 6))
		other.Add(0, at(time.Minute, "b", 1))
		time.Sleep(2 * time.Second)
		_, err := job.Stop()
		require.NoError(t, err)
		require.Subset(t, w.out.Rows(), []string{"a 5 of 1, the last 5", "a 5 6 of 2, the last 6, told of 1"})
	})
}
