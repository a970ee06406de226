package kafkatest_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/weir/internal/kafkatest"
)

func TestBothKindsOfBrokerHaveTheTransactionVersionTheyClaim(t *testing.T) {
	kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
		resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(t.Context(), b.Client(t))
		require.NoError(t, err)
		level := -1
		for _, f := range resp.FinalizedFeatures {
			if f.Name == "transaction.version" {
				level = int(f.MaxVersionLevel)
			}
		}
		require.Equal(t, b.TransactionVersion, level)
	})
}

func TestWhatATransactionWroteShowsOnceItIsCommitted(t *testing.T) {
	kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
		topic := b.CreateTopic(t, 2, "cleanup.policy=delete")
		require.EqualValues(t, 0, b.ProduceTransaction(t, kgo.TryAbort, topic, 1, "no"))
		require.EqualValues(t, 2, b.ProduceTransaction(t, kgo.TryCommit, topic, 1, "yes"))
		b.DeleteRecords(t, topic, 1, 1)

		cl := b.Client(t, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
		records := cl.PollFetches(t.Context()).Records()
		require.Len(t, records, 1)
		require.Equal(t, "yes", string(records[0].Value))
	})
}

func TestAnOwnNodeKeepsItsDataWhenItIsKilled(t *testing.T) {
	n := kafkatest.NewNode(t, kafkatest.NodeConfig{})
	topic := n.CreateTopic(t, 1)
	n.Produce(t, topic, 0, "kept")
	n.Kill(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, n.Client(t).Ping(ctx))
	n.Start(t)
	cl := n.Client(t, kgo.ConsumeTopics(topic))
	require.Equal(t, "kept", string(cl.PollFetches(t.Context()).Records()[0].Value))
}

func TestTheReportHasWhatRanAndWhatWasLeftOutAndWhy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	t.Setenv("WEIR_KAFKA_REPORT", path)
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		b.Except(t, kafkatest.Fake, "the double knows\tnothing of this")
	})
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(text), strings.Join([]string{
		t.Name(), "kfake", "left out", "the double knows nothing of this",
	}, "\t")+"\n")
	require.Contains(t, string(text), t.Name()+"\tapache-")
}
