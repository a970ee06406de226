package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/weir/connector"
)

// lookup asks a cluster about one topic. It keeps nothing: what the client library remembers of a
// topic can be some seconds old, and a topic may have been made again since.
type lookup struct {
	client *kgo.Client
	topic  string
}

// errMissing reports that the brokers know no topic of that name, or no such partition of it.
var errMissing = errors.New("no such topic or partition")

// errMoved reports that the topic became another one between two questions.
var errMoved = errors.New("the topic is just being made again")

// stopIfMissing turns a topic that stayed missing into an error that stops the job: waiting longer
// in restarts would not say so.
func stopIfMissing(err error, topic string) error {
	if errors.Is(err, errMissing) {
		return connector.Stop(fmt.Errorf("%w: topic %s does not exist, or was deleted: "+
			"create it, or correct its name", err, topic))
	}
	return err
}

// topicView is what a broker tells about a topic.
type topicView struct {
	id      [16]byte
	leaders map[int32]leader
}

// leader is who leads a partition: err where nobody does at the moment.
type leader struct {
	node  int32
	epoch int32
	err   error
}

// view asks for the topic's ID and the leaders of its partitions.
func (l lookup) view(ctx context.Context) (topicView, error) {
	req := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &l.topic
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, l.client)
	if err != nil {
		return topicView{}, fmt.Errorf("ask for the topic: %w", err)
	}
	if len(resp.Topics) != 1 {
		return topicView{}, fmt.Errorf("ask for the topic: %d topics answered", len(resp.Topics))
	}
	switch err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return topicView{}, errMissing
	case err != nil:
		return topicView{}, fmt.Errorf("ask for the topic: %w", err)
	}
	v := topicView{id: resp.Topics[0].TopicID, leaders: map[int32]leader{}}
	for _, p := range resp.Topics[0].Partitions {
		led := leader{node: p.Leader, epoch: p.LeaderEpoch, err: kerr.ErrorForCode(p.ErrorCode)}
		if led.err == nil && led.node < 0 {
			led.err = kerr.LeaderNotAvailable
		}
		v.leaders[p.Partition] = led
	}
	return v, nil
}

// answer is what a leader answered about an offset of its partition.
type answer struct {
	offset int64
	epoch  int32
	err    error
}

// Special timestamps of ListOffsets.
const (
	timestampLatest   = -1
	timestampEarliest = -2
)

// offsets asks the leader of each partition for the offset at a timestamp.
func (l lookup) offsets(
	ctx context.Context, v topicView, timestamps map[int32]int64, isolation Isolation,
) map[int32]answer {
	answers := make(map[int32]answer, len(timestamps))
	for node, partitions := range byLeader(v, timestamps, answers) {
		req := kmsg.NewPtrListOffsetsRequest()
		req.IsolationLevel = isolation.level()
		topic := kmsg.NewListOffsetsRequestTopic()
		topic.Topic = l.topic
		for _, p := range partitions {
			part := kmsg.NewListOffsetsRequestTopicPartition()
			part.Partition, part.Timestamp, part.CurrentLeaderEpoch = p, timestamps[p], v.leaders[p].epoch
			topic.Partitions = append(topic.Partitions, part)
		}
		req.Topics = append(req.Topics, topic)
		resp, err := l.client.Broker(int(node)).Request(ctx, req)
		if err != nil {
			failAll(answers, partitions, fmt.Errorf("ask broker %d for offsets: %w", node, err))
			continue
		}
		for _, t := range resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				answers[p.Partition] = answer{p.Offset, p.LeaderEpoch, kerr.ErrorForCode(p.ErrorCode)}
			}
		}
	}
	return answers
}

// epochEnds asks the leader of each partition where a leader epoch ends in its log.
func (l lookup) epochEnds(ctx context.Context, v topicView, epochs map[int32]int32) map[int32]answer {
	answers := make(map[int32]answer, len(epochs))
	for node, partitions := range byLeader(v, epochs, answers) {
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.ReplicaID = -1
		topic := kmsg.NewOffsetForLeaderEpochRequestTopic()
		topic.Topic = l.topic
		for _, p := range partitions {
			part := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			part.Partition, part.LeaderEpoch, part.CurrentLeaderEpoch = p, epochs[p], v.leaders[p].epoch
			topic.Partitions = append(topic.Partitions, part)
		}
		req.Topics = append(req.Topics, topic)
		resp, err := l.client.Broker(int(node)).Request(ctx, req)
		if err != nil {
			failAll(answers, partitions, fmt.Errorf("ask broker %d for the ends of epochs: %w", node, err))
			continue
		}
		for _, t := range resp.(*kmsg.OffsetForLeaderEpochResponse).Topics {
			for _, p := range t.Partitions {
				answers[p.Partition] = answer{p.EndOffset, p.LeaderEpoch, kerr.ErrorForCode(p.ErrorCode)}
			}
		}
	}
	return answers
}

// byLeader groups the partitions that are keys of asked by who leads them, and puts an error into
// answers for each of them: the reason where there is no leader, and elsewhere one that stays if the
// leader says nothing of the partition.
func byLeader[V any](v topicView, asked map[int32]V, answers map[int32]answer) map[int32][]int32 {
	nodes := map[int32][]int32{}
	for p := range asked {
		led, ok := v.leaders[p]
		switch {
		case !ok:
			answers[p] = answer{err: errMissing}
		case led.err != nil:
			answers[p] = answer{err: led.err}
		default:
			answers[p] = answer{err: fmt.Errorf("broker %d did not answer for it", led.node)}
			nodes[led.node] = append(nodes[led.node], p)
		}
	}
	return nodes
}

