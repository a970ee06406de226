package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"example.com/weir/connector"
)

// Isolation says which records of transactions a source reads.
type Isolation int

const (
	// ReadCommitted reads the records of a transaction once it is committed, and never those of an
	// aborted one. An open transaction holds back what lies after it. It is the default.
	ReadCommitted Isolation = iota
	// ReadUncommitted reads every record as it comes, those of aborted transactions too.
	ReadUncommitted
)

// Start says where a source begins when a job starts afresh. It is resolved to offsets once, before
// the first checkpoint. The zero value is Earliest.
type Start struct {
	from     startFrom
	time     time.Time
	offsets  map[int32]int64
	group    string
	fallback Fallback
}

type startFrom int

const (
	fromEarliest startFrom = iota
	fromLatest
	fromTimestamp
	fromOffsets
	fromGroup
)

// Fallback says where a start at a group's committed offsets begins in a partition for which the group
// has committed none. There is no default.
type Fallback int

// The fallbacks.
const (
	// OrFail does not start then.
	OrFail Fallback = iota + 1
	// OrEarliest begins with the first record that the partition still has.
	OrEarliest
	// OrLatest begins with the first record that is written after the start.
	OrLatest
)

// Earliest begins with the first record that the topic still has.
func Earliest() Start { return Start{} }

// Latest begins with the first record that is written after the start. With ReadCommitted that
// includes the records of transactions that are open then.
func Latest() Start { return Start{from: fromLatest} }

// Timestamp begins in each partition with the first record whose own timestamp is t (in milliseconds)
// or later, and at the end of a partition that has none.
func Timestamp(t time.Time) Start { return Start{from: fromTimestamp, time: t} }

// Offsets begins at the given offset of each partition. Each partition of the topic needs one, within
// its log.
func Offsets(offsets map[int32]int64) Start {
	return Start{from: fromOffsets, offsets: maps.Clone(offsets)}
}

// FromGroup begins at the offsets that a consumer group has committed, as they are when the job starts
// afresh, and where a partition has none as fallback says. An offset outside of the log does not start:
// what lies between is lost, or was never there. The group is not asked again: no restore depends on
// it.
func FromGroup(group string, fallback Fallback) Start {
	return Start{from: fromGroup, group: group, fallback: fallback}
}

// check reports what makes a start impossible, without asking the cluster.
func (s *Start) check() error {
	switch {
	case s.from != fromGroup:
		return nil
	case s.group == "":
		return errors.New("a start from a group needs the group's name")
	case s.fallback < OrFail || s.fallback > OrLatest:
		return fmt.Errorf("a start from group %s needs to say where to begin in a partition without a committed "+
			"offset: OrFail, OrEarliest or OrLatest", s.group)
	}
	return nil
}

// SourceConfig describes a source.
type SourceConfig struct {
	Config

	// Topic is the topic to read, with all of its partitions. It must exist.
	Topic string
	// Start says where to begin; the default is Earliest.
	Start Start
	// UntilEnd makes the read bounded: it ends where each partition ended when the job started
	// afresh (the last stable offset with ReadCommitted, the high watermark otherwise).
	UntilEnd bool
	// Isolation says which records of transactions are read; the default is ReadCommitted.
	Isolation Isolation
	// Discovery is how often a read without end looks for partitions that were added to the topic,
	// which are read from their first record; the default is 1 min. It looks at each start, too.
	Discovery time.Duration
	// Group is the consumer group to which the positions of completed checkpoints are committed, for
	// monitoring: no start depends on them, unless Start says so, and a commit that fails is a warning.
	// No consumer may be a member of it. Empty: none.
	Group string

	// AcceptLoss, AcceptTruncation and AcceptRecreated let the job go on after a loss that has stopped
	// it. Each names one loss as its error does, and is of no use for another: "topic/partition@offset"
	// (go on at the log's start), "topic/partition@offset:epoch" (go on where the log was cut) and
	// "topic@topic ID" (read all of the topic that was made again). What is accepted is logged.
	AcceptLoss       []string
	AcceptTruncation []string
	AcceptRecreated  []string

	// MaxBatch is the most rows of a batch; the default is 1024.
	MaxBatch int
	// FetchMaxBytes is about the most bytes that a broker answers to one request; the default is
	// 16 MiB. Up to three answers for each broker are in memory at a time.
	FetchMaxBytes int32
	// FetchMaxPartitionBytes is about the most of them for one partition; the default is 2 MiB.
	FetchMaxPartitionBytes int32
	// FetchMaxWait is how long a broker holds a request when there is nothing new; the default is
	// 500 ms. It delays no record.
	FetchMaxWait time.Duration
	// TopicWait is how long the topic, or the leader of a partition when a job starts afresh, may
	// be missing from what the brokers tell before that is taken for true; the default is 10 s.
	TopicWait time.Duration
}

