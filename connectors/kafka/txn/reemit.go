package txn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/settle"
)

// What is written at a time, at most.
const (
	chunkRecords = 1000
	chunkBytes   = 1 << 20
)

// writeAgain writes lost transactions again, the oldest first and one after the other.
func (r *restorer) writeAgain(ctx context.Context, lost []*named) error {
	for _, t := range lost {
		// What has been ended since may have changed it: only what the log shows aborted is written again (K6).
		v, err := r.settle(ctx, t.of, t.handle, settle.NotAsked, r.endOpen)
		if err != nil {
			return err
		}
		if v.Kind != settle.Aborted {
			continue
		}
		if err := r.writeOneAgain(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// writeOneAgain writes T again as R: into an open transaction first, which CURRENT then names in place of T,
// and which only then is committed (K6).
func (r *restorer) writeOneAgain(ctx context.Context, t *named) error {
	again := t.of
	written, err := r.rewrite(ctx, t)
	if err == nil {
		again.Payload, err = written.Encode()
	}
	if err != nil {
		return fmt.Errorf("write %s again: %w", head(t.of, t.handle), err)
	}
	r.reached(StepReemitWritten)
	if err := r.rc.Replace(ctx, again); err != nil {
		return fmt.Errorf("name transaction %s in place of %s: %w", written.TransactionalID, head(t.of, t.handle), err)
	}
	before := head(t.of, t.handle)
	t.of, t.handle = again, written
	r.reached(StepReemitReplaced)
	v, err := r.settle(ctx, again, written, settle.NotAsked, func(ctx context.Context, h *settle.Handle) (settle.Answer, error) {
		r.reached(StepReemitBeforeEndTxn)
		return r.Cluster.Commit(ctx, h), nil
	})
	if err == nil && v.Kind == settle.Aborted {
		err = r.lostFor(again, written, v)
	}
	if err != nil {
		return err
	}
	r.reached(StepReemitSettled)
	r.logger().Warn("a lost transaction was written again and committed", "lost", before,
		"again", written.TransactionalID, "where", written.Where())
	return nil
}

// rewrite writes the kept records of a lost transaction into a new one, flushed and open, and returns its handle.
func (r *restorer) rewrite(ctx context.Context, t *named) (*settle.Handle, error) {
	taker := Taker{Config: r.Config, StillOwner: r.rc.StillOwner}
	id := r.freeID(t)
	p, err := taker.Take(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("begin transaction %s: %w", id, err)
	}
	defer p.Close() // what is open stays open (K5)
	r.reached(StepReemitTaken)
	var parts []settle.Part
	err = r.eachKept(ctx, t, func(records []Record) error {
		more, err := p.Write(ctx, r.Topic, records)
		parts = mergeParts(parts, more)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := sameRecords(t.handle, parts); err != nil {
		return nil, keptFailed(t, err)
	}
	producerID, epoch := p.ID()
	home := &Place{ClusterID: t.handle.ClusterID, TopicID: t.handle.TopicID}
	return r.Handle(ctx, home, Written{
		TransactionalID: id, ProducerID: producerID, Epoch: epoch, EndTxnVersion: p.EndTxnVersion(), Parts: parts,
	})
}

// freeID returns the lowest ID of the subtask that CURRENT does not name. Whatever no CURRENT names has been
// ended and seen to be (K1), at whatever parallelism it was written.
func (r *restorer) freeID(t *named) string {
	taken := map[string]bool{}
	for i := range r.named {
		taken[r.named[i].handle.TransactionalID] = true
	}
	id := settle.ID{Prefix: r.Prefix, Lineage: r.rc.Lineage, Subtask: t.of.Subtask}
	for taken[id.String()] {
		id.Slot++
	}
	return id.String()
}

// checkKept reads the kept records of a lost transaction through: that they are there, whole, and those
// that it had.
func (r *restorer) checkKept(ctx context.Context, t *named, v settle.Verdict) error {
	if t.of.Kept.Name == "" {
		return connector.Stop(fmt.Errorf("%s They cannot be written again, as the policy \"reemit\" would: the checkpoint "+
			"keeps no records of it. Keeping them was switched off then, or the storage of the checkpoints failed. "+
			"Say skip to go on without them (--lost-transaction skip), and find them by what the job read up to this "+
			"checkpoint", lost(t.of, t.handle, v)))
	}
	var parts []settle.Part
	err := r.eachKept(ctx, t, func(records []Record) error {
		for i := range records {
			parts = mergeParts(parts, []settle.Part{{Partition: records[i].Partition, Records: 1}})
		}
		return nil
	})
	if err == nil {
		if err = sameRecords(t.handle, parts); err != nil {
			err = keptFailed(t, err)
		}
	}
	if err != nil {
		return fmt.Errorf("%s To write them again: %w", lost(t.of, t.handle, v), err)
	}
	return nil
}

// eachKept reads the kept records of a transaction, some at a time. The slice is used again.
func (r *restorer) eachKept(ctx context.Context, t *named, f func([]Record) error) (err error) {
	from, err := r.rc.Kept(ctx, t.of.Kept)
	if err != nil {
		return keptFailed(t, err)
	}
	defer func() { _ = from.Close() }() // only read
	k, err := NewKeptReader(from)
	if err != nil {
		return keptFailed(t, err)
	}
	chunk, size := make([]Record, 0, chunkRecords), 0
	for {
		rec, err := k.Next()
		if err == nil {
			chunk = append(chunk, rec)
			size += len(rec.Key) + len(rec.Value)
		}
		if len(chunk) == chunkRecords || size > chunkBytes || errors.Is(err, io.EOF) && len(chunk) > 0 {
			if err := f(chunk); err != nil {
				return err
			}
			chunk, size = chunk[:0], 0
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return keptFailed(t, err)
		}
	}
}

// keptFailed says what to do about kept records that are damaged, by what they hold or by what the storage says.
// A storage that is away is tried again.
func keptFailed(t *named, err error) error {
	if name := t.of.Kept.Name; !strings.Contains(err.Error(), name) { // the storage names it too
		err = fmt.Errorf("kept records %s: %w", name, err)
	}
	if errors.Is(err, ErrKeptDamaged) || connector.IsStop(err) {
		err = connector.Stop(fmt.Errorf("%w. Restore them from a copy of the checkpoints, or say skip to go on without "+
			"the records (--lost-transaction skip)", err))
	}
	return err
}

// mergeParts adds what was written to what was written before.
func mergeParts(parts, more []settle.Part) []settle.Part {
	for _, p := range more {
		at, found := slices.BinarySearchFunc(parts, p.Partition, func(q settle.Part, partition int32) int {
			return int(q.Partition) - int(partition)
		})
		if !found {
			parts = slices.Insert(parts, at, p)
			continue
		}
		q := &parts[at]
		q.First, q.Last, q.Records = min(q.First, p.First), max(q.Last, p.Last), q.Records+p.Records
	}
	return parts
}

// sameRecords holds the counts of kept records against what was acknowledged when they were first written.
func sameRecords(h *settle.Handle, parts []settle.Part) error {
	same := slices.EqualFunc(h.Parts, parts, func(a, b settle.Part) bool {
		return a.Partition == b.Partition && a.Records == b.Records
	})
	if same {
		return nil
	}
	var have []string
	for _, p := range parts {
		have = append(have, fmt.Sprintf("%s/%d %d records", h.Topic, p.Partition, p.Records))
	}
	return fmt.Errorf("%w: they are %v, and the transaction had %s", ErrKeptDamaged, have, h.Where())
}
