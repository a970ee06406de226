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

// A timer may set a deadline that has come when event time has gone on in one step: it comes between that timer
// and the next one, and not with the next step, before which a restore would take it for over.
func TestADeadlineThatATimerSetsComesBeforeTheNextTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newKept(t)
		w.source.Add(0, at(0, "a", 4), at(0, "a", 8))
		job := w.start(t, func() *keeper {
			k := &keeper{}
			var counts weir.DeadlineState[count]
			k.open = func(o *weir.OpenContext[string]) (err error) {
				counts, err = weir.NewDeadlineState[count](o, "count", nil)
				return err
			}
			k.process = func(ctx *weir.Context[string], e *event, _ *weir.Out[string]) error {
				_, err := counts.Put()
				ctx.SetTimer(e.At.Add(time.Duration(e.N) * time.Second))
				return err
			}
			k.timer = func(ctx *weir.Context[string], out *weir.Out[string]) error {
				if out.Emit(fmt.Sprint(ctx.TimerDomain(), ctx.TimerTime().Format(" 05"))); ctx.TimerDomain() == weir.Deadline {
					return nil
				}
				_, err := counts.Put()
				counts.SetDeadline(ctx.TimerTime().Add(time.Second))
				return err
			}
			return k
		})
		w.source.AdvanceTo(start.Add(time.Minute))
		await(t, w.out, 4)
		require.Equal(t, []string{
			fmt.Sprint(weir.EventTimer, " 04"), fmt.Sprint(weir.Deadline, " 05"),
			fmt.Sprint(weir.EventTimer, " 08"), fmt.Sprint(weir.Deadline, " 09"),
		}, w.out.Rows())
		job.Kill()
	})
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
