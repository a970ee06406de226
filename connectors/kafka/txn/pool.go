package txn

import (
	"fmt"
	"sync"

	"example.com/weir/connectors/kafka/settle"
)

// reserved is how many slots a generation leaves to the next one: with none, the pre-committed
// checkpoints of a dead generation could hold every ID, and nothing could be written in their
// place.
const reserved = 1

// baseSlots is the size of a pool without tolerable checkpoint failures.
const baseSlots = 4

// slotState is what a slot's transactional ID is used for.
//
//	free ──Acquire──▶ writing ──Pend──▶ pending ──Commit──▶ settled ──Release──▶ free
//	                     │
//	                     └── GiveBack ──▶ free
//
// A pool begins with every slot free: what CURRENT named was settled by Restore, and CURRENT names
// none of it any more when a writer is opened.
type slotState uint8

const (
	slotFree    slotState = iota
	slotWriting           // its transaction is open, and takes records
	slotPending           // flushed; a committable names it
	slotSettled           // committed in the log; CURRENT may still name it
)

// Slot is one transactional ID of a subtask.
type Slot struct {
	ID string

	// Producer writes one transaction, and is there while the slot is writing. It belongs to whoever
	// acquired the slot.
	Producer Producer

	// Guarded by the pool.
	state      slotState
	handle     *settle.Handle
	checkpoint uint64
}

// discard gives the producer up. What it has open stays open (K5).
func (s *Slot) discard() {
	if s.Producer != nil {
		s.Producer.Close()
		s.Producer = nil
	}
}

// Pool hands out the slots of a subtask. Its lock is held for moments.
type Pool struct {
	mu    sync.Mutex
	slots []*Slot
	freed chan struct{}
}

// NewPool returns the slots of a subtask. Each checkpoint that fails and is tolerated holds one until a later
// one names it.
func NewPool(prefix, lineage string, subtask, tolerableFailures int) *Pool {
	p := &Pool{freed: make(chan struct{}, 1)}
	for n := range baseSlots + tolerableFailures {
		id := settle.ID{Prefix: prefix, Lineage: lineage, Subtask: subtask, Slot: n}
		p.slots = append(p.slots, &Slot{ID: id.String()})
	}
	return p
}

// Acquire returns a slot to write in, or nil if the pool is full: that is backpressure, and Freed tells
// when to ask again.
func (p *Pool) Acquire() *Slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	var best *Slot
	busy := 0
	for _, s := range p.slots {
		switch {
		case s.state != slotFree:
			busy++
		case best == nil:
			best = s
		}
	}
	if best == nil || busy >= len(p.slots)-reserved {
		return nil
	}
	best.state = slotWriting
	return best
}

// Freed holds a token after a slot became free.
func (p *Pool) Freed() <-chan struct{} { return p.freed }

// Size is how many slots there are.
func (p *Pool) Size() int { return len(p.slots) }

// GiveBack frees a slot in which nothing was written.
func (p *Pool) GiveBack(s *Slot) {
	s.discard()
	p.mu.Lock()
	s.state = slotFree
	p.mu.Unlock()
	p.signal()
}

// Pend records that the slot's transaction is flushed and named by a committable, and gives its producer up.
//
// The client that wrote a transaction does not end it. Where it believes that none of its records arrived it
// aborts when it is told to commit, and after an error it may begin anew by itself, which aborts too. A raw
// EndTxn does what it says (K8).
func (p *Pool) Pend(s *Slot, h *settle.Handle, checkpoint uint64) {
	s.discard()
	p.mu.Lock()
	defer p.mu.Unlock()
	s.state, s.handle, s.checkpoint = slotPending, h, checkpoint
}

// Settled reports whether the pool holds the transaction and it is settled.
func (p *Pool) Settled(h *settle.Handle) bool {
	s := p.find(h)
	return s != nil && p.isSettled(s)
}

// Close gives every producer up. It ends no transaction (K5).
func (p *Pool) Close() {
	for _, s := range p.slots {
		s.discard()
	}
}

// find returns the slot that holds the transaction, or nil: another generation wrote it, or its
// slot has been released.
func (p *Pool) find(h *settle.Handle) *Slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.slots {
		if s.state != slotFree && s.handle != nil && s.handle.TransactionalID == h.TransactionalID &&
			s.handle.ProducerID == h.ProducerID && s.handle.Epoch == h.Epoch {
			return s
		}
	}
	return nil
}

func (p *Pool) isSettled(s *Slot) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return s.state == slotSettled
}

// inTurn reports an unsettled transaction of an earlier checkpoint than the given one (K3).
func (p *Pool) inTurn(checkpoint uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.slots {
		if s.state == slotPending && s.checkpoint < checkpoint {
			return fmt.Errorf("commit of checkpoint %d before that of checkpoint %d is settled",
				checkpoint, s.checkpoint)
		}
	}
	return nil
}

func (p *Pool) settled(s *Slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.state = slotSettled
}

// release frees the slot of a transaction that is settled and that no CURRENT names (K1).
func (p *Pool) release(h *settle.Handle) error {
	s := p.find(h)
	if s == nil {
		return nil
	}
	p.mu.Lock()
	if s.state != slotSettled {
		p.mu.Unlock()
		return ErrNotSettled
	}
	s.state, s.handle = slotFree, nil
	p.mu.Unlock()
	p.signal()
	return nil
}

func (p *Pool) signal() {
	select {
	case p.freed <- struct{}{}:
	default:
	}
}
