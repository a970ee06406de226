package kafka_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka"
	"example.com/weir/internal/kafkatest"
)

// patience bounds a wait for what must come: a test that needs it all has failed.
const patience = 30 * time.Second

// stream reads a topic as the engine does, one split after the other as they come.
type stream struct {
	t      *testing.T
	source connector.Source[string]
	splits []connector.Split // with the positions after the last batch
	reader connector.Reader[string]

	rows     map[string][]string // by split ID
	rejected []connector.DeadLetter
	caughtUp map[string]bool
	ended    map[string]bool
}

func sourceConfig(b *kafkatest.Broker, topic string) kafka.SourceConfig {
	return kafka.SourceConfig{
		Config: kafka.Config{Brokers: b.Brokers}, Topic: topic, FetchMaxWait: 50 * time.Millisecond,
		TopicWait: time.Second,
	}
}

func boundedConfig(b *kafkatest.Broker, topic string) kafka.SourceConfig {
	cfg := sourceConfig(b, topic)
	cfg.UntilEnd = true
	return cfg
}

func discover(t *testing.T, cfg kafka.SourceConfig) *stream {
	t.Helper()
	s := &stream{
		t: t, source: stringSource(cfg),
		rows: map[string][]string{}, caughtUp: map[string]bool{}, ended: map[string]bool{},
	}
	splits, err := s.source.Discover(t.Context())
	require.NoError(t, err)
	s.splits = splits
	return s
}

// start opens a reader at the positions.
func (s *stream) start() error {
	rc := connector.ReaderContext[string]{
		Operator: "events", Admit: func(_ *string, sourceTime int64) (int64, error) { return sourceTime, nil },
	}
	r, err := s.source.Reader(s.t.Context(), rc, s.splits)
	if err != nil {
		return err
	}
	s.reader = r
	s.t.Cleanup(func() { require.NoError(s.t, r.Close()) })
	return nil
}

// until reads until done says so, or Read fails.
func (s *stream) until(done func() bool) error {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	var b connector.Batch[string]
	for !done() {
		if err := s.reader.Read(ctx, &b); err != nil {
			return err
		}
		s.take(&b)
	}
	return nil
}

func (s *stream) take(b *connector.Batch[string]) {
	split := &s.splits[b.Split]
	for _, row := range b.Rows {
		s.rows[split.ID] = append(s.rows[split.ID], strings.Clone(row))
	}
	s.rejected = append(s.rejected, b.Rejected...)
	split.Position = slices.Clone(b.Position)
	s.caughtUp[split.ID] = b.CaughtUp
	s.ended[split.ID] = s.ended[split.ID] || b.Ended
}

func (s *stream) position(split int) kafka.Position {
	s.t.Helper()
	p, err := kafka.ParsePosition(s.splits[split].Position)
	require.NoError(s.t, err)
	return p
}

func (s *stream) allCaughtUp() bool {
	return !slices.ContainsFunc(s.splits, func(split connector.Split) bool { return !s.caughtUp[split.ID] })
}

func (s *stream) allEnded() bool {
	return !slices.ContainsFunc(s.splits, func(split connector.Split) bool { return !s.ended[split.ID] })
}

// has says that n rows of a partition have been read.
func (s *stream) has(partition, n int) func() bool {
	return func() bool { return len(s.rows[s.splits[partition].ID]) >= n }
}

func (s *stream) rowsOf(partition int) []string { return s.rows[s.splits[partition].ID] }

func numbers(from, to int) []string {
	var v []string
	for i := from; i < to; i++ {
		v = append(v, fmt.Sprintf("%06d", i))
	}
	return v
}

func requireStop(t *testing.T, err error, text string) {
	t.Helper()
	require.ErrorContains(t, err, text)
	require.True(t, connector.IsStop(err), "not marked as one that stops the job: %v", err)
}

func TestWhatIsWrittenBetweenAStartAtLatestAndTheFirstReadIsRead(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		topic := b.CreateTopic(t, 1)
		b.Produce(t, topic, 0, "before")
		cfg := sourceConfig(b, topic)
		cfg.Start = kafka.Latest()
		s := discover(t, cfg)
		b.Produce(t, topic, 0, "between")
		require.NoError(t, s.start())
		require.NoError(t, s.until(s.has(0, 1)))
		require.Equal(t, []string{"between"}, s.rowsOf(0))
	})
}

