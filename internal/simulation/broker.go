package simulation

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"example.com/weir/connectors/kafka/settle"
)

// Kafka's error codes, as far as the broker here answers with them.
const (
	codeNone         settle.Answer = 0
	codeInvalidState settle.Answer = 48 // INVALID_TXN_STATE
	codeNoMapping    settle.Answer = 49 // INVALID_PRODUCER_ID_MAPPING
	codeConcurrent   settle.Answer = 51 // CONCURRENT_TRANSACTIONS
	codeFenced       settle.Answer = 90 // PRODUCER_FENCED
)

// broker is one Kafka cluster with one topic: the transaction coordinator and the logs of the partitions.
// It never fails by itself; requests to it do. What it answers is what was measured against brokers.
type broker struct {
	w      *world
	txns   []*transaction // in the order in which their IDs were first used
	logs   []*partition
	causes map[written]cause // of what was aborted
	// decisions are those of the coordinator.
	decisions map[written]settle.Marker
}

// transaction is what the coordinator holds under a transactional ID.
type transaction struct {
	id         string
	producerID int64
	epoch      int16
	state      settle.State // NoHistory is Empty
	parts      uint8        // partitions added, and then those whose marker is to be written
	due        time.Duration
	since      uint64
}

// written names a transaction for ever.
type written struct {
	producerID int64
	epoch      int16
}

// cause says who aborted a transaction.
type cause uint8

const (
	byOwner    cause = iota // an InitProducerID of the process that owned CURRENT when it arrived
	byLate                  // one of somebody else, or one that had been given up
	byTimeout               // the broker
	byOperator              // somebody with kafka-transactions.sh, in one partition at least
)

// partition is the log of one partition, and what its leader remembers of producers.
type partition struct {
	number    int
	log       []entry
	start     int64 // first offset that retention has left
	producers []*producerState
	aborted   []abortedTxn
}

// entry is one record, or one control record.
type entry struct {
	producerID int64
	epoch      int16
	record     recordID
	control    settle.Marker // NoMarker: it is a record
	decided    settle.Marker // by the first control record of the producer after it
	gone       bool          // compaction has removed it
	by         *process
	tick       uint64 // when it was written
}

type producerState struct {
	id    int64
	epoch int16
	open  int64 // first offset of its open transaction, or -1
}

type abortedTxn struct{ producerID, first, marker int64 }

func newBroker(w *world, partitions int) *broker {
	b := &broker{w: w, causes: map[written]cause{}, decisions: map[written]settle.Marker{}}
	for i := range partitions {
		b.logs = append(b.logs, &partition{number: i})
	}
	return b
}

// find returns what the coordinator holds under an ID, or nil.
func (b *broker) find(id string) *transaction {
	for _, t := range b.txns {
		if t.id == id {
			return t
		}
	}
	return nil
}

// initProducerID gives an ID a new epoch. What is open under it is aborted first, and then the answer is
// CONCURRENT_TRANSACTIONS until that is done. owner says that whoever owns CURRENT wants it now.
func (b *broker) initProducerID(id string, owner bool) (t *transaction, code settle.Answer) {
	t = b.find(id)
	if t == nil {
		t = &transaction{id: id, producerID: int64(1000 + len(b.txns)), epoch: -1, state: settle.NoHistory}
		b.txns = append(b.txns, t)
	}
	switch t.state {
	case settle.Ongoing:
		if !owner {
			b.w.counts.LateInits++
		}
		b.abort(t, map[bool]cause{true: byOwner, false: byLate}[owner])
		return t, codeConcurrent
	case settle.PrepareCommit, settle.PrepareAbort:
		return t, codeConcurrent
	case settle.Unreached, settle.NoHistory, settle.CompleteCommit, settle.CompleteAbort:
	}
	t.state, t.parts = settle.NoHistory, 0
	t.epoch++
	return t, codeNone
}

// prepare decides how a transaction ends; its markers follow.
func (b *broker) prepare(t *transaction, s settle.State, bump int16) {
	decision := settle.Commit
	if s == settle.PrepareAbort {
		decision = settle.Abort
	}
	b.decisions[written{t.producerID, t.epoch}] = decision
	t.state = s
	t.epoch += bump
	t.since, t.due = b.w.tick(), b.w.now+b.w.delay(b.w.cfg.Faults.Slow)
	if t.parts == 0 {
		b.complete(t)
	}
}

