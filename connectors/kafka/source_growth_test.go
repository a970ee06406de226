package kafka_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka"
	"example.com/weir/internal/kafkatest"
)

// addPartitions adds partitions to a topic and waits until they have leaders.
func addPartitions(t *testing.T, b *kafkatest.Broker, topic string, n int) {
	t.Helper()
	resp, err := b.Admin(t).CreatePartitions(t.Context(), n, topic)
	require.NoError(t, err)
	require.NoError(t, resp.Error())
	admin := b.Admin(t)
	require.Eventually(t, func() bool {
		ends, err := admin.ListEndOffsets(t.Context(), topic)
		return err == nil && ends.Error() == nil && len(ends[topic]) > n
	}, patience, 5*time.Millisecond)
}

// grow finds what was added and hands it to the reader.
func (s *stream) grow() []string {
	s.t.Helper()
	more, err := s.source.(connector.Growing).Grow(s.t.Context(), s.splits)
	require.NoError(s.t, err)
	s.splits = append(s.splits, more...)
	require.NoError(s.t, s.reader.(connector.SplitAdder).AddSplits(s.t.Context(), slices.Clone(more)))
	var ids []string
	for _, sp := range more {
		ids = append(ids, sp.ID)
	}
	return ids
}

func TestPartitionsThatWereAddedAreReadFromTheirStart(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		topic := b.CreateTopic(t, 2)
		b.Produce(t, topic, 0, "before")
		cfg := sourceConfig(b, topic)
		cfg.Start = kafka.Latest() // of the partitions that there are now; the others begin at their start
		s := discover(t, cfg)
		require.NoError(t, s.start())
		require.NoError(t, s.until(s.allCaughtUp))
		require.Empty(t, s.grow())

		addPartitions(t, b, topic, 2)
		b.Produce(t, topic, 2, numbers(0, 10)...)
		b.Produce(t, topic, 0, "after")
		require.Equal(t, []string{topic + "/2", topic + "/3"}, s.grow())
		require.NoError(t, s.until(func() bool { return s.has(2, 10)() && s.has(0, 1)() && s.allCaughtUp() }))
		require.Equal(t, numbers(0, 10), s.rowsOf(2))
		require.Equal(t, []string{"after"}, s.rowsOf(0))
		require.Empty(t, s.grow())

		require.NoError(t, s.start(), "positions of partitions that were found at different times")
		b.Produce(t, topic, 3, "more")
		require.NoError(t, s.until(s.has(3, 1)))
	})
}

func TestAReaderWithoutPartitionsReadsOneThatIsAdded(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		topic := b.CreateTopic(t, 1)
		s := discover(t, sourceConfig(b, topic))
		all := s.splits
		s.splits = nil
		require.NoError(t, s.start())
		addPartitions(t, b, topic, 1)
		b.Produce(t, topic, 1, "a")
		more, err := s.source.(connector.Growing).Grow(t.Context(), all)
		require.NoError(t, err)
		s.splits = more
		require.NoError(t, s.reader.(connector.SplitAdder).AddSplits(t.Context(), more))
		require.NoError(t, s.until(s.has(0, 1)))
		require.Equal(t, []string{"a"}, s.rowsOf(0))
	})
}

// A partition that was added begins at its first offset. If that is gone before it was found, it is a loss
// like any other, and no reason to begin later.
func TestWhatRetentionAteOfAnAddedPartitionStopsTheJob(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		topic := b.CreateTopic(t, 1)
		s := discover(t, sourceConfig(b, topic))
		require.NoError(t, s.start())
		addPartitions(t, b, topic, 1)
		b.Produce(t, topic, 1, numbers(0, 10)...)
		b.DeleteRecords(t, topic, 1, 4)
		s.grow()
		requireStop(t, s.until(func() bool { return false }),
			topic+"/1: the log was deleted before it was read: position 0, and the log now starts at 4; up to 4 records are gone")
	})
}

func TestABoundedReadLooksForNoPartitions(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		topic := b.CreateTopic(t, 2)
		s := discover(t, boundedConfig(b, topic))
		addPartitions(t, b, topic, 1)
		require.Zero(t, s.source.(connector.Growing).GrowthInterval())
		require.NoError(t, s.start())
		require.NoError(t, s.until(s.allEnded))
	})
}

