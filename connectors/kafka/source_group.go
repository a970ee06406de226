package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/weir/connector"
)

// committed asks for the offsets that a start from a group begins at: none for a partition that the group
// has not committed for. Offsets in open transactions are waited for.
func (l lookup) committed(ctx context.Context, v topicView, start Start) (map[int32]answer, error) {
	if start.from != fromGroup {
		return nil, nil
	}
	req := kmsg.NewPtrOffsetFetchRequest()
	req.RequireStable = true
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = start.group
	topic := kmsg.NewOffsetFetchRequestGroupTopic()
	topic.Topic, topic.TopicID = l.topic, v.id
	for p := range v.leaders {
		topic.Partitions = append(topic.Partitions, p)
	}
	group.Topics = append(group.Topics, topic)
	req.Groups = append(req.Groups, group)
	resp, err := req.RequestWith(ctx, l.client)
	if err != nil {
		return nil, fmt.Errorf("ask for the offsets of group %s: %w", start.group, err)
	}
	committed := map[int32]answer{}
	for _, g := range resp.Groups {
		err := kerr.ErrorForCode(g.ErrorCode)
		if errors.Is(err, kerr.GroupIDNotFound) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("ask for the offsets of group %s: %w", start.group, err)
		}
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return nil, fmt.Errorf("partition %d: the offset of group %s: %w", p.Partition, start.group, err)
				}
				if p.Offset >= 0 {
					committed[p.Partition] = answer{offset: p.Offset, epoch: p.LeaderEpoch}
				}
			}
		}
	}
	return committed, checkCommitted(v, start, committed)
}

func checkCommitted(v topicView, start Start, committed map[int32]answer) error {
	if start.fallback != OrFail {
		return nil
	}
	for p := range v.leaders {
		if _, ok := committed[p]; !ok {
			return connector.Stop(fmt.Errorf("group %s has committed no offset for partition %d: say where to begin "+
				"instead (group:%s:earliest or group:%s:latest; OrEarliest, OrLatest), or commit one",
				start.group, p, start.group, start.group))
		}
	}
	return nil
}

// ReleasePositions commits positions to the group, for monitoring.
func (r *reader[T]) ReleasePositions(ctx context.Context, splits []connector.Split) (bool, error) {
	cfg := &r.source.cfg
	if cfg.Group == "" {
		return false, nil
	}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = cfg.Group
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic = cfg.Topic
	for i, split := range splits {
		p, err := r.source.newPart(i, split)
		if err != nil {
			return false, err
		}
		topic.TopicID = p.pos.TopicID
		part := kmsg.NewOffsetCommitRequestTopicPartition()
		part.Partition, part.Offset, part.LeaderEpoch = p.partition, p.pos.Next, p.pos.LeaderEpoch
		topic.Partitions = append(topic.Partitions, part)
	}
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, r.client)
	if err != nil {
		return false, fmt.Errorf("commit offsets to group %s: %w", cfg.Group, err)
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return false, fmt.Errorf("commit the offset of partition %d to group %s: %w", p.Partition, cfg.Group, cfg.hint(err))
			}
		}
	}
	return true, nil
}

// hint says why a group takes no offsets from the job.
func (c *SourceConfig) hint(err error) error {
	switch {
	case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.IllegalGeneration):
		return fmt.Errorf("%w: a consumer is a member of the group; give the job a group of its own", err)
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return c.noRightToGroup(err, c.Group)
	}
	return err
}

// PositionText shows the offset of a position.
func (r *reader[T]) PositionText(position []byte) string {
	p, err := ParsePosition(position)
	if err != nil {
		return ""
	}
	return strconv.FormatInt(p.Next, 10)
}
