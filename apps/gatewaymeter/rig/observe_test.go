package rig

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// transaction writes records to tenant-cost under a transactional ID and leaves the transaction open.
func transaction(t *testing.T, b *Broker, id string, partitions ...int32) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addresses...), kgo.TransactionalID(id),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	require.NoError(t, cl.BeginTransaction())
	for _, p := range partitions {
		r := &kgo.Record{Topic: b.Topics.TenantCost, Partition: p, Value: []byte("x")}
		require.NoError(t, cl.ProduceSync(t.Context(), r).FirstErr())
	}
	return cl
}

func testBroker(t *testing.T) *Broker {
	t.Helper()
	b, err := OpenBroker(nil, "rig", "test")
	require.NoError(t, err)
	t.Cleanup(b.Close)
	require.NoError(t, b.CreateTopics(t.Context(), 4, 2))
	return b
}

func TestATransactionBegunBeforeACheckpointCompletedIsNoSignOfAFiringAfterIt(t *testing.T) {
	b := testBroker(t)
	fired := func(guarantee string, since Offsets) bool {
		t.Helper()
		is, err := b.FiredSince(t.Context(), guarantee, since)
		require.NoError(t, err)
		return is
	}
	ends := func() Offsets {
		t.Helper()
		o, err := b.Ends(t.Context(), b.Topics.TenantCost)
		require.NoError(t, err)
		require.Len(t, o, 2)
		return o
	}
	none := ends()
	require.False(t, fired(ExactlyOnce, none), "nothing has been written")

	earlier := transaction(t, b, b.Prefix+"-1", 0)
	since := ends()
	require.True(t, fired(ExactlyOnce, none))
	require.False(t, fired(ExactlyOnce, since), "its first record lies before")
	later := transaction(t, b, b.Prefix+"-2", 0)
	require.True(t, fired(ExactlyOnce, since))

	require.NoError(t, later.EndTransaction(t.Context(), kgo.TryCommit))
	require.False(t, fired(ExactlyOnce, since), "it has ended")
	require.True(t, fired("at-least-once", since), "its records are there all the same")
	require.False(t, fired("at-least-once", ends()))
	require.NoError(t, earlier.EndTransaction(t.Context(), kgo.TryAbort))
}

func TestOpenTransactionsAreTheJobsOwn(t *testing.T) {
	b := testBroker(t)
	open := func() []string {
		t.Helper()
		all, err := b.Open(t.Context())
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
		n, err := b.Undecided(t.Context(), b.Topics.TenantCost)
		require.NoError(t, err)
		return n
	}
	require.Empty(t, open())
	require.Zero(t, undecided())
	own := transaction(t, b, b.Prefix+"-1", 0, 0, 1)
	transaction(t, b, "somebody-else", 1)
	require.Equal(t, []string{b.Prefix + "-1"}, open())
	require.EqualValues(t, 4, undecided())
	require.NoError(t, own.EndTransaction(t.Context(), kgo.TryCommit))
	require.Empty(t, open())
	require.EqualValues(t, 2, undecided(), "a marker lies behind the other transaction")
}
