package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"go.uber.org/goleak"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/settle"
	"example.com/weir/connectors/kafka/txn"
	"example.com/weir/internal/kafkatest"
)

func TestACommitShowsEachRecordOnceAndInOrder(t *testing.T) {
	kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		w := j.writer(t, j.restore(t), 0)
		var want [partitionsOfTests][]string
		for n := uint64(1); n <= 8; n++ { // more checkpoints than slots
			for _, p := range []string{"1", "2", "3"} {
				v := fmt.Sprintf("%d/%s", n, p)
				write(t, w, v)
				want[partitionOf(v)] = append(want[partitionOf(v)], v)
			}
			c := prepare(t, w, n)
			require.NoError(t, w.Commit(t.Context(), c))
			w.Release(c)
		}
		require.Equal(t, append(append(want[0], want[1]...), want[2]...), j.visible(t))
	})
}

func TestEveryTransactionHasAnEpochOfItsOwn(t *testing.T) {
	kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		w := j.writer(t, j.restore(t), 0)
		seen := map[string]bool{}
		for n := uint64(1); n <= 8; n++ {
			write(t, w, "a1")
			c := prepare(t, w, n)
			h := handleOf(t, c)
			key := fmt.Sprint(h.TransactionalID, h.ProducerID, h.Epoch)
			require.False(t, seen[key], "%s was used before", key)
			seen[key] = true
			require.Equal(t, map[int]int16{1: 4, 2: 5}[b.TransactionVersion], h.EndTxnVersion)
			require.NoError(t, w.Commit(t.Context(), c))
			w.Release(c)
		}
	})
}

func TestCommittingAgainChangesNothing(t *testing.T) {
	kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		w := j.writer(t, j.restore(t), 0)
		write(t, w, "a1", "a2")
		c := prepare(t, w, 1)
		require.NoError(t, w.Commit(t.Context(), c))
		require.NoError(t, w.Commit(t.Context(), c))
		w.Release(c)
		require.NoError(t, w.Commit(t.Context(), c))
		write(t, w, "b1") // the ID may be in use again
		d := prepare(t, w, 2)
		require.NoError(t, w.Commit(t.Context(), c))
		require.NoError(t, w.Commit(t.Context(), d))
		require.Equal(t, []string{"a1", "b1", "a2"}, j.visible(t))
	})
}

func TestOneRecordTenRestartsOneRecord(t *testing.T) {
	kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		w := j.writer(t, j.restore(t), 0)
		write(t, w, "a1")
		c := prepare(t, w, 1)
		for range 10 {
			j.restore(t, c)
		}
		require.Equal(t, []string{"a1"}, j.visible(t))
	})
}

// The process dies between the checkpoint and the commit: the restore commits, every time.
func TestARestoreCommitsWhatTheCheckpointNames(t *testing.T) {
	kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		dead := j.writer(t, j.restore(t), 0)
		write(t, dead, "a1", "a2", "a3")
		c1 := prepare(t, dead, 1)
		write(t, dead, "b1", "b2")
		c2 := prepare(t, dead, 2)
		write(t, dead, "never")

		w := j.writer(t, j.restore(t, c1, c2), 0)
		write(t, w, "c1")
		c3 := prepare(t, w, 3)
		require.NoError(t, w.Commit(t.Context(), c3))
		require.Equal(t, []string{"a1", "b1", "c1", "a2", "b2", "a3"}, j.visible(t))

		// The dead one wakes up and commits what it had prepared: it is there already.
		require.NoError(t, dead.Commit(t.Context(), c1))
		require.Equal(t, []string{"a1", "b1", "c1", "a2", "b2", "a3"}, j.visible(t))
	})
}

func TestWhatNoCheckpointNamesIsAbortedAtRestore(t *testing.T) {
	kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		dead := j.writer(t, j.restore(t), 0)
		write(t, dead, "named1")
		c := prepare(t, dead, 1)
		write(t, dead, "prepared2")
		prepare(t, dead, 2)
		write(t, dead, "written3")
		require.NoError(t, dead.Flush(t.Context(), false))

		j.restore(t, c)
		require.Equal(t, []string{"named1"}, j.visible(t))
	})
}

