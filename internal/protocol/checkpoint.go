package protocol

import (
	"fmt"

	"example.com/weir/connector"
)

// checkpointState is how far the checkpoint in progress has come:
//
//	aligning ─▶ writing ─▶ durable ─▶ swapping ─▶ (completed)
//	   └───────────┴─▶ (aborted)
type checkpointState int

const (
	aligning checkpointState = iota // barriers are on their way
	writing                         // the manifest is being written
	durable                         // the manifest is durable; a swap may go out
	swapping                        // the swap is out
)

// checkpoint is the one in progress.
type checkpoint struct {
	id      uint64
	final   Outcome
	state   checkpointState
	handles map[SubtaskID][]Handle
	missing int // subtasks that have not acknowledged

	named    []connector.Committable // what the manifest names, fixed when it is written
	manifest string
	digest   [32]byte
}

// answer is the last one a subtask gave to a barrier. Its committables are without payload.
type answer struct {
	checkpoint   uint64
	committables []connector.Committable
}

// startCheckpoint injects a barrier if one is wanted and its turn has come. It waits while more
// than one checkpoint that CURRENT names has something unsettled: committing that falls behind
// slows checkpoints down instead of piling them up.
func (c *Coordinator) startCheckpoint() {
	final := None
	switch {
	case c.finishing():
		final = Finished
	case c.draining && c.current.Checkpoint != 0:
		return // event time is on its way to the end: no cut may hold that with input left to read
	case c.stopping && !c.draining:
		final = Stopped
	case !c.due:
		return
	}
	if c.ledger.unsettledCheckpoints() > 1 {
		return
	}
	c.due = false
	c.lastID++ // P7
	c.open = &checkpoint{
		id:      c.lastID,
		final:   final,
		handles: make(map[SubtaskID][]Handle, len(c.cfg.Subtasks)),
		missing: len(c.cfg.Subtasks),
	}
	c.emit(InjectBarrier{Checkpoint: c.open.id, Final: final})
}

func (c *Coordinator) acknowledged(e Acknowledged) {
	if !c.record(e.Checkpoint, e.Subtask, e.Committables) {
		return
	}
	c.discard(c.files.named(e.Subtask, e.Handles))
	if c.open == nil || c.open.id != e.Checkpoint {
		return // of an aborted checkpoint: its committables are carried (P3)
	}
	c.open.handles[e.Subtask] = e.Handles
	c.open.missing--
}

func (c *Coordinator) declined(e Declined) {
	if !c.record(e.Checkpoint, e.Subtask, e.Committables) {
		return
	}
	c.discard(c.files.named(e.Subtask, e.Handles))
	if c.open == nil || c.open.id != e.Checkpoint {
		return
	}
	c.abort(fmt.Errorf("subtask %s: snapshot: %w", e.Subtask, e.Err))
}

// record notes an answer to a barrier and reports whether it is a new one.
//
// An older answer than the last one of its subtask cannot be (S1). Taken in silence it would be
// a loss: the checkpoint that has been completed meanwhile lies after the records of the
// committable, and does not name it.
func (c *Coordinator) record(n uint64, s SubtaskID, cs []connector.Committable) bool {
	last, ok := c.answers[s]
	switch {
	case !ok:
		c.broken("subtask %s answered to checkpoint %d and is not one of the job", s, n)
		return false
	case n == 0 || n > c.lastID:
		c.broken("subtask %s answered to checkpoint %d, which was not asked for", s, n)
		return false
	case n == last.checkpoint:
		c.repeated(s, last, cs)
		return false
	case n < last.checkpoint && len(cs) > 0:
		c.broken("%s came after the answer of %s to checkpoint %d", cs[0].ID(), s, last.checkpoint)
		return false
	case n < last.checkpoint:
		return false
	}
	a := answer{checkpoint: n}
	for _, x := range cs {
		if x.Checkpoint != n {
			c.broken("%s came with the answer of %s to checkpoint %d", x.ID(), s, n)
			return false
		}
		if known, ok := c.ledger[x.ID()]; ok && known.Digest != x.Digest {
			c.changed(known.Committable, x)
			return false
		}
		c.ledger.add(x)
		x.Payload = nil
		a.committables = append(a.committables, x)
	}
	c.answers[s] = a
	return true
}

// repeated checks an answer that came again: it must say nothing else than the first time (P8).
func (c *Coordinator) repeated(s SubtaskID, first answer, cs []connector.Committable) {
	for _, x := range cs {
		known := false
		for _, f := range first.committables {
			if f.ID() == x.ID() && f.Digest != x.Digest {
				c.changed(f, x)
				return
			}
			known = known || f.ID() == x.ID()
		}
		if !known {
			c.broken("%s came with a second answer of %s only", x.ID(), s)
			return
		}
	}
}

