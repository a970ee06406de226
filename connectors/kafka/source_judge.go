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

// judgeTopic says whether the topic is still the one that a position is of, or one that the user has
// accepted in its place. Its error stops the job: going on would read other records under the same
// offsets.
func judgeTopic(accepted *escapes, topic string, pos Position, seen sighting) error {
	switch {
	case seen.topicID == pos.TopicID:
		return nil
	case pos.End >= 0:
		return connector.Stop(fmt.Errorf("topic %s was deleted and made again: the positions are of topic ID %s, "+
			"and it now has %s; the ends of a bounded read mean nothing in it: start the job afresh",
			topic, hexID(pos.TopicID), hexID(seen.topicID)))
	case accepted.acceptsRecreation(topic, seen.topicID) && seen.partitions < pos.Partitions:
		return connector.Stop(fmt.Errorf("topic %s was made again with %d partitions, and %d were read of the old one: give "+
			"it as many (kafka-topics.sh --alter --topic %s --partitions %d), or start the job afresh",
			topic, seen.partitions, pos.Partitions, topic, pos.Partitions))
	case accepted.acceptsRecreation(topic, seen.topicID):
		return nil
	}
	return connector.Stop(fmt.Errorf("topic %s was deleted and made again: the positions are of topic ID %s, and it "+
		"now has %s; what was not read before is gone, and the same offsets now name other records. To go on and "+
		"read all of the new topic, accept it by name: --accept-recreated %s (AcceptRecreated)",
		topic, hexID(pos.TopicID), hexID(seen.topicID), recreationName(topic, seen.topicID)))
}

// resumption is where a partition is read on: at its position or, where the user has accepted what lies
// between, elsewhere.
type resumption struct {
	pos      Position
	accepted string // what was accepted, for the log; empty: nothing had to be
}

// judgePosition says whether a position of a partition can still be read (S2), or where to go on where
// the user has accepted that it cannot. The topic has been judged. Its error stops the job.
func judgePosition(accepted *escapes, split string, pos Position, seen sighting) (resumption, error) {
	if pos.TopicID != seen.topicID {
		next := Position{
			TopicID: seen.topicID, Partitions: seen.partitions, Next: seen.logStart, LeaderEpoch: unknown, End: unknown,
		}
		return resumption{next, fmt.Sprintf("the topic was made again; what was not read of the old one, from "+
			"offset %d on, is lost", pos.Next)}, nil
	}
	end := seen.logEnd
	if seen.epochEnd != unknown {
		end = min(end, seen.epochEnd)
	}
	switch {
	case pos.Next < seen.logStart:
		return judgeLoss(accepted, split, pos, seen)
	case pos.Next > end:
		return judgeTruncation(accepted, split, pos, seen, end)
	}
	return resumption{pos: pos}, nil
}

func judgeLoss(accepted *escapes, split string, pos Position, seen sighting) (resumption, error) {
	lost := seen.logStart - pos.Next
	if !accepted.acceptsLoss(split, pos) {
		return resumption{}, connector.Stop(fmt.Errorf("split %s: the log was deleted before it was read: position %d, "+
			"and the log now starts at %d; up to %d records are gone (retention, or somebody deleted them). To go on "+
			"without them at the log's start, accept the loss by name: --accept-loss %s (AcceptLoss)",
			split, pos.Next, seen.logStart, lost, lossName(split, pos)))
	}
	next := pos
	next.Next, next.LeaderEpoch = seen.logStart, unknown
	return resumption{next, fmt.Sprintf("the log was deleted before it was read: up to %d records are lost, from "+
		"offset %d up to %d", lost, pos.Next, seen.logStart)}, nil
}

// judgeTruncation goes on where the log was cut: what others wrote there since is read, and what was
// read before it stays read.
func judgeTruncation(
	accepted *escapes, split string, pos Position, seen sighting, end int64,
) (resumption, error) {
	if accepted.acceptsTruncation(split, pos) {
		next := pos
		next.Next, next.LeaderEpoch = end, unknown
		return resumption{next, fmt.Sprintf("the log was truncated: up to %d records that were read, from offset %d "+
			"up to %d, are no longer in it", pos.Next-end, end, pos.Next)}, nil
	}
	escape := fmt.Sprintf("To go on where the log was cut, at %d, accept it by name: --accept-truncation %s "+
		"(AcceptTruncation)",
		end, truncationName(split, pos))
	if end == seen.logEnd {
		return resumption{}, connector.Stop(fmt.Errorf("split %s: the log was truncated: position %d is beyond its "+
			"end, %d; records that were read are no longer in it, and others will take their offsets. %s",
			split, pos.Next, seen.logEnd, escape))
	}
	return resumption{}, connector.Stop(fmt.Errorf("split %s: the log was truncated and has grown again: position %d "+
		"was read in leader epoch %d, which now ends at %d; the records from there on are others than were read. %s",
		split, pos.Next, pos.LeaderEpoch, end, escape))
}

func hexID(id [16]byte) string { return hex.EncodeToString(id[:]) }
