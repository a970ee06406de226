package simulation

import (
	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/settle"
	"example.com/weir/connectors/kafka/txn"
	"example.com/weir/internal/protocol"
)

// oracle knows the fate of every record, by looking at the logs themselves: the first control record of its
// producer behind a record decides it, whatever anybody answered. It calls wrong:
//
//	DOUBLED       a record is visible to readers of committed records twice
//	OUT OF ORDER  two records of a split are visible in a partition in another order than the job wrote them
//	MISSING       the job is finished, or CURRENT says settled, and a record is not visible
//	TOO EARLY     a transaction is committed that no CURRENT has ever named
//	WRONG MARKER  a process writes a marker that the coordinator has not decided on
//	LEFT OPEN     a restore has ended, and something that was written before is still open
//	STOPPED       the job stops by name without a fault that takes it
type oracle struct {
	w       *world
	visible map[recordID]int
	named   map[written]bool // every transaction that a CURRENT has named
	again   map[written]bool // those that took another one's place
}

func newOracle(w *world) *oracle {
	return &oracle{w: w, visible: map[recordID]int{}, named: map[written]bool{}, again: map[written]bool{}}
}

// decided is called for each record that a control record has decided.
func (o *oracle) decided(p *partition, at int64) {
	e := &p.log[at]
	if e.decided != settle.Commit {
		return
	}
	o.visible[e.record]++
	if o.visible[e.record] > 1 {
		o.w.wrong("DOUBLED: %s is visible twice, again at offset %d of partition %d", e.record, at, p.number)
	}
	for i := range p.log {
		other := &p.log[i]
		if other.decided != settle.Commit || other.record.split != e.record.split || int64(i) == at {
			continue
		}
		if (other.record.at < e.record.at) != (int64(i) < at) {
			o.w.wrong("OUT OF ORDER: %s at offset %d and %s at offset %d of partition %d",
				other.record, i, e.record, at, p.number)
		}
	}
}

// committing is called when a coordinator decides to commit a transaction.
func (o *oracle) committing(t *transaction) {
	w := written{t.producerID, t.epoch}
	if o.again[w] {
		o.w.counts.AgainCommitted++
	}
	if !o.named[w] {
		o.w.wrong("TOO EARLY: %s, epoch %d, is committed, and CURRENT has never named it", short(t.id), t.epoch)
	}
}

// aborting is called when a coordinator decides to abort a transaction.
func (o *oracle) aborting(w written) {
	if o.again[w] {
		o.w.counts.LostAgain++
	}
}

// marking is called when a process writes a control record. Nobody can help what arrives late, but that it is
// refused under a later epoch.
func (o *oracle) marking(p *partition, producerID int64, marker settle.Marker, late bool) {
	s := p.producer(producerID)
	if s.open < 0 || late {
		return
	}
	for at := s.open; at < int64(len(p.log)); at++ {
		e := &p.log[at]
		if e.producerID != producerID || e.control != settle.NoMarker ||
			o.w.broker.decisions[written{producerID, e.epoch}] == marker {
			continue
		}
		o.w.wrong("WRONG MARKER: %s for %s at offset %d of partition %d, producer %d, epoch %d", marker, e.record, at,
			p.number, producerID, e.epoch)
	}
}

// swapped is called when CURRENT has been swapped.
func (o *oracle) swapped(c protocol.Current) {
	if c.Manifest == "" {
		return
	}
	m, ok := o.w.store.manifests[c.Manifest]
	if !ok {
		o.w.wrong("CURRENT names manifest %s, which is not there", c.Manifest)
	}
	for _, x := range m.committables {
		h, err := settle.DecodeHandle(x.Payload)
		if err != nil {
			o.w.wrong("CURRENT names %s: %v", x.ID(), err)
			return
		}
		o.named[written{h.ProducerID, h.Epoch}] = true
		if c.Settled && !o.committed(h) && !(o.w.cfg.Lost == txn.Skip && o.lost(h)) {
			o.w.wrong("MISSING: CURRENT says settled, and %s (%s, epoch %d) is not committed in every partition",
				x.ID(), short(h.TransactionalID), h.Epoch)
		}
	}
}

