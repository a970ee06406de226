package kafka

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"example.com/weir/connector"
	"example.com/weir/internal/kafkatest"
)

func TestASinkSaysWhatItCannotPromise(t *testing.T) {
	base := SinkConfig{Config: Config{Brokers: []string{"b:1"}}, Topic: "t"}
	with := func(change func(*SinkConfig)) SinkConfig {
		c := base
		change(&c)
		return c
	}
	for name, tt := range map[string]struct {
		cfg           SinkConfig
		noCheckpoints bool
		want          string
	}{
		"no guarantee":             {cfg: base, want: "there is no default"},
		"a guarantee from nowhere": {cfg: with(func(c *SinkConfig) { c.Guarantee = 9 }), want: "Guarantee(9)"},
		"none":                     {cfg: with(func(c *SinkConfig) { c.Guarantee = None })},
		"none without checkpoints": {cfg: with(func(c *SinkConfig) { c.Guarantee = None }), noCheckpoints: true},
		"at-least-once":            {cfg: with(func(c *SinkConfig) { c.Guarantee = AtLeastOnce })},
		"at-least-once, no checkpoint": {
			cfg: with(func(c *SinkConfig) { c.Guarantee = AtLeastOnce }), noCheckpoints: true, want: "needs checkpoints",
		},
		"exactly-once without prefix": {
			cfg: with(func(c *SinkConfig) { c.Guarantee = ExactlyOnce }), want: "needs a transactional ID prefix",
		},
		"exactly-once": {cfg: with(func(c *SinkConfig) { c.Guarantee, c.TransactionalIDPrefix = ExactlyOnce, "p" })},
		"exactly-once, no checkpoints": {
			cfg:           with(func(c *SinkConfig) { c.Guarantee, c.TransactionalIDPrefix = ExactlyOnce, "p" }),
			noCheckpoints: true, want: "needs checkpoints",
		},
		"a prefix that would mean nothing": {
			cfg:  with(func(c *SinkConfig) { c.Guarantee, c.TransactionalIDPrefix = AtLeastOnce, "p" }),
			want: "switched off in silence",
		},
		"a timeout that would mean nothing": {
			cfg:  with(func(c *SinkConfig) { c.Guarantee, c.TransactionTimeout = None, time.Minute }),
			want: "there are no transactions",
		},
		"a deadline that would mean nothing": {
			cfg:  with(func(c *SinkConfig) { c.Guarantee, c.CommitDeadline = AtLeastOnce, time.Minute }),
			want: "there are no transactions",
		},
		"a policy that would mean nothing": {
			cfg:  with(func(c *SinkConfig) { c.Guarantee, c.LostTransaction = AtLeastOnce, Skip }),
			want: "there are no transactions",
		},
		"records of no transactions": {
			cfg:  with(func(c *SinkConfig) { c.Guarantee, c.DoNotKeepRecords = None, true }),
			want: "there are no transactions",
		},
		"writing again what is not kept": {
			cfg: with(func(c *SinkConfig) {
				c.Guarantee, c.TransactionalIDPrefix, c.DoNotKeepRecords = ExactlyOnce, "p", true
			}),
			want: "say fail or skip",
		},
		"records not kept, and lost by name": {
			cfg: with(func(c *SinkConfig) {
				c.Guarantee, c.TransactionalIDPrefix, c.DoNotKeepRecords, c.LostTransaction = ExactlyOnce, "p", true, Fail
			}),
		},
		"no such policy": {
			cfg: with(func(c *SinkConfig) {
				c.Guarantee, c.TransactionalIDPrefix, c.LostTransaction = ExactlyOnce, "p", 7
			}),
			want: "want reemit, fail or skip",
		},
		"no topic":     {cfg: with(func(c *SinkConfig) { c.Guarantee, c.Topic = None, "" }), want: "no topic"},
		"empty broker": {cfg: with(func(c *SinkConfig) { c.Guarantee, c.Brokers = None, []string{""} }), want: "one address is empty"},
		"no brokers":   {cfg: with(func(c *SinkConfig) { c.Guarantee, c.Brokers = None, nil }), want: "no brokers"},
		"no such code": {cfg: with(func(c *SinkConfig) { c.Guarantee, c.Compression = None, "rar" }), want: `"rar"`},
		"a transaction timeout of milliseconds": {
			cfg: with(func(c *SinkConfig) {
				c.Guarantee, c.TransactionalIDPrefix, c.TransactionTimeout = ExactlyOnce, "p", time.Millisecond
			}),
			want: "transaction timeout",
		},
		"a deadline of nothing": {
			cfg: with(func(c *SinkConfig) {
				c.Guarantee, c.TransactionalIDPrefix, c.CommitDeadline = ExactlyOnce, "p", -1
			}),
			want: "commit deadline",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := Sink(tt.cfg, encodeTestRow)
			require.Equal(t, tt.cfg.Guarantee, s.Guarantee())
			err := s.Validate(!tt.noCheckpoints)
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
		})
	}
	require.ErrorContains(t, Sink[testRow](base, nil).Validate(true), "no encode function")
}

