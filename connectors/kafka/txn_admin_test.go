package kafka

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/settle"
	"example.com/weir/internal/kafkatest"
)

// administer looks at the job's transactions from beside it.
func (j *testJob) administer(t *testing.T) connector.TransactionAdmin {
	t.Helper()
	a, err := j.sink(t).(connector.Administered).Administer(nil)
	require.NoError(t, err)
	t.Cleanup(a.Close)
	return a
}

// listed returns what List finds, by ID.
func listed(t *testing.T, a connector.TransactionAdmin, named ...connector.Committable) map[string]connector.OutsideTransaction {
	t.Helper()
	all, err := a.List(t.Context(), named)
	require.NoError(t, err)
	byID := map[string]connector.OutsideTransaction{}
	for _, x := range all {
		require.NotContains(t, byID, x.ID)
		byID[x.ID] = x
	}
	return byID
}

// openUnder leaves a transaction open under an ID that no writer of the job has, and returns its client.
func openUnder(t *testing.T, j *testJob, id settle.ID, values ...string) *kgo.Client {
	t.Helper()
	cl := j.b.Client(t, kgo.TransactionalID(id.String()), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.TransactionTimeout(40*time.Second))
	require.NoError(t, cl.BeginTransaction())
	for _, v := range values {
		records := kafkatest.Records(j.cfg.Topic, partitionOf(v), v)
		require.NoError(t, cl.ProduceSync(t.Context(), records...).FirstErr())
	}
	return cl
}

// What is open is found, whoever has opened it: by the checkpoint that names it, by nobody, by another
// lineage. What is named is committed, and the others are aborted.
func TestOpenTransactionsAreListedCommittedAndAborted(t *testing.T) {
	kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		w := j.writer(t, j.restore(t), 0)
		write(t, w, "a1", "b1", "a2")
		c := prepare(t, w, 4)
		c.Sink, c.Opened = "out", time.Now().Add(-30*time.Second)
		write(t, w, "c1", "c1")
		require.NoError(t, w.Flush(t.Context(), false))
		stranger := settle.ID{Prefix: j.cfg.TransactionalIDPrefix, Lineage: "00000000000000ff", Subtask: 3, Slot: 2}
		openUnder(t, j, stranger, "d3", "d1")
		longer := stranger
		longer.Prefix += "-more"
		openUnder(t, j, longer, "e2")
		h, a := handleOf(t, c), j.administer(t)

		found := listed(t, a, c)
		require.Len(t, found, 3, "%v", found)
		named := found[h.TransactionalID]
		require.Equal(t, connector.FoundOpen, named.Found, named.Why)
		require.Equal(t, c.ID(), *named.Named)
		require.Equal(t, "Ongoing", named.State)
		require.Equal(t, h.ProducerID, named.ProducerID)
		require.GreaterOrEqual(t, named.Age, 30*time.Second)
		require.Equal(t, time.Minute, named.Timeout)
		n, known := named.Records()
		require.True(t, known)
		require.Equal(t, int64(3), n)
		require.Len(t, named.Partitions, 2)
		require.True(t, named.Partitions[0].Holds(), "%+v", named.Partitions[0])
		require.Equal(t, int64(5), named.Partitions[0].Behind(), "a1, b1, c1, c1, d1")
		other := found[stranger.String()]
		require.Equal(t, connector.TransactionOwner{Lineage: "00000000000000ff", Subtask: 3, Slot: 2}, other.TransactionOwner)
		require.Equal(t, connector.FoundOpen, other.Found, other.Why)
		require.Equal(t, 40*time.Second, other.Timeout)
		require.Nil(t, other.Named)

		id := w.open.by.txnID
		writing, err := a.Inspect(t.Context(), id, nil)
		require.NoError(t, err)
		require.Equal(t, connector.FoundOpen, writing.Found, writing.Why)
		n, known = writing.Records()
		require.True(t, known)
		require.Equal(t, int64(2), n, "counted in the log, in which others lie behind them")
		require.False(t, writing.Partitions[0].Holds(), "it lies behind the named one")
		require.NotEmpty(t, writing.Coordinator)
		require.WithinDuration(t, time.Now(), writing.Began, time.Minute)

		require.NoError(t, a.Settle(t.Context(), c))
		for _, x := range []connector.OutsideTransaction{writing, other} {
			require.NoError(t, a.Abort(t.Context(), &x))
			require.NotEqual(t, settle.Ongoing, j.state(t, x.ID).State)
		}
		found = listed(t, a, c)
		require.Len(t, found, 1, "%v", found)
		require.Equal(t, connector.FoundCommitted, found[h.TransactionalID].Found)
		require.Equal(t, "COMMIT", found[h.TransactionalID].Partitions[0].Marker)
		require.Equal(t, settle.Ongoing, j.state(t, longer.String()).State, "it is of another prefix")
		require.NoError(t, a.Abort(t.Context(), &connector.OutsideTransaction{
			ID: longer.String(), ProducerID: j.state(t, longer.String()).ProducerID, Epoch: int(j.state(t, longer.String()).Epoch),
		}))
		require.Equal(t, []string{"a1", "b1", "a2"}, j.visible(t))
	})
}