func (c SourceConfig) withDefaults() SourceConfig {
	c.MaxBatch = orDefault(c.MaxBatch, 1024)
	c.FetchMaxBytes = orDefault(c.FetchMaxBytes, 16<<20)
	c.FetchMaxPartitionBytes = orDefault(c.FetchMaxPartitionBytes, 2<<20)
	c.FetchMaxWait = orDefault(c.FetchMaxWait, 500*time.Millisecond)
	c.TopicWait = orDefault(c.TopicWait, 10*time.Second)
	c.Discovery = orDefault(c.Discovery, time.Minute)
	return c
}

func (c *SourceConfig) validate() error {
	if err := c.Config.validate(); err != nil {
		return err
	}
	switch {
	case c.Topic == "":
		return errors.New("no topic")
	case c.Isolation != ReadCommitted && c.Isolation != ReadUncommitted:
		return fmt.Errorf("isolation %d: want ReadCommitted or ReadUncommitted", c.Isolation)
	case c.MaxBatch < 0, c.FetchMaxBytes < 0, c.FetchMaxPartitionBytes < 0, c.FetchMaxWait < 0, c.TopicWait < 0,
		c.Discovery < 0:
		return errors.New("a limit is negative")
	}
	return errors.Join(c.Start.check(), c.accepted().check())
}

func (c *SourceConfig) accepted() *escapes {
	return &escapes{losses: c.AcceptLoss, truncations: c.AcceptTruncation, recreated: c.AcceptRecreated}
}

// newClient opens a client of the source. Fetching by topic ID (Kafka 3.1) is what tells a topic that
// was made again under its name from the one that was read, so older brokers are refused.
func (c *SourceConfig) newClient(opts ...kgo.Opt) (*kgo.Client, error) {
	var least kversion.Versions
	least.SetMaxKeyVersion(1, 13) // Fetch
	opts = append(opts, kgo.MinVersions(&least), kgo.RetryBackoffFn(backoff))
	return kgo.NewClient(append(c.options(), opts...)...)
}

// Source describes a source of the records of a topic, each decoded to a row of type T. A split is a
// partition.
//
// decode sets row, which is the zero value at first, from the record. It may keep the bytes that it
// is given (see Record). A record for which it returns an error is rejected whole, with the error's
// text for the reason, and the source goes on.
//
// The source stops the job rather than lose records in silence: when the log was deleted before it
// was read, when it was truncated, and when the topic was deleted or made again. Its errors say what to
// accept by name to go on. Partitions that are added to the topic are found and read from their first
// record, except in a bounded read.
func Source[T any](cfg SourceConfig, decode func(r *Record, row *T) error) connector.Source[T] {
	return &source[T]{cfg: cfg.withDefaults(), decode: decode}
}

type source[T any] struct {
	cfg    SourceConfig
	decode func(*Record, *T) error
}

// Replayable reports that records can be read again: the log keeps them for its retention.
func (s *source[T]) Replayable() bool { return true }