func TestPoliciesForLostTransactionsAreReadAsTheyAreSaid(t *testing.T) {
	for _, l := range []LostTransaction{Reemit, Fail, Skip} {
		got, err := ParseLostTransaction(l.String())
		require.NoError(t, err)
		require.Equal(t, l, got)
	}
	_, err := ParseLostTransaction("ignore")
	require.ErrorContains(t, err, `"ignore"`)
	var unsaid SinkConfig
	require.Equal(t, Reemit, unsaid.LostTransaction)
}

// A commit is tried for no longer than a transaction can be open.
func TestTheCommitDeadlineFollowsTheTransactionTimeout(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		0: 2 * time.Minute, 10 * time.Second: 10 * time.Second, time.Hour: 2 * time.Minute,
	} {
		c := SinkConfig{TransactionTimeout: timeout}.withDefaults(nil)
		require.Equal(t, want, c.CommitDeadline)
		require.LessOrEqual(t, c.grace, want/2)
	}
}

// The engine takes a sink for two-phase by its type.
func TestOnlyExactlyOnceIsTwoPhase(t *testing.T) {
	for _, g := range []connector.Guarantee{connector.Unstated, None, AtLeastOnce, ExactlyOnce} {
		_, ok := Sink(SinkConfig{Guarantee: g}, encodeTestRow).(connector.TwoPhaseSink[testRow])
		require.Equal(t, g == ExactlyOnce, ok, g)
	}
}

func plainSinkFor(t *testing.T, b *kafkatest.Broker, opts ...kgo.Opt) (*testJob, connector.Writer[testRow]) {
	j := newTestJob(t, b)
	j.cfg.Guarantee, j.cfg.TransactionalIDPrefix = AtLeastOnce, ""
	j.cfg.TransactionTimeout, j.cfg.CommitDeadline = 0, 0
	j.cfg.clientOptions = opts
	s := Sink(j.cfg, encodeTestRow)
	require.NoError(t, s.Validate(true))
	w, err := s.Writer(t.Context(), connector.WriterContext{Operator: "out"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	return j, w
}

func TestAtLeastOnceFlushMeansAcknowledged(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		j, w := plainSinkFor(t, b)
		write(t, w, "a1", "b1", "a2")
		require.NoError(t, w.Flush(t.Context(), false))
		require.Equal(t, []string{"a1", "b1", "a2"}, j.visible(t))
	})
}

// A record that fails behind Write's back makes the barrier's Flush fail, and everything after.
func TestASendErrorIsSticky(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		for name, bad := range map[string]testRow{
			"no such partition":  {partition: partitionsOfTests, value: "a1"},
			"too large":          {value: strings.Repeat("x", 2<<20)},
			"refused unbuffered": {value: strings.Repeat("x", 5<<20)},
		} {
			t.Run(name, func(t *testing.T) {
				_, w := plainSinkFor(t, b, kgo.MaxBufferedBytes(4<<20))
				require.NoError(t, w.Write(t.Context(), []testRow{bad}))
				first := w.Flush(t.Context(), false)
				require.Error(t, first)
				require.ErrorIs(t, w.Write(t.Context(), rowsOf("a1")), unwrapAll(first))
				require.ErrorIs(t, w.Flush(t.Context(), true), unwrapAll(first))
				require.ErrorIs(t, w.Flush(t.Context(), true), unwrapAll(first))
			})
		}
	})
}

func unwrapAll(err error) error {
	for {
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return err
		}
		err = u.Unwrap()
	}
}

// The client's Flush does not wait for a record that it refused before buffering it: the promise
// comes later.
func TestFlushWaitsForEveryAnswer(t *testing.T) {
	d := newDelivery()
	d.sent = 2
	d.done.Store(1)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, d.flush(ended, nil), context.Canceled)
	go d.fail(kerr.MessageTooLarge)
	require.ErrorIs(t, d.flush(t.Context(), nil), kerr.MessageTooLarge)
}

func TestASendErrorIsStickyInATransaction(t *testing.T) {
	kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		w := j.writer(t, j.restore(t), 0)
		write(t, w, "a1")
		require.NoError(t, w.Write(t.Context(), []testRow{{partition: partitionsOfTests, value: "b1"}}))
		first := w.Flush(t.Context(), false)
		require.Error(t, first)
		_, err := w.PrepareCommit(t.Context(), 1)
		require.ErrorIs(t, err, unwrapAll(first))
		require.ErrorIs(t, w.Write(t.Context(), rowsOf("c1")), unwrapAll(first))
		j.restore(t)
		require.Empty(t, j.visible(t))
	})
}

// The broker answers nothing: the barrier is not acknowledged.
func TestFlushWaitsForABrokerThatIsAway(t *testing.T) {
	b := kafkatest.NewFake(t)
	_, w := plainSinkFor(t, b)
	fault := b.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1})
	write(t, w, "a1")
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, w.Flush(short, false), context.DeadlineExceeded)
	fault.Remove()
	require.NoError(t, w.Flush(t.Context(), false))
}