func failAll(answers map[int32]answer, partitions []int32, err error) {
	for _, p := range partitions {
		answers[p] = answer{err: err}
	}
}

// level is the isolation as requests have it.
func (i Isolation) level() int8 {
	if i == ReadCommitted {
		return 1
	}
	return 0
}

// startPositions resolves where to begin and to end (S1). Offsets are asked for by the topic's name, so
// the topic's ID is asked for before and after: they are all of one topic.
func (l lookup) startPositions(ctx context.Context, cfg *SourceConfig) (map[int32]Position, error) {
	v, err := l.view(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkOffsets(cfg.Start, v); err != nil {
		return nil, err
	}
	committed, err := l.committed(ctx, v, cfg.Start)
	if err != nil {
		return nil, err
	}
	starts := l.offsets(ctx, v, startTimestamps(v, cfg.Start), cfg.Isolation)
	ends := l.offsets(ctx, v, sameFor(v, timestampLatest), cfg.Isolation)
	positions := make(map[int32]Position, len(v.leaders))
	for p := range v.leaders {
		start, end := starts[p], ends[p]
		if err := errors.Join(start.err, end.err); err != nil {
			return nil, fmt.Errorf("partition %d: %w", p, err)
		}
		pos := Position{
			TopicID: v.id, Partitions: int32(len(v.leaders)),
			Next: start.offset, LeaderEpoch: start.epoch, End: unknown,
		}
		if start.offset < 0 { // no record of that timestamp or later
			pos.Next, pos.LeaderEpoch = end.offset, end.epoch
		}
		given, isGiven := committed[p]
		if cfg.Start.from == fromOffsets {
			given, isGiven = answer{offset: cfg.Start.offsets[p], epoch: unknown}, true
		}
		if isGiven {
			pos.Next, pos.LeaderEpoch = given.offset, given.epoch
			if err := l.checkStart(ctx, v, p, pos); err != nil {
				return nil, err
			}
		}
		if cfg.UntilEnd {
			pos.End = max(pos.Next, end.offset)
		}
		positions[p] = pos
	}
	again, err := l.view(ctx)
	if err != nil {
		return nil, err
	}
	if again.id != v.id || len(again.leaders) != len(v.leaders) {
		return nil, errMoved
	}
	return positions, nil
}

// checkStart refuses an explicit offset outside of the log. The log's end is its high watermark,
// whatever the isolation.
func (l lookup) checkStart(ctx context.Context, v topicView, p int32, pos Position) error {
	start := l.offsets(ctx, v, map[int32]int64{p: timestampEarliest}, ReadUncommitted)[p]
	end := l.offsets(ctx, v, map[int32]int64{p: timestampLatest}, ReadUncommitted)[p]
	if err := errors.Join(start.err, end.err); err != nil {
		return fmt.Errorf("partition %d: %w", p, err)
	}
	if pos.Next < start.offset || pos.Next > end.offset {
		return connector.Stop(fmt.Errorf("split %s: the start offset %d is outside of the log, which reaches from %d to %d",
			splitID(l.topic, p), pos.Next, start.offset, end.offset))
	}
	return nil
}

// checkOffsets refuses explicit offsets that leave out a partition, or name one that is not there.
func checkOffsets(start Start, v topicView) error {
	if start.from != fromOffsets {
		return nil
	}
	for p := range v.leaders {
		if _, ok := start.offsets[p]; !ok {
			return connector.Stop(fmt.Errorf("no start offset for partition %d: each of the %d partitions needs one",
				p, len(v.leaders)))
		}
	}
	for p := range start.offsets {
		if _, ok := v.leaders[p]; !ok {
			return connector.Stop(fmt.Errorf("a start offset for partition %d: the topic has %d", p, len(v.leaders)))
		}
	}
	return nil
}

func startTimestamps(v topicView, start Start) map[int32]int64 {
	switch start.from {
	case fromLatest:
		return sameFor(v, timestampLatest)
	case fromTimestamp:
		return sameFor(v, start.time.UnixMilli())
	case fromGroup:
		if start.fallback == OrLatest {
			return sameFor(v, timestampLatest)
		}
	case fromEarliest, fromOffsets:
	}
	return sameFor(v, timestampEarliest)
}

func sameFor(v topicView, timestamp int64) map[int32]int64 {
	timestamps := make(map[int32]int64, len(v.leaders))
	for p := range v.leaders {
		timestamps[p] = timestamp
	}
	return timestamps
}

// retry calls f until it succeeds, fails in a way that marks the job as to be stopped, or has failed
// for as long as patience.
func retry(ctx context.Context, patience time.Duration, f func() error) error {
	deadline := time.Now().Add(patience)
	for tries := 0; ; tries++ {
		err := f()
		if err == nil || connector.IsStop(err) || hopeless(err) || time.Now().After(deadline) {
			return err
		}
		if err := sleep(ctx, backoff(tries)); err != nil {
			return err
		}
	}
}

// backoff is how long to wait after a number of failures in a row: 50 ms, doubled each time, and at
// most 2 s.
func backoff(failures int) time.Duration {
	return min(2*time.Second, 50*time.Millisecond<<min(failures, 10))
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
