package kafka

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/settle"
	"example.com/weir/connectors/kafka/txn"
	"example.com/weir/internal/kafkatest"
)

// loseMarkers makes a fake broker acknowledge the next EndTxn, show CompleteCommit, and write no
// marker: what Apache Kafka 4.3.1 and 4.4.0 do where a partition has no leader (KAFKA-20734).
func loseMarkers(b *kafkatest.Broker, h *settle.Handle) { loseMarkersAs(b, h, "CompleteCommit") }

// loseMarkersAs does so until over is set.
func loseMarkersAs(b *kafkatest.Broker, h *settle.Handle, state string) (over *atomic.Bool) {
	over = new(atomic.Bool)
	b.Fake.ControlKey(int16(kmsg.EndTxn), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		if over.Load() {
			return nil, nil, false
		}
		req := kreq.(*kmsg.EndTxnRequest)
		resp := req.ResponseKind().(*kmsg.EndTxnResponse)
		resp.ProducerID, resp.ProducerEpoch = req.ProducerID, req.ProducerEpoch+1
		return resp, nil, true
	})
	b.Fake.ControlKey(int16(kmsg.DescribeTransactions), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		req := kreq.(*kmsg.DescribeTransactionsRequest)
		b.Fake.KeepControl()
		if over.Load() || !slices.Contains(req.TransactionalIDs, h.TransactionalID) {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
		s := kmsg.NewDescribeTransactionsResponseTransactionState()
		s.TransactionalID, s.State = h.TransactionalID, state
		s.ProducerID, s.ProducerEpoch = h.ProducerID, h.Epoch+1
		resp.TransactionStates = append(resp.TransactionStates, s)
		return resp, nil, true
	})
	return over
}

// mayNotWriteMarkers makes a fake broker refuse WriteTxnMarkers, and returns how often it did.
func mayNotWriteMarkers(b *kafkatest.Broker) *atomic.Int64 {
	refused := new(atomic.Int64)
	b.Fake.ControlKey(int16(kmsg.WriteTxnMarkers), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		refused.Add(1)
		req := kreq.(*kmsg.WriteTxnMarkersRequest)
		resp := req.ResponseKind().(*kmsg.WriteTxnMarkersResponse)
		for _, m := range req.Markers {
			rm := kmsg.NewWriteTxnMarkersResponseMarker()
			rm.ProducerID = m.ProducerID
			for _, topic := range m.Topics {
				rt := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
				rt.Topic = topic.Topic
				for _, partition := range topic.Partitions {
					rp := kmsg.NewWriteTxnMarkersResponseMarkerTopicPartition()
					rp.Partition, rp.ErrorCode = partition, kerr.ClusterAuthorizationFailed.Code
					rt.Partitions = append(rt.Partitions, rp)
				}
				rm.Topics = append(rm.Topics, rt)
			}
			resp.Markers = append(resp.Markers, rm)
		}
		return resp, nil, true
	})
	return refused
}

func TestAnAcknowledgedCommitWithoutItsMarkersIsNotSettled(t *testing.T) {
	b := kafkatest.NewFake(t)
	mayNotWriteMarkers(b)
	j := newTestJob(t, b)
	j.cfg.grace = 50 * time.Millisecond
	w := j.writer(t, j.restore(t), 0)
	write(t, w, "a1", "a2")
	c := prepare(t, w, 4)
	h := handleOf(t, c)
	loseMarkers(b, h)

	err := w.Commit(t.Context(), c)
	require.True(t, connector.IsStop(err), "%v", err)
	for _, name := range []string{
		"unmarked", "checkpoint 4", h.TransactionalID, j.cfg.Topic + "/0, " + j.cfg.Topic + "/1", "COMMIT marker",
		"WriteTxnMarkers",
	} {
		require.ErrorContains(t, err, name)
	}
	require.False(t, w.pool.Settled(h))
	// So it is at the next start, and nothing is sent that could decide the records.
	inits := b.Fake.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.InitProducerID}, TopLevel: true, Observe: true, Count: -1,
	})
	err = j.sink(t).Restore(t.Context(), j.restoreContext(c))
	require.True(t, connector.IsStop(err), "%v", err)
	require.ErrorContains(t, err, "unmarked")
	require.Zero(t, inits.Hits())
}