func TestTransactionsOfVanishedSubtasksAreEndedAtRestore(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		s := j.restore(t)
		var named []connector.Committable
		for subtask := range 3 {
			w := j.writer(t, s, subtask)
			write(t, w, "named1")
			named = append(named, prepare(t, w, 1))
			write(t, w, "left2")
			require.NoError(t, w.Flush(t.Context(), false))
		}
		j.restore(t, named...) // at parallelism 1
		require.Equal(t, []string{"named1", "named1", "named1"}, j.visible(t))
	})
}

// Under the policy fail a lost transaction stops the job by name, and nothing is written again.
func TestANamedTransactionAbortedByAStrangerStopsTheJob(t *testing.T) {
	kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		j.cfg.LostTransaction = Fail
		dead := j.writer(t, j.restore(t), 0)
		write(t, dead, "a1", "b1", "a2")
		c1 := prepare(t, dead, 7)
		write(t, dead, "c1")
		c2 := prepare(t, dead, 8)
		h := handleOf(t, c1)
		j.takeOver(t, h.TransactionalID)

		for range 2 { // the second time is no better
			err := j.sink(t).Restore(t.Context(), j.restoreContext(c1, c2))
			require.True(t, connector.IsStop(err), "%v", err)
			for _, name := range []string{
				"sink out", "checkpoint 7", h.TransactionalID, "3 records", "lost",
				fmt.Sprintf("%s/0 offsets %d to %d (2 records)", j.cfg.Topic, h.Parts[0].First, h.Parts[0].Last),
				fmt.Sprintf("%s/1 offsets %d to %d (1 records)", j.cfg.Topic, h.Parts[1].First, h.Parts[1].Last),
			} {
				require.ErrorContains(t, err, name)
			}
		}
		// Nothing goes on: the later transaction of the subtask is neither committed nor ended.
		require.Equal(t, settle.Ongoing, j.state(t, handleOf(t, c2).TransactionalID).State)
		j.takeOver(t, handleOf(t, c2).TransactionalID)
		require.Empty(t, j.visible(t))
	})
}

func TestALossWhileRunningStopsTheJob(t *testing.T) {
	kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		j.cfg.LostTransaction = Fail
		w := j.writer(t, j.restore(t), 0)
		write(t, w, "a1")
		c := prepare(t, w, 1)
		write(t, w, "b1")
		d := prepare(t, w, 2)
		j.takeOver(t, handleOf(t, c).TransactionalID)
		err := w.Commit(t.Context(), c)
		require.True(t, connector.IsStop(err), "%v", err)
		require.ErrorContains(t, err, "lost")
		require.ErrorContains(t, w.Commit(t.Context(), d), "before that of checkpoint 1")
		j.takeOver(t, handleOf(t, d).TransactionalID)
		require.Empty(t, j.visible(t))
	})
}

func TestATransactionThatTimedOutStopsTheJob(t *testing.T) {
	kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		j.cfg.LostTransaction = Fail
		j.cfg.TransactionTimeout = time.Second
		dead := j.writer(t, j.restore(t), 0)
		write(t, dead, "a1")
		c := prepare(t, dead, 1)
		id := handleOf(t, c).TransactionalID
		require.Eventually(t, func() bool { return j.state(t, id).State != settle.Ongoing },
			60*time.Second, 20*time.Millisecond)
		err := j.sink(t).Restore(t.Context(), j.restoreContext(c))
		require.True(t, connector.IsStop(err), "%v", err)
		require.ErrorContains(t, err, "lost")
		require.Empty(t, j.visible(t))
	})
}

