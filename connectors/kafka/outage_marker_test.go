package kafka

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/settle"
	"example.com/weir/internal/kafkatest"
	"example.com/weir/internal/proof"
)

// markerRounds is how often a commit may be acknowledged without one of its markers being lost.
const markerRounds = 3

// Apache Kafka 4.4.0 takes a partition whose leader is dead when EndTxn comes for one that was deleted: it answers
// NONE, says CompleteCommit, and never writes the marker there (KAFKA-20734). A sink that may not write the marker stops
// and names it, and its next transaction does not decide what that partition holds; once it may, it writes it. So it
// is with the ABORT markers of what a generation left open.
func TestAMarkerThatApacheKafkaLostIsWrittenOrNamedAndNeverDecidedByTheNextTransaction(t *testing.T) {
	kafkatest.OnceIsEnough(t)
	t.Parallel()
	first := kafkatest.NewNode(t, kafkatest.NodeConfig{Version: "4.4.0"})
	// The coordinator stays on the first node: what it keeps is made before there is a second one.
	first.ProduceTransaction(t, kgo.TryCommit, first.CreateTopic(t, 1), 0, "the coordinator's topic is there")
	second := kafkatest.NewNode(t, kafkatest.NodeConfig{Version: "4.4.0", Join: first})

	r := &lostMarkers{second: second, wireJob: newWireJob(t, &second.Broker)}
	r.cfg.Topic = second.CreateTopicOn(t, 1, 2, 1)
	r.cfg.grace, r.cfg.CommitDeadline = 3*time.Second, 2*time.Minute
	r.refused = r.proxy.Inject(t, kafkatest.Fault{
		Key: kmsg.WriteTxnMarkers, Do: kafkatest.Answer, Times: -1, Code: kerr.ClusterAuthorizationFailed.Code,
	})
	r.provoke(t, "a marker lost without the right to write it", r.stops)
	r.provoke(t, "a marker lost with the right to write it", r.goesOn)
	require.Equal(t, r.wanted(), r.visible(t))
}

// lostMarkers are rounds in which a marker is lost under one job.
type lostMarkers struct {
	*wireJob
	second  *kafkatest.Node
	refused *kafkatest.Injected // the right to write markers
}

// provoke commits a transaction of subtask 0, and ends one that subtask 1 has left open, while the leader of one of
// their partitions is dead, until a marker is lost by that.
func (r *lostMarkers) provoke(
	t *testing.T, fault string, then func(t *testing.T, w *txnWriter[testRow], c connector.Committable, committed error),
) {
	for round := 1; round <= markerRounds; round++ {
		r.checkpoint++
		s := r.restore(t)
		w := r.testJob.writer(t, s, 0)
		name := fmt.Sprintf("checkpoint %d", r.checkpoint)
		values := batchOf(name)
		write(t, w, values...)
		c := prepare(t, w, r.checkpoint)
		r.wants(values)
		left := r.leaveOpen(t, r.testJob.writer(t, s, 1))

		r.second.Kill(t)
		require.Eventually(t, func() bool { return r.leaderless(t) }, 30*time.Second, 10*time.Millisecond)
		committed := make(chan error, 1)
		go func() { committed <- w.Commit(t.Context(), c) }()
		r.end(t, left)
		require.Eventually(t, func() bool {
			return r.says(t, handleOf(t, c).TransactionalID) == settle.CompleteCommit
		}, 30*time.Second, 10*time.Millisecond)
		r.second.Start(t)
		lost := r.open(t, c)
		err := <-committed
		if !lost {
			require.NoError(t, err)
			require.NoError(t, w.Close())
			continue
		}
		then(t, w, c, err)
		missing, doubled := kafkatest.Difference(values, ofCase(name, r.visible(t)))
		proof.Note(t, proof.Count{
			Suite: proof.Outage, Fault: "commit acknowledged and " + fault, Broker: r.b.Title(), Injected: int64(round), Hit: 1,
			Records: int64(len(values)), Missing: int64(missing), Doubled: int64(doubled),
		})
		return
	}
	t.Fatalf("no marker was lost in %d rounds", markerRounds)
}

// wants notes that a checkpoint names values.
func (r *lostMarkers) wants(values []string) {
	for _, v := range values {
		r.want[partitionOf(v)] = append(r.want[partitionOf(v)], v)
	}
}