func TestAStartAtLatestReadsTheTransactionThatIsOpenThen(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		topic := b.CreateTopic(t, 1)
		b.Produce(t, topic, 0, "before")
		cl, _ := b.OpenTransaction(t, topic, 0, "open")
		cfg := sourceConfig(b, topic)
		cfg.Start = kafka.Latest()
		s := discover(t, cfg)
		require.NoError(t, cl.EndTransaction(t.Context(), kgo.TryCommit))
		require.NoError(t, s.start())
		require.NoError(t, s.until(s.has(0, 1)))
		require.Equal(t, []string{"open"}, s.rowsOf(0))
	})
}

func TestAStartAtATimestampReadsFromTheFirstRecordOfThatTime(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		topic := b.CreateTopic(t, 2)
		base := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		records := kafkatest.Records(topic, 0, numbers(0, 10)...)
		for i, r := range records {
			r.Timestamp = base.Add(time.Duration(i) * time.Minute)
		}
		b.ProduceRecords(t, records...)
		old := kafkatest.Records(topic, 1, "older")
		old[0].Timestamp = base
		b.ProduceRecords(t, old...)
		cfg := boundedConfig(b, topic)
		cfg.Start = kafka.Timestamp(base.Add(6*time.Minute + 1))
		s := discover(t, cfg)
		require.NoError(t, s.start())
		require.NoError(t, s.until(s.allEnded))
		// The timestamps of records have milliseconds: a nanosecond later is the same time.
		require.Equal(t, numbers(6, 10), s.rowsOf(0))
		require.Empty(t, s.rowsOf(1))
	})
}

func TestExplicitStartOffsetsAreHeldAgainstTheLog(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		topic := b.CreateTopic(t, 2)
		b.Produce(t, topic, 0, numbers(0, 10)...)
		b.DeleteRecords(t, topic, 0, 2)
		cfg := boundedConfig(b, topic)
		cfg.Start = kafka.Offsets(map[int32]int64{0: 7, 1: 0})
		s := discover(t, cfg)
		require.NoError(t, s.start())
		require.NoError(t, s.until(s.allEnded))
		require.Equal(t, numbers(7, 10), s.rowsOf(0))

		for text, offsets := range map[string]map[int32]int64{
			"start offset 1 is outside of the log, which reaches from 2 to 10":  {0: 1, 1: 0},
			"start offset 11 is outside of the log, which reaches from 2 to 10": {0: 11, 1: 0},
			"no start offset for partition 1":                                   {0: 5},
			"a start offset for partition 2: the topic has 2":                   {0: 5, 1: 0, 2: 0},
		} {
			cfg.Start = kafka.Offsets(offsets)
			_, err := stringSource(cfg).Discover(t.Context())
			requireStop(t, err, text)
		}
	})
}

func TestABoundedReadEndsBehindTransactionMarkers(t *testing.T) {
	kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
		topic := b.CreateTopic(t, 3)
		b.ProduceTransaction(t, kgo.TryCommit, topic, 0, "a", "b")
		b.ProduceTransaction(t, kgo.TryCommit, topic, 0, "c")
		// Nothing but markers and aborted records.
		b.ProduceTransaction(t, kgo.TryAbort, topic, 1, numbers(0, 1000)...)
		b.ProduceTransaction(t, kgo.TryAbort, topic, 1, "no")

		s := discover(t, boundedConfig(b, topic))
		require.NoError(t, s.start())
		require.NoError(t, s.until(s.allEnded))
		require.Equal(t, []string{"a", "b", "c"}, s.rowsOf(0))
		require.EqualValues(t, 5, s.position(0).Next)
		require.Empty(t, s.rowsOf(1))
		require.EqualValues(t, 1003, s.position(1).Next)
		require.EqualValues(t, 0, s.position(2).Next)
	})
}