// changed stops the job: one identity came with two contents (P8).
func (c *Coordinator) changed(a, b connector.Committable) {
	c.broken("committable %s came with digest %x and then with %x: "+
		"the same records must always give the same digest", a.ID(), a.Digest[:4], b.Digest[:4])
}

// timedOut aborts a checkpoint that subtasks have not acknowledged. Once all have, nothing depends
// on a subtask any more, and what is out is waited for.
func (c *Coordinator) timedOut(e TimedOut) {
	if c.open == nil || c.open.id != e.Checkpoint {
		return
	}
	for _, s := range c.cfg.Subtasks {
		if _, ok := c.open.handles[s.ID]; !ok {
			c.abort(fmt.Errorf("timed out: %d of %d subtasks did not acknowledge, the first is %s",
				c.open.missing, len(c.cfg.Subtasks), s.ID))
			return
		}
	}
}

// abort gives the checkpoint in progress up. What was pre-committed stays in the ledger, and the
// next manifest names it (P3).
func (c *Coordinator) abort(err error) {
	err = fmt.Errorf("checkpoint %d aborted: %w", c.open.id, err)
	final := c.open.final != None
	c.emit(AbortCheckpoint{Checkpoint: c.open.id, Err: err})
	c.open = nil
	c.failures++
	switch {
	case connector.IsStop(err), final, c.cfg.TolerableFailures == 0:
		c.fail(err)
	case c.failures > c.cfg.TolerableFailures:
		c.fail(fmt.Errorf("%d checkpoints in a row failed, %d are tolerated: %w",
			c.failures, c.cfg.TolerableFailures, err))
	}
}

// writeManifest describes the checkpoint: all subtasks' snapshots, and everything that is not
// settled, whichever checkpoint it was made for (P3).
func (c *Coordinator) writeManifest() {
	o := c.open
	o.state = writing
	o.named = c.ledger.unsettled()
	m := WriteManifest{
		Current:      c.current,
		Checkpoint:   o.id,
		Finished:     o.final == Finished,
		Committables: o.named,
	}
	for _, s := range c.cfg.Subtasks {
		m.Snapshots = append(m.Snapshots, SubtaskSnapshot{Subtask: s.ID, Handles: o.handles[s.ID]})
	}
	c.emit(m)
}

func (c *Coordinator) manifestWritten(e ManifestWritten) {
	if c.replacement != nil {
		c.rewritten(e)
		return
	}
	if c.open == nil || c.open.id != e.Checkpoint || c.open.state != writing {
		c.broken("manifest of checkpoint %d was written, which was not asked for", e.Checkpoint)
		return
	}
	c.open.manifest, c.open.digest, c.open.state = e.Manifest, e.Digest, durable
}

func (c *Coordinator) manifestFailed(e ManifestFailed) {
	if c.replacement != nil {
		c.rewriteFailed(e)
		return
	}
	if c.open == nil || c.open.id != e.Checkpoint || c.open.state != writing {
		c.broken("manifest of checkpoint %d failed, which was not asked for", e.Checkpoint)
		return
	}
	c.abort(fmt.Errorf("manifest: %w", e.Err))
}

// swapCheckpoint asks for the swap that makes the checkpoint exist (P1). If nothing it names is
// left to commit, the same swap says settled.
func (c *Coordinator) swapCheckpoint() {
	o := c.open
	o.state = swapping
	settled := c.ledger.allSettled(o.named)
	c.askSwap(c.current, Current{
		Job:            c.current.Job,
		Lineage:        c.current.Lineage,
		Generation:     c.current.Generation,
		Checkpoint:     o.id,
		Settled:        settled,
		Finished:       o.final == Finished,
		Clean:          settled && o.final != None,
		Manifest:       o.manifest,
		ManifestDigest: o.digest,
	})
}

// completeCheckpoint follows the swap: what is newly named is committed, and what is no longer
// named is released (P5).
func (c *Coordinator) completeCheckpoint() {
	o := c.open
	c.open, c.failures, c.completed = nil, 0, o.final
	c.files.take(o.handles)
	named := o.named
	if c.current.Settled {
		named = nil
	}
	c.release(c.ledger.leave(named))
	if commit := c.ledger.commit(named); len(commit) > 0 {
		c.emit(Commit{Permit: c.newPermit(named), Committables: commit})
	}
	c.emit(ReleasePositions{Checkpoint: o.id})
	c.emit(CheckpointCompleted{Current: c.current})
	c.emit(Collect{Current: c.current, Retain: c.cfg.Retain})
}

// Open returns the ID of the checkpoint in progress, or 0.
func (c *Coordinator) Open() uint64 {
	if c.open == nil {
		return 0
	}
	return c.open.id
}
