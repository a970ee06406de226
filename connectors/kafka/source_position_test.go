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
		c.seen.topicID = pos.TopicID
		at, err := judgePosition(&escapes{}, "t/0", pos, c.seen)
		if c.error == "" {
			require.NoError(t, err, c.name)
			require.Equal(t, resumption{pos: pos}, at)
			continue
		}
		require.ErrorContains(t, err, c.error, c.name)
		require.True(t, connector.IsStop(err), c.name)
	}
}

func TestAnotherTopicStopsTheJobAndMorePartitionsDoNot(t *testing.T) {
	pos := Position{TopicID: [16]byte{1}, Partitions: 3, End: -1}
	for _, partitions := range []int32{3, 4} {
		require.NoError(t, judgeTopic(&escapes{}, "t", pos, sighting{topicID: pos.TopicID, partitions: partitions}))
	}
	err := judgeTopic(&escapes{}, "t", pos, sighting{topicID: [16]byte{2}, partitions: 3})
	require.ErrorContains(t, err, "topic t was deleted and made again")
	require.True(t, connector.IsStop(err))
}

// Each escape is what the error says, lets the job go on behind the loss, and is worth nothing for another
// partition, another offset, another epoch or another topic.
func TestAnEscapeIsWorthTheOneLossThatItNames(t *testing.T) {
	type kind struct {
		name    string
		seen    sighting
		escapes func(name string) *escapes
		want    string // in the error, the escape
		next    int64
		others  []string
	}
	pos := Position{TopicID: [16]byte{1}, Partitions: 3, Next: 50, LeaderEpoch: 4, End: -1}
	loss := func(name string) *escapes { return &escapes{losses: []string{name}} }
	truncation := func(name string) *escapes { return &escapes{truncations: []string{name}} }
	for _, k := range []kind{
		{
			"retention",
			sighting{topicID: pos.TopicID, logStart: 70, logEnd: 100, epochEnd: 100},
			loss, "t/0@50", 70,
			[]string{"t/1@50", "t/00@50", "t/0@51", "t/0@5", "t/0@70", "u/0@50", "t/0@50:4"},
		},
		{
			"beyond the end",
			sighting{topicID: pos.TopicID, logEnd: 40, epochEnd: 40},
			truncation, "t/0@50:4", 40,
			[]string{"t/1@50:4", "t/0@50:5", "t/0@49:4", "t/0@50"},
		},
		{
			"grown again",
			sighting{topicID: pos.TopicID, logEnd: 80, epochEnd: 45},
			truncation, "t/0@50:4", 45,
			[]string{"t/1@50:4", "t/0@50:5", "t/0@45:4", "t/0@50"},
		},
	} {
		_, err := judgePosition(&escapes{}, "t/0", pos, k.seen)
		require.ErrorContains(t, err, " "+k.want+" (", k.name)
		for _, other := range append(k.others, "") {
			_, err := judgePosition(k.escapes(other), "t/0", pos, k.seen)
			require.Error(t, err, "%s, with %s", k.name, other)
			require.True(t, connector.IsStop(err))
		}
		_, err = judgePosition(&escapes{recreated: []string{k.want}}, "t/0", pos, k.seen)
		require.Error(t, err, "it is another kind of loss")

		accepted := k.escapes(k.want)
		at, err := judgePosition(accepted, "t/0", pos, k.seen)
		require.NoError(t, err, k.name)
		require.NotEmpty(t, at.accepted)
		want := pos
		want.Next, want.LeaderEpoch = k.next, -1
		require.Equal(t, want, at.pos, k.name)

		// It is used: what is lost behind it is a loss of its own.
		again := sighting{topicID: pos.TopicID, logStart: 200, logEnd: 300, epochEnd: 300}
		_, err = judgePosition(accepted, "t/0", at.pos, again)
		require.ErrorContains(t, err, "records are gone", k.name)
	}
}

func TestATopicThatWasMadeAgainIsReadFromItsStartOnceItIsAcceptedByItsID(t *testing.T) {
	pos := Position{TopicID: [16]byte{1}, Partitions: 3, Next: 50, LeaderEpoch: 4, End: -1}
	seen := sighting{topicID: [16]byte{2}, partitions: 5, logStart: 7, logEnd: 10, epochEnd: unknown}
	name := "t@02000000000000000000000000000000"
	require.ErrorContains(t, judgeTopic(&escapes{}, "t", pos, seen), "by name: --accept-recreated "+name+" (")
	for _, other := range []string{"t", "u" + name[1:], "t@01000000000000000000000000000000"} {
		require.Error(t, judgeTopic(&escapes{recreated: []string{other}}, "t", pos, seen), other)
	}
	accepted := &escapes{recreated: []string{name}}
	require.NoError(t, judgeTopic(accepted, "t", pos, seen))
	at, err := judgePosition(accepted, "t/0", pos, seen)
	require.NoError(t, err)
	want := Position{TopicID: seen.topicID, Partitions: 5, Next: 7, LeaderEpoch: -1, End: -1}
	require.Equal(t, want, at.pos)
	require.Error(t, judgeTopic(accepted, "t", at.pos, sighting{topicID: [16]byte{3}}), "it was made a third time")

	pos.End = 100
	err = judgeTopic(accepted, "t", pos, seen)
	require.ErrorContains(t, err, "the ends of a bounded read mean nothing in it")
}

func TestAnEscapeThatNoErrorNamesIsRefused(t *testing.T) {
	good := escapes{
		losses: []string{"a/b/0@1"}, truncations: []string{"t/0@1:-1", "t/0@1:7"},
		recreated: []string{"t@0102030405060708090a0b0c0d0e0f10"},
	}
	require.NoError(t, good.check())
	for _, e := range []escapes{
		{losses: []string{"t/0"}},
		{losses: []string{"t"}},
		{losses: []string{"t/0@1:1"}},
		{losses: []string{"t/0@-1"}},
		{truncations: []string{"t/0@1"}},
		{recreated: []string{"t"}},
		{recreated: []string{"t@01"}},
	} {
		require.ErrorContains(t, e.check(), "as the error that stopped the job names it", e)
	}
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
