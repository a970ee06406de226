package kafka_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/weir"
	"example.com/weir/connectors/kafka"
	"example.com/weir/internal/kafkatest"
	"example.com/weir/internal/proof"
	"example.com/weir/weirtest"
)

// numbered is a row of the source: the nth of a split, which goes to the partition of the same number.
type numbered struct{ Split, N int }

func (n *numbered) String() string { return fmt.Sprintf("%d/%d", n.Split, n.N) }

const outageSplits = 3

// longOutage is a job whose brokers go away between CURRENT and a commit, and stay away for longer than they leave a
// transaction open.
type longOutage struct {
	broker *kafkatest.Broker
	proxy  *kafkatest.Proxy
	topic  string
	rows   *weirtest.Source[numbered]
	added  int                    // rows of each split
	held   atomic.Pointer[string] // the transactional ID whose commit was the first that did not go out
}

func (o *longOutage) job(cfg weir.Config) *weir.Job {
	cfg.Checkpoint.Interval, cfg.Checkpoint.Timeout = 500*time.Millisecond, 3*time.Second
	cfg.Restart = weir.FixedDelay{Delay: time.Second}
	job := weir.NewJob("outage", cfg)
	rows := weir.From(job, "rows", o.rows, weir.TimeConfig[numbered]{})
	weir.SinkTo(rows, "out", kafka.Sink(kafka.SinkConfig{
		Config: kafka.Config{Brokers: o.proxy.Brokers()}, Topic: o.topic, Guarantee: kafka.ExactlyOnce,
		TransactionalIDPrefix: o.topic, TransactionTimeout: 10 * time.Second, CommitDeadline: 5 * time.Second,
	}, func(row *numbered, r *kafka.Record) error {
		r.Partition = int32(row.Split)
		r.Value = append(r.Value, row.String()...)
		return nil
	}))
	return job
}

// feed adds a row to each split, again and again, until it is time.
func (o *longOutage) feed(until <-chan time.Time) {
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		for split := range outageSplits {
			o.rows.Add(split, numbered{split, o.added})
		}
		o.added++
		select {
		case <-tick.C:
		case <-until:
			return
		}
	}
}

// state is what the coordinator says of the transaction whose commit did not go out.
func (o *longOutage) state(t *testing.T) string {
	described, err := o.broker.Admin(t).DescribeTransactions(t.Context(), *o.held.Load())
	require.NoError(t, err)
	return described[*o.held.Load()].State
}

// want returns the values of each partition, one partition after the other.
func (o *longOutage) want() []string {
	var all []string
	for split := range outageSplits {
		for n := range o.added {
			all = append(all, (&numbered{split, n}).String())
		}
	}
	return all
}

// got returns what a reader of committed records sees, in order, one partition after the other.
func (o *longOutage) got(t *testing.T) []string {
	var parts [outageSplits][]string
	for _, r := range o.broker.ReadCommitted(t, o.topic) {
		parts[r.Partition] = append(parts[r.Partition], string(r.Value))
	}
	return slices.Concat(parts[:]...)
}

// The brokers are away for 40 s, from the moment at which a commit was to go out whose checkpoint exists. They abort
// its transaction after 10 s, and with it what CURRENT says is there.
func TestAnOutageLongerThanTheTransactionTimeoutLosesNothing(t *testing.T) {
	kafkatest.OnceIsEnough(t)
	t.Parallel()
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		b.Except(t, kafkatest.Fake, "it is about what brokers do by themselves while time passes")
		o := &longOutage{
			broker: b, proxy: kafkatest.NewProxy(t, b), topic: b.CreateTopic(t, outageSplits),
			rows: weirtest.NewSource[numbered](outageSplits),
		}
		outage := o.proxy.Inject(t, kafkatest.Fault{
			Key: kmsg.EndTxn, Do: kafkatest.CutBefore, Nth: 3, Then: o.proxy.Cut,
			Match: func(req kmsg.Request) bool {
				o.held.Store(&req.(*kmsg.EndTxnRequest).TransactionalID)
				return true
			},
		})
		job := weirtest.Run(t, o.job, weirtest.Storage(t.TempDir()))
		began := make(chan time.Time)
		go func() {
			<-outage.Hit()
			close(began)
		}()
		o.feed(began)
		o.feed(time.After(40 * time.Second))
		require.Equal(t, "CompleteAbort", o.state(t), "the outage was too short to lose anything")
		o.proxy.Mend()
		o.feed(time.After(time.Second))

		// A job that is drained reads no further, and this one has an outage to read up on.
		require.Eventually(t, func() bool { return len(o.got(t)) >= outageSplits*o.added }, 2*time.Minute, time.Second)
		_, err := job.Drain()
		require.NoError(t, err)
		want, got := o.want(), o.got(t)
		missing, doubled := kafkatest.Difference(want, got)
		proof.Note(t, proof.Count{
			Suite: proof.Outage, Fault: "brokers away for 40 s between CURRENT and the commit, transaction timeout 10 s",
			Broker: b.Title(), Injected: 1, Hit: int64(outage.Hits()), Records: int64(len(want)),
			Missing: int64(missing), Doubled: int64(doubled),
		})
		require.Zero(t, missing)
		require.Zero(t, doubled)
		require.Equal(t, want, got, "not in order")
	})
}