func (b *broker) complete(t *transaction) {
	if t.state == settle.PrepareCommit {
		t.state = settle.CompleteCommit
	} else {
		t.state = settle.CompleteAbort
	}
}

// endTxn commits, in a version that bumps the epoch (5) or one that does not.
func (b *broker) endTxn(id string, producerID int64, epoch, version int16) settle.Answer {
	t := b.find(id)
	if t == nil || t.producerID != producerID {
		return codeNoMapping
	}
	var bump int16
	if version >= 5 {
		bump = 1
	}
	switch ended := t.epoch == epoch+bump; {
	case t.state == settle.Ongoing && t.epoch == epoch:
		b.w.oracle.committing(t)
		b.prepare(t, settle.PrepareCommit, bump)
		return codeNone
	case ended && (t.state == settle.PrepareCommit || t.state == settle.PrepareAbort):
		return codeConcurrent
	case ended && t.state == settle.CompleteCommit:
		return codeNone
	case ended && t.state == settle.CompleteAbort, t.epoch == epoch && t.state != settle.Ongoing:
		return codeInvalidState
	}
	return codeFenced
}

// pending reports whether markers of a transaction are to be written.
func (t *transaction) pending() bool {
	return (t.state == settle.PrepareCommit || t.state == settle.PrepareAbort) && t.parts != 0
}

// writeNextMarker writes the marker of one of the partitions of a transaction that has been decided, or
// loses it: a partition without a leader is taken for a deleted one, and the coordinator completes all the
// same (KAFKA-20734).
func (b *broker) writeNextMarker(t *transaction, lost bool) {
	n := bits.TrailingZeros8(t.parts)
	if rest := t.parts &^ (1 << n); rest != 0 && b.w.tape.chance(300) {
		n = bits.TrailingZeros8(rest)
	}
	marker := settle.Abort
	if t.state == settle.PrepareCommit {
		marker = settle.Commit
	}
	t.parts &^= 1 << n
	t.since = b.w.tick()
	if lost {
		b.w.counts.MarkersLost++
		b.w.say("broker: %s marker of %s for partition %d LOST", marker, short(t.id), n)
	} else {
		b.w.say("broker: %s marker of %s into partition %d", marker, short(t.id), n)
		b.control(b.logs[n], t.producerID, t.epoch, marker)
	}
	if t.parts == 0 {
		b.complete(t)
	}
}

// timeOut aborts a transaction that has been open for too long.
func (b *broker) timeOut(t *transaction) {
	b.w.counts.Timeouts++
	b.w.say("broker: the transaction of %s TIMES OUT", short(t.id))
	b.abort(t, byTimeout)
}

func (b *broker) abort(t *transaction, by cause) {
	b.blame(written{t.producerID, t.epoch}, by)
	b.w.oracle.aborting(written{t.producerID, t.epoch})
	b.prepare(t, settle.PrepareAbort, 1)
}

// blame notes who aborted a transaction first.
func (b *broker) blame(w written, by cause) {
	if _, known := b.causes[w]; !known {
		b.causes[w] = by
	}
}

// append writes a record of a producer: the partition is added to its transaction, and the record to the log.
func (b *broker) append(id string, producerID int64, epoch int16, e entry, number int) (int64, settle.Answer) {
	t := b.find(id)
	switch {
	case t == nil || t.producerID != producerID:
		return 0, codeNoMapping
	case t.epoch != epoch:
		return 0, codeFenced
	case t.state == settle.PrepareCommit || t.state == settle.PrepareAbort:
		return 0, codeConcurrent
	}
	p := b.logs[number]
	s := p.producer(producerID)
	if s.epoch > epoch {
		return 0, codeFenced
	}
	if t.state != settle.Ongoing {
		t.state, t.parts = settle.Ongoing, 0
	}
	t.parts |= 1 << number
	s.epoch = epoch
	at := int64(len(p.log))
	if s.open < 0 {
		s.open = at
	}
	e.producerID, e.epoch, e.tick = producerID, epoch, b.w.tick()
	p.log = append(p.log, e)
	return at, codeNone
}

// writeMarker is WriteTxnMarkers: the leader writes what it is told, unless it knows a later epoch. late says that
// nobody waits for it any more.
func (b *broker) writeMarker(number int, producerID int64, epoch int16, marker settle.Marker, late bool) settle.Answer {
	s := b.logs[number].producer(producerID)
	if s.epoch > epoch || b.w.cfg.StrictMarkers && s.open >= 0 && s.epoch == epoch {
		return codeFenced
	}
	b.w.oracle.marking(b.logs[number], producerID, marker, late)
	b.control(b.logs[number], producerID, epoch, marker)
	return codeNone
}

