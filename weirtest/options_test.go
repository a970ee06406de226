package weirtest_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"example.com/weir"
	"example.com/weir/connector"
	"example.com/weir/weirtest"
)

func TestTheExampleIsATest(t *testing.T) { testSurvivesCrashUpgradeAndRescale(t) }

// Without a storage of the test's, each run begins anew; with one, each goes on.
func TestRunsOverOneStorageGoOn(t *testing.T) {
	for name, c := range map[string]struct {
		options []weirtest.Option
		want    []int
	}{
		"its own each": {nil, []int{1, 1, 2}},
		"one for both": {[]weirtest.Option{weirtest.Storage(t.TempDir())}, []int{1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls, out := weirtest.NewSource[Call](1), weirtest.NewSink[int](connector.ExactlyOnce)
				build := newJob(calls, out, func(b *bill, _ *Call) int { b.Calls++; return b.Calls })
				for range 2 {
					calls.Add(0, Call{Caller: "ann"})
					job := weirtest.Run(t, build, c.options...)
					synctest.Wait()
					outcome, err := job.Stop()
					require.NoError(t, err)
					require.Equal(t, weir.Stopped, outcome)
				}
				require.Equal(t, c.want, out.Rows())
			})
		})
	}
}

// Going back behind what has been committed is refused, until its price is accepted by name.
func TestARunGoesBackOnlyByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, out := weirtest.NewSource[Call](1), weirtest.NewSink[int](connector.ExactlyOnce)
		build := newJob(calls, out, func(b *bill, _ *Call) int { b.Calls++; return b.Calls })
		options := []weirtest.Option{weirtest.Storage(t.TempDir()), weirtest.Parallelism(3)}
		job := weirtest.Run(t, build, options...)
		job.Savepoint(t, "empty")
		require.Equal(t, 3, job.Status().Parallelism)
		calls.Add(0, Call{Caller: "ann"})
		synctest.Wait()
		_, err := job.Stop()
		require.NoError(t, err)

		options = append(options, weirtest.Restore("empty"))
		job = weirtest.Run(t, build, options...)
		synctest.Wait()
		_, err = job.Stop() // it has ended
		require.ErrorIs(t, err, weir.ErrRewind)
		require.Equal(t, []int{1}, out.Rows())
		job = weirtest.Run(t, build, append(options, func(c *weir.Config) { c.Restore.AcceptDuplicates = true })...)
		synctest.Wait()
		_, err = job.Stop()
		require.NoError(t, err)
		require.Equal(t, []int{1, 1}, out.Rows())
	})
}
