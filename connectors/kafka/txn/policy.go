package txn

import (
	"context"
	"fmt"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/settle"
)

// LostTransaction says what is done about a transaction whose checkpoint is complete and that somebody
// else aborted: a timeout, or another producer with its transactional ID.
type LostTransaction int

const (
	// Reemit writes the records again, from what the checkpoint keeps of them, when the job restores.
	Reemit LostTransaction = iota
	// Fail stops the job.
	Fail
	// Skip goes on without the records, and says so in one line of the log.
	Skip
)

// String returns the word used in configuration and logs.
func (l LostTransaction) String() string {
	switch l {
	case Reemit:
		return "reemit"
	case Fail:
		return "fail"
	case Skip:
		return "skip"
	}
	return fmt.Sprintf("LostTransaction(%d)", int(l))
}

// ParseLostTransaction reads the words reemit, fail and skip.
func ParseLostTransaction(s string) (LostTransaction, error) {
	for _, l := range []LostTransaction{Reemit, Fail, Skip} {
		if s == l.String() {
			return l, nil
		}
	}
	return Reemit, fmt.Errorf("lost transactions %q: want reemit, fail or skip", s)
}

// lostFor does what the policy says about a lost transaction, and returns nil if that is all.
// It is called only once the log shows the transaction aborted in every partition (K4).
func (c *Config) lostFor(of connector.Committable, h *settle.Handle, v settle.Verdict) error {
	c.reached(StepLostFound)
	switch c.LostTransaction {
	case Fail:
		return connector.Stop(fmt.Errorf("%s They are not written again: that is the policy \"fail\"",
			lost(of, h, v)))
	case Skip:
		c.logger().Error("a transaction is lost, and the job goes on without its records: that is the policy \"skip\"",
			"sink", of.Sink, "subtask", of.Subtask, "checkpoint", of.Checkpoint, "transaction", h.TransactionalID,
			"records", h.Records(), "where", h.Where(), "because", v.Reason)
		return nil
	case Reemit:
	}
	return &lostError{fmt.Sprintf("%s They are written again when the job restores", lost(of, h, v))}
}

// lostError is that of a transaction to be written again. A restart does it.
type lostError struct{ text string }

func (e *lostError) Error() string { return e.text }

func lost(of connector.Committable, h *settle.Handle, v settle.Verdict) string {
	return fmt.Sprintf("%s: lost: %s. Somebody else ended the transaction (a timeout, or another producer with "+
		"its transactional ID) after its checkpoint was completed. No reader of committed records sees "+
		"these records.", head(of, h), v.Reason)
}

func head(of connector.Committable, h *settle.Handle) string {
	return fmt.Sprintf("sink %s, subtask %d, checkpoint %d: %s", of.Sink, of.Subtask, of.Checkpoint, h.Describe())
}

// Steps that Reached is told.
const (
	StepBeforeEndTxn       = "before-end-txn"
	StepAfterEndTxn        = "after-end-txn"
	StepLostFound          = "lost-found"
	StepReemitTaken        = "reemit-taken"          // an ID and a producer are there
	StepReemitWritten      = "reemit-written"        // the records are in the log again, in an open transaction
	StepReemitReplaced     = "reemit-replaced"       // CURRENT names it
	StepReemitBeforeEndTxn = "reemit-before-end-txn" // its first EndTxn
	StepReemitSettled      = "reemit-settled"        // the log shows it committed
)

func (c *Config) reached(step string) {
	if c.Reached != nil {
		c.Reached(step)
	}
}

// commitOpen sends EndTxn(commit).
func (c *Config) commitOpen(ctx context.Context, h *settle.Handle) (settle.Answer, error) {
	c.reached(StepBeforeEndTxn)
	a := c.Cluster.Commit(ctx, h)
	c.reached(StepAfterEndTxn)
	return a, nil
}
