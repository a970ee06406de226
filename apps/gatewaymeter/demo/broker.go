package demo

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"example.com/weir/apps/gatewaymeter"
)

// broker is the cluster of a demonstration, with its topics.
type broker struct {
	addresses []string
	name      string // for people
	embedded  *kfake.Cluster
	client    *kgo.Client
	admin     *kadm.Client

	topics gatewaymeter.Topics
	prefix string // of transactional IDs
}

// openBroker starts a broker in this process, or goes to a cluster. There, every name is the run's own.
func openBroker(addresses []string, run string) (*broker, error) {
	b := &broker{addresses: addresses, name: "Kafka at " + strings.Join(addresses, ","), prefix: "weir-demo-" + run}
	suffix := "-" + run
	if len(addresses) == 0 {
		suffix = ""
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.MaxVersions(served()))
		if err != nil {
			return nil, fmt.Errorf("start the broker: %w", err)
		}
		b.embedded, b.addresses = cluster, cluster.ListenAddrs()
		b.name = "in this process (kfake), at " + b.addresses[0]
	}
	b.topics = topicNames(suffix)
	client, err := kgo.NewClient(
		kgo.SeedBrokers(b.addresses...), kgo.ClientID("weir-demo"), kgo.MetadataMinAge(100*time.Millisecond),
		kgo.DisableClientMetrics(), kgo.RetryTimeout(10*time.Second),
	)
	if err != nil {
		b.close()
		return nil, err
	}
	b.client, b.admin = client, kadm.NewClient(client)
	return b, nil
}

// served is what the broker in this process answers: everything but DescribeTopicPartitions, its answer
// to which Java's tools cannot read; they have another way to ask.
func served() *kversion.Versions {
	const describeTopicPartitions = 75
	v := kversion.Stable()
	v.SetMaxKeyVersion(describeTopicPartitions, -1)
	return v
}

func (b *broker) close() {
	if b.client != nil {
		b.client.Close()
	}
	if b.embedded != nil {
		b.embedded.Close()
	}
}

func topicNames(suffix string) gatewaymeter.Topics {
	return gatewaymeter.Topics{
		Events: "gateway-events" + suffix, TenantCost: "tenant-cost" + suffix, Alerts: "alerts" + suffix,
		DeadLetter: "gateway-events-dead-letter" + suffix, Conflicts: "gateway-events-conflicts" + suffix,
		Abandoned: "requests-abandoned" + suffix, Unmatched: "requests-unmatched" + suffix,
		Unpriced: "requests-unpriced" + suffix, Late: "requests-late" + suffix,
	}
}

// others are the topics beside gateway-events and tenant-cost, with the job's flags for them.
func others(t *gatewaymeter.Topics) []struct{ flag, topic string } {
	return []struct{ flag, topic string }{
		{"alerts-topic", t.Alerts},
		{"dead-letter-topic", t.DeadLetter},
		{"conflicts-topic", t.Conflicts},
		{"abandoned-topic", t.Abandoned},
		{"unmatched-topic", t.Unmatched},
		{"unpriced-topic", t.Unpriced},
		{"late-topic", t.Late},
	}
}

func (b *broker) allTopics() []string {
	names := []string{b.topics.Events, b.topics.TenantCost}
	for _, o := range others(&b.topics) {
		names = append(names, o.topic)
	}
	return names
}

// createTopics creates the topics, gateway-events with so many partitions. Nothing on them is deleted by
// age: event times may lie long ago.
func (b *broker) createTopics(ctx context.Context, partitions int) error {
	forever := "-1"
	configs := map[string]*string{"retention.ms": &forever}
	for _, topic := range b.allTopics() {
		n := int32(1)
		switch topic {
		case b.topics.Events:
			n = int32(partitions)
		case b.topics.TenantCost:
			n = 2
		}
		if _, err := b.admin.CreateTopic(ctx, n, -1, configs, topic); err != nil {
			return fmt.Errorf("create topic %s: %w", topic, err)
		}
	}
	return nil
}

func (b *broker) deleteTopics(ctx context.Context) error {
	deleted, err := b.admin.DeleteTopics(ctx, b.allTopics()...)
	if err != nil {
		return err
	}
	return deleted.Error()
}
