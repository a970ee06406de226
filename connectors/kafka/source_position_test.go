package kafka

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"example.com/weir/connector"
)

func anyPosition() *rapid.Generator[Position] {
	return rapid.Custom(func(t *rapid.T) Position {
		return Position{
			TopicID:     [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id")),
			Partitions:  rapid.Int32Range(1, 1<<31-1).Draw(t, "partitions"),
			Next:        rapid.Int64Range(0, 1<<63-1).Draw(t, "next"),
			LeaderEpoch: rapid.Int32Range(-1, 1<<31-1).Draw(t, "epoch"),
			End:         rapid.Int64Range(-1, 1<<63-1).Draw(t, "end"),
		}
	})
}

func TestAPositionReadsBackAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyPosition().Draw(t, "p")
		got, err := ParsePosition(p.AppendTo(nil))
		require.NoError(t, err)
		require.Equal(t, p, got)
	})
}

func TestWhatIsNotAPositionIsRefused(t *testing.T) {
	good := Position{Partitions: 1, LeaderEpoch: -1, End: -1}.AppendTo(nil)
	for name, src := range map[string][]byte{
		"empty": nil, "cut": good[:len(good)-1], "longer": append(good[:len(good):len(good)], 0),
		"newer":           append([]byte{positionVersion + 1}, good[1:]...),
		"negative offset": Position{Partitions: 1, Next: -1, LeaderEpoch: -1, End: -1}.AppendTo(nil),
		"no partitions":   Position{LeaderEpoch: -1, End: -1}.AppendTo(nil),
	} {
		_, err := ParsePosition(src)
		require.Error(t, err, name)
	}
	_, err := ParsePosition(append([]byte{positionVersion + 1}, good[1:]...))
	require.ErrorContains(t, err, "version 2; this release reads 1")
}

func TestEveryLossThatAPositionShowsStopsTheJobByName(t *testing.T) {
	pos := Position{TopicID: [16]byte{1}, Partitions: 3, Next: 50, LeaderEpoch: 4, End: -1}
	log := func(start, end, epochEnd int64) sighting {
		return sighting{logStart: start, logEnd: end, epochEnd: epochEnd}
	}
	for _, c := range []struct {
		name  string
		seen  sighting
		error string // empty: the position can be read
	}{
		{"in the middle", log(0, 100, 100), ""},
		{"at the start", log(50, 100, 60), ""},
		{"at the end", log(0, 50, 50), ""},
		{"in an empty log", log(50, 50, unknown), ""},
		{"an epoch of which nothing is left", log(0, 100, unknown), ""},
		{"below the start", log(51, 100, 100), "split t/0: the log was deleted before it was read: position 50"},
		{"beyond the end", log(0, 49, 49), "split t/0: the log was truncated: position 50 is beyond its end, 49"},
		{"beyond the end of its epoch", log(0, 100, 49), "split t/0: the log was truncated and has grown again"},
	} {
		err := judgePosition("t/0", pos, c.seen)
		if c.error == "" {
			require.NoError(t, err, c.name)
			continue
		}
		require.ErrorContains(t, err, c.error, c.name)
		require.True(t, connector.IsStop(err), c.name)
	}
}

func TestAnotherTopicOrMorePartitionsStopTheJob(t *testing.T) {
	pos := Position{TopicID: [16]byte{1}, Partitions: 3, End: -1}
	require.NoError(t, judgeTopic("t", pos, sighting{topicID: pos.TopicID, partitions: 3}))

	err := judgeTopic("t", pos, sighting{topicID: [16]byte{2}, partitions: 3})
	require.ErrorContains(t, err, "topic t was deleted and made again")
	require.True(t, connector.IsStop(err))

	err = judgeTopic("t", pos, sighting{topicID: pos.TopicID, partitions: 4})
	require.ErrorContains(t, err, "topic t had 3 partitions when the job started and now has 4")
	require.True(t, connector.IsStop(err))

	pos.End = 10 // a bounded read reads what was there at the start
	require.NoError(t, judgeTopic("t", pos, sighting{topicID: pos.TopicID, partitions: 4}))
}

func TestTheEpochOfAnAnswerIsReadFromAnyBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		epochBefore(rapid.SliceOf(rapid.Byte()).Draw(t, "batches"), rapid.Int64().Draw(t, "next"), -1)
	})
	batch := func(first int64, count, epoch int32) []byte {
		b := kmsg.RecordBatch{FirstOffset: first, Length: 49, PartitionLeaderEpoch: epoch, Magic: 2, LastOffsetDelta: count - 1}
		return b.AppendTo(nil)
	}
	batches := slices.Concat(batch(10, 5, 3), batch(15, 1, 4), batch(16, 1, 6))
	require.EqualValues(t, 4, epochBefore(batches, 16, 2), "the last batch begins at the position")
	require.EqualValues(t, 6, epochBefore(batches, 17, 2))
	require.EqualValues(t, 2, epochBefore(batches, 12, 2), "the position is inside of the first batch")
	require.EqualValues(t, 4, epochBefore(batches[:len(batches)-1], 17, 2), "the last batch is cut")
	require.EqualValues(t, 2, epochBefore(nil, 17, 2))
}