func TestABoundedReadEndsBeforeATransactionThatIsOpenAtItsStart(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		topic := b.CreateTopic(t, 1)
		b.Produce(t, topic, 0, "a")
		cl, _ := b.OpenTransaction(t, topic, 0, "open")
		b.Produce(t, topic, 0, "after")

		committed := discover(t, boundedConfig(b, topic))
		cfg := boundedConfig(b, topic)
		cfg.Isolation = kafka.ReadUncommitted
		uncommitted := discover(t, cfg)
		require.NoError(t, cl.EndTransaction(t.Context(), kgo.TryAbort))
		b.Produce(t, topic, 0, "later")

		require.NoError(t, committed.start())
		require.NoError(t, committed.until(committed.allEnded))
		require.Equal(t, []string{"a"}, committed.rowsOf(0))
		require.NoError(t, uncommitted.start())
		require.NoError(t, uncommitted.until(uncommitted.allEnded))
		require.Equal(t, []string{"a", "open", "after"}, uncommitted.rowsOf(0))
	})
}

func TestAnOpenTransactionIsTheEndOfWhatCanBeRead(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		topic := b.CreateTopic(t, 1)
		b.Produce(t, topic, 0, "a")
		cl, _ := b.OpenTransaction(t, topic, 0, "open")
		b.Produce(t, topic, 0, "after")
		s := discover(t, sourceConfig(b, topic))
		require.NoError(t, s.start())
		require.NoError(t, s.until(s.allCaughtUp))
		require.Equal(t, []string{"a"}, s.rowsOf(0))
		require.NoError(t, cl.EndTransaction(t.Context(), kgo.TryCommit))
		require.NoError(t, s.until(s.has(0, 3)))
		require.Equal(t, []string{"a", "open", "after"}, s.rowsOf(0))
	})
}

func TestAPositionThatRetentionHasOvertakenStopsTheJob(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		topic := b.CreateTopic(t, 2)
		b.Produce(t, topic, 0, numbers(0, 10)...)
		b.Produce(t, topic, 1, numbers(0, 10)...)
		s := discover(t, sourceConfig(b, topic))
		b.DeleteRecords(t, topic, 0, 3)
		b.DeleteRecords(t, topic, 1, 9)
		err := s.start()
		for partition, text := range []string{
			"%s/0: the log was deleted before it was read: position 0, and the log now starts at 3",
			"%s/1: the log was deleted before it was read: position 0, and the log now starts at 9",
		} {
			requireStop(t, err, fmt.Sprintf(text, topic)) // both are named at once
			_ = partition
		}
	})
}

func TestRetentionThatOvertakesARunningReaderStopsTheJob(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		topic := b.CreateTopic(t, 1)
		for i := range 50 { // fifty batches on the broker
			b.Produce(t, topic, 0, numbers(i*20, i*20+20)...)
		}
		cfg := sourceConfig(b, topic)
		cfg.FetchMaxPartitionBytes = 1 // one batch an answer, and few of them are fetched ahead
		s := discover(t, cfg)
		require.NoError(t, s.start())
		require.NoError(t, s.until(s.has(0, 20)))
		b.DeleteRecords(t, topic, 0, 1000)
		requireStop(t, s.until(s.has(0, 1000)), "the log was deleted before it was read")
		require.Equal(t, numbers(0, len(s.rowsOf(0))), s.rowsOf(0))
		require.Less(t, len(s.rowsOf(0)), 1000)
	})
}

func TestATopicThatDoesNotExistStopsTheJob(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		name := b.TopicName(t)
		_, err := stringSource(sourceConfig(b, name)).Discover(t.Context())
		requireStop(t, err, "topic "+name+" does not exist")
	})
}

func TestATopicThatWasDeletedStopsTheJob(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		topic := b.CreateTopic(t, 2)
		b.Produce(t, topic, 0, "a")
		s := discover(t, sourceConfig(b, topic))
		require.NoError(t, s.start())
		require.NoError(t, s.until(s.allCaughtUp))
		b.DeleteTopic(t, topic)
		requireStop(t, s.until(func() bool { return false }), "does not exist, or was deleted")
		requireStop(t, s.start(), "does not exist, or was deleted")
	})
}

