package txn

import (
	"context"
	"fmt"
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
	for try := 0; ; try++ {
		if err := t.StillOwner(ctx); err != nil { // K2
			return nil, err
		}
		p, err := t.Cluster.Produce(ctx, id, t.TransactionTimeout)
		if err != nil {
			return nil, err
		}
		later, err := t.leftOpen(ctx, id, p)
		if err == nil && !later {
			return p, nil
		}
		p.Close()
		if err != nil {
			return nil, err
		}
		if err := t.pause(ctx, try); err != nil {
			return nil, fmt.Errorf("taken again and again by somebody else: %w", err)
		}
	}
}

// leftOpen looks at every partition of the topic for an open transaction of the producer.
// One under a later epoch is somebody else's, and is reported. One under an earlier epoch is ours
// and has ended at the coordinator: its marker was lost, and the next marker of this producer would
// decide its records too.
func (t *Taker) leftOpen(ctx context.Context, id string, p Producer) (later bool, err error) {
	lost, later, err := t.openUnder(ctx, p)
	since := t.Clock.Now()
	for try := 0; err == nil && !later && lost != nil; try++ {
		if t.Clock.Now().Sub(since) > t.Grace {
			return false, abortMarkerLost(t.Topic, id, lost)
		}
		if err := t.pause(ctx, try); err != nil {
			return false, err
		}
		lost, later, err = t.openUnder(ctx, p)
	}
	return later, err
}

func (t *Taker) openUnder(ctx context.Context, p Producer) (earlier *Open, later bool, err error) {
	producerID, epoch := p.ID()
	open, err := t.openOf(ctx, func(of int64) bool { return of == producerID })
	if err != nil {
		return nil, false, err
	}
	for i := range open {
		if open[i].Epoch > int32(epoch) {
			return nil, true, nil
		}
		earlier = &open[i]
	}
	return earlier, false, nil
}