// Discover returns the partitions of the topic with the offsets to begin and, in a bounded read, to
// end at.
func (s *source[T]) Discover(ctx context.Context) ([]connector.Split, error) {
	splits, err := s.discover(ctx)
	if err != nil {
		return nil, fmt.Errorf("kafka source of topic %q: %w", s.cfg.Topic, s.cfg.explain(err))
	}
	return splits, nil
}

func (s *source[T]) discover(ctx context.Context) ([]connector.Split, error) {
	if err := s.cfg.validate(); err != nil {
		return nil, connector.Stop(err)
	}
	cl, err := s.cfg.newClient(logTo(nil))
	if err != nil {
		return nil, connector.Stop(err)
	}
	defer cl.Close()
	l := lookup{client: cl, topic: s.cfg.Topic}
	var positions map[int32]Position
	err = retry(ctx, s.cfg.TopicWait, func() (err error) {
		positions, err = l.startPositions(ctx, &s.cfg)
		return err
	})
	if err != nil {
		return nil, stopIfMissing(err, s.cfg.Topic)
	}
	return s.splits(positions), nil
}

// splits makes a split of each partition, in order.
func (s *source[T]) splits(positions map[int32]Position) []connector.Split {
	splits := make([]connector.Split, 0, len(positions))
	for _, p := range slices.Sorted(maps.Keys(positions)) {
		splits = append(splits, connector.Split{
			ID: splitID(s.cfg.Topic, p), Position: positions[p].AppendTo(nil),
		})
	}
	return splits
}

// GrowthInterval is how often to look for added partitions. A bounded read ends where the topic ended when
// the job started, and partitions that are added lie behind that.
func (s *source[T]) GrowthInterval() time.Duration {
	if s.cfg.UntilEnd {
		return 0
	}
	return s.cfg.Discovery
}

// Grow finds the partitions that were added to the topic.
func (s *source[T]) Grow(ctx context.Context, known []connector.Split) ([]connector.Split, error) {
	splits, err := s.grow(ctx, known)
	if err != nil {
		return nil, fmt.Errorf("kafka source of topic %q: %w", s.cfg.Topic, s.cfg.explain(err))
	}
	return splits, nil
}

func (s *source[T]) grow(ctx context.Context, known []connector.Split) ([]connector.Split, error) {
	if err := s.cfg.validate(); err != nil {
		return nil, connector.Stop(err)
	}
	cl, err := s.cfg.newClient(logTo(nil))
	if err != nil {
		return nil, connector.Stop(err)
	}
	defer cl.Close()
	var v topicView
	err = retry(ctx, s.cfg.TopicWait, func() (err error) {
		v, err = lookup{client: cl, topic: s.cfg.Topic}.view(ctx)
		return err
	})
	if err != nil {
		return nil, stopIfMissing(err, s.cfg.Topic)
	}
	seen := sighting{topicID: v.id, partitions: int32(len(v.leaders))}
	added := make(map[int32]Position, len(v.leaders))
	for p := range v.leaders {
		added[p] = firstPosition(seen)
	}
	for i, split := range known {
		p, err := s.newPart(i, split)
		if err == nil {
			err = judgeTopic(s.cfg.accepted(), s.cfg.Topic, p.pos, seen)
		}
		if err != nil {
			return nil, connector.Stop(err)
		}
		delete(added, p.partition)
	}
	return s.splits(added), nil
}

// firstPosition is where a partition that was added begins: at offset 0, and not where the log starts by
// now. If something of it is gone before it was read, that is a loss like any other.
func firstPosition(seen sighting) Position {
	return Position{TopicID: seen.topicID, Partitions: seen.partitions, Next: 0, LeaderEpoch: unknown, End: unknown}
}

func splitID(topic string, partition int32) string { return fmt.Sprintf("%s/%d", topic, partition) }