// writeMarker is what an operator can do to one partition behind the coordinator's back.
func writeMarker(t *testing.T, j *testJob, h *settle.Handle, partition int32, commit bool) {
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.ProducerEpoch, m.Committed = h.ProducerID, h.Epoch, commit
	topic := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
	topic.Topic, topic.Partitions = j.cfg.Topic, []int32{partition}
	m.Topics = append(m.Topics, topic)
	req.Markers = append(req.Markers, m)
	cl := j.b.Client(t)
	for _, shard := range cl.RequestSharded(t.Context(), req) {
		require.NoError(t, shard.Err)
		for _, m := range shard.Resp.(*kmsg.WriteTxnMarkersResponse).Markers {
			for _, topic := range m.Topics {
				for _, p := range topic.Partitions {
					require.NoError(t, kerr.ErrorForCode(p.ErrorCode))
				}
			}
		}
	}
}

// An operator aborts one partition. The transaction is neither: the job stops, whether EndTxn has
// gone out by then or not, and a restart does not make it worse.
func TestAPartitionAbortedByAnOperatorStopsTheJob(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		dead := j.writer(t, j.restore(t), 0)
		write(t, dead, "a1", "a2")
		c := prepare(t, dead, 1)
		writeMarker(t, j, handleOf(t, c), 0, false)
		j.cfg.CommitDeadline = 6 * time.Second // Ongoing is believed for half of it: it may have ended since

		err := j.sink(t).Restore(t.Context(), j.restoreContext(c))
		require.True(t, connector.IsStop(err), "%v", err)
		require.ErrorContains(t, err, "unknown: Ongoing at the coordinator, and aborted in 1 partitions")
		require.Equal(t, settle.Ongoing, j.state(t, handleOf(t, c).TransactionalID).State)

		err = dead.Commit(t.Context(), c)
		require.True(t, connector.IsStop(err), "%v", err)
		require.ErrorContains(t, err, "unknown: committed in 1 partitions and aborted in 1")
	})
}

// An operator aborts what was written so far, and more is written after it: the first part is lost.
func TestAMarkerInsideATransactionStopsTheJob(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		w := j.writer(t, j.restore(t), 0)
		write(t, w, "a1")
		require.NoError(t, w.Flush(t.Context(), false))
		h := &settle.Handle{ProducerID: w.open.by.producerID, Epoch: w.open.by.epoch}
		writeMarker(t, j, h, 0, false)
		write(t, w, "b1")
		c := prepare(t, w, 1)
		err := w.Commit(t.Context(), c)
		require.True(t, connector.IsStop(err), "%v", err)
		require.ErrorContains(t, err, "ended a part of it")
		err = j.sink(t).Restore(t.Context(), j.restoreContext(c))
		require.ErrorContains(t, err, "ended a part of it")
	})
}

func TestRetentionThatAteATransactionStopsTheJob(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		dead := j.writer(t, j.restore(t), 0)
		write(t, dead, "a1", "b1", "a2")
		c := prepare(t, dead, 1)
		j.restore(t, c)
		b.DeleteRecords(t, j.cfg.Topic, 0, handleOf(t, c).Parts[0].First+1)
		err := j.sink(t).Restore(t.Context(), j.restoreContext(c))
		require.True(t, connector.IsStop(err), "%v", err)
		require.ErrorContains(t, err, "retention has removed offset")
	})
}

func TestATopicMadeAgainStopsTheJob(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		j.cfg.grace = 50 * time.Millisecond
		w := j.writer(t, j.restore(t), 0)
		write(t, w, "a1")
		c := prepare(t, w, 1)
		write(t, w, "b1")
		require.NoError(t, w.Flush(t.Context(), false))
		b.DeleteTopic(t, j.cfg.Topic)
		require.Eventually(t, func() bool {
			_, err := txn.Find(t.Context(), w.admin, j.cfg.Topic)
			return err != nil
		}, 30*time.Second, 5*time.Millisecond)
		require.ErrorContains(t, j.sink(t).Restore(t.Context(), j.restoreContext(c)), "does not exist")
		b.CreateTopicNamed(t, j.cfg.Topic, partitionsOfTests)

		_, err := w.PrepareCommit(t.Context(), 2)
		require.True(t, connector.IsStop(err), "%v", err)
		require.ErrorContains(t, err, "deleted and made again")
		err = j.sink(t).Restore(t.Context(), j.restoreContext(c))
		require.True(t, connector.IsStop(err), "%v", err)
		require.ErrorContains(t, err, "was deleted")
	})
}

