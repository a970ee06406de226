package kafkatest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Kind is a kind of broker.
type Kind string

// The kinds of broker.
const (
	Fake   Kind = "kfake"
	Apache Kind = "apache"
)

// Broker is what a test talks to.
type Broker struct {
	Kind    Kind
	Version string   // of Apache Kafka; empty for kfake
	Brokers []string // bootstrap addresses

	// TransactionVersion is the cluster's feature transaction.version: 1 or 2.
	TransactionVersion int

	// Fake is the cluster itself where Kind is Fake, for its control functions and faults, and nil otherwise. No
	// other test uses it.
	Fake *kfake.Cluster

	login  []kgo.Opt // of the clients of the test itself, where there has to be one
	report *report
}

// Name tells the broker from the others that a test runs against: kfake, apache-4.2.2, apache-4.2.2-tv1.
func (b *Broker) Name() string {
	name := string(b.Kind)
	if b.Version != "" {
		name += "-" + b.Version
	}
	if b.TransactionVersion == 1 {
		name += "-tv1"
	}
	return name
}

// Title names the broker for readers: Apache Kafka 4.2.2, transaction version 2.
func (b *Broker) Title() string {
	name := string(b.Kind)
	if b.Kind == Apache {
		name = "Apache Kafka " + b.Version
	}
	return fmt.Sprintf("%s, transaction version %d", name, b.TransactionVersion)
}

// Except ends a test that cannot run against this kind of broker. The reason is printed and goes into
// the report.
func (b *Broker) Except(t *testing.T, kind Kind, reason string) {
	t.Helper()
	if b.Kind != kind {
		return
	}
	b.report.except(reason)
	t.Skipf("not on %s: %s", kind, reason)
}

// TopicName returns a name that no other topic has.
func (b *Broker) TopicName(t *testing.T) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-':
			return r
		}
		return '-'
	}, t.Name())
	if len(name) > 180 {
		name = name[:180]
	}
	return fmt.Sprintf("%s-%08x", name, rand.Uint32())
}

// CreateTopic creates a topic under a new name and deletes it at the end of the test. Each of configs
// is "key=value".
func (b *Broker) CreateTopic(t *testing.T, partitions int, configs ...string) string {
	t.Helper()
	name := b.TopicName(t)
	b.CreateTopicNamed(t, name, partitions, configs...)
	b.deleteAtEnd(t, name)
	return name
}

// CreateTopicOn creates a topic that has a partition for each of the nodes named, with that node as its only
// replica, and deletes it at the end of the test.
func (b *Broker) CreateTopicOn(t *testing.T, nodes ...int32) string {
	t.Helper()
	name := b.TopicName(t)
	req := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, -1, -1
	for n, node := range nodes {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = int32(n), []int32{node}
		topic.ReplicaAssignment = append(topic.ReplicaAssignment, a)
	}
	req.Topics = append(req.Topics, topic)
	cl := b.Client(t)
	resp, err := req.RequestWith(t.Context(), cl)
	require.NoError(t, err)
	require.NoError(t, kerr.ErrorForCode(resp.Topics[0].ErrorCode))
	awaitTopic(t, cl, name, len(nodes))
	b.deleteAtEnd(t, name)
	return name
}

func (b *Broker) deleteAtEnd(t *testing.T, name string) {
	t.Cleanup(func() {
		// The test may have deleted it itself, or stopped the broker: it does not matter here.
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		cl, err := kgo.NewClient(append(b.login, kgo.SeedBrokers(b.Brokers...), kgo.RetryTimeout(time.Second))...)
		require.NoError(t, err)
		defer cl.Close()
		_, _ = kadm.NewClient(cl).DeleteTopic(ctx, name)
	})
}

// CreateTopicNamed creates a topic, and waits until the brokers know it. The topic stays until it is deleted.
func (b *Broker) CreateTopicNamed(t *testing.T, name string, partitions int, configs ...string) {
	t.Helper()
	values := make(map[string]*string, len(configs))
	for _, c := range configs {
		key, value, ok := strings.Cut(c, "=")
		require.True(t, ok, "config %q: want key=value", c)
		values[key] = &value
	}
	cl := b.Client(t)
	_, err := kadm.NewClient(cl).CreateTopic(t.Context(), int32(partitions), 1, values, name)
	require.NoError(t, err)
	awaitTopic(t, cl, name, partitions)
}

func awaitTopic(t *testing.T, cl *kgo.Client, name string, partitions int) {
	t.Helper()
	require.Eventually(t, func() bool { return topicReady(t, cl, name, partitions) }, 30*time.Second, 5*time.Millisecond,
		"topic %s has no leaders", name)
}