func TestLookingForPartitionsOfATopicThatIsGoneStopsTheJob(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		topic := b.CreateTopic(t, 2)
		s := discover(t, sourceConfig(b, topic))
		b.DeleteTopic(t, topic)
		_, err := s.source.(connector.Growing).Grow(t.Context(), s.splits)
		requireStop(t, err, "does not exist, or was deleted")
		b.CreateTopicNamed(t, topic, 3)
		_, err = s.source.(connector.Growing).Grow(t.Context(), s.splits)
		requireStop(t, err, "was deleted and made again")
	})
}

// escapeIn returns the escape that an error names.
func escapeIn(t *testing.T, err error) string {
	t.Helper()
	require.Error(t, err)
	_, after, ok := strings.Cut(err.Error(), "by name: ")
	require.True(t, ok, err)
	option, _, ok := strings.Cut(after, " (")
	require.True(t, ok, err)
	_, name, ok := strings.Cut(option, " ")
	require.True(t, ok, err)
	return name
}

// accept gives the escape that an error names, and reads on.
func (s *stream) accept(cfg kafka.SourceConfig) {
	s.t.Helper()
	s.source = stringSource(cfg)
	require.NoError(s.t, s.start())
}

func TestAnAcceptedLossGoesOnAtTheStartOfTheLogOnce(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		topic := b.CreateTopic(t, 2)
		for p := range int32(2) {
			b.Produce(t, topic, p, numbers(0, 20)...)
		}
		cfg := sourceConfig(b, topic)
		s := discover(t, cfg)
		b.DeleteRecords(t, topic, 0, 5)
		cfg.AcceptLoss = []string{escapeIn(t, s.start())}
		require.Equal(t, []string{topic + "/0@0"}, cfg.AcceptLoss)

		// Where the other partition has lost records, too, it is not covered.
		b.DeleteRecords(t, topic, 1, 3)
		s.source = stringSource(cfg)
		err := s.start()
		requireStop(t, err, topic+"/1: the log was deleted")
		require.NotContains(t, err.Error(), topic+"/0:")
		cfg.AcceptLoss = append(cfg.AcceptLoss, escapeIn(t, err))

		s.accept(cfg)
		require.NoError(t, s.until(func() bool { return s.has(0, 15)() && s.has(1, 17)() }))
		require.Equal(t, numbers(5, 20), s.rowsOf(0))
		require.Equal(t, numbers(3, 20), s.rowsOf(1))

		b.Produce(t, topic, 0, numbers(20, 30)...)
		b.DeleteRecords(t, topic, 0, 25)
		requireStop(t, s.start(), "position 20, and the log now starts at 25") // under the same escapes
	})
}

// A log that was deleted to its end has nothing to read, and the position moves all the same: the escape
// is used, and the checkpoint that follows does not need it again.
func TestAnAcceptedLossIsInThePositionBeforeTheNextRecord(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		topic := b.CreateTopic(t, 1)
		b.Produce(t, topic, 0, numbers(0, 20)...)
		cfg := sourceConfig(b, topic)
		s := discover(t, cfg)
		b.DeleteRecords(t, topic, 0, 20)
		cfg.AcceptLoss = []string{escapeIn(t, s.start())}
		s.accept(cfg)
		require.NoError(t, s.until(func() bool { return s.position(0).Next == 20 }))
		s.accept(sourceConfig(b, topic))
	})
}

func TestAnAcceptedTopicIsReadFromItsStartOnce(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		topic := b.CreateTopic(t, 2)
		b.Produce(t, topic, 0, numbers(0, 5)...)
		cfg := sourceConfig(b, topic)
		s := discover(t, cfg)
		require.NoError(t, s.start())
		require.NoError(t, s.until(s.allCaughtUp))
		b.DeleteTopic(t, topic)
		b.CreateTopicNamed(t, topic, 3)
		b.Produce(t, topic, 0, numbers(100, 110)...)
		b.Produce(t, topic, 2, "new")
		cfg.AcceptRecreated = []string{escapeIn(t, s.start())}

		s.accept(cfg)
		require.Equal(t, []string{topic + "/2"}, s.grow())
		require.NoError(t, s.until(func() bool { return s.has(0, 15)() && s.has(2, 1)() && s.allCaughtUp() }))
		require.Equal(t, append(numbers(0, 5), numbers(100, 110)...), s.rowsOf(0))
		for p := range 3 {
			require.Equal(t, s.position(2).TopicID, s.position(p).TopicID, "of partition %d, although it is empty", p)
		}
		s.accept(sourceConfig(b, topic))

		b.DeleteTopic(t, topic)
		b.CreateTopicNamed(t, topic, 3)
		s.source = stringSource(cfg)
		requireStop(t, s.start(), "was deleted and made again")
	})
}