// leaveOpen writes what no checkpoint names, and returns its transactional ID.
func (r *lostMarkers) leaveOpen(t *testing.T, w *txnWriter[testRow]) string {
	write(t, w, "left1", "left2", "left3")
	require.NoError(t, w.Flush(t.Context(), false))
	id := settle.ID{Prefix: r.cfg.TransactionalIDPrefix, Lineage: r.lineage, Subtask: 1}.String()
	require.Equal(t, settle.Ongoing, r.state(t, id).State)
	require.NoError(t, w.Close())
	return id
}

// end ends a transaction as a restore does.
func (r *lostMarkers) end(t *testing.T, id string) {
	a := r.direct(t)
	defer a.close()
	require.NoError(t, a.Fence(t.Context(), id, r.cfg.TransactionTimeout))
	require.Eventually(t, func() bool { return r.says(t, id) == settle.CompleteAbort || r.says(t, id) == settle.NoHistory },
		30*time.Second, 10*time.Millisecond)
}

// direct asks past the proxy: one of the nodes is dead, and says so.
func (r *lostMarkers) direct(t *testing.T) *admin {
	cfg := r.cfg
	cfg.Brokers = r.b.Brokers
	a, err := newAdmin(cfg)
	require.NoError(t, err)
	return a
}

// says returns what the coordinator says of a transaction.
func (r *lostMarkers) says(t *testing.T, id string) settle.State {
	a := r.direct(t)
	defer a.close()
	c, err := a.Describe(t.Context(), id)
	if err != nil {
		return settle.Unreached
	}
	return c.State
}

// leaderless reports whether the partition of the second node has no leader.
func (r *lostMarkers) leaderless(t *testing.T) bool {
	cl := r.b.Client(t)
	defer cl.Close()
	topics, err := kadm.NewClient(cl).ListTopics(t.Context(), r.cfg.Topic)
	return err == nil && topics[r.cfg.Topic].Partitions[1].Leader < 0
}

// open reports whether the partition of the second node shows the transaction open, once it answers.
func (r *lostMarkers) open(t *testing.T, c connector.Committable) bool {
	h := handleOf(t, c)
	adm, open := r.b.Admin(t), false
	var set kadm.TopicsSet
	set.Add(r.cfg.Topic, 1)
	require.Eventually(t, func() bool {
		producers, err := adm.DescribeProducers(t.Context(), set)
		if err != nil || producers[r.cfg.Topic].Partitions[1].Err != nil {
			return false
		}
		for _, p := range producers[r.cfg.Topic].Partitions[1].ActiveProducers {
			open = open || p.ProducerID == h.ProducerID && p.CurrentTxnStartOffset == h.Parts[1].First
		}
		return true
	}, 30*time.Second, 10*time.Millisecond)
	return open
}

// goesOn looks at a sink that may write the marker: it has done so by the time the commit returns, and the next
// restore does so for what was left open.
func (r *lostMarkers) goesOn(t *testing.T, w *txnWriter[testRow], c connector.Committable, err error) {
	require.NoError(t, err)
	require.False(t, r.open(t, c))
	require.NoError(t, w.Close())
	markers := r.proxy.Seen(kmsg.WriteTxnMarkers)
	r.restore(t, c)
	require.Greater(t, r.proxy.Seen(kmsg.WriteTxnMarkers), markers, "no ABORT marker was lost")
}

// stops looks at a sink that must not write the marker: it says what is lost where, leaves the transactional ID
// alone, now and at the next start, and goes on once it may write the marker.
func (r *lostMarkers) stops(t *testing.T, w *txnWriter[testRow], c connector.Committable, err error) {
	h := handleOf(t, c)
	named := func(err error) {
		require.True(t, connector.IsStop(err), "%v", err)
		for _, name := range []string{h.TransactionalID, r.cfg.Topic + "/1", "COMMIT marker", "WriteTxnMarkers"} {
			require.ErrorContains(t, err, name)
		}
	}
	named(err)
	later := []string{"later/1/1", "later/1/2"}
	write(t, w, later...)
	next := prepare(t, w, r.checkpoint+1)
	require.NotEqual(t, h.TransactionalID, handleOf(t, next).TransactionalID)
	require.Error(t, w.Commit(t.Context(), next), "a commit went out before the one before it was settled")

	require.NoError(t, w.Close()) // with what it has taken ahead
	inits := r.proxy.Seen(kmsg.InitProducerID)
	named(r.sink(t).Restore(t.Context(), r.restoreContext(c, next)))
	require.Equal(t, inits, r.proxy.Seen(kmsg.InitProducerID), "a stop is not the time to take IDs")
	require.True(t, r.open(t, c), "something has decided what the partition holds")

	r.proxy.Stop(r.refused)
	r.restore(t, c, next)
	r.wants(later)
	r.checkpoint++
}
