package txn

import (
	"context"
	"fmt"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/settle"
)

// Committer commits the transactions of a subtask in the order of its checkpoints. One goroutine at a
// time uses it.
type Committer struct {
	Config
	Pool *Pool
}

// Commit commits a transaction and returns once the log shows it. One that was lost fails the generation, so
// that the restore writes it again; or does what else the policy says.
func (c *Committer) Commit(ctx context.Context, of connector.Committable) error {
	h, err := settle.DecodeHandle(of.Payload)
	if err != nil {
		return connector.Stop(fmt.Errorf("commit %s: %w", of.ID(), err))
	}
	ctx, cancel := c.Clock.WithTimeout(ctx, c.CommitDeadline)
	defer cancel()
	s, answer := c.Pool.find(h), settle.NotAsked
	if s != nil {
		if c.Pool.isSettled(s) {
			return nil
		}
		if err := c.Pool.inTurn(s.checkpoint); err != nil {
			return fmt.Errorf("sink %s[%d]: %w", of.Sink, of.Subtask, err)
		}
		if answer, err = c.commitOpen(ctx, h); err != nil { // nobody else has had it: no look first
			return err
		}
	}
	v, err := c.settle(ctx, of, h, answer, c.commitOpen)
	if err == nil && v.Kind == settle.Aborted {
		err = c.lostFor(of, h, v)
	}
	if err == nil && s != nil {
		c.Pool.settled(s)
	}
	return err
}

// Release frees the transactional ID of a committable that no CURRENT names. It may be called beside Commit.
func (c *Committer) Release(of connector.Committable) {
	h, err := settle.DecodeHandle(of.Payload)
	if err == nil {
		err = c.Pool.release(h)
	}
	if err != nil {
		c.logger().Error("a committable was released that is not settled; its transactional ID stays taken",
			"checkpoint", of.Checkpoint, "error", err)
	}
}
