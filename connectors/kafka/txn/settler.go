package txn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/settle"
)

// ender does what there is to do about a transaction that the coordinator waits for: it commits it or, in
// a restore, ends it. It returns what EndTxn was answered.
type ender func(ctx context.Context, h *settle.Handle) (settle.Answer, error)

// Commit brings a transaction to its end: it looks, sends EndTxn(commit) where the coordinator waits for
// it, and looks again, until the log shows in every partition that it is committed, or that it is aborted
// (K4): the verdict is one of these two, or there is an error. It is about one transaction alone: the
// order among those of a subtask (K3) is the caller's.
//
// Requests are sent until CommitDeadline and not later. What is open then is left open.
func (c *Config) Commit(ctx context.Context, of connector.Committable, h *settle.Handle) (settle.Verdict, error) {
	return c.settle(ctx, of, h, settle.NotAsked, c.commitOpen)
}

// Settle is Commit for whoever writes nothing again: a transaction that was lost is an error.
func (c *Config) Settle(ctx context.Context, of connector.Committable, h *settle.Handle) error {
	v, err := c.Commit(ctx, of, h)
	if err == nil && v.Kind == settle.Aborted {
		err = connector.Stop(errors.New(lost(of, h, v)))
	}
	return err
}

// settle brings a transaction to its end, with what end does about an open one. answer is that of an EndTxn
// already sent, or NotAsked.
func (c *Config) settle(
	ctx context.Context, of connector.Committable, h *settle.Handle, answer settle.Answer, end ender,
) (settle.Verdict, error) {
	ctx, cancel := c.Clock.WithTimeout(ctx, c.CommitDeadline)
	defer cancel()
	var patience patience
	var last settle.Verdict
	for try := 0; ; try++ {
		o := c.observe(ctx, h, answer)
		if ctx.Err() == nil { // a look that was cut short says nothing
			o.Overdue = patience.over(o.Coordinator, c.Clock.Now(), c.Grace)
			last = settle.Settle(h, answer, &o)
			var err error
			switch last.Kind {
			case settle.Committed, settle.Aborted:
				return last, nil
			case settle.Unknown:
				err = connector.Stop(stopError(of, h, &o, last))
			case settle.Unmarked:
				err = c.mark(ctx, of, h, &o, last)
				patience.anew(c.Clock.Now())
			case settle.Open:
				answer, err = end(ctx, h)
			case settle.Wait:
			}
			if err != nil {
				return last, err
			}
			c.logger().Debug("transaction is not settled", "checkpoint", of.Checkpoint, "transaction", h.TransactionalID,
				"is", last.Kind.String(), "because", last.Reason, "EndTxn", answer.String())
		}
		if err := c.pause(ctx, try); err != nil {
			return last, fmt.Errorf("commit %s: transaction %s is not settled (%s: %s; EndTxn: %s); nothing was ended, "+
				"and the next generation goes on with it: %w", of.ID(), h.TransactionalID, last.Kind, last.Reason, answer, err)
		}
	}
}

// observe looks at a transaction: at its coordinator first, and then at the log of every partition
// it wrote. A transaction that ends in between is then seen as ended or as on its way, and
// never as one whose marker was lost. What cannot be seen is left out.
func (c *Config) observe(ctx context.Context, h *settle.Handle, answer settle.Answer) settle.Observation {
	coordinator, err := c.Cluster.Describe(ctx, h.TransactionalID)
	if err != nil {
		coordinator = settle.Coordinator{}
	}
	o := c.Cluster.Look(ctx, h, answer != settle.AnswerNone)
	o.Coordinator = coordinator
	return o
}

// mark writes the markers that were lost, where this client may: the coordinator has decided, so the
// marker says nothing new (K7). The log is looked at again after it. A marker that arrives late
// finds a producer with a later epoch (K8).
func (c *Config) mark(
	ctx context.Context, of connector.Committable, h *settle.Handle, o *settle.Observation, v settle.Verdict,
) error {
	for _, partition := range undecided(h, o) {
		m := MarkerOrder{
			Topic: h.Topic, Partition: partition, ProducerID: h.ProducerID, Epoch: v.MarkerEpoch, Marker: v.Missing,
		}
		switch err := c.Cluster.WriteMarker(ctx, m); {
		case errors.Is(err, ErrNoRight):
			return connector.Stop(stopError(of, h, o, v))
		case err != nil: // the next look says whether it is there
			c.logger().Warn("a lost marker could not be written; trying again", "error", err)
			return nil
		}
		c.logger().Warn("wrote a transaction marker that the brokers had lost", "sink", of.Sink, "subtask", of.Subtask,
			"checkpoint", of.Checkpoint, "transaction", h.TransactionalID, "marker", v.Missing.String(),
			"topic", h.Topic, "partition", partition)
	}
	return nil
}

// undecided returns the partitions that show no end.
func undecided(h *settle.Handle, o *settle.Observation) []int32 {
	var partitions []int32
	for i := range h.Parts {
		if s := &o.Parts[i]; s.Stable <= h.Parts[i].First && s.Marker == settle.NoMarker {
			partitions = append(partitions, h.Parts[i].Partition)
		}
	}
	return partitions
}

// patience measures for how long the coordinator has been saying the same.
type patience struct {
	said  settle.Coordinator
	since time.Time
}

func (p *patience) over(said settle.Coordinator, now time.Time, grace time.Duration) bool {
	if p.since.IsZero() || said != p.said {
		p.said, p.since = said, now
	}
	return now.Sub(p.since) > grace
}

// anew begins again, after something was done about it.
func (p *patience) anew(now time.Time) { p.since = now }