// committed reports whether everything that a transaction wrote is visible.
func (o *oracle) committed(h *settle.Handle) bool { return o.all(h, settle.Commit) }

// lost reports whether nothing that a transaction wrote is visible, or ever will be.
func (o *oracle) lost(h *settle.Handle) bool { return o.all(h, settle.Abort) }

// all reports whether everything that a transaction wrote is decided like this.
func (o *oracle) all(h *settle.Handle, decided settle.Marker) bool {
	for i := range h.Parts {
		log := o.w.broker.logs[h.Parts[i].Partition].log
		for at := h.Parts[i].First; at <= h.Parts[i].Last; at++ {
			e := &log[at]
			if e.producerID == h.ProducerID && e.control == settle.NoMarker && e.decided != decided {
				return false
			}
		}
	}
	return true
}

// replaced is called when CURRENT names what was written again.
func (o *oracle) replaced(c connector.Committable) {
	o.w.counts.WrittenAgain++
	if h, err := settle.DecodeHandle(c.Payload); err == nil {
		o.again[written{h.ProducerID, h.Epoch}] = true
	}
}

// restored is called when a generation has settled what was named and ended everything else: nothing that was
// written before it began may be open.
func (o *oracle) restored(p *process, began uint64) {
	for _, part := range o.w.broker.logs {
		for at := range part.log {
			e := &part.log[at]
			if e.control == settle.NoMarker && e.decided == settle.NoMarker && e.tick < began && p.owns() {
				o.w.wrong("LEFT OPEN: %s has restored, and %s at offset %d of partition %d, written by %s before, is open",
					p, e.record, at, part.number, e.by)
			}
		}
	}
}

// finished is called when a process says that the job is done.
func (o *oracle) finished() {
	o.w.ended = finished
	for split := range o.w.cfg.Splits {
		for at := range o.w.cfg.Records {
			r := recordID{split, at}
			switch {
			case o.visible[r] == 1:
			case o.w.cfg.Lost == txn.Skip && o.skipped(r):
				o.w.counts.Skipped++
			default:
				o.w.wrong("MISSING: finished, and %s is not visible", r)
			}
		}
	}
}

// skipped reports whether a record was in a transaction that a CURRENT has named and that somebody else has
// aborted: the policy is to go on without it.
func (o *oracle) skipped(r recordID) bool {
	for _, p := range o.w.broker.logs {
		for i := range p.log {
			e := &p.log[i]
			w := written{e.producerID, e.epoch}
			if by, known := o.w.broker.causes[w]; e.record == r && e.control == settle.NoMarker && o.named[w] &&
				e.decided == settle.Abort && (!known || by != byOwner) {
				return true
			}
		}
	}
	return false
}

// stopped is called when a process stops by name, which takes a fault that no protocol can heal.
func (o *oracle) stopped(p *process, err error) {
	if !o.unhealable() {
		o.w.wrong("STOPPED BY NAME WITHOUT A FAULT: %v", err)
	}
	if p.owns() || !p.claimed {
		o.w.ended, o.w.reason = stoppedByName, err.Error()
	}
}

// unhealable reports whether something has happened that the job may stop for.
func (o *oracle) unhealable() bool {
	c := &o.w.counts
	switch {
	case c.PartialAborts+c.Cleaned > 0:
		return true
	case c.MarkersLost > 0 && (!o.w.cfg.MarkerRight || c.Takeovers+c.Delayed > 0):
		// With the right to write it, a lost marker does harm only where an InitProducerID of somebody else
		// has erased what it was to be.
		return true
	case o.w.cfg.Lost == txn.Skip, o.w.cfg.Lost == txn.Reemit && o.w.cfg.Keep && c.NotKept == 0:
		return false
	}
	for _, by := range o.w.broker.causes {
		if by != byOwner {
			return true
		}
	}
	return false
}