// The answer to EndTxn is lost on the way, after the coordinator has done it. The client that
// sends it may ask again by itself; if it does not, the log decides.
func TestALostAnswerIsSettledByTheLog(t *testing.T) {
	kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
		for name, answers := range map[string]int64{"asked again": 1, "in doubt": 4} {
			t.Run(name, func(t *testing.T) {
				j := newTestJob(t, b)
				warm := j.writer(t, j.restore(t), 0) // few retries are enough for what has been used before
				write(t, warm, "w1", "w2")
				require.NoError(t, warm.Commit(t.Context(), prepare(t, warm, 1)))
				lossy := loseAnswers(kmsg.EndTxn, answers)
				j.cfg.clientOptions = []kgo.Opt{
					lossy.option(), kgo.RequestRetries(3),
					kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
				}
				w := j.writer(t, j.restore(t), 0)
				write(t, w, "a1", "a2")
				c := prepare(t, w, 2)
				require.NoError(t, w.Commit(t.Context(), c))
				require.Equal(t, answers, lossy.lost.Load())
				w.Release(c)
				write(t, w, "b1")
				d := prepare(t, w, 3)
				require.NoError(t, w.Commit(t.Context(), d))
				require.Equal(t, []string{"w1", "a1", "b1", "w2", "a2"}, j.visible(t))
			})
		}
	})
}

// The answers to another version say nothing, and v5 bumps the epoch where the cluster does not.
// That holds for a committable of before an upgrade of the cluster, too.
func TestEndTxnGoesOutInTheVersionOfItsTransaction(t *testing.T) {
	for _, upgraded := range []bool{false, true} {
		kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
			b.Except(t, kafkatest.Apache, "versions of requests are seen by a control function of kfake")
			j := newTestJob(t, b)
			w := j.writer(t, j.restore(t), 0)
			write(t, w, "a1")
			c := prepare(t, w, 1)
			write(t, w, "b1")
			d := prepare(t, w, 2)
			want := handleOf(t, c).EndTxnVersion
			require.Equal(t, map[int]int16{1: 4, 2: 5}[b.TransactionVersion], want)
			if upgraded {
				_, err := b.Admin(t).UpdateFeatures(t.Context(), false, kadm.FeatureUpdate{
					Feature: "transaction.version", MaxVersionLevel: 2, UpgradeType: 1,
				})
				require.NoError(t, err)
			}
			versions := make(chan int16, 10)
			b.Fake.ControlKey(int16(kmsg.EndTxn), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
				b.Fake.KeepControl()
				versions <- kreq.GetVersion()
				return nil, nil, false
			})
			require.NoError(t, w.Commit(t.Context(), c)) // by its client
			j.restore(t, c, d)                           // by anybody
			require.Equal(t, want, <-versions)
			require.Equal(t, want, <-versions)
			require.Empty(t, versions)
			require.Equal(t, []string{"a1", "b1"}, j.visible(t))
		})
	}
}

// Assuming that a lost answer means committed would lose these; the EndTxn never arrived.
func TestALostRequestIsSentAgain(t *testing.T) {
	b := kafkatest.NewFake(t)
	j := newTestJob(t, b)
	w := j.writer(t, j.restore(t), 0)
	write(t, w, "a1")
	c := prepare(t, w, 1)
	var dropped atomic.Int64
	b.Fake.ControlKey(int16(kmsg.EndTxn), func(kmsg.Request) (kmsg.Response, error, bool) {
		dropped.Add(1)
		return nil, fmt.Errorf("dropped"), true
	})
	require.NoError(t, w.Commit(t.Context(), c))
	require.Equal(t, int64(1), dropped.Load())
	require.Equal(t, []string{"a1"}, j.visible(t))
}

func TestACommitThatIsNeverAnsweredFailsAndEndsNothing(t *testing.T) {
	b := kafkatest.NewFake(t)
	j := newTestJob(t, b)
	j.cfg.CommitDeadline = time.Second
	w := j.writer(t, j.restore(t), 0)
	write(t, w, "a1")
	c := prepare(t, w, 1)
	b.Fake.ControlKey(int16(kmsg.EndTxn), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		return nil, fmt.Errorf("dropped"), true
	})
	err := w.Commit(t.Context(), c)
	require.Error(t, err)
	require.False(t, connector.IsStop(err), "%v", err)
	require.ErrorContains(t, err, "nothing was ended")
	require.Equal(t, settle.Ongoing, j.state(t, handleOf(t, c).TransactionalID).State)
}

