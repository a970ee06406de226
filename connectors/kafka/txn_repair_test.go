package kafka

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/weir/connectors/kafka/settle"
	"example.com/weir/internal/kafkatest"
)

// markersOf notes the markers that clients write.
type markersOf struct {
	mu  sync.Mutex
	all []kmsg.WriteTxnMarkersRequestMarker
}

func noteMarkers(b *kafkatest.Broker) *markersOf {
	m := new(markersOf)
	b.Fake.ControlKey(int16(kmsg.WriteTxnMarkers), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		m.mu.Lock()
		defer m.mu.Unlock()
		m.all = append(m.all, kreq.(*kmsg.WriteTxnMarkersRequest).Markers...)
		return nil, nil, false
	})
	return m
}

func (m *markersOf) written() []kmsg.WriteTxnMarkersRequestMarker {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all
}

// The brokers acknowledge a commit, show CompleteCommit and lose the markers: they are written, under the epoch
// of that commit, and the next transaction under the ID harms nothing.
func TestALostCommitMarkerIsWritten(t *testing.T) {
	b := kafkatest.NewFake(t)
	j := newTestJob(t, b)
	j.cfg.grace = 50 * time.Millisecond
	w := j.writer(t, j.restore(t), 0)
	write(t, w, "a1", "a2")
	c := prepare(t, w, 1)
	h := handleOf(t, c)
	loseMarkers(b, h)
	markers := noteMarkers(b)
	require.NoError(t, w.Commit(t.Context(), c))
	require.True(t, w.pool.Settled(h))
	require.Len(t, markers.written(), 2)
	for _, m := range markers.written() {
		require.True(t, m.Committed)
		require.Equal(t, h.ProducerID, m.ProducerID)
		require.Equal(t, h.Epoch+1, m.ProducerEpoch)
	}
	require.Equal(t, []string{"a1", "a2"}, j.visible(t))
}

// A marker that was written may arrive a second time, late: whatever writes under the ID then has another epoch,
// which is a new client's.
func TestTheClientOfARepairedTransactionIsNotKept(t *testing.T) {
	b := kafkatest.NewFake(t)
	j := newTestJob(t, b)
	j.cfg.grace = 50 * time.Millisecond
	w := j.writer(t, j.restore(t), 0)
	write(t, w, "a1", "a2")
	c := prepare(t, w, 1)
	lossy := loseMarkersAs(b, handleOf(t, c), "CompleteCommit")
	markers := noteMarkers(b)
	require.NoError(t, w.Commit(t.Context(), c))
	require.NotEmpty(t, markers.written())
	lossy.Store(true)
	w.Release(c)

	var again *settle.Handle
	for n := uint64(2); again == nil; n++ {
		require.Less(t, n, uint64(8), "the ID is not used again")
		write(t, w, "b1")
		d := prepare(t, w, n)
		if h := handleOf(t, d); h.TransactionalID == handleOf(t, c).TransactionalID {
			again = h
		}
		require.NoError(t, w.Commit(t.Context(), d))
		w.Release(d)
	}
	// (The double has not raised the epoch with a commit that it did not do: a broker has.)
	h := handleOf(t, c)
	require.False(t, again.ProducerID == h.ProducerID && again.Epoch <= h.Epoch,
		"what is written under epoch %d would be ended with what was written under epoch %d", again.Epoch, h.Epoch)
}

// The coordinator has aborted it: whatever EndTxn was answered, no COMMIT is written.
func TestALostAbortMarkerOfANamedTransactionIsWritten(t *testing.T) {
	b := kafkatest.NewFake(t)
	j := newTestJob(t, b)
	j.cfg.grace, j.cfg.LostTransaction = 50*time.Millisecond, Fail
	w := j.writer(t, j.restore(t), 0)
	write(t, w, "a1", "a2")
	c := prepare(t, w, 1)
	h := handleOf(t, c)
	loseMarkersAs(b, h, "CompleteAbort")
	markers := noteMarkers(b)
	require.ErrorContains(t, w.Commit(t.Context(), c), "lost: the log shows it aborted in all 2 partitions")
	require.Len(t, markers.written(), 2)
	for _, m := range markers.written() {
		require.False(t, m.Committed)
		require.Equal(t, h.Epoch+1, m.ProducerEpoch)
	}
	require.Empty(t, j.visible(t))
}

// An ABORT marker was lost under an ID that is taken: it is written under the epoch before the new one, and the
// ID is taken anew.
func TestALostAbortMarkerUnderAnIDIsWritten(t *testing.T) {
	b := kafkatest.NewFake(t)
	j, h := usedID(t, b)
	w := j.writer(t, j.restore(t), 0)
	markers := noteMarkers(b)
	before := j.asked.Load()
	describeOpenUntil(b, h.ProducerID, int32(h.Epoch), func() bool { return len(markers.written()) == 0 })
	write(t, w, "b1")
	require.Len(t, markers.written(), partitionsOfTests)
	require.Equal(t, before+3, j.asked.Load(), "before it is taken, before the markers, and before it is taken anew")
	c := prepare(t, w, 2)
	for _, m := range markers.written() {
		require.False(t, m.Committed)
		require.Equal(t, h.ProducerID, m.ProducerID)
		require.Greater(t, m.ProducerEpoch, h.Epoch)
		require.Equal(t, handleOf(t, c).Epoch-2, m.ProducerEpoch)
	}
	require.NoError(t, w.Commit(t.Context(), c))
	require.Equal(t, []string{"a1", "b1"}, j.visible(t))
}

// Nothing is left open by a dead generation, also where the brokers have lost its markers.
func TestALostMarkerOfALeftOverIsWritten(t *testing.T) {
	b := kafkatest.NewFake(t)
	j, h := usedID(t, b)
	markers := noteMarkers(b)
	describeOpenUntil(b, h.ProducerID, int32(h.Epoch), func() bool { return len(markers.written()) == 0 })
	j.restore(t)
	require.NotEmpty(t, markers.written())
	for _, m := range markers.written() {
		require.False(t, m.Committed)
		require.Equal(t, settle.Coordinator{State: settle.NoHistory, ProducerID: m.ProducerID, Epoch: m.ProducerEpoch + 1},
			j.state(t, h.TransactionalID))
	}
}