func TestACommittableOfAnotherClusterStopsTheJob(t *testing.T) {
	b := kafkatest.NewFake(t)
	j := newTestJob(t, b)
	dead := j.writer(t, j.restore(t), 0)
	write(t, dead, "a1")
	c := prepare(t, dead, 1)
	h := handleOf(t, c)
	h.ClusterID = "elsewhere"
	var err error
	c.Payload, err = h.Encode()
	require.NoError(t, err)
	err = j.sink(t).Restore(t.Context(), j.restoreContext(c))
	require.True(t, connector.IsStop(err), "%v", err)
	require.ErrorContains(t, err, "written to cluster elsewhere")
	require.Equal(t, settle.Ongoing, j.state(t, h.TransactionalID).State)
}

// Another generation owns CURRENT: nothing is sent that would harm it.
func TestASupersededProcessTakesNoIDAndEndsNothing(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		w := j.writer(t, j.restore(t), 0)
		write(t, w, "a1")
		c := prepare(t, w, 1)

		j.owned(func(context.Context) error { return connector.ErrSuperseded })
		require.ErrorIs(t, j.sink(t).Restore(t.Context(), j.restoreContext()), connector.ErrSuperseded)
		require.Equal(t, settle.Ongoing, j.state(t, handleOf(t, c).TransactionalID).State)
		zombie := j.writer(t, j.sink(t), 0)
		require.ErrorIs(t, zombie.Write(t.Context(), rowsOf("z1")), connector.ErrSuperseded)
		require.Equal(t, settle.Ongoing, j.state(t, handleOf(t, c).TransactionalID).State)

		require.NoError(t, w.Commit(t.Context(), c))
		require.Equal(t, []string{"a1"}, j.visible(t))
	})
}

// describeOpen makes a fake broker show an open transaction of the producer, as often as times
// says.
func describeOpen(b *kafkatest.Broker, producerID int64, epoch int32, times int64) *atomic.Int64 {
	shown := new(atomic.Int64)
	describeOpenUntil(b, producerID, epoch, func() bool { return shown.Add(1) <= times })
	return shown
}

// describeOpenUntil does so for as long as open says.
func describeOpenUntil(b *kafkatest.Broker, producerID int64, epoch int32, open func() bool) {
	b.Fake.ControlKey(int16(kmsg.DescribeProducers), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		if !open() {
			return nil, nil, false
		}
		req := kreq.(*kmsg.DescribeProducersRequest)
		resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
		for _, rt := range req.Topics {
			t := kmsg.NewDescribeProducersResponseTopic()
			t.Topic = rt.Topic
			for _, rp := range rt.Partitions {
				p := kmsg.NewDescribeProducersResponseTopicPartition()
				p.Partition = rp
				a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
				a.ProducerID, a.ProducerEpoch, a.CurrentTxnStartOffset = producerID, epoch, 17
				p.ActiveProducers = append(p.ActiveProducers, a)
				t.Partitions = append(t.Partitions, p)
			}
			resp.Topics = append(resp.Topics, t)
		}
		return resp, nil, true
	})
}

// usedID returns a job whose first ID has had a transaction, and that producer's ID and epoch: the
// next transaction under it begins with an InitProducerID.
func usedID(t *testing.T, b *kafkatest.Broker) (*testJob, *settle.Handle) {
	j := newTestJob(t, b)
	j.cfg.grace = 50 * time.Millisecond
	w := j.writer(t, j.restore(t), 0)
	write(t, w, "a1")
	c := prepare(t, w, 1)
	require.NoError(t, w.Commit(t.Context(), c))
	require.NoError(t, w.Close()) // with what it has taken ahead
	return j, handleOf(t, c)
}

func TestALostAbortMarkerUnderAnIDStopsTheJob(t *testing.T) {
	b := kafkatest.NewFake(t)
	mayNotWriteMarkers(b)
	j, h := usedID(t, b)
	w := j.writer(t, j.restore(t), 0)
	describeOpen(b, h.ProducerID, int32(h.Epoch), 1<<30)
	err := w.Write(t.Context(), rowsOf("b1"))
	require.True(t, connector.IsStop(err), "%v", err)
	require.ErrorContains(t, err, "ABORT marker was lost")
	require.ErrorContains(t, err, j.cfg.Topic+"/")
}

// The marker is on its way: it is waited for.
func TestAnAbortMarkerOnItsWayIsWaitedFor(t *testing.T) {
	b := kafkatest.NewFake(t)
	j, h := usedID(t, b)
	j.cfg.grace = 20 * time.Second
	w := j.writer(t, j.restore(t), 0)
	before := j.asked.Load()
	shown := describeOpen(b, h.ProducerID, int32(h.Epoch), 3)
	write(t, w, "b1")
	require.Greater(t, shown.Load(), int64(3))
	require.Equal(t, before+1, j.asked.Load())
}