func TestATopicThatWasMadeAgainStopsTheJob(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		topic := b.CreateTopic(t, 2)
		b.Produce(t, topic, 0, numbers(0, 5)...)
		s := discover(t, sourceConfig(b, topic))
		require.NoError(t, s.start())
		require.NoError(t, s.until(s.allCaughtUp))
		b.DeleteTopic(t, topic)
		b.CreateTopicNamed(t, topic, 2)
		b.Produce(t, topic, 0, numbers(100, 110)...) // the same offsets, and beyond
		b.Produce(t, topic, 1, "other")
		requireStop(t, s.until(func() bool { return false }), "topic "+topic+" was deleted and made again")
		require.Equal(t, numbers(0, 5), s.rowsOf(0))
		require.Empty(t, s.rowsOf(1))
		requireStop(t, s.start(), "topic "+topic+" was deleted and made again")
	})
}

func TestAPositionBeyondTheEndOfTheLogStopsTheJob(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		topic := b.CreateTopic(t, 1)
		b.Produce(t, topic, 0, numbers(0, 5)...)
		s := discover(t, sourceConfig(b, topic))
		p := s.position(0)
		p.Next = 6
		s.splits[0].Position = p.AppendTo(nil)
		requireStop(t, s.start(), "the log was truncated: position 6 is beyond its end, 5")
	})
}

func TestALogThatWasTruncatedAndHasGrownAgainStopsTheJob(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		b.Except(t, kafkatest.Apache, "one node has no other leader: its log is not truncated and its epochs are its own")
		topic := b.CreateTopic(t, 1)
		b.Produce(t, topic, 0, numbers(0, 3)...)
		s := discover(t, sourceConfig(b, topic))
		moveLeader(t, b, topic, 0)
		b.Produce(t, topic, 0, numbers(3, 6)...)
		// As if five records had been read of a leader that lost two of them.
		p := s.position(0)
		p.Next, p.LeaderEpoch = 5, 0
		s.splits[0].Position = p.AppendTo(nil)
		requireStop(t, s.start(), "position 5 was read in leader epoch 0, which now ends at 3")
	})
}

// moveLeader makes another broker the leader of a partition, in a new leader epoch.
func moveLeader(t *testing.T, b *kafkatest.Broker, topic string, partition int32) {
	t.Helper()
	next := (b.Fake.LeaderFor(topic, partition) + 1) % 3
	require.NoError(t, b.Fake.MoveTopicPartition(topic, partition, next))
}

func TestAMarkerOfANewerLeaderEpochIsNotTakenForATruncation(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		b.Except(t, kafkatest.Apache, "one node has no other leader to move a partition to")
		topic := b.CreateTopic(t, 1)
		cl, _ := b.OpenTransaction(t, topic, 0, "a")
		moveLeader(t, b, topic, 0)
		require.NoError(t, cl.EndTransaction(t.Context(), kgo.TryCommit))
		s := discover(t, sourceConfig(b, topic))
		require.NoError(t, s.start())
		require.NoError(t, s.until(s.allCaughtUp))
		require.EqualValues(t, 2, s.position(0).Next)
		require.NoError(t, s.start(), "the epoch of the last record ends before the marker")
		b.Produce(t, topic, 0, "b")
		require.NoError(t, s.until(s.has(0, 2)))
		require.Equal(t, []string{"a", "b"}, s.rowsOf(0))
	})
}

func TestLeadersThatMoveLoseAndDoubleNothing(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		b.Except(t, kafkatest.Apache, "one node has no other leader to move a partition to")
		topic := b.CreateTopic(t, 4)
		const batches, size = 40, 25
		for p := range 4 {
			for i := range batches {
				b.Produce(t, topic, int32(p), numbers(i*size, (i+1)*size)...)
			}
		}
		cfg := sourceConfig(b, topic)
		cfg.FetchMaxPartitionBytes, cfg.MaxBatch = 1000, 10
		s := discover(t, cfg)
		require.NoError(t, s.start())
		reads := 0
		require.NoError(t, s.until(func() bool {
			if reads++; reads%30 == 0 {
				b.Fake.ShufflePartitionLeaders()
			}
			for p := range 4 {
				if !s.has(p, batches*size)() {
					return false
				}
			}
			return true
		}))
		for p := range 4 {
			require.Equal(t, numbers(0, batches*size), s.rowsOf(p), "partition %d", p)
		}
	})
}

