package demo

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// transaction writes records to tenant-cost under a transactional ID and leaves the transaction open.
func transaction(t *testing.T, b *broker, id string, partitions ...int32) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.addresses...), kgo.TransactionalID(id),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	require.NoError(t, cl.BeginTransaction())
	for _, p := range partitions {
		r := &kgo.Record{Topic: b.topics.TenantCost, Partition: p, Value: []byte("x")}
		require.NoError(t, cl.ProduceSync(t.Context(), r).FirstErr())
	}
	return cl
}

func testBroker(t *testing.T) *broker {
	t.Helper()
	b, err := openBroker(nil, "test")
	require.NoError(t, err)
	t.Cleanup(b.close)
	require.NoError(t, b.createTopics(t.Context(), 4))
	return b
}

func TestATransactionBegunBeforeACheckpointCompletedIsNoSignOfAFiringAfterIt(t *testing.T) {
	b := testBroker(t)
	fired := func(guarantee string, since offsets) bool {
		t.Helper()
		is, err := b.firedSince(t.Context(), guarantee, since)
		require.NoError(t, err)
		return is
	}
	ends := func() offsets {
		t.Helper()
		o, err := b.ends(t.Context(), b.topics.TenantCost)
		require.NoError(t, err)
		require.Len(t, o, 2)
		return o
	}
	none := ends()
	require.False(t, fired(exactlyOnce, none), "nothing has been written")

	earlier := transaction(t, b, b.prefix+"-1", 0)
	since := ends()
	require.True(t, fired(exactlyOnce, none))
	require.False(t, fired(exactlyOnce, since), "its first record lies before")
	later := transaction(t, b, b.prefix+"-2", 0)
	require.True(t, fired(exactlyOnce, since))

	require.NoError(t, later.EndTransaction(t.Context(), kgo.TryCommit))
	require.False(t, fired(exactlyOnce, since), "it has ended")
	require.True(t, fired("at-least-once", since), "its records are there all the same")
	require.False(t, fired("at-least-once", ends()))
	require.NoError(t, earlier.EndTransaction(t.Context(), kgo.TryAbort))
}

func TestOpenTransactionsAreTheJobsOwn(t *testing.T) {
	b := testBroker(t)
	open := func() []string {
		t.Helper()
		all, err := b.open(t.Context())
		require.NoError(t, err)
		var ids []string
		for _, o := range all {
			require.Equal(t, "Ongoing", o.State)
			require.False(t, o.Since.IsZero())
			ids = append(ids, o.ID)
		}
		return ids
	}
	undecided := func() int64 {
		t.Helper()
		n, err := b.undecided(t.Context(), b.topics.TenantCost)
		require.NoError(t, err)
		return n
	}
	require.Empty(t, open())
	require.Zero(t, undecided())
	own := transaction(t, b, b.prefix+"-1", 0, 0, 1)
	transaction(t, b, "somebody-else", 1)
	require.Equal(t, []string{b.prefix + "-1"}, open())
	require.EqualValues(t, 4, undecided())
	require.NoError(t, own.EndTransaction(t.Context(), kgo.TryCommit))
	require.Empty(t, open())
	require.EqualValues(t, 2, undecided(), "a marker lies behind the other transaction")
}