// The reader judges the topic once more, by the first of its splits, and knows how many partitions it has.
func TestAnAcceptedTopicIsReadWhicheverSplitComesFirst(t *testing.T) {
	b := kafkatest.NewFake(t)
	topic := b.CreateTopic(t, 2)
	b.Produce(t, topic, 0, numbers(0, 5)...)
	cfg := sourceConfig(b, topic)
	s := discover(t, cfg)
	require.NoError(t, s.start())
	require.NoError(t, s.until(s.allCaughtUp))
	b.DeleteTopic(t, topic)
	b.CreateTopicNamed(t, topic, 2)
	b.Produce(t, topic, 0, numbers(100, 110)...)
	cfg.AcceptRecreated = []string{escapeIn(t, s.start())}
	s.accept(cfg)
	require.Empty(t, s.grow())
	require.NoError(t, s.until(func() bool { return s.has(0, 15)() && s.allCaughtUp() }))
	require.Equal(t, append(numbers(0, 5), numbers(100, 110)...), s.rowsOf(0))
}

func TestAnAcceptedTruncationGoesOnWhereTheLogWasCutOnce(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		topic := b.CreateTopic(t, 1)
		b.Produce(t, topic, 0, numbers(0, 5)...)
		cfg := sourceConfig(b, topic)
		s := discover(t, cfg)
		p := s.position(0)
		p.Next, p.LeaderEpoch = 8, 0 // as if three more had been read, and a leader had lost them
		s.splits[0].Position = p.AppendTo(nil)
		cfg.AcceptTruncation = []string{escapeIn(t, s.start())}
		require.Equal(t, []string{topic + "/0@8:0"}, cfg.AcceptTruncation)
		s.accept(cfg)
		require.NoError(t, s.until(func() bool { return s.position(0).Next == 5 }), "before the next record")
		s.accept(sourceConfig(b, topic))
		b.Produce(t, topic, 0, "x")
		require.NoError(t, s.until(s.has(0, 1)))
		require.Equal(t, []string{"x"}, s.rowsOf(0))
	})
}

// groupOffsets are the offsets that a group has committed for a topic.
func groupOffsets(t *testing.T, b *kafkatest.Broker, group, topic string) map[int32]int64 {
	t.Helper()
	resp, err := b.Admin(t).FetchOffsets(t.Context(), group)
	require.NoError(t, err)
	offsets := map[int32]int64{}
	for p, o := range resp[topic] {
		offsets[p] = o.At
	}
	return offsets
}

func commitOffsets(t *testing.T, b *kafkatest.Broker, group, topic string, offsets map[int32]int64) {
	t.Helper()
	var all kadm.Offsets
	for p, at := range offsets {
		all.Add(kadm.Offset{Topic: topic, Partition: p, At: at, LeaderEpoch: -1})
	}
	resp, err := b.Admin(t).CommitOffsets(t.Context(), group, all)
	require.NoError(t, err)
	require.NoError(t, resp.Error())
}