// Somebody has taken the ID of a named transaction, which aborted it, and has opened another one: both
// are shown, and the new one is not taken for the named one.
func TestAnIDThatWasTakenShowsBothTransactions(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		w := j.writer(t, j.restore(t), 0)
		write(t, w, "a1")
		c := prepare(t, w, 4)
		h := handleOf(t, c)
		id, ok := settle.ParseID(h.TransactionalID)
		require.True(t, ok)
		openUnder(t, j, id, "z2")
		all, err := j.administer(t).List(t.Context(), []connector.Committable{c})
		require.NoError(t, err)
		require.Len(t, all, 2)
		require.Equal(t, connector.FoundAborted, all[0].Found, all[0].Why)
		require.Equal(t, c.ID(), *all[0].Named)
		require.Equal(t, connector.FoundOpen, all[1].Found, all[1].Why)
		require.Nil(t, all[1].Named)
		require.NotEqual(t, all[0].Epoch, all[1].Epoch)
		require.Equal(t, j.cfg.Topic+"/1", all[1].Partitions[0].Name)
	})
}

// A transaction is aborted as it was shown: not another one that has come since.
func TestAbortEndsNoOtherTransactionThanTheOneShown(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		id := settle.ID{Prefix: j.cfg.TransactionalIDPrefix, Lineage: j.lineage}
		a := j.administer(t)
		openUnder(t, j, id, "a1")
		shown, err := a.Inspect(t.Context(), id.String(), nil)
		require.NoError(t, err)
		later := openUnder(t, j, id, "b1")
		require.ErrorContains(t, a.Abort(t.Context(), &shown), "somebody uses its ID")
		require.NoError(t, later.EndTransaction(t.Context(), kgo.TryCommit))
		require.Equal(t, []string{"b1"}, j.visible(t))
		gone, err := a.Inspect(t.Context(), id.String(), nil)
		require.NoError(t, err)
		require.Equal(t, connector.FoundEnded, gone.Found)
	})
}

// That the coordinator has ended a transaction does not say that readers go on.
func TestAnAbortIsDoneOnceNoPartitionShowsItOpen(t *testing.T) {
	b := kafkatest.NewFake(t)
	j := newTestJob(t, b)
	j.cfg.grace = 50 * time.Millisecond
	id, a := settle.ID{Prefix: j.cfg.TransactionalIDPrefix, Lineage: j.lineage}, j.administer(t)
	openUnder(t, j, id, "a1")
	x, err := a.Inspect(t.Context(), id.String(), nil)
	require.NoError(t, err)
	x.Partitions[0].First = 17 // where the broker says from now on that it is open
	shown := describeOpen(b, x.ProducerID, int32(x.Epoch), 3)
	require.NoError(t, a.Abort(t.Context(), &x))
	require.Greater(t, shown.Load(), int64(3), "a marker on its way is waited for")

	openUnder(t, j, id, "b1")
	x, err = a.Inspect(t.Context(), id.String(), nil)
	require.NoError(t, err)
	x.Partitions[0].First = 17
	describeOpen(b, x.ProducerID, int32(x.Epoch), 1<<30)
	err = a.Abort(t.Context(), &x)
	require.ErrorContains(t, err, "its marker was lost")
	require.ErrorContains(t, err, x.Partitions[0].Name)
}

// A commit that the coordinator has acknowledged, and whose markers were lost, is repaired with COMMIT,
// and with nothing where nothing is proved.
func TestALostCommitMarkerIsWrittenAgain(t *testing.T) {
	b := kafkatest.NewFake(t)
	j := newTestJob(t, b)
	j.cfg.grace = 50 * time.Millisecond
	w := j.writer(t, j.restore(t), 0)
	write(t, w, "a1", "a2")
	c := prepare(t, w, 4)
	h, a := handleOf(t, c), j.administer(t)
	written := b.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.WriteTxnMarkers}, TopLevel: true, Observe: true, Count: -1})

	_, err := a.Repair(t.Context(), h.TransactionalID, &c)
	require.True(t, connector.IsStop(err), "%v", err)
	require.ErrorContains(t, err, "open")
	require.Zero(t, written.Hits(), "the coordinator has decided nothing")

	loseMarkers(b, h)
	for _, named := range []*connector.Committable{&c, nil} {
		x, err := a.Inspect(t.Context(), h.TransactionalID, named)
		require.NoError(t, err)
		require.Equal(t, connector.FoundUnmarked, x.Found, x.Why)
		require.Equal(t, "COMMIT", x.Missing)
	}
	repaired, err := a.Repair(t.Context(), h.TransactionalID, &c)
	require.NoError(t, err)
	require.Equal(t, []string{j.cfg.Topic + "/0", j.cfg.Topic + "/1"}, repaired)
	require.Equal(t, []string{"a1", "a2"}, j.visible(t))
	require.NoError(t, a.Settle(t.Context(), c))
	hits := written.Hits()
	_, err = a.Repair(t.Context(), h.TransactionalID, &c)
	require.Error(t, err)
	require.Equal(t, hits, written.Hits(), "nothing is missing any more")
}