func TestARowThatCannotBeEncodedIsAnErrorOfWrite(t *testing.T) {
	b := kafkatest.NewFake(t)
	_, w := plainSinkFor(t, b)
	err := w.Write(t.Context(), rowsOf("a1", "unencodable"))
	require.ErrorContains(t, err, "row 1 of the batch: encode: cannot be encoded")
}

func TestAPlainWriterLeavesNothingBehind(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		before := goleak.IgnoreCurrent()
		s := Sink(SinkConfig{Config: j.cfg.Config, Topic: j.cfg.Topic, Guarantee: None}, encodeTestRow)
		w, err := s.Writer(t.Context(), connector.WriterContext{Operator: "out"})
		require.NoError(t, err)
		write(t, w, "a1", "a2", "a3")
		require.NoError(t, w.Close())
		noneLeft(t, before)
	})
}

// What encode puts into the record arrives, nil and empty told apart.
func TestARecordArrivesAsItWasEncoded(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		topic := b.CreateTopic(t, 1)
		at := time.UnixMilli(1_700_000_000_123).UTC()
		own := []byte("own memory")
		s := Sink(SinkConfig{Config: Config{Brokers: b.Brokers}, Topic: topic, Guarantee: None},
			func(row *int, r *Record) error {
				require.Equal(t, int32(-1), r.Partition)
				require.Empty(t, r.Headers)
				switch *row {
				case 0:
					r.Key = append(r.Key, "key"...)
					r.Value = append(r.Value, "value"...)
					r.Headers = append(r.Headers, Header{Key: "h", Value: []byte("x")}, Header{Key: "nil"}, Header{Key: "h"})
					r.Timestamp, r.Topic = at, topic
				case 1:
					r.Value = nil
				case 2:
					r.Key, r.Value = own, own[:3]
				case 3:
					r.Key, r.Value = []byte{}, append(r.Value, strings.Repeat("long", 1000)...)
				}
				return nil
			})
		w, err := s.Writer(t.Context(), connector.WriterContext{Operator: "out"})
		require.NoError(t, err)
		before := time.Now().Truncate(time.Millisecond)
		require.NoError(t, w.Write(t.Context(), []int{0, 1, 2, 3, 0}))
		require.NoError(t, w.Flush(t.Context(), true))
		require.NoError(t, w.Close())

		got := readAll(t, b, topic, 5)
		require.Equal(t, "key", string(got[0].Key))
		require.Equal(t, "value", string(got[0].Value))
		require.Equal(t, []kgo.RecordHeader{{Key: "h", Value: []byte("x")}, {Key: "nil"}, {Key: "h"}}, got[0].Headers)
		require.Equal(t, at, got[0].Timestamp.UTC())
		require.Nil(t, got[1].Key)
		require.Nil(t, got[1].Value)
		require.False(t, got[1].Timestamp.Before(before))
		require.Equal(t, "own memory", string(got[2].Key))
		require.Equal(t, "own", string(got[2].Value))
		require.NotNil(t, got[3].Key)
		require.Len(t, got[3].Value, 4000)
		require.Equal(t, got[0].Headers, got[4].Headers)
		require.Equal(t, "own memory", string(own), "the row's own memory is not written to")
	})
}

func readAll(t *testing.T, b *kafkatest.Broker, topic string, n int) []*kgo.Record {
	cl := b.Client(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(0)}}))
	var got []*kgo.Record
	for len(got) < n {
		fetches := cl.PollFetches(t.Context())
		require.NoError(t, fetches.Err0())
		got = append(got, fetches.Records()...)
	}
	return got
}

func TestAnEmptyValueIsNoTombstone(t *testing.T) {
	e := newEncoder("t", func(*int, *Record) error { return nil })
	for range 3 {
		out, err := e.record(new(int), time.Time{})
		require.NoError(t, err)
		require.Nil(t, out.rec.Key)
		require.NotNil(t, out.rec.Value)
	}
}

func TestARecordForAnotherTopicIsRefused(t *testing.T) {
	e := newEncoder("t", func(_ *int, r *Record) error {
		r.Topic = "other"
		return nil
	})
	_, err := e.record(new(int), time.Time{})
	require.ErrorContains(t, err, `names topic "other"`)
}

func TestPartitionsFollowTheRecordOrItsKey(t *testing.T) {
	p := newPartitioner().ForTopic("t")
	require.Equal(t, 2, p.Partition(&kgo.Record{Partition: 2, Key: []byte("k")}, 5))
	require.True(t, p.RequiresConsistency(&kgo.Record{Partition: 2}))
	require.False(t, p.RequiresConsistency(&kgo.Record{Partition: -1}))
	byKafka := kgo.StickyKeyPartitioner(nil).ForTopic("t")
	for i := range 100 {
		r := &kgo.Record{Partition: -1, Key: fmt.Appendf(nil, "key %d", i)}
		require.Equal(t, byKafka.Partition(r, 7), p.Partition(r, 7))
		require.True(t, p.RequiresConsistency(r))
	}
}
