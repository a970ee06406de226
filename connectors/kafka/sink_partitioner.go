package kafka

import "github.com/twmb/franz-go/pkg/kgo"

// partitioner sends a record to the partition that it names, and otherwise where Kafka's own
// producer would: by the key's hash, or, without a key, one partition for a batch.
type partitioner struct{ byKey kgo.Partitioner }

func newPartitioner() kgo.Partitioner {
	return partitioner{byKey: kgo.StickyKeyPartitioner(nil)}
}

// ForTopic returns the partitioner of one topic.
func (p partitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return &topicPartitioner{byKey: p.byKey.ForTopic(topic)}
}

type topicPartitioner struct{ byKey kgo.TopicPartitioner }

// RequiresConsistency reports whether the record has to wait for its partition.
func (p *topicPartitioner) RequiresConsistency(r *kgo.Record) bool {
	return r.Partition >= 0 || p.byKey.RequiresConsistency(r)
}

// Partition picks one of n partitions. One that does not exist fails the record.
func (p *topicPartitioner) Partition(r *kgo.Record, n int) int {
	if r.Partition >= 0 {
		return int(r.Partition)
	}
	return p.byKey.Partition(r, n)
}

// OnNewBatch lets records without a key move on to another partition.
func (p *topicPartitioner) OnNewBatch() {
	if b, ok := p.byKey.(kgo.TopicPartitionerOnNewBatch); ok {
		b.OnNewBatch()
	}
}
