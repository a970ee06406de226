package engine

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"

	"example.com/weir/connector"
	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/fault"
	"example.com/weir/internal/protocol"
)

// chain makes the cuts of a subtask durable, beside the stream, and answers to their barriers with
// the files that a restore needs: the last cut alone, or a chain of them.
type chain struct {
	task  *task
	links []link
	// unwritten are cuts that could not be written. Later cuts build on them, so they are written
	// with the next one.
	unwritten []*cut
}

// link is a file that holds the cuts up to a number.
type link struct {
	number uint64
	handle protocol.Handle
}

func (t *task) writeSnapshots() {
	c := &chain{task: t}
	for {
		select {
		case cut := <-t.written:
			t.gen.post(c.answer(cut))
		case <-t.ctx.Done():
			return
		}
	}
}

// answer returns nil if the generation has ended.
func (c *chain) answer(cut *cut) protocol.Event {
	snapshot := c.write(cut)
	if !cut.await(c.task.ctx) {
		return nil
	}
	// What cannot be kept is not named, whatever becomes of the checkpoint.
	if err := cmp.Or(snapshot, cut.syncRecords()); err != nil {
		return protocol.Declined{
			Checkpoint: cut.checkpoint, Subtask: c.task.id, Handles: c.handles(cut.oldest),
			Committables: cut.committables, Err: err,
		}
	}
	c.task.gen.cfg.Reached(fault.AfterSnapshot)
	return protocol.Acknowledged{
		Checkpoint: cut.checkpoint, Subtask: c.task.id, Handles: c.handles(cut.oldest),
		Committables: cut.committables,
	}
}

// syncRecords makes the kept records of the cut's committables durable. A committable whose records could
// not be kept goes on without them.
func (c *cut) syncRecords() (first error) {
	for _, r := range c.kept {
		err := r.Sync()
		if err == nil {
			continue
		}
		first = cmp.Or(first, err)
		for i := range c.committables {
			if c.committables[i].Kept.Name == r.Name() {
				c.committables[i].Kept = connector.Kept{}
			}
		}
	}
	return first
}

// write appends the cut to the chain.
func (c *chain) write(cut *cut) error {
	if len(cut.encoded) == 0 {
		return nil // a subtask without state
	}
	c.forget(cut.oldest)
	c.unwritten = append(c.unwritten, cut)
	var parts [][]byte
	for _, u := range c.unwritten {
		size := len(u.encoded) + length(u.records)
		if uint64(size) > math.MaxUint32 {
			return fmt.Errorf("checkpoint %d: %d bytes are too many for one snapshot of %s", u.checkpoint, size, c.task.id)
		}
		parts = append(parts, binary.LittleEndian.AppendUint32(nil, uint32(size)), u.encoded)
		parts = append(parts, u.records...)
	}
	t := c.task
	h, err := t.gen.store.PutSnapshot(t.ctx, checkpoint.SnapshotName{
		Lineage: t.gen.current.Lineage, Generation: t.gen.current.Generation,
		Checkpoint: cut.checkpoint, Subtask: t.id,
	}, parts...)
	if err != nil {
		return err
	}
	c.forget(cut.number + 1)
	c.links = append(c.links, link{number: cut.number, handle: h})
	return nil
}

// forget gives up the unwritten cuts before a number: they have been written, or no restore needs them
// any more. While checkpoints fail, what waits is no more than a chain holds.
func (c *chain) forget(before uint64) {
	for len(c.unwritten) > 0 && c.unwritten[0].number < before {
		if u := c.unwritten[0]; u.records != nil {
			c.task.giveBack(u.records)
		}
		c.unwritten = c.unwritten[1:]
	}
}

// handles drops the files that no cut from oldest on lies in, and returns the others.
func (c *chain) handles(oldest uint64) []protocol.Handle {
	for len(c.links) > 0 && c.links[0].number < oldest {
		c.links = c.links[1:]
	}
	handles := make([]protocol.Handle, len(c.links))
	for i, l := range c.links {
		handles[i] = l.handle
	}
	return handles
}
