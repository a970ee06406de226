package kafka_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka"
)

// Both benchmarks read records of 241 bytes from a broker in the process that makes them up. They say
// what the source costs beside the client library's own consumer; the broker's part is in both.

func syntheticBroker(b *testing.B) []string {
	b.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "events"),
		kfake.SyntheticFetch(kfake.SyntheticBatch{Records: 1000, RecordBytes: 241}))
	require.NoError(b, err)
	b.Cleanup(c.Close)
	return c.ListenAddrs()
}

func BenchmarkSource(b *testing.B) {
	src := kafka.Source(kafka.SourceConfig{Config: kafka.Config{Brokers: syntheticBroker(b)}, Topic: "events"},
		func(r *kafka.Record, row *[]byte) error { *row = r.Value; return nil })
	splits, err := src.Discover(b.Context())
	require.NoError(b, err)
	r, err := src.Reader(b.Context(), connector.ReaderContext[[]byte]{
		Admit: func(_ *[]byte, sourceTime int64) (int64, error) { return sourceTime, nil },
	}, splits)
	require.NoError(b, err)
	defer func() { require.NoError(b, r.Close()) }()
	var batch connector.Batch[[]byte]
	b.ReportAllocs()
	for n := 0; n < b.N; n += len(batch.Rows) {
		if err := r.Read(b.Context(), &batch); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkClientLibrary(b *testing.B) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(syntheticBroker(b)...), kgo.ConsumeTopics("events"),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	require.NoError(b, err)
	defer cl.Close()
	b.ReportAllocs()
	bytes := 0
	for n := 0; n < b.N; {
		cl.PollFetches(b.Context()).EachRecord(func(r *kgo.Record) {
			bytes += len(r.Value)
			n++
		})
	}
}