func TestAStartFromAGroupBeginsAtItsOffsetsOrAsTheFallbackSays(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		topic, group := b.CreateTopic(t, 3), b.TopicName(t)
		for p := range int32(3) {
			b.Produce(t, topic, p, numbers(0, 10)...)
		}
		cfg := sourceConfig(b, topic)
		next := func(fallback kafka.Fallback) []int64 {
			cfg.Start = kafka.FromGroup(group, fallback)
			s := discover(t, cfg)
			return []int64{s.position(0).Next, s.position(1).Next, s.position(2).Next}
		}
		cfg.Start = kafka.FromGroup(group, kafka.OrFail)
		_, err := stringSource(cfg).Discover(t.Context())
		requireStop(t, err, "group "+group+" has committed no offset for partition")
		require.Equal(t, []int64{0, 0, 0}, next(kafka.OrEarliest), "there is no such group")

		commitOffsets(t, b, group, topic, map[int32]int64{0: 7, 1: 0})
		require.Equal(t, []int64{7, 0, 0}, next(kafka.OrEarliest))
		require.Equal(t, []int64{7, 0, 10}, next(kafka.OrLatest))
		_, err = stringSource(cfg).Discover(t.Context())
		require.NoError(t, err)
		cfg.Start = kafka.FromGroup(group, kafka.OrFail)
		_, err = stringSource(cfg).Discover(t.Context())
		requireStop(t, err, "has committed no offset for partition 2")
		commitOffsets(t, b, group, topic, map[int32]int64{2: 10})
		require.Equal(t, []int64{7, 0, 10}, next(kafka.OrFail))

		b.DeleteRecords(t, topic, 0, 8)
		_, err = stringSource(cfg).Discover(t.Context())
		requireStop(t, err, "the start offset 7 is outside of the log, which reaches from 8 to 10")
	})
}

func TestPositionsAreCommittedToTheGroupAndOnlyThere(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		topic, group := b.CreateTopic(t, 2), b.TopicName(t)
		b.Produce(t, topic, 0, numbers(0, 10)...)
		cfg := sourceConfig(b, topic)
		s := discover(t, cfg)
		require.NoError(t, s.start())
		require.NoError(t, s.until(s.allCaughtUp))
		told, err := s.reader.(connector.PositionReleaser).ReleasePositions(t.Context(), s.splits)
		require.NoError(t, err)
		require.False(t, told, "there is no group")

		cfg.Group = group
		s.accept(cfg)
		told, err = s.reader.(connector.PositionReleaser).ReleasePositions(t.Context(), s.splits)
		require.NoError(t, err)
		require.True(t, told)
		require.Equal(t, map[int32]int64{0: 10, 1: 0}, groupOffsets(t, b, group, topic))
		require.Equal(t, "10", s.reader.(connector.PositionText).PositionText(s.splits[0].Position))
	})
}

func TestAGroupWithMembersIsNotCommittedTo(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		topic, group := b.CreateTopic(t, 1), b.TopicName(t)
		member := b.Client(t, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit())
		b.Produce(t, topic, 0, "a")
		require.NoError(t, member.PollFetches(t.Context()).Err())
		cfg := sourceConfig(b, topic)
		cfg.Group = group
		s := discover(t, cfg)
		require.NoError(t, s.start())
		told, err := s.reader.(connector.PositionReleaser).ReleasePositions(t.Context(), s.splits)
		require.False(t, told)
		require.ErrorContains(t, err, "a consumer is a member of the group")
	})
}

// Whatever becomes of the group, the job goes on at its own positions.
func TestWhatAGroupHasCommittedDoesNotMatterToARestore(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		topic, group := b.CreateTopic(t, 1), b.TopicName(t)
		cfg := sourceConfig(b, topic)
		cfg.Group, cfg.Start = group, kafka.FromGroup(group, kafka.OrEarliest)
		b.Produce(t, topic, 0, numbers(0, 10)...)
		s := discover(t, cfg)
		require.NoError(t, s.start())
		require.NoError(t, s.until(s.has(0, 10)))
		for i, change := range []func(){
			func() { commitOffsets(t, b, group, topic, map[int32]int64{0: 3}) },  // it lags
			func() { commitOffsets(t, b, group, topic, map[int32]int64{0: 99}) }, // it is ahead
			func() { // it is deleted
				resp, err := b.Admin(t).DeleteGroups(t.Context(), group)
				require.NoError(t, err)
				require.NoError(t, resp.Error())
			},
		} {
			change()
			require.NoError(t, s.start(), fmt.Sprint(i))
			b.Produce(t, topic, 0, numbers(10+i, 11+i)...)
			require.NoError(t, s.until(s.has(0, 11+i)))
			require.Equal(t, numbers(0, 11+i), s.rowsOf(0))
		}
	})
}