// The ID was taken after our InitProducerID: asked again whether the generation is still ours, and
// begun again.
func TestAnIDTakenBySomebodyElseIsBegunAgain(t *testing.T) {
	b := kafkatest.NewFake(t)
	j, h := usedID(t, b)
	w := j.writer(t, j.restore(t), 0)
	before := j.asked.Load()
	describeOpen(b, h.ProducerID, int32(h.Epoch)+100, 1)
	write(t, w, "b1")
	require.Equal(t, before+2, j.asked.Load())
	c := prepare(t, w, 2)
	require.Greater(t, handleOf(t, c).Epoch, h.Epoch+1)
	require.NoError(t, w.Commit(t.Context(), c))
	require.NoError(t, w.Close()) // with what it has taken ahead

	other := j.writer(t, j.sink(t), 0)
	before = j.asked.Load()
	j.owned(func(context.Context) error {
		if j.asked.Load() > before+1 {
			return connector.ErrSuperseded
		}
		return nil
	})
	describeOpen(b, h.ProducerID, 1<<14, 1)
	require.ErrorIs(t, other.Write(t.Context(), rowsOf("c1")), connector.ErrSuperseded)
}

// A left-over transaction ends at its coordinator, and a partition stays open.
func TestALostMarkerOfALeftOverStopsTheRestoreWithoutTheRight(t *testing.T) {
	b := kafkatest.NewFake(t)
	refused := mayNotWriteMarkers(b)
	j, h := usedID(t, b)
	describeOpen(b, h.ProducerID, int32(h.Epoch), 1<<30)
	err := j.sink(t).Restore(t.Context(), j.restoreContext())
	require.True(t, connector.IsStop(err), "%v", err)
	require.ErrorContains(t, err, "its ABORT marker was lost")
	require.ErrorContains(t, err, h.TransactionalID)
	require.Equal(t, int64(1), refused.Load())
}

// It was committed, its coordinator says, and a partition is open: whatever that is, no ABORT is written.
func TestALeftOverThatWasNotAbortedStopsTheRestore(t *testing.T) {
	b := kafkatest.NewFake(t)
	j, h := usedID(t, b)
	refused := mayNotWriteMarkers(b)
	loseMarkers(b, h) // CompleteCommit
	describeOpen(b, h.ProducerID, int32(h.Epoch), 1<<30)
	err := j.sink(t).Restore(t.Context(), j.restoreContext())
	require.True(t, connector.IsStop(err), "%v", err)
	require.ErrorContains(t, err, "does not say that it was aborted (CompleteCommit")
	require.Zero(t, refused.Load(), "a marker was written")
}

func TestACleanStartAsksNothingAboutItsTransactions(t *testing.T) {
	b := kafkatest.NewFake(t)
	j, _ := usedID(t, b)
	asked := b.Fake.Fault(kfake.Fault{
		Keys: []kmsg.Key{
			kmsg.DescribeTransactions, kmsg.DescribeProducers, kmsg.InitProducerID, kmsg.EndTxn,
		},
		Observe: true, Count: -1,
	})
	rc := j.restoreContext()
	rc.Clean = true
	require.NoError(t, j.sink(t).Restore(t.Context(), rc))
	require.Zero(t, asked.Hits())
	require.NoError(t, j.sink(t).Restore(t.Context(), j.restoreContext()))
	require.NotZero(t, asked.Hits(), "the observer sees nothing at all")
}

func TestATransactionTimeoutTheClusterOrTheJobCannotKeepIsRefused(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		j.cfg.TransactionTimeout = 24 * time.Hour
		err := j.sink(t).Restore(t.Context(), j.restoreContext())
		require.True(t, connector.IsStop(err), "%v", err)
		require.ErrorContains(t, err, "transaction.max.timeout.ms")
		// Where the brokers' configuration cannot be read, InitProducerID says it.
		w := j.writer(t, j.sink(t), 0)
		err = w.Write(t.Context(), rowsOf("a1"))
		require.True(t, connector.IsStop(err), "%v", err)
		require.ErrorContains(t, err, "transaction.max.timeout.ms")

		j.cfg.TransactionTimeout = 5 * time.Minute
		rc := j.restoreContext()
		rc.CheckpointTimeout, rc.RestartBudget = 2*time.Minute, 4*time.Minute
		err = j.sink(t).Restore(t.Context(), rc)
		require.True(t, connector.IsStop(err), "%v", err)
		require.ErrorContains(t, err, "2m0s plus restart budget 4m0s")
	})
}

