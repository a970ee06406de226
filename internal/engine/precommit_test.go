package engine_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir/internal/engine"
	"example.com/weir/internal/protocol"
	"example.com/weir/internal/status"
)

// atSink tells of the sink of a job of one subtask.
func atSink(t *testing.T, control *engine.Control) status.Subtask {
	t.Helper()
	for _, o := range control.Status().Operators {
		if o.UID == "sink" {
			return o.Subtasks[0]
		}
	}
	t.Fatal("there is no sink")
	return status.Subtask{}
}

// The stream goes on while a sink flushes, the rows behind the barrier wait, and so does its checkpoint. They
// are not many: with too many the stream waits.
func TestTheStreamGoesOnWhileASinkFlushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers()
		n.cfg.Timeout = time.Hour
		slow, outside := false, make(chan struct{})
		n.sink.flush = func() error {
			if slow {
				<-outside
			}
			return nil
		}
		n.source.Add(0, 0)
		control := started(t, n.run)
		time.Sleep(1500 * time.Millisecond)
		require.Equal(t, []int{0}, n.sink.rows())

		slow = true
		n.source.Add(0, 1)
		time.Sleep(time.Second) // a barrier is behind it
		before := control.Status().Checkpoints.Completed
		for i := range 2 {
			n.source.Add(0, 2+i)
			time.Sleep(time.Second)
		}
		require.EqualValues(t, 4, atSink(t, control).RecordsIn)
		many := make([]int, 100*engine.BatchSize)
		for i := range many {
			many[i] = 4 + i
		}
		n.source.Add(0, many...)
		time.Sleep(time.Minute)
		require.Less(t, atSink(t, control).RecordsIn, int64(40*engine.BatchSize))
		require.Equal(t, before, control.Status().Checkpoints.Completed, "nothing is acknowledged before it is outside")
		require.Equal(t, []int{0}, n.sink.rows())

		close(outside)
		time.Sleep(3 * time.Second)
		require.Equal(t, upTo(4+len(many)), n.sink.rows())
		require.False(t, n.sink.shared.Load())
	})
}

// Rows that have waited behind a flush are written when it is over, whether or not others come.
func TestRowsThatWaitedAreWrittenThoughNoneFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers()
		n.sink.flush = func() error { time.Sleep(100 * time.Millisecond); return nil }
		control := started(t, n.run)
		time.Sleep(2050 * time.Millisecond) // in the midst of a flush
		n.source.Add(0, 7)
		time.Sleep(100 * time.Millisecond)
		require.Len(t, control.Status().Transactions, 1)
		require.EqualValues(t, 1, atSink(t, control).RecordsOut)
	})
}

// However long flushes take, and whenever the job is killed: each row is outside once, in its order.
func TestFlushesBesideTheStreamKeepTheOrderAndLoseNothing(t *testing.T) {
	for seed := range uint64(25) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			n := newNumbers()
			n.sink.flush = func() error {
				time.Sleep(time.Duration(random.IntN(700)) * time.Millisecond)
				return nil
			}
			const rows = 400
			go func() {
				for i := range rows {
					time.Sleep(20 * time.Millisecond)
					n.source.Add(0, i)
				}
			}()
			for range 4 {
				require.Error(t, n.runFor(t, time.Duration(random.IntN(4000))*time.Millisecond))
			}
			time.Sleep(8 * time.Second)
			control := engine.NewControl()
			time.AfterFunc(5*time.Second, func() { control.Stop(false) })
			outcome, err := n.run(t.Context(), control)
			require.NoError(t, err)
			require.Equal(t, protocol.Stopped, outcome)
			require.Equal(t, upTo(rows), n.sink.rows())
			require.False(t, n.sink.shared.Load())
		})
	}
}

func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