func TestAStalledPartitionIsNotCaughtUpAndStopsNoOther(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		b.Except(t, kafkatest.Apache, "a real broker does not hold back the answers for one partition at will")
		topic := b.CreateTopic(t, 3)
		stalled := int32(0)
		other := int32(1)
		for b.Fake.LeaderFor(topic, other) == b.Fake.LeaderFor(topic, stalled) {
			b.Fake.ShufflePartitionLeaders()
		}
		s := discover(t, sourceConfig(b, topic))
		require.NoError(t, s.start())
		require.NoError(t, s.until(s.allCaughtUp))

		node, release := b.Fake.LeaderFor(topic, stalled), make(chan struct{})
		b.Fake.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
			b.Fake.KeepControl()
			if b.Fake.CurrentNode() == node {
				b.Fake.SleepControl(func() { <-release })
			}
			return nil, nil, false
		})
		// Its fetch that is under way may still be answered; after that it says that it does not know.
		require.NoError(t, s.until(func() bool { return !s.caughtUp[s.splits[stalled].ID] }))
		b.Produce(t, topic, stalled, "behind")
		b.Produce(t, topic, other, numbers(0, 10)...)
		require.NoError(t, s.until(func() bool {
			require.False(t, s.caughtUp[s.splits[stalled].ID])
			return s.has(int(other), 10)() && s.caughtUp[s.splits[other].ID]
		}))
		require.Empty(t, s.rowsOf(int(stalled)))
		close(release)
		require.NoError(t, s.until(s.allCaughtUp))
		require.Equal(t, []string{"behind"}, s.rowsOf(int(stalled)))
	}, kfake.SleepOutOfOrder())
}

func TestAPartitionWhoseFetchFailsIsNotCaughtUpUntilItAnswersAgain(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		b.Except(t, kafkatest.Apache, "a real broker does not fail at will")
		topic := b.CreateTopic(t, 2)
		s := discover(t, sourceConfig(b, topic))
		require.NoError(t, s.start())
		require.NoError(t, s.until(s.allCaughtUp))
		fault := b.Fake.Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.Fetch}, Topic: topic, Partitions: []int32{0}, Err: kerr.KafkaStorageError, Count: -1,
		})
		require.NoError(t, s.until(func() bool { return !s.caughtUp[s.splits[0].ID] }))
		b.Produce(t, topic, 1, "a")
		require.NoError(t, s.until(s.has(1, 1)))
		require.False(t, s.caughtUp[s.splits[0].ID])
		fault.Remove()
		require.NoError(t, s.until(s.allCaughtUp))
	})
}

func TestARightToReadThatIsMissingFailsTheReader(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		b.Except(t, kafkatest.Apache, "the node of the tests has no authorizer")
		topic := b.CreateTopic(t, 1)
		s := discover(t, sourceConfig(b, topic))
		require.NoError(t, s.start())
		require.NoError(t, s.until(s.allCaughtUp))
		b.Fake.Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.Fetch}, Topic: topic, Err: kerr.TopicAuthorizationFailed, Count: -1,
		})
		err := s.until(func() bool { return false })
		require.ErrorIs(t, err, kerr.TopicAuthorizationFailed)
		require.ErrorContains(t, err, "split "+topic+"/0: fetch at offset 0")
		require.False(t, connector.IsStop(err), "the right may be given")
	})
}

func TestABadRecordIsRejectedWhole(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		topic := b.CreateTopic(t, 1)
		b.ProduceRecords(t,
			&kgo.Record{Topic: topic, Value: []byte("good")},
			&kgo.Record{
				Topic: topic, Key: []byte("key"), Value: []byte("bad value"), Timestamp: time.UnixMilli(1_700_000_000_123),
				Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("1")}, {Key: "h", Value: nil}},
			})
		s := discover(t, boundedConfig(b, topic))
		require.NoError(t, s.start())
		require.NoError(t, s.until(s.allEnded))
		require.Equal(t, []string{"good"}, s.rowsOf(0))
		require.Equal(t, []connector.DeadLetter{{
			Topic: topic, Partition: 0, Offset: 1, Timestamp: 1_700_000_000_123_000,
			Key: []byte("key"), Value: []byte("bad value"), Reason: "a bad value",
			Headers: []connector.Header{{Key: "h", Value: []byte("1")}, {Key: "h"}},
		}}, s.rejected)
	})
}

