package txn

import (
	"context"
	"log/slog"
	"time"
)

// Config is what the course of a sink's transactions depends on.
type Config struct {
	Topic  string
	Prefix string // of the transactional IDs

	// TransactionTimeout is how long the brokers leave a transaction open.
	TransactionTimeout time.Duration
	// CommitDeadline is how long one transaction is committed, or ended, before the generation fails.
	CommitDeadline time.Duration
	// Grace is how long the brokers may take from the end of a transaction at the coordinator to its
	// markers in the log. A marker that is not there then was lost.
	Grace time.Duration

	// LostTransaction is what is done about a transaction that somebody else aborted.
	LostTransaction LostTransaction

	Logger  *slog.Logger // nil is silent
	Cluster Cluster
	Clock   Clock

	// Reached is told each step by name; nil is nobody.
	Reached func(step string)
}

func (c *Config) logger() *slog.Logger {
	if c.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return c.Logger
}

// Pauses between two looks at the same thing.
const (
	firstPause = 2 * time.Millisecond
	longPause  = time.Second
)

// Pause waits longer at each try, up to a second.
func Pause(ctx context.Context, clock Clock, try int) error {
	d := longPause
	if try < 9 {
		d = firstPause << try
	}
	return clock.Sleep(ctx, d)
}

func (c *Config) pause(ctx context.Context, try int) error { return Pause(ctx, c.Clock, try) }

// Find returns where a topic lies, and ErrNoTopic if it is not there.
func Find(ctx context.Context, cluster Cluster, topic string) (Place, error) {
	at, err := cluster.Place(ctx, topic)
	if err != nil {
		return Place{}, err
	}
	if at.TopicID == ([16]byte{}) {
		return Place{}, NoTopic(topic)
	}
	return at, nil
}

// openOf returns what is open in the topic under the producer IDs for which wanted reports true.
func (c *Config) openOf(ctx context.Context, wanted func(producerID int64) bool) ([]Open, error) {
	at, err := Find(ctx, c.Cluster, c.Topic)
	if err != nil {
		return nil, err
	}
	all, err := c.Cluster.Open(ctx, c.Topic, at.Partitions())
	if err != nil {
		return nil, err
	}
	var open []Open
	for _, t := range all {
		if wanted(t.ProducerID) {
			open = append(open, t)
		}
	}
	return open, nil
}