// control appends a control record, which decides every record of the producer that is not decided yet.
func (b *broker) control(p *partition, producerID int64, epoch int16, marker settle.Marker) {
	s := p.producer(producerID)
	s.epoch = max(s.epoch, epoch)
	at := int64(len(p.log))
	p.log = append(p.log, entry{producerID: producerID, epoch: epoch, control: marker})
	if s.open >= 0 && marker == settle.Abort {
		p.aborted = append(p.aborted, abortedTxn{producerID: producerID, first: s.open, marker: at})
	}
	if s.open >= 0 {
		for i := s.open; i < at; i++ {
			if e := &p.log[i]; e.producerID == producerID && e.control == settle.NoMarker {
				e.decided = marker
				b.w.oracle.decided(p, i)
			}
		}
	}
	s.open = -1
}

// abortPart is what an operator does with kafka-transactions.sh: it aborts a transaction in one partition,
// past its coordinator.
func (b *broker) abortPart(p *partition, s *producerState) {
	b.w.counts.PartialAborts++
	b.blame(written{s.id, s.epoch}, byOperator)
	b.w.say("OPERATOR aborts producer %d in partition %d alone", s.id, p.number)
	b.control(p, s.id, s.epoch, settle.Abort)
}

// producer returns what the leader remembers of a producer.
func (p *partition) producer(id int64) *producerState {
	for _, s := range p.producers {
		if s.id == id {
			return s
		}
	}
	s := &producerState{id: id, epoch: -1, open: -1}
	p.producers = append(p.producers, s)
	return s
}

// stable returns the last stable offset.
func (p *partition) stable() int64 {
	n := int64(len(p.log))
	for _, s := range p.producers {
		if s.open >= 0 {
			n = min(n, s.open)
		}
	}
	return n
}

// clean removes what a reader of committed records has passed: by retention everything up to an offset, or
// by compaction one transaction and, if it was aborted, every trace of that.
func (p *partition) clean(upTo int64, compact bool) {
	if !compact {
		p.start = max(p.start, upTo)
		return
	}
	producerID := p.log[upTo-1].producerID
	for i := range upTo {
		if p.log[i].producerID == producerID && p.log[i].control == settle.NoMarker {
			p.log[i].gone = true
		}
	}
	p.aborted = slices.DeleteFunc(p.aborted, func(a abortedTxn) bool {
		return a.producerID == producerID && a.marker < upTo
	})
}

// look is what a client finds that reads one partition of a transaction, as the connector's does.
func (p *partition) look(h *settle.Handle, part *settle.Part, doubt bool) settle.PartSeen {
	seen := settle.PartSeen{
		Answered: true, LogStart: p.start, Stable: p.stable(), OpenAt: settle.StartUnknown,
	}
	if part.First < p.start {
		return seen
	}
	if e := &p.log[part.First]; !e.gone {
		seen.First = settle.BatchForeign
		if e.producerID == h.ProducerID && e.epoch == h.Epoch && e.control == settle.NoMarker {
			seen.First = settle.BatchOurs
		}
	}
	if seen.Stable <= part.First {
		seen.Marker, seen.MarkerAt = p.firstMarker(h.ProducerID, part.First)
		return seen
	}
	for _, a := range p.aborted {
		switch {
		case a.producerID != h.ProducerID:
		case a.first == part.First:
			seen.Aborted = true
		case a.first > part.First && a.first <= part.Last && a.marker >= part.Last:
			seen.AbortedInside = true
		}
	}
	gaps := part.Last-part.First+1 != part.Records
	if seen.Aborted || doubt && gaps {
		seen.Marker, seen.MarkerAt = p.firstMarker(h.ProducerID, part.First)
	}
	return seen
}

// firstMarker returns the first control record of a producer above an offset.
func (p *partition) firstMarker(producerID, above int64) (settle.Marker, int64) {
	for i := above + 1; i < int64(len(p.log)); i++ {
		if e := &p.log[i]; e.producerID == producerID && e.control != settle.NoMarker {
			return e.control, i
		}
	}
	return settle.NoMarker, 0
}

// short is what a trace calls a transactional ID: subtask and slot.
func short(id string) string {
	p, ok := settle.ParseID(id)
	if !ok {
		return id
	}
	return fmt.Sprintf("ID%d/%d", p.Subtask, p.Slot)
}