func TestADecoderGetsTheRecordAsItIs(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		topic := b.CreateTopic(t, 2)
		b.ProduceRecords(t,
			&kgo.Record{Topic: topic, Partition: 1, Value: []byte{}, Timestamp: time.UnixMilli(1_700_000_000_123)},
			&kgo.Record{
				Topic: topic, Partition: 1, Key: []byte{}, Timestamp: time.UnixMilli(-5),
				Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("1")}},
			})
		cfg := boundedConfig(b, topic)
		src := kafka.Source(cfg, func(r *kafka.Record, row *kafka.Record) error {
			*row = *r
			row.Headers = slices.Clone(r.Headers)
			return nil
		})
		splits, err := src.Discover(t.Context())
		require.NoError(t, err)
		var times []int64
		r, err := src.Reader(t.Context(), connector.ReaderContext[kafka.Record]{
			Admit: func(_ *kafka.Record, sourceTime int64) (int64, error) {
				times = append(times, sourceTime)
				return 7, nil
			},
		}, splits[1:])
		require.NoError(t, err)
		defer func() { require.NoError(t, r.Close()) }()
		var batch connector.Batch[kafka.Record]
		require.NoError(t, r.Read(t.Context(), &batch))
		require.Equal(t, []kafka.Record{
			{
				Topic: topic, Partition: 1, Offset: 0, Timestamp: time.UnixMilli(1_700_000_000_123).UTC(),
				Value: []byte{}, Headers: []kafka.Header{},
			},
			{
				Topic: topic, Partition: 1, Offset: 1, Timestamp: time.UnixMilli(-5).UTC(), Key: []byte{},
				Headers: []kafka.Header{{Key: "h", Value: []byte("1")}},
			},
		}, emptyHeaders(batch.Rows))
		require.Equal(t, []int64{1_700_000_000_123_000, -5000}, times)
		require.Equal(t, []int64{7, 7}, batch.Times)
		require.Zero(t, batch.Split)
	})
}

func emptyHeaders(rows []kafka.Record) []kafka.Record {
	for i := range rows {
		if rows[i].Headers == nil {
			rows[i].Headers = []kafka.Header{}
		}
	}
	return rows
}

func TestABatchHasNoMoreRowsThanItsLimit(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		topic := b.CreateTopic(t, 1)
		b.Produce(t, topic, 0, numbers(0, 1000)...)
		cfg := boundedConfig(b, topic)
		cfg.MaxBatch = 7
		s := discover(t, cfg)
		require.NoError(t, s.start())
		var batch connector.Batch[string]
		for next := int64(0); next < 1000; {
			require.NoError(t, s.reader.Read(t.Context(), &batch))
			require.LessOrEqual(t, len(batch.Rows), 7)
			next += int64(len(batch.Rows))
			s.take(&batch)
			require.Equal(t, next, s.position(0).Next)
			require.Equal(t, next == 1000, batch.Ended)
			require.Equal(t, next == 1000, batch.CaughtUp)
		}
	})
}

func TestTheSourceCommitsNoOffsets(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		b.Except(t, kafkatest.Apache, "a real broker does not tell which requests it has got")
		topic := b.CreateTopic(t, 1)
		commits := b.Fake.Fault(kfake.Fault{
			Keys:    []kmsg.Key{kmsg.OffsetCommit, kmsg.TxnOffsetCommit, kmsg.JoinGroup, kmsg.ConsumerGroupHeartbeat},
			Observe: true, Count: -1,
		})
		b.Produce(t, topic, 0, numbers(0, 100)...)
		s := discover(t, sourceConfig(b, topic))
		require.NoError(t, s.start())
		require.NoError(t, s.until(s.allCaughtUp))
		require.NoError(t, s.reader.Close())
		require.Zero(t, commits.Hits())
	})
}

func TestAReaderWithoutSplitsWaits(t *testing.T) {
	src := stringSource(kafka.SourceConfig{Config: kafka.Config{Brokers: []string{"127.0.0.1:1"}}, Topic: "t"})
	r, err := src.Reader(t.Context(), connector.ReaderContext[string]{}, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, r.Read(ctx, new(connector.Batch[string])), context.Canceled)
	require.NoError(t, r.Close())
}

