package rig

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

// Broker is a cluster with the topics of one run.
type Broker struct {
	Addresses []string
	Name      string // for people
	Topics    gatewaymeter.Topics
	Prefix    string // of transactional IDs

	who      string // reads and writes: client IDs begin with it
	embedded *kfake.Cluster
	client   *kgo.Client
	admin    *kadm.Client
}

// OpenBroker starts a broker in this process, or goes to a cluster. There, every name is the run's own. who
// names the program to the cluster.
func OpenBroker(addresses []string, who, run string) (*Broker, error) {
	b := &Broker{
		Addresses: addresses, Name: "Kafka at " + strings.Join(addresses, ","), Prefix: who + "-" + run, who: who,
	}
	suffix := "-" + run
	if len(addresses) == 0 {
		suffix = ""
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.MaxVersions(served()))
		if err != nil {
			return nil, fmt.Errorf("start the broker: %w", err)
		}
		b.embedded, b.Addresses = cluster, cluster.ListenAddrs()
		b.Name = "in this process (kfake), at " + b.Addresses[0]
	}
	b.Topics = topicNames(suffix)
	client, err := kgo.NewClient(
		kgo.SeedBrokers(b.Addresses...), kgo.ClientID(who), kgo.MetadataMinAge(100*time.Millisecond),
		kgo.DisableClientMetrics(), kgo.RetryTimeout(10*time.Second),
	)
	if err != nil {
		b.Close()
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

// Shared reports whether the cluster is not this process's own, and keeps what is written to it.
func (b *Broker) Shared() bool { return b.embedded == nil }

// Close ends the broker, or goes away from the cluster.
func (b *Broker) Close() {
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

// ExactlyOnce is the guarantee under which the sink of tenant-cost writes in transactions.
const ExactlyOnce = "exactly-once"

// JobArguments are those of a command line that runs the job on the run's topics, through these addresses of the
// cluster, with the sink of tenant-cost under a guarantee, and with the log that a Journal is made from.
func (b *Broker) JobArguments(addresses []string, guarantee string) []string {
	args := []string{
		"run", "gatewaymeter", "--log-format", "json", "--progress-interval", "50ms",
		"--brokers", strings.Join(addresses, ","), "--sink-guarantee", guarantee,
		"--gateway-events-topic", b.Topics.Events, "--tenant-cost-topic", b.Topics.TenantCost,
	}
	if guarantee == ExactlyOnce {
		args = append(args, "--prefix", b.Prefix)
	}
	for _, o := range others(&b.Topics) {
		args = append(args, "--"+o.flag, o.topic)
	}
	return args
}

// AllTopics returns the names of the run's topics.
func (b *Broker) AllTopics() []string {
	names := []string{b.Topics.Events, b.Topics.TenantCost}
	for _, o := range others(&b.Topics) {
		names = append(names, o.topic)
	}
	return names
}

// CreateTopics creates the topics, gateway-events and tenant-cost with so many partitions. Nothing on them is
// deleted by age: event times may lie long ago.
func (b *Broker) CreateTopics(ctx context.Context, events, tenantCost int) error {
	forever := "-1"
	configs := map[string]*string{"retention.ms": &forever}
	for _, topic := range b.AllTopics() {
		n := int32(1)
		switch topic {
		case b.Topics.Events:
			n = int32(events)
		case b.Topics.TenantCost:
			n = int32(tenantCost)
		}
		if _, err := b.admin.CreateTopic(ctx, n, -1, configs, topic); err != nil {
			return fmt.Errorf("create topic %s: %w", topic, err)
		}
	}
	return nil
}

// DeleteTopics deletes them.
func (b *Broker) DeleteTopics(ctx context.Context) error {
	deleted, err := b.admin.DeleteTopics(ctx, b.AllTopics()...)
	if err != nil {
		return err
	}
	return deleted.Error()
}
