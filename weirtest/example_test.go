package weirtest_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"example.com/weir"
	"example.com/weir/connector"
	"example.com/weir/weirtest"
)

// Call is what the job reads, and bill what it keeps for each caller. The next release keeps one thing more.
type (
	Call struct {
		Caller  string
		Seconds int
	}
	bill     struct{ Calls int }
	billNext struct{ Calls, Seconds int }
)

// count keeps a B for each caller, and emits what add makes of it.
type count[B any] struct {
	add  func(b *B, c *Call) int
	bill weir.Value[B]
}

func (p *count[B]) Open(o *weir.OpenContext[string]) (err error) {
	p.bill, err = weir.NewValue[B](o, "bill", nil)
	return err
}

func (p *count[B]) Process(_ *weir.Context[string], c *Call, out *weir.Out[int]) error {
	b, err := p.bill.Put()
	if err == nil {
		out.Emit(p.add(b, c))
	}
	return err
}

func (p *count[B]) OnTimer(*weir.Context[string], *weir.Out[int]) error { return nil }

// newJob builds the job for any configuration, over what is outside of it.
func newJob[B any](
	calls connector.Source[Call], out connector.Sink[int], add func(*B, *Call) int,
) func(weir.Config) *weir.Job {
	return func(cfg weir.Config) *weir.Job {
		job := weir.NewJob("calls", cfg)
		all := weir.From(job, "calls", calls, weir.TimeConfig[Call]{})
		bills := weir.Process(weir.KeyBy(all, func(c *Call) string { return c.Caller }), "count",
			func() weir.Processor[string, Call, int] { return &count[B]{add: add} })
		weir.SinkTo(bills, "bills", out)
		return job
	}
}

// testSurvivesCrashUpgradeAndRescale is a test of a job: in a file of tests its name begins with Test.
func testSurvivesCrashUpgradeAndRescale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, out, disk := weirtest.NewSource[Call](2), weirtest.NewSink[int](connector.ExactlyOnce), t.TempDir()
		now := newJob(calls, out, func(b *bill, _ *Call) int { b.Calls++; return b.Calls })
		next := newJob(calls, out, func(b *billNext, c *Call) int { b.Calls++; b.Seconds += c.Seconds; return b.Calls })

		job := weirtest.Run(t, now, weirtest.Storage(disk), weirtest.Parallelism(2))
		calls.Add(0, Call{"ann", 61}, Call{"ann", 5})
		synctest.Wait() // everything has been read
		job.Savepoint(t, "before-the-upgrade")
		job.Kill()
		job = weirtest.Run(t, next, weirtest.Storage(disk), weirtest.Parallelism(4),
			weirtest.Restore("before-the-upgrade"))
		calls.Add(1, Call{"ann", 1})
		synctest.Wait()
		if outcome, err := job.Drain(); err != nil || outcome != weir.Finished {
			t.Fatal(outcome, err)
		}
		if got := out.Rows(); !slices.Equal(got, []int{1, 2, 3}) {
			t.Fatalf("bills %v: want each call once", got)
		}
	})
}

// A job is upgraded to a release with one more field in its state, and runs at another parallelism, after a crash.
func Example() {
	var _ func(*testing.T) = testSurvivesCrashUpgradeAndRescale
}
