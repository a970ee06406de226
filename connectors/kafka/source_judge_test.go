package kafka

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
)

// Whether a read has an end is fixed when a job first starts: a configuration that says otherwise is
// refused by name, and not ignored.
func TestABoundedReadDoesNotBecomeEndlessNorTheReverse(t *testing.T) {
	for _, c := range []struct {
		untilEnd bool
		end      int64
		want     string
	}{
		{true, 7, ""},
		{true, 0, ""}, // of a partition that was empty
		{false, -1, ""},
		{true, -1, "split t/3 has no end"},
		{false, 7, "split t/3 ends at offset 7"},
		{false, 0, "split t/3 ends at offset 0"},
	} {
		err := judgeBounds(&SourceConfig{UntilEnd: c.untilEnd}, "t/3", Position{End: c.end})
		if c.want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, c.want)
		require.True(t, connector.IsStop(err))
	}
}

// A topic that was made again with fewer partitions than were read is refused at once, whichever position is looked
// at: the positions of those that are missing have nowhere to go.
func TestATopicMadeAgainIsAcceptedOnlyWithAllOfItsPartitions(t *testing.T) {
	was, is := [16]byte{1}, [16]byte{2}
	accepted := &escapes{recreated: []string{recreationName("t", is)}}
	pos := Position{TopicID: was, Partitions: 2, Next: 5, End: unknown}
	for partitions, refused := range map[int32]bool{1: true, 2: false, 3: false} {
		err := judgeTopic(accepted, "t", pos, sighting{topicID: is, partitions: partitions})
		if !refused {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, "made again with 1 partitions, and 2 were read")
		require.ErrorContains(t, err, "kafka-topics.sh --alter --topic t --partitions 2")
		require.True(t, connector.IsStop(err))
	}
}