// completeAbort makes a fake broker say that a transaction has been aborted under an epoch, whose log shows it
// open.
func completeAbort(b *kafkatest.Broker, id string, producerID int64) (epoch *atomic.Int32) {
	epoch = new(atomic.Int32)
	b.Fake.ControlKey(int16(kmsg.DescribeTransactions), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		req := kreq.(*kmsg.DescribeTransactionsRequest)
		if !slices.Contains(req.TransactionalIDs, id) {
			return nil, nil, false
		}
		b.Fake.KeepControl()
		resp := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
		s := kmsg.NewDescribeTransactionsResponseTransactionState()
		s.TransactionalID, s.State, s.ProducerID, s.ProducerEpoch = id, "CompleteAbort", producerID, int16(epoch.Load())
		resp.TransactionStates = append(resp.TransactionStates, s)
		return resp, nil, true
	})
	return epoch
}

// The ABORT marker of a transaction that no checkpoint names was lost: it is found by the partitions that
// hold it open, and repaired with ABORT. One of an epoch that the coordinator does not answer for is not.
func TestALostAbortMarkerIsWrittenAgain(t *testing.T) {
	b := kafkatest.NewFake(t)
	j := newTestJob(t, b)
	j.cfg.grace = 50 * time.Millisecond
	id := settle.ID{Prefix: j.cfg.TransactionalIDPrefix, Lineage: "00000000000000ff"}
	openUnder(t, j, id, "a1", "a1", "a3")
	before := j.state(t, id.String())
	a := j.administer(t)
	written := b.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.WriteTxnMarkers}, TopLevel: true, Observe: true, Count: -1})

	epoch := completeAbort(b, id.String(), before.ProducerID)
	epoch.Store(int32(before.Epoch) + 7)
	_, err := a.Repair(t.Context(), id.String(), nil)
	require.True(t, connector.IsStop(err), "%v", err)
	require.Zero(t, written.Hits())

	b.Fake.ControlKey(int16(kmsg.WriteTxnMarkers), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		req := kreq.(*kmsg.WriteTxnMarkersRequest)
		require.False(t, req.Markers[0].Committed)
		return refuseMarkers(req), nil, true
	})
	epoch.Store(int32(before.Epoch))
	found := listed(t, a)
	require.Equal(t, connector.FoundUnmarked, found[id.String()].Found, found[id.String()].Why)
	_, err = a.Repair(t.Context(), id.String(), nil)
	for _, name := range []string{
		id.String(), "ClusterAction", "kafka-transactions.sh --bootstrap-server " + strings.Join(b.Brokers, ",") +
			" abort --topic " + j.cfg.Topic + " --partition 0 --start-offset 0", "--partition 2 --start-offset 0",
	} {
		require.ErrorContains(t, err, name)
	}
	repaired, err := a.Repair(t.Context(), id.String(), nil)
	require.NoError(t, err)
	require.Len(t, repaired, 2)
	require.Empty(t, j.visible(t), "readers go on, and see nothing of it")
}

// refuseMarkers is the answer to whoever has no right to write markers.
func refuseMarkers(req *kmsg.WriteTxnMarkersRequest) *kmsg.WriteTxnMarkersResponse {
	resp := req.ResponseKind().(*kmsg.WriteTxnMarkersResponse)
	for _, m := range req.Markers {
		rm := kmsg.NewWriteTxnMarkersResponseMarker()
		rm.ProducerID = m.ProducerID
		for _, topic := range m.Topics {
			rt := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			rt.Topic = topic.Topic
			for _, p := range topic.Partitions {
				rp := kmsg.NewWriteTxnMarkersResponseMarkerTopicPartition()
				rp.Partition, rp.ErrorCode = p, kerr.ClusterAuthorizationFailed.Code
				rt.Partitions = append(rt.Partitions, rp)
			}
			rm.Topics = append(rm.Topics, rt)
		}
		resp.Markers = append(resp.Markers, rm)
	}
	return resp
}

// A sink whose topic is not there yet has nothing open, and nobody else's transactions are its own.
func TestAMissingTopicHoldsNothingOpen(t *testing.T) {
	b := kafkatest.NewFake(t)
	j := newTestJob(t, b)
	j.cfg.Topic = "is-not-there"
	require.Empty(t, listed(t, j.administer(t)))
	a := j.administer(t)
	_, ok := a.Owner(j.cfg.TransactionalIDPrefix + "-more-0000000000000000-0-0")
	require.False(t, ok)
	_, ok = a.Owner("nonsense")
	require.False(t, ok)
}

// A list shows one word for an ID that the coordinator does not know, in its column and in its reasons.
func TestAnIDThatIsNotKnownIsCalledAsInVerdicts(t *testing.T) {
	d := describedOf(&kmsg.DescribeTransactionsResponseTransactionState{ErrorCode: kerr.TransactionalIDNotFound.Code})
	require.Equal(t, settle.NoHistory, d.State)
	require.Equal(t, d.State.String(), d.word)
}
