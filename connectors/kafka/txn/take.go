package txn

import (
	"context"
	"errors"
	"fmt"

	"example.com/weir/connectors/kafka/settle"
)

// Taker takes transactional IDs for new transactions.
type Taker struct {
	Config
	// StillOwner returns nil while this generation owns CURRENT.
	StillOwner func(ctx context.Context) error
}

// Take gives an ID a producer with an epoch of its own, and makes sure that nothing is left open
// under it. Whoever takes the ID after us leaves a later epoch in the log: then we ask
// whether we still own CURRENT, and begin again. The caller sees to it that the ID is free (K1).
func (t *Taker) Take(ctx context.Context, id string) (Producer, error) {
	for try, marked := 0, 0; ; try++ {
		if err := t.StillOwner(ctx); err != nil { // K2
			return nil, err
		}
		p, err := t.Cluster.Produce(ctx, id, t.TransactionTimeout)
		if err != nil {
			return nil, err
		}
		lost, later, err := t.leftOpen(ctx, p)
		if err == nil && !later && len(lost) == 0 {
			return p, nil
		}
		p.Close()
		if err != nil {
			return nil, err
		}
		if !later {
			if marked++; marked > maxMarked {
				return nil, abortMarkerLost(t.Topic, id, &lost[0])
			}
			// The look took its time, and what is open may be a successor's by now.
			if err := t.StillOwner(ctx); err != nil { // K2
				return nil, err
			}
			if err := t.markAll(ctx, id, p, lost); err != nil {
				return nil, err
			}
		}
		if err := t.pause(ctx, try); err != nil {
			return nil, fmt.Errorf("taken again and again by somebody else: %w", err)
		}
	}
}

// maxMarked is how often a lost marker is written for one Take: one that is not there then is refused for a
// reason that trying does not heal.
const maxMarked = 3

// leftOpen looks at every partition of the topic for an open transaction of the producer. One under a later
// epoch is somebody else's, and is reported. One under an earlier epoch is ours
// and has ended at the coordinator: if its marker does not come it was lost, and the next marker of this producer
// would decide its records too.
func (t *Taker) leftOpen(ctx context.Context, p Producer) (lost []Open, later bool, err error) {
	since := t.Clock.Now()
	for try := 0; ; try++ {
		earlier, later, err := t.openUnder(ctx, p)
		if err != nil || later || len(earlier) == 0 || t.Clock.Now().Sub(since) > t.Grace {
			return earlier, later, err
		}
		if err := t.pause(ctx, try); err != nil {
			return nil, false, err
		}
	}
}

// markAll writes lost ABORT markers under the epoch before the new one. The producer is not used any more: a
// marker that arrives late finds a later epoch.
func (t *Taker) markAll(ctx context.Context, id string, p Producer, lost []Open) error {
	_, epoch := p.ID()
	for i := range lost {
		if err := t.markAborted(ctx, id, &lost[i], epoch-1); err != nil {
			return err
		}
	}
	return nil
}

func (t *Taker) openUnder(ctx context.Context, p Producer) (earlier []Open, later bool, err error) {
	producerID, epoch := p.ID()
	open, err := t.openOf(ctx, func(of int64) bool { return of == producerID })
	if err != nil {
		return nil, false, err
	}
	for i := range open {
		if open[i].Epoch > int32(epoch) {
			return nil, true, nil
		}
	}
	return open, false, nil
}

// markAborted writes an ABORT marker that was lost (K7). What became of it the next look says.
func (c *Config) markAborted(ctx context.Context, id string, t *Open, epoch int16) error {
	err := c.Cluster.WriteMarker(ctx, MarkerOrder{
		Topic: c.Topic, Partition: t.Partition, ProducerID: t.ProducerID, Epoch: epoch, Marker: settle.Abort,
	})
	switch {
	case errors.Is(err, ErrNoRight):
		return abortMarkerLost(c.Topic, id, t)
	case err != nil:
		c.logger().Warn("a lost marker could not be written; trying again", "error", err)
		return nil
	}
	c.logger().Warn("wrote a transaction marker that the brokers had lost", "transaction", id,
		"marker", settle.Abort.String(), "topic", c.Topic, "partition", t.Partition, "from", t.Start)
	return nil
}