func topicReady(t *testing.T, cl *kgo.Client, name string, partitions int) bool {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &name
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(t.Context(), cl)
	if err != nil || len(resp.Topics) != 1 || resp.Topics[0].ErrorCode != 0 {
		return false
	}
	for _, p := range resp.Topics[0].Partitions {
		if p.ErrorCode != 0 || p.Leader < 0 {
			return false
		}
	}
	if len(resp.Topics[0].Partitions) != partitions {
		return false
	}
	// Metadata names the leaders a moment before these know that they are: until then they answer "not leader".
	ends, err := kadm.NewClient(cl).ListEndOffsets(t.Context(), name)
	return err == nil && ends.Error() == nil && len(ends[name]) == partitions
}

// DeleteTopic deletes a topic.
func (b *Broker) DeleteTopic(t *testing.T, name string) {
	t.Helper()
	_, err := b.Admin(t).DeleteTopic(t.Context(), name)
	require.NoError(t, err)
}

// DeleteRecords deletes what lies before the offset in a partition.
func (b *Broker) DeleteRecords(t *testing.T, topic string, partition int32, before int64) {
	t.Helper()
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: topic, Partition: partition, At: before})
	resp, err := b.Admin(t).DeleteRecords(t.Context(), offsets)
	require.NoError(t, err)
	require.NoError(t, resp.Error())
}

// Client returns a client that is closed at the end of the test.
func (b *Broker) Client(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(slices.Concat([]kgo.Opt{
		kgo.SeedBrokers(b.Brokers...),
		kgo.MetadataMinAge(100 * time.Millisecond), // a fresh topic else takes up to 5 s to be written to
	}, b.login, opts)...)
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return cl
}

// Admin returns an admin client that is closed at the end of the test.
func (b *Broker) Admin(t *testing.T, opts ...kgo.Opt) *kadm.Client {
	t.Helper()
	return kadm.NewClient(b.Client(t, opts...))
}

// Produce writes values to a partition, outside of any transaction, and returns the offset of the first.
func (b *Broker) Produce(t *testing.T, topic string, partition int32, values ...string) int64 {
	t.Helper()
	return b.ProduceRecords(t, Records(topic, partition, values...)...)
}

// ProduceRecords writes records outside of any transaction, each to the partition that it names, and
// returns the offset of the first.
func (b *Broker) ProduceRecords(t *testing.T, records ...*kgo.Record) int64 {
	t.Helper()
	cl := b.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer cl.Close()
	results := cl.ProduceSync(t.Context(), records...)
	require.NoError(t, results.FirstErr())
	return results[0].Record.Offset
}

// ProduceTransaction writes values to a partition in a transaction of its own, ends it, and returns
// the offset of the first.
func (b *Broker) ProduceTransaction(
	t *testing.T, end kgo.TransactionEndTry, topic string, partition int32, values ...string,
) int64 {
	t.Helper()
	cl, offset := b.OpenTransaction(t, topic, partition, values...)
	defer cl.Close()
	require.NoError(t, cl.EndTransaction(t.Context(), end))
	// The coordinator answers before the marker is in the partition.
	admin, last := b.Admin(t), offset+int64(len(values))-1
	require.Eventually(t, func() bool {
		stable, err := admin.ListCommittedOffsets(t.Context(), topic)
		o, ok := stable.Lookup(topic, partition)
		return err == nil && ok && o.Err == nil && o.Offset > last
	}, 30*time.Second, 5*time.Millisecond, "the transaction's marker does not come")
	return offset
}

// OpenTransaction writes values to a partition in a transaction and leaves it open. It returns the
// client that can end it, and the offset of the first value.
func (b *Broker) OpenTransaction(
	t *testing.T, topic string, partition int32, values ...string,
) (*kgo.Client, int64) {
	t.Helper()
	cl := b.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID(b.TopicName(t)),
		kgo.TransactionTimeout(time.Minute))
	require.NoError(t, cl.BeginTransaction())
	results := cl.ProduceSync(t.Context(), Records(topic, partition, values...)...)
	require.NoError(t, results.FirstErr())
	return cl, results[0].Record.Offset
}

// Records makes records of a partition from values.
func Records(topic string, partition int32, values ...string) []*kgo.Record {
	records := make([]*kgo.Record, len(values))
	for i, v := range values {
		records[i] = &kgo.Record{Topic: topic, Partition: partition, Value: []byte(v)}
	}
	return records
}
