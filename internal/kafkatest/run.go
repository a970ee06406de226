package kafkatest

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Run runs f as a subtest against kfake and as one against Apache Kafka, both with transaction.version
// 2. The options go to kfake, whose default here is three brokers.
func Run(t *testing.T, f func(t *testing.T, b *Broker), opts ...kfake.Opt) {
	t.Helper()
	runFake(t, f, 2, opts)
	runApache(t, f, 2)
}

// RunTransactionVersions is Run for what depends on the cluster's transaction.version: f runs against
// each kind of broker with 2 and with 1.
func RunTransactionVersions(t *testing.T, f func(t *testing.T, b *Broker), opts ...kfake.Opt) {
	t.Helper()
	for _, version := range []int{2, 1} {
		runFake(t, f, version, opts)
		runApache(t, f, version)
	}
}

// OnceIsEnough ends a test under the race detector that takes long, because brokers do, and whose code other tests
// run under it too.
func OnceIsEnough(t *testing.T) {
	t.Helper()
	if raceDetector {
		t.Skip("what it shows about brokers it shows without the race detector")
	}
}

// NewFake starts a kfake cluster on loopback that ends with the test, and that only this test uses.
// Tests that are about a broker's control hooks alone use it; others use Run.
func NewFake(t *testing.T, opts ...kfake.Opt) *Broker {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(3)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return &Broker{Kind: Fake, Brokers: c.ListenAddrs(), TransactionVersion: 2, Fake: c, report: new(report)}
}

func runFake(t *testing.T, f func(t *testing.T, b *Broker), transactionVersion int, opts []kfake.Opt) {
	t.Helper()
	name := (&Broker{Kind: Fake, TransactionVersion: transactionVersion}).Name()
	t.Run(name, func(t *testing.T) {
		b := NewFake(t, opts...)
		b.report.writeAtEnd(t, name)
		if transactionVersion == 1 {
			downgrade(t, b)
		}
		f(t, b)
	})
}

func downgrade(t *testing.T, b *Broker) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Brokers...))
	require.NoError(t, err)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = kadm.NewClient(cl).UpdateFeatures(ctx, false, kadm.FeatureUpdate{
		Feature: "transaction.version", MaxVersionLevel: 1, UpgradeType: 2, // 2 is a safe downgrade
	})
	require.NoError(t, err)
	b.TransactionVersion = 1
}

func runApache(t *testing.T, f func(t *testing.T, b *Broker), transactionVersion int) {
	t.Helper()
	b := &Broker{Kind: Apache, Version: apacheVersion(), TransactionVersion: transactionVersion, report: new(report)}
	t.Run(b.Name(), func(t *testing.T) {
		b.report.writeAtEnd(t, b.Name())
		address, err := sharedNode(transactionVersion)
		if err != nil {
			missing(t, b.report, err)
		}
		b.Brokers = []string{address}
		f(t, b)
	})
}

// missing ends a test that has no Apache Kafka.
func missing(t *testing.T, r *report, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("no Apache Kafka, and CI=true: %v", err)
	}
	r.except("no Apache Kafka here: " + err.Error())
	t.Skipf("no Apache Kafka: %v", err)
}
