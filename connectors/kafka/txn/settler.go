package txn

import (
	"context"
	"fmt"
	"time"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/settle"
)

// Settle brings a transaction to its end: it looks, sends EndTxn where the coordinator waits for
// it, and looks again, until the log shows the commit in every partition (K4). answer is that of
// an EndTxn already sent, or NotAsked. It ends nothing: a transaction that is open at the deadline
// is left to the next generation.
func (c *Config) Settle(
	ctx context.Context, id connector.CommittableID, h *settle.Handle, answer settle.Answer,
) error {
	ctx, cancel := c.Clock.WithTimeout(ctx, c.CommitDeadline)
	defer cancel()
	var patience patience
	var last settle.Verdict
	for try := 0; ; try++ {
		o := c.observe(ctx, h, answer)
		if ctx.Err() == nil { // a look that was cut short says nothing
			o.Overdue = patience.over(o.Coordinator, c.Clock.Now(), c.Grace)
			last = settle.Settle(h, answer, &o)
			switch last.Kind {
			case settle.Committed:
				return nil
			case settle.Aborted, settle.Unmarked, settle.Unknown:
				return connector.Stop(stopError(id, h, &o, last))
			case settle.Open:
				answer = c.Cluster.Commit(ctx, h)
			case settle.Wait:
			}
			c.logger().Debug("transaction is not settled", "checkpoint", id.Checkpoint, "transaction", h.TransactionalID,
				"is", last.Kind.String(), "because", last.Reason, "EndTxn", answer.String())
		}
		if err := c.pause(ctx, try); err != nil {
			return fmt.Errorf("commit %s: transaction %s is not settled (%s: %s; EndTxn: %s); nothing was ended, and "+
				"the next generation goes on with it: %w", id, h.TransactionalID, last.Kind, last.Reason, answer, err)
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