func TestACommittableThatCannotBeReadStopsTheJob(t *testing.T) {
	b := kafkatest.NewFake(t)
	j := newTestJob(t, b)
	c := connector.Committable{Sink: "out", Checkpoint: 3, Payload: []byte{99}}
	err := j.sink(t).Restore(t.Context(), j.restoreContext(c))
	require.True(t, connector.IsStop(err), "%v", err)
	require.ErrorContains(t, err, "out[0]@3")
	require.ErrorContains(t, err, "format 99")
	w := j.writer(t, j.restore(t), 0)
	require.True(t, connector.IsStop(w.Commit(t.Context(), c)))
}

// A restore settles one transaction of a subtask after the other: no EndTxn goes out while the one
// before is not settled.
func TestARestoreCommitsInOrder(t *testing.T) {
	b := kafkatest.NewFake(t)
	j := newTestJob(t, b)
	dead := j.writer(t, j.restore(t), 0)
	var named []connector.Committable
	for n := range uint64(3) {
		write(t, dead, "a1")
		named = append(named, prepare(t, dead, n+1))
	}
	j.cfg.CommitDeadline = time.Second
	sent := make(chan string, 1000)
	b.Fake.ControlKey(int16(kmsg.EndTxn), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		sent <- kreq.(*kmsg.EndTxnRequest).TransactionalID
		return nil, errors.New("dropped"), true
	})
	err := j.sink(t).Restore(t.Context(), j.restoreContext(named...))
	require.ErrorContains(t, err, "nothing was ended")
	require.False(t, connector.IsStop(err), "%v", err)
	require.NotEmpty(t, sent)
	for range len(sent) {
		require.Equal(t, handleOf(t, named[0]).TransactionalID, <-sent)
	}
}

// A broker dies with the transaction open.
func TestATransactionSurvivesItsBroker(t *testing.T) {
	n := kafkatest.NewNode(t, kafkatest.NodeConfig{})
	b := &n.Broker
	j := newTestJob(t, b)
	dead := j.writer(t, j.restore(t), 0)
	write(t, dead, "a1", "a2", "a3")
	c := prepare(t, dead, 1)
	write(t, dead, "never")
	require.NoError(t, dead.Flush(t.Context(), false))
	n.Kill(t)
	n.Start(t)
	j.restore(t, c)
	require.Equal(t, []string{"a1", "a2", "a3"}, j.visible(t))
	w := j.writer(t, j.restore(t, c), 0)
	write(t, w, "b1")
	require.NoError(t, w.Commit(t.Context(), prepare(t, w, 2)))
	require.Equal(t, []string{"a1", "b1", "a2", "a3"}, j.visible(t))
}

// The commit is asked for while the broker is away: it is settled once it is back.
func TestACommitRidesOutABrokerThatIsAway(t *testing.T) {
	n := kafkatest.NewNode(t, kafkatest.NodeConfig{})
	b := &n.Broker
	j := newTestJob(t, b)
	j.cfg.CommitDeadline = 2 * time.Minute
	w := j.writer(t, j.restore(t), 0)
	write(t, w, "a1", "a2")
	c := prepare(t, w, 1)
	n.Kill(t)
	committed := make(chan error, 1)
	go func() { committed <- w.Commit(t.Context(), c) }()
	n.Start(t)
	require.NoError(t, <-committed)
	w.Release(c)
	write(t, w, "b1")
	require.NoError(t, w.Commit(t.Context(), prepare(t, w, 2)))
	require.Equal(t, []string{"a1", "b1", "a2"}, j.visible(t))
}

// Apache Kafka 4.4.0 can lose the markers of a commit that it has acknowledged (KAFKA-20734). Whether it does or not,
// readers see it after the restore, which writes them.
func TestABrokerThatLosesMarkersIsNotBelieved(t *testing.T) {
	n := kafkatest.NewNode(t, kafkatest.NodeConfig{Version: "4.4.0"})
	b := &n.Broker
	j := newTestJob(t, b)
	j.cfg.grace = 3 * time.Second
	dead := j.writer(t, j.restore(t), 0)
	write(t, dead, "a1", "a2", "a3")
	c := prepare(t, dead, 1)
	require.Equal(t, settle.AnswerNone, dead.admin.Commit(t.Context(), handleOf(t, c)))
	n.Kill(t)
	n.Start(t)
	j.restore(t, c)
	require.Equal(t, []string{"a1", "a2", "a3"}, j.visible(t))
}
