package lab

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// clientOf returns a client that reaches brokers at these addresses.
func clientOf(t *testing.T, addresses []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(addresses...), kgo.MetadataMinAge(100*time.Millisecond),
		kgo.RetryTimeout(2*time.Second))...)
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return cl
}

func TestAWireBreaksAsACommitGoesOutAndTheBrokersNeverSeeIt(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(3, "bill"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	w, addresses, err := openWire(cluster.ListenAddrs())
	require.NoError(t, err)
	t.Cleanup(w.close)

	cl := clientOf(t, addresses, kgo.TransactionalID("job-1"))
	transaction := func(end kgo.TransactionEndTry) error {
		require.NoError(t, cl.BeginTransaction())
		require.NoError(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: "bill", Value: []byte("x")}).FirstErr())
		return cl.EndTransaction(t.Context(), end)
	}
	describe := func() kadm.DescribedTransaction {
		t.Helper()
		described, err := kadm.NewClient(clientOf(t, cluster.ListenAddrs())).DescribeTransactions(t.Context(), "job-1")
		require.NoError(t, err)
		return described["job-1"]
	}
	require.NoError(t, transaction(kgo.TryCommit), "a wire that is whole lets all through")
	w.breakAtCommit()
	require.NoError(t, transaction(kgo.TryAbort), "an abort is no commit")
	require.Empty(t, w.held)

	require.Error(t, transaction(kgo.TryCommit))
	held := <-w.held
	require.Equal(t, "job-1", held.TransactionID)
	require.Equal(t, held.ProducerID, describe().ProducerID)
	require.Equal(t, "Ongoing", describe().State)
	require.Error(t, clientOf(t, addresses).Ping(t.Context()), "nobody gets through")

	w.mend()
	require.NoError(t, clientOf(t, addresses).Ping(t.Context()))
	require.Equal(t, "Ongoing", describe().State)
}
