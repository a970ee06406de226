package kafkatest

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ReadCommitted returns what a consumer with isolation.level=read_committed finds in a topic, up to
// its last stable offsets. Records of one partition are in order.
func (b *Broker) ReadCommitted(t *testing.T, topic string) []*kgo.Record {
	t.Helper()
	ends, err := b.Admin(t).ListCommittedOffsets(t.Context(), topic)
	require.NoError(t, err)
	require.NoError(t, ends.Error())
	left := map[int32]int64{}
	for p, o := range ends[topic] {
		if o.Offset > 0 {
			left[p] = o.Offset
		}
	}
	client := b.Client(t, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords())
	var found []*kgo.Record
	for len(left) > 0 {
		fetches := client.PollFetches(t.Context())
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				found = append(found, r)
			}
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	return found
}
