package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/weir/connector"
	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/engine"
	"example.com/weir/internal/kafkatest"
	"example.com/weir/internal/proof"
	"example.com/weir/internal/protocol"
	"example.com/weir/weirtest"
)

// virtual is a cluster and a job in a bubble: minutes take no time.
type virtual struct {
	network kfake.VirtualNetwork
	cluster *kfake.Cluster
	source  *weirtest.Source[testRow]
	store   *dyingStore
	cfg     SinkConfig
	log     bytes.Buffer
}

const (
	virtualTopic          = "out"
	rowsBefore, rowsAfter = 4000, 500 // the outage
)

func newVirtual(t *testing.T) *virtual {
	t.Helper()
	v := &virtual{source: weirtest.NewSource[testRow](1)}
	var err error
	v.cluster, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(19092), kfake.ListenFn(v.network.Listen),
		kfake.SeedTopics(partitionsOfTests, virtualTopic))
	require.NoError(t, err)
	t.Cleanup(v.cluster.Close)
	store, err := checkpoint.Open("file://"+t.TempDir(), checkpoint.Options{Job: "outage"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	v.store = &dyingStore{Store: store}
	v.cfg = SinkConfig{
		Config: Config{Brokers: v.cluster.ListenAddrs()}, Topic: virtualTopic, Guarantee: ExactlyOnce,
		TransactionalIDPrefix: "outage", clientOptions: []kgo.Opt{kgo.Dialer(v.network.DialContext)},
	}
	return v
}

// run runs the job until its process dies, or for a while and stops it then.
func (v *virtual) run(t *testing.T) error {
	t.Helper()
	ctx, die := context.WithCancel(t.Context())
	defer die()
	control := engine.NewControl()
	time.AfterFunc(45*time.Second, func() { control.Stop(false) })
	v.store.die = die
	p := engine.NewPlan("outage", 1, 16)
	s := engine.Source(p, "rows", v.source, engine.SourceConfig[testRow]{}, &engine.DeadLetters{})
	engine.Sink(s, "out", Sink(v.cfg, encodeTestRow))
	_, err := engine.Run(ctx, p, engine.RunConfig{
		Store: v.store, Interval: 10 * time.Second, Restart: protocol.NoRestart{}, Logger: slog.New(slog.NewTextHandler(&v.log, nil)),
	}, control)
	return err
}

// dyingStore ends the process once CURRENT names something to be committed, when it is armed.
type dyingStore struct {
	checkpoint.Store
	armed bool
	die   context.CancelFunc
	named connector.Committable
}

var errDied = errors.New("the process has died")

func (s *dyingStore) Swap(ctx context.Context, old, next protocol.Current) (protocol.Current, error) {
	got, err := s.Store.Swap(ctx, old, next)
	if err != nil || !s.armed || next.Settled || next.Checkpoint == old.Checkpoint {
		return got, err
	}
	_, m, err := checkpoint.Latest(ctx, s.Store)
	if err != nil || len(m.Committables) == 0 {
		return got, err
	}
	s.armed, s.named = false, m.Committables[0]
	s.die()
	return protocol.Current{}, errDied // nobody is told that CURRENT was swapped
}

// committed reads the topic as its consumers do, by partition.
func (v *virtual) committed(t *testing.T) (seen [partitionsOfTests][]string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(v.cluster.ListenAddrs()...), kgo.Dialer(v.network.DialContext),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeTopics(virtualTopic))
	require.NoError(t, err)
	defer cl.Close()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		fetches := cl.PollFetches(ctx)
		cancel()
		fetches.EachRecord(func(r *kgo.Record) { seen[r.Partition] = append(seen[r.Partition], string(r.Value)) })
		if fetches.Empty() {
			return seen
		}
	}
}

// A process dies between CURRENT and the commit of what it names, and is back after sixteen minutes: one more than
// the brokers leave a transaction open. They have aborted it; the restore writes it again, and a reader of
// committed records sees every row once, in order. Back after fourteen, there is nothing to write again.
func TestAJobThatIsBackAfterSixteenMinutesHasLostNothing(t *testing.T) {
	for minutes, lost := range map[int]bool{14: false, 16: true} {
		t.Run(fmt.Sprintf("%d minutes", minutes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := newVirtual(t)
				var want [partitionsOfTests][]string
				add := func(name string, n int) {
					var rows []testRow
					for i := range n {
						value := fmt.Sprintf("%s-%06d-%s", name, i, strings.Repeat("x", i%50))
						p := i % partitionsOfTests
						rows, want[p] = append(rows, testRow{partition: int32(p), value: value}), append(want[p], value)
					}
					v.source.Add(0, rows...)
				}
				add("before", rowsBefore)
				v.store.armed = true
				require.ErrorIs(t, v.run(t), context.Canceled, "%s", &v.log)
				require.NotEmpty(t, v.store.named.Payload, "it died when CURRENT named a transaction")
				require.NotEmpty(t, v.store.named.Kept.Name)
				require.Empty(t, v.store.named.Kept.Inline, "its records are in a file")
				require.Zero(t, v.committed(t), "a reader of committed records waits")
				time.Sleep(time.Duration(minutes) * time.Minute)
				add("after", rowsAfter)
				require.NoError(t, v.run(t))
				got := v.committed(t)
				missing, doubled := kafkatest.Difference(slices.Concat(want[:]...), slices.Concat(got[:]...))
				proof.Note(t, proof.Count{
					Suite:  proof.Outage,
					Fault:  fmt.Sprintf("killed between CURRENT and the commit, back after %d minutes (virtual), transaction timeout 15", minutes),
					Broker: "kfake, transaction version 2", Injected: 1, Hit: 1, Records: int64(rowsBefore + rowsAfter),
					Missing: int64(missing), Doubled: int64(doubled),
				})
				require.Equal(t, want, got)
				require.Equal(t, lost, strings.Contains(v.log.String(), "a lost transaction was written again"), v.log.String())
			})
		})
	}
}
