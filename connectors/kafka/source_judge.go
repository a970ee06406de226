package kafka

import (
	"encoding/hex"
	"fmt"

	"example.com/weir/connector"
)

// unknown stands for an offset, or an epoch, that was not answered.
const unknown = -1

// sighting is what the cluster shows of a topic and, where a partition has a leader that answered,
// of that partition.
type sighting struct {
	topicID    [16]byte
	partitions int32

	logStart int64 // the first offset of the log
	logEnd   int64 // the high watermark
	// epochEnd is where the position's leader epoch ends in this log: the start of the next epoch,
	// or the log's end. unknown is no verdict: a leader answers so about an epoch that it has no
	// trace of, as after all of the epoch's records were deleted.
	epochEnd int64
}

// judgeBounds says whether the read is as bounded as the configuration asks for. Whether it is was
// fixed when the job first started: to go on in another way would be to ignore the one or the other.
func judgeBounds(cfg *SourceConfig, split string, pos Position) error {
	switch bounded := pos.End >= 0; {
	case bounded == cfg.UntilEnd:
		return nil
	case bounded:
		return connector.Stop(fmt.Errorf("split %s ends at offset %d: the job was first started until the end, "+
			"and goes on so; to read on without an end, start afresh", split, pos.End))
	}
	return connector.Stop(fmt.Errorf("split %s has no end: the job was first started without one, and goes on so; "+
		"to read until the end, start afresh", split))
}

// judgeTopic says whether the topic is still the one that a position is of. Its error stops the job:
// going on would read other records under the same offsets, or leave new partitions unread.
func judgeTopic(topic string, pos Position, seen sighting) error {
	if seen.topicID != pos.TopicID {
		return connector.Stop(fmt.Errorf("topic %s was deleted and made again: the positions are of topic ID %s, "+
			"and it now has %s; what was not read before is gone, and the same offsets now name other records: "+
			"start the job afresh", topic, hexID(pos.TopicID), hexID(seen.topicID)))
	}
	if seen.partitions > pos.Partitions && pos.End < 0 {
		return connector.Stop(fmt.Errorf("topic %s had %d partitions when the job started and now has %d: "+
			"the new ones would be left unread; start the job afresh", topic, pos.Partitions, seen.partitions))
	}
	return nil
}

// judgePosition says whether a position of a partition can still be read (S2). Its error stops the job.
func judgePosition(split string, pos Position, seen sighting) error {
	switch {
	case pos.Next < seen.logStart:
		return connector.Stop(fmt.Errorf("split %s: the log was deleted before it was read: position %d, and the log "+
			"now starts at %d; up to %d records are gone (retention, or somebody deleted them)",
			split, pos.Next, seen.logStart, seen.logStart-pos.Next))
	case pos.Next > seen.logEnd:
		return connector.Stop(fmt.Errorf("split %s: the log was truncated: position %d is beyond its end, %d; records "+
			"that were read are no longer in it, and others will take their offsets", split, pos.Next, seen.logEnd))
	case seen.epochEnd != unknown && pos.Next > seen.epochEnd:
		return connector.Stop(fmt.Errorf("split %s: the log was truncated and has grown again: position %d was read "+
			"in leader epoch %d, which now ends at %d; the records from there on are others than were read",
			split, pos.Next, pos.LeaderEpoch, seen.epochEnd))
	}
	return nil
}

func hexID(id [16]byte) string { return hex.EncodeToString(id[:]) }
