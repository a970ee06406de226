package kafka

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/settle"
	"example.com/weir/internal/kafkatest"
	"example.com/weir/internal/proof"
)

// Every subtask has one commit pending, one transaction that was prepared for a checkpoint that never was, and one
// that is open. The job goes on at another parallelism, and every one of its subtasks writes and commits.
func TestRescalingWithCommitsPendingLosesAndDoublesNothing(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		var all []string
		for n, p := range [][2]int{{1, 2}, {2, 3}, {2, 5}, {3, 5}, {5, 6}, {6, 5}, {5, 2}, {5, 3}, {3, 2}, {2, 1}} {
			from, to := p[0], p[1]
			j.lineage = fmt.Sprintf("%016x", n)
			name := fmt.Sprintf("from %d to %d", from, to)
			value := func(of string, subtask int) string { return fmt.Sprintf("%s/%s/%d/%d", name, of, subtask, subtask%3+1) }
			var want []string
			var named []connector.Committable
			s := j.restore(t)
			for subtask := range from {
				w := j.writer(t, s, subtask)
				want = append(want, value("named", subtask))
				write(t, w, value("named", subtask))
				named = append(named, prepare(t, w, 1))
				write(t, w, value("prepared", subtask))
				prepare(t, w, 2)
				write(t, w, value("open", subtask))
				require.NoError(t, w.Flush(t.Context(), false))
				require.NoError(t, w.Close())
			}
			s = j.restore(t, named...)
			for subtask := range to {
				w := j.writer(t, s, subtask)
				want = append(want, value("after", subtask))
				write(t, w, value("after", subtask))
				require.NoError(t, w.Commit(t.Context(), prepare(t, w, 2)))
				require.NoError(t, w.Close())
			}
			j.noteCase(t, "rescaled "+name+" with commits pending", name, want)
			all = append(all, want...)
		}
		require.ElementsMatch(t, all, j.visible(t))
	})
}

// noteCase counts what readers see of the values of one case.
func (j *testJob) noteCase(t *testing.T, fault, name string, want []string) {
	missing, doubled := kafkatest.Difference(want, ofCase(name, j.visible(t)))
	proof.Note(t, proof.Count{
		Suite: proof.Wire, Fault: fault, Broker: j.b.Title(), Injected: 1, Hit: 1,
		Records: int64(len(want)), Missing: int64(missing), Doubled: int64(doubled),
	})
	require.Zero(t, missing, "%s: records missing", fault)
	require.Zero(t, doubled, "%s: records doubled", fault)
}

// No checkpoint has been completed: all that three subtasks have flushed and prepared is ended by the one that is left,
// and what it writes again is there once.
func TestScalingInBeforeTheFirstCheckpointLeavesNothingOpen(t *testing.T) {
	kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		s := j.restore(t)
		for subtask := range 3 {
			w := j.writer(t, s, subtask)
			write(t, w, "a1", "a2", "a3")
			if subtask != 1 {
				prepare(t, w, 1)
			}
			require.NoError(t, w.Flush(t.Context(), false))
			require.NoError(t, w.Close())
		}
		w := j.writer(t, j.restore(t), 0)
		write(t, w, "a1", "a2", "a3")
		require.NoError(t, w.Commit(t.Context(), prepare(t, w, 1)))
		require.Equal(t, []string{"a1", "a2", "a3"}, j.visible(t))
	})
}

// What a restore has ended is ended: the next one finds nothing to do, and takes nobody's ID.
func TestEndingAgainWhatWasEndedChangesNothing(t *testing.T) {
	kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
		r := newWireJob(t, b)
		r.leave(t, "a1", "a2", "a3")
		r.crash(t)
		before := r.proxy.Seen(kmsg.InitProducerID)
		r.restore(t)
		once := r.proxy.Seen(kmsg.InitProducerID)
		require.Equal(t, before+1, once, "the open transaction was ended")
		r.restore(t)
		r.restore(t)
		require.Equal(t, once, r.proxy.Seen(kmsg.InitProducerID))
		r.write(t, "b1")
		r.commit(t)
		require.Equal(t, []string{"b1"}, r.visible(t))
	})
}

// The coordinator has forgotten the IDs, and with them that one transaction was committed and the other one aborted:
// the log has not. What was aborted is written again.
func TestTransactionsWhoseIDsHaveExpiredAreSettledByTheLog(t *testing.T) {
	kafkatest.OnceIsEnough(t)
	t.Parallel()
	n := kafkatest.NewNode(t, kafkatest.NodeConfig{Properties: []string{
		"transactional.id.expiration.ms=1000", "transaction.remove.expired.transaction.cleanup.interval.ms=200",
	}})
	j := newStoredJob(t, &n.Broker)
	dead := j.writer(t, 0)
	committed := j.name(t, dead, 1, "a1", "a2")
	require.NoError(t, dead.Commit(t.Context(), committed))
	aborted := j.name(t, dead, 2, "b1", "b3")
	j.takeOver(t, handleOf(t, aborted).TransactionalID)
	require.NoError(t, dead.Close())
	for _, c := range j.current {
		id := handleOf(t, c).TransactionalID
		require.Eventually(t, func() bool { return j.forgotten(t, id) }, 60*time.Second, 50*time.Millisecond)
	}

	j.mustRestore(t)
	require.Equal(t, 1, j.swaps)
	w := j.writer(t, 0)
	next := j.name(t, w, 3, "c1")
	require.NoError(t, w.Commit(t.Context(), next))
	require.NoError(t, w.Commit(t.Context(), committed)) // once more, with the ID in use again
	require.Equal(t, []string{"a1", "b1", "c1", "a2", "b3"}, j.visible(t))
}

// forgotten reports whether the coordinator does not know the ID at all.
func (j *testJob) forgotten(t *testing.T, id string) bool {
	return j.state(t, id) == settle.Coordinator{State: settle.NoHistory, ProducerID: -1, Epoch: -1}
}