// A commit of checkpoint n runs while the records of n+1 are written.
func TestWritingGoesOnWhileACommitRuns(t *testing.T) {
	kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		w := j.writer(t, j.restore(t), 0)
		write(t, w, "a1", "a2")
		c := prepare(t, w, 1)
		write(t, w, "b1", "b2")
		require.NoError(t, w.Flush(t.Context(), false))
		committed := make(chan error, 1)
		go func() { committed <- w.Commit(t.Context(), c) }()
		for range 50 {
			write(t, w, "b3")
		}
		require.NoError(t, <-committed)
		d := prepare(t, w, 2)
		require.NotEqual(t, handleOf(t, c).TransactionalID, handleOf(t, d).TransactionalID)
		require.NoError(t, w.Commit(t.Context(), d))
		require.Len(t, j.visible(t), 54)
	})
}

// The rows behind a barrier do not wait for requests: what their transaction needs was asked for while the one
// before was committed.
func TestTheNextTransactionIsReadyBeforeItIsNeeded(t *testing.T) {
	b := kafkatest.NewFake(t)
	j := newTestJob(t, b)
	w := j.writer(t, j.restore(t), 0)
	write(t, w, "a1")
	c := prepare(t, w, 1)
	ready := w.next
	require.NotNil(t, ready)
	<-ready.done
	require.NoError(t, ready.err)
	b.Fake.ControlKey(int16(kmsg.InitProducerID), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		t.Error("a producer ID was asked for when it was needed")
		return nil, nil, false
	})
	write(t, w, "b1")
	require.Same(t, ready.slot, w.open.slot)
	require.NoError(t, w.Commit(t.Context(), c))
}

// What was taken ahead and cannot be used gives its slot back, and another one is taken.
func TestWhatWasTakenAheadInVainIsTakenAnew(t *testing.T) {
	for name, spoil := range map[string]func(*txnWriter[testRow]){
		"too old": func(w *txnWriter[testRow]) { w.next.since = time.Time{} },
		"failed": func(w *txnWriter[testRow]) {
			w.pool.GiveBack(w.next.slot)
			w.next.slot, w.next.err = nil, errors.New("the brokers were away")
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := kafkatest.NewFake(t)
			j := newTestJob(t, b)
			w := j.writer(t, j.restore(t), 0)
			write(t, w, "a1")
			c := prepare(t, w, 1)
			<-w.next.done
			spoil(w)
			write(t, w, "b1")
			require.Len(t, acquireAll(w.pool), slotsOfTests-2, "one is pending, and one written")
			require.NoError(t, w.Commit(t.Context(), c))
			require.NoError(t, w.Commit(t.Context(), prepare(t, w, 2)))
			require.Equal(t, []string{"a1", "b1"}, j.visible(t))
		})
	}
}

func TestCommitsGoOutInOrder(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		w := j.writer(t, j.restore(t), 0)
		write(t, w, "a1")
		c := prepare(t, w, 1)
		write(t, w, "b1")
		d := prepare(t, w, 2)
		require.ErrorContains(t, w.Commit(t.Context(), d), "commit of checkpoint 2 before that of checkpoint 1")
		require.NoError(t, w.Commit(t.Context(), c))
		require.NoError(t, w.Commit(t.Context(), d))
		require.Equal(t, []string{"a1", "b1"}, j.visible(t))
	})
}

func TestAnEmptyTransactionMakesNoCommittable(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		w := j.writer(t, j.restore(t), 0)
		for n := uint64(1); n <= 2; n++ {
			require.NoError(t, w.Flush(t.Context(), false))
			c, err := w.PrepareCommit(t.Context(), n)
			require.NoError(t, err)
			require.Nil(t, c)
		}
		require.NoError(t, w.Write(t.Context(), nil))
		require.Zero(t, j.asked.Load(), "an InitProducerID for nothing")

		require.Error(t, w.Write(t.Context(), rowsOf("unencodable"))) // begun, and nothing in it
		c, err := w.PrepareCommit(t.Context(), 2)
		require.NoError(t, err)
		require.Nil(t, c)
		write(t, w, "a1")
		require.NoError(t, w.Commit(t.Context(), prepare(t, w, 3)))
		c, err = w.PrepareCommit(t.Context(), 4)
		require.NoError(t, err)
		require.Nil(t, c)
		require.Equal(t, []string{"a1"}, j.visible(t))
	})
}

