package weir_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir"
)

// leases keeps a count for each key, N seconds from its last row on; a timer fires in the middle of that. At its
// first deadline a count is given one second more.
func leases() *keeper {
	k := &keeper{}
	var counts weir.DeadlineState[count]
	k.open = func(o *weir.OpenContext[string]) (err error) {
		counts, err = weir.NewDeadlineState[count](o, "count", nil)
		return err
	}
	k.process = func(ctx *weir.Context[string], e *event, _ *weir.Out[string]) error {
		c, err := counts.Put()
		if err != nil {
			return err
		}
		c.Rows++
		counts.SetDeadline(e.At.Add(time.Duration(e.N) * time.Second))
		ctx.SetTimer(e.At.Add(time.Duration(e.N) * time.Second / 2))
		return nil
	}
	k.timer = func(ctx *weir.Context[string], out *weir.Out[string]) error {
		c := counts.Peek()
		if ctx.TimerDomain() == weir.EventTimer {
			out.Emit(fmt.Sprintf("%s timer %s, count %v", ctx.Key(), ctx.TimerTime().Format(time.TimeOnly), c != nil))
			return nil
		}
		out.Emit(fmt.Sprintf("%s deadline %s, %d rows", ctx.Key(), ctx.TimerTime().Format(time.TimeOnly), c.Rows))
		if !c.Extended {
			counts.Get().Extended = true
			counts.SetDeadline(ctx.TimerTime().Add(time.Second))
		}
		return nil
	}
	return k
}

type count struct {
	Rows     int
	Extended bool
}

// A value lives until its deadline, which its rows and the deadline itself may move; deadlines and timers come in
// the order of time, and each once, through kills and at another parallelism.
func TestAValueLivesUntilItsDeadlineThroughKillsAndRescales(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKept(t)
		w.source.Add(0, at(0, "a", 10), at(time.Second, "a", 20), at(2*time.Second, "a", 4), at(2*time.Second, "b", 30))
		job := w.start(t, leases)
		for i, parallelism := range []int{2, 1, 3} {
			time.Sleep(2500 * time.Millisecond)
			job.Kill()
			w.cfg.Parallelism = parallelism
			job = w.start(t, leases)
			w.source.AdvanceTo(start.Add(time.Duration(5+i) * time.Second))
		}
		await(t, w.out, 4)
		require.Equal(t, []string{
			"a timer 10:00:04, count true", "a timer 10:00:05, count true", "a deadline 10:00:06, 3 rows",
			"a deadline 10:00:07, 3 rows",
		}, w.out.Rows()[:4])
		w.source.AdvanceTo(start.Add(time.Minute))
		await(t, w.out, 8)
		require.ElementsMatch(t, []string{
			"a timer 10:00:11, count false", "b timer 10:00:17, count true", "b deadline 10:00:32, 1 rows",
			"b deadline 10:00:33, 1 rows",
		}, w.out.Rows()[4:])
		job.Kill()
	})
}

// A deadline that event time has passed comes at once after that, and not before; one at the end of the input
// comes then.
func TestADeadlineIsNeverBehindEventTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKept(t)
		w.source.Add(0, at(10*time.Second, "a", 100), at(10*time.Second, "b", -9))
		w.source.End()
		outcome, err := w.start(t, leases).Wait()
		require.NoError(t, err)
		require.Equal(t, weir.Finished, outcome)
		require.Equal(t, []string{
			"b timer 10:00:05, count true", "b deadline 10:00:10, 1 rows", "b deadline 10:00:11, 1 rows",
			"a timer 10:01:00, count true", "a deadline 10:01:50, 1 rows", "a deadline 10:01:51, 1 rows",
		}, w.out.Rows())
	})
}

// relay sets timers and deadlines at timers and deadlines, each a few seconds on, and says which have come.
func relay() *keeper {
	k := &keeper{}
	var counts weir.DeadlineState[count]
	k.open = func(o *weir.OpenContext[string]) (err error) {
		counts, err = weir.NewDeadlineState[count](o, "count", nil)
		return err
	}
	next := func(ctx *weir.Context[string], c *count) {
		c.Rows++
		now := ctx.EventTime()
		counts.SetDeadline(now.Add(time.Duration(1+c.Rows%3) * time.Second))
		if c.Rows%4 < 2 {
			ctx.SetTimer(now.Add(time.Duration(1+c.Rows%5) * time.Second))
		}
	}
	k.process = func(ctx *weir.Context[string], _ *event, _ *weir.Out[string]) error {
		c, err := counts.Put()
		if err == nil {
			next(ctx, c)
		}
		return err
	}
	k.timer = func(ctx *weir.Context[string], out *weir.Out[string]) error {
		kind := "timer"
		if ctx.TimerDomain() == weir.Deadline {
			kind = "deadline"
		}
		c := counts.Get()
		out.Emit(fmt.Sprintf("%s %s, %d", kind, ctx.TimerTime().Format("04:05"), c.Rows))
		next(ctx, c)
		return nil
	}
	return k
}

// Timers and deadlines that set each other come in the same order, and each once, however far event time goes on in
// one step. (One that is set when its time has come was once left to the next step, before which a restore takes it
// for over.)
func TestTimersAndDeadlinesComeInOneOrderHoweverEventTimeMoves(t *testing.T) {
	const last = 2 * time.Minute
	run := func(step time.Duration) (rows []string) {
		synctest.Test(t, func(t *testing.T) {
			w := newKept(t)
			w.source.Add(0, at(0, "a", 1))
			job := w.start(t, relay)
			for to := step; to <= last; to += step {
				w.source.AdvanceTo(start.Add(to))
				time.Sleep(time.Second)
				if to%(12*time.Second) == 0 { // between two steps, with a checkpoint or without
					job.Kill()
					job = w.start(t, relay)
				}
			}
			time.Sleep(10 * time.Second)
			rows = w.out.Rows()
			job.Kill()
		})
		return rows
	}
	slow := run(time.Second)
	require.Greater(t, len(slow), 60)
	for _, step := range []time.Duration{5 * time.Second, 40 * time.Second, last} {
		require.Equal(t, slow, run(step), "in steps of %s", step)
	}
}

// A deadline belongs to a value: without one it is an error.
func TestADeadlineWithoutAValueFailsTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKept(t)
		w.source.Add(0, at(0, "a", 1))
		w.source.End()
		w.cfg.Restart = weir.NoRestart{}
		_, err := w.start(t, func() *keeper {
			k := &keeper{}
			var counts weir.DeadlineState[count]
			k.open = func(o *weir.OpenContext[string]) (err error) {
				counts, err = weir.NewDeadlineState[count](o, "count", nil)
				return err
			}
			k.process = func(_ *weir.Context[string], e *event, _ *weir.Out[string]) error {
				counts.SetDeadline(e.At)
				return nil
			}
			return k
		}).Wait()
		require.ErrorContains(t, err, "no entry that a deadline could be given to")
	})
}
