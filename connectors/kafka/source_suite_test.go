package kafka_test

import (
	"testing"
	"time"

	"example.com/weir/connector"
	"example.com/weir/connector/connectortest"
	"example.com/weir/connectors/kafka"
	"example.com/weir/internal/kafkatest"
)

func decodeString(r *kafka.Record, row *string) error { return connectortest.Decode(r.Value, row) }

func stringSource(cfg kafka.SourceConfig) connector.Source[string] {
	return kafka.Source(cfg, decodeString)
}

func TestTheSourceKeepsTheContractOfSources(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		connectortest.Source(t, func(t *testing.T) connectortest.SourceFixture {
			topic := b.CreateTopic(t, 3)
			cfg := kafka.SourceConfig{
				Config: kafka.Config{Brokers: b.Brokers}, Topic: topic, FetchMaxWait: 100 * time.Millisecond,
				MaxBatch: 200, FetchMaxPartitionBytes: 5_000, // so that there are many batches and answers
			}
			bounded := cfg
			bounded.UntilEnd = true
			return connectortest.SourceFixture{
				Source: stringSource(cfg), Bounded: stringSource(bounded), Splits: 3,
				Write: func(t *testing.T, split int, values ...string) { b.Produce(t, topic, int32(split), values...) },
			}
		})
	})
}