func TestAJobNeverTouchesTransactionsOfALongerPrefix(t *testing.T) { neverTouches(t) }

func TestAJobNeverTouchesALongerPrefixWhereBrokersListEverything(t *testing.T) {
	v := kversion.Stable()
	v.SetMaxKeyVersion(int16(kmsg.ListTransactions), 1) // no pattern
	neverTouches(t, kgo.MaxVersions(v))
}

func neverTouches(t *testing.T, opts ...kgo.Opt) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		j.cfg.clientOptions = opts
		eu := newTestJob(t, b)
		eu.cfg.Topic, eu.lineage = j.cfg.Topic, j.lineage
		for _, prefix := range []string{
			j.cfg.TransactionalIDPrefix + "-eu",
			j.cfg.TransactionalIDPrefix + "-" + j.lineage + "-0-0",
		} {
			eu.cfg.TransactionalIDPrefix = prefix
			w := eu.writer(t, eu.restore(t), 0)
			write(t, w, "eu1")
			c := prepare(t, w, 1)
			j.restore(t)
			rc := j.restoreContext()
			rc.Fresh = true
			require.NoError(t, j.sink(t).Restore(t.Context(), rc), "another prefix is no lineage of ours")
			require.NoError(t, w.Commit(t.Context(), c))
		}
		require.Equal(t, []string{"eu1", "eu1"}, j.visible(t))
	})
}

func TestAFreshStartBesideAnotherLineageIsRefused(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		old := j.lineage
		dead := j.writer(t, j.restore(t), 0)
		write(t, dead, "old1")
		c := prepare(t, dead, 1)
		require.NoError(t, dead.Close()) // it takes an ID ahead, and would be seen at it

		j.lineage = "00000000000000aa"
		rc := j.restoreContext()
		rc.Fresh = true
		err := j.sink(t).Restore(t.Context(), rc)
		require.True(t, connector.IsStop(err), "%v", err)
		require.ErrorContains(t, err, old)
		require.Equal(t, settle.Ongoing, j.state(t, handleOf(t, c).TransactionalID).State, "refused, and nothing was done")

		rc.AcceptLineages = []string{old}
		require.NoError(t, j.sink(t).Restore(t.Context(), rc))
		require.Empty(t, j.visible(t))

		// Later starts of the new lineage need no acceptance.
		require.NoError(t, j.sink(t).Restore(t.Context(), j.restoreContext()))
	})
}

// A transaction is committed behind somebody else's that is open: no reader sees it yet, and it
// is settled all the same.
func TestACommitBehindSomebodyElsesOpenTransaction(t *testing.T) {
	kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		j.cfg.LostTransaction = Fail
		other, _ := b.OpenTransaction(t, j.cfg.Topic, 0, "x1")
		w := j.writer(t, j.restore(t), 0)
		write(t, w, "a1", "a2")
		c := prepare(t, w, 1)
		require.NoError(t, w.Commit(t.Context(), c))
		j.restore(t, c)
		write(t, w, "b1")
		d := prepare(t, w, 2)
		j.takeOver(t, handleOf(t, d).TransactionalID) // aborted behind it
		err := w.Commit(t.Context(), d)
		require.True(t, connector.IsStop(err), "%v", err)
		require.NoError(t, other.EndTransaction(t.Context(), kgo.TryAbort))
		require.Equal(t, []string{"a1", "a2"}, j.visible(t))
	})
}

// slotsOfTests is how many transactions a subtask can have that are not released.
const slotsOfTests = 3

// acquireAll returns the IDs of what is free in a pool, and frees it again.
func acquireAll(pool *txn.Pool) []string {
	var ids []string
	for s := pool.Acquire(); s != nil; s = pool.Acquire() {
		ids = append(ids, s.ID)
		defer pool.GiveBack(s)
	}
	return ids
}