func TestOpeningAReaderEndsWithItsContext(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		topic := b.CreateTopic(t, 1)
		s := discover(t, sourceConfig(b, topic))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.source.Reader(ctx, connector.ReaderContext[string]{}, s.splits)
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestClustersThatCannotBeReachedFailAndDoNotStopTheJob(t *testing.T) {
	cfg := kafka.SourceConfig{
		Config: kafka.Config{Brokers: []string{"127.0.0.1:1"}}, Topic: "t", TopicWait: 10 * time.Millisecond,
	}
	_, err := stringSource(cfg).Discover(t.Context())
	require.Error(t, err)
	require.False(t, connector.IsStop(err))
}

func TestAnImpossibleConfigurationStopsTheJob(t *testing.T) {
	brokers := kafka.Config{Brokers: []string{"127.0.0.1:1"}}
	for text, cfg := range map[string]kafka.SourceConfig{
		"no brokers":          {Topic: "t"},
		"no topic":            {Config: brokers},
		"the group's name":    {Config: brokers, Topic: "t", Start: kafka.FromGroup("", kafka.OrFail)},
		"OrFail, OrEarliest":  {Config: brokers, Topic: "t", Start: kafka.FromGroup("g", 0)},
		`AcceptLoss: "t/0"`:   {Config: brokers, Topic: "t", AcceptLoss: []string{"t/0"}},
		"isolation 7":         {Config: brokers, Topic: "t", Isolation: 7},
		"a limit is negative": {Config: brokers, Topic: "t", MaxBatch: -1},
	} {
		_, err := stringSource(cfg).Discover(t.Context())
		requireStop(t, err, text)
		_, err = stringSource(cfg).Reader(t.Context(), connector.ReaderContext[string]{}, nil)
		requireStop(t, err, text)
		_, err = stringSource(cfg).(connector.Growing).Grow(t.Context(), nil)
		requireStop(t, err, text)
	}
}

func TestASplitOfAnotherTopicIsRefused(t *testing.T) {
	src := stringSource(kafka.SourceConfig{Config: kafka.Config{Brokers: []string{"127.0.0.1:1"}}, Topic: "t"})
	good := kafka.Position{Partitions: 1, LeaderEpoch: -1, End: -1}.AppendTo(nil)
	for _, split := range []connector.Split{
		{ID: "tt/0", Position: good}, {ID: "t/x", Position: good}, {ID: "t/00", Position: good},
	} {
		_, err := src.Reader(t.Context(), connector.ReaderContext[string]{}, []connector.Split{split})
		requireStop(t, err, "is not a partition of this topic")
	}
	_, err := src.Reader(t.Context(), connector.ReaderContext[string]{}, []connector.Split{{ID: "t/0"}})
	requireStop(t, err, "split t/0: position: empty")
}

func TestABrokerThatIsKilledAndComesBackLosesAndDoublesNothing(t *testing.T) {
	n := kafkatest.NewNode(t, kafkatest.NodeConfig{})
	topic := n.CreateTopic(t, 2)
	n.ProduceTransaction(t, kgo.TryCommit, topic, 0, numbers(0, 10)...)
	n.Produce(t, topic, 1, numbers(0, 10)...)
	s := discover(t, sourceConfig(&n.Broker, topic))
	require.NoError(t, s.start())
	require.NoError(t, s.until(s.allCaughtUp))
	n.Kill(t)
	require.NoError(t, s.until(func() bool { return !s.caughtUp[s.splits[0].ID] && !s.caughtUp[s.splits[1].ID] }))
	n.Start(t)
	n.ProduceTransaction(t, kgo.TryCommit, topic, 0, numbers(10, 20)...)
	n.Produce(t, topic, 1, numbers(10, 20)...)
	require.NoError(t, s.until(func() bool { return s.has(0, 20)() && s.has(1, 20)() }))
	require.Equal(t, numbers(0, 20), s.rowsOf(0))
	require.Equal(t, numbers(0, 20), s.rowsOf(1))
	require.NoError(t, s.start(), "the restart made a new leader epoch, and truncated nothing")
}
