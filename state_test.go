package weir_test

import (
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

// A job that was stopped does nothing behind its last barrier, whatever the clock says.
func TestNoTimerFiresBehindTheLastBarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKept(t)
		for i := range 100 {
			w.source.Add(0, at(0, fmt.Sprint("k", i), 1+i))
		}
		for range 10 {
			job := w.start(t, alarms)
			time.Sleep(7300 * time.Millisecond)
			outcome, err := job.Stop()
			require.NoError(t, err)
			require.Equal(t, weir.Stopped, outcome)
		}
		seen := map[string]bool{}
		for _, r := range w.out.Rows() {
			key, _, _ := strings.Cut(r, " ")
			require.False(t, seen[key], key)
			seen[key] = true
		}
		require.Len(t, seen, 73)
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
		job.Kill()         // while they wait
		for i := range 4 { // while they fire: a third of a step's, or all of them, or behind a checkpoint
			stopAt.Store(int64(i+1) * keys / 12)
			job = w.start(t, newKeeper)
			w.source.AdvanceTo(start.Add(time.Hour + time.Duration((i+1)*keys/4)*time.Millisecond))
			select {
			case <-reached:
			case <-time.After(time.Duration(i) * 700 * time.Millisecond):
			}
			job.Kill()
		}
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