// The next checkpoint waits for a free ID; that is backpressure, and hinders neither Commit nor
// Release.
func TestAFullPoolBlocksWritingUntilARelease(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		w := j.writer(t, j.restore(t), 0)
		var cs []connector.Committable
		for n := range uint64(slotsOfTests) {
			write(t, w, fmt.Sprintf("%c1", 'a'+n))
			cs = append(cs, prepare(t, w, n+1))
		}
		short, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, w.Write(short, rowsOf("z1")), context.Canceled, "no slot is free")

		written := make(chan error, 1)
		go func() { written <- w.Write(t.Context(), rowsOf("d1")) }()
		require.NoError(t, w.Commit(t.Context(), cs[0]))
		select {
		case err := <-written:
			t.Fatalf("an ID was used again before its release: %v", err)
		default:
		}
		w.Release(cs[0])
		require.NoError(t, <-written)
		cs = append(cs, prepare(t, w, 9))
		require.Equal(t, handleOf(t, cs[0]).TransactionalID, handleOf(t, cs[3]).TransactionalID)
		for _, c := range cs[1:] {
			require.NoError(t, w.Commit(t.Context(), c))
		}
		require.Equal(t, []string{"a1", "b1", "c1", "d1"}, j.visible(t))
	})
}

// After a restore every ID is free, and its next transaction changes nothing about what the restore
// has settled: not even if that is asked for again.
func TestARestoredIDServesTheNextTransactions(t *testing.T) {
	kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		dead := j.writer(t, j.restore(t), 0)
		var named []connector.Committable
		taken := map[string]bool{}
		for n := range uint64(slotsOfTests) {
			write(t, dead, "a1")
			c := prepare(t, dead, n+1)
			named = append(named, c)
			taken[handleOf(t, c).TransactionalID] = true
		}
		w := j.writer(t, j.restore(t, named...), 0)
		for n := range uint64(slotsOfTests) {
			write(t, w, "b1")
			c := prepare(t, w, n+10)
			delete(taken, handleOf(t, c).TransactionalID)
			for _, old := range named {
				require.NoError(t, w.Commit(t.Context(), old))
			}
			require.NoError(t, w.Commit(t.Context(), c))
		}
		require.Empty(t, taken, "IDs not used again")
		require.Equal(t, []string{"a1", "a1", "a1", "b1", "b1", "b1"}, j.visible(t))
	})
}

func TestReleasedBeforeSettledStaysTaken(t *testing.T) {
	b := kafkatest.NewFake(t)
	j := newTestJob(t, b)
	w := j.writer(t, j.restore(t), 0)
	write(t, w, "a1")
	c := prepare(t, w, 1)
	w.Release(c)
	require.NotContains(t, acquireAll(w.pool), handleOf(t, c).TransactionalID)
	require.NoError(t, w.Commit(t.Context(), c))
}

func TestCloseEndsNoTransactionAndLeavesNothingBehind(t *testing.T) {
	kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		s := j.restore(t)
		before := goleak.IgnoreCurrent()
		w, err := s.Writer(t.Context(), connector.WriterContext{
			Lineage: j.lineage, Operator: "out", StillOwner: j.stillOwner,
		})
		require.NoError(t, err)
		tw := w.(*txnWriter[testRow])
		write(t, tw, "a1", "a2")
		c := prepare(t, tw, 1)
		write(t, tw, "b1")
		require.NoError(t, w.Flush(t.Context(), false))
		require.NoError(t, w.Close())
		require.Error(t, tw.Commit(t.Context(), c), "a closed writer commits nothing")
		noneLeft(t, before)

		require.Equal(t, settle.Ongoing, j.state(t, handleOf(t, c).TransactionalID).State)
		j.restore(t, c)
		require.Equal(t, []string{"a1", "a2"}, j.visible(t))
	})
}

func TestARestoreLeavesNothingBehind(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		before := goleak.IgnoreCurrent()
		j.restore(t)
		noneLeft(t, before)
	})
}
