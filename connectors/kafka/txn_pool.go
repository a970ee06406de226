package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

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
//	free ──acquire──▶ writing ──PrepareCommit──▶ pending ──Commit──▶ settled ──Release──▶ free
//	                     │
//	                     └── begin failed ──▶ free
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

// slot is one transactional ID of a subtask.
type slot struct {
	txnID string

	// Guarded by the pool.
	state      slotState
	handle     *settle.Handle
	checkpoint uint64

	// client writes one transaction, and is there while the slot is writing. producerID and epoch
	// are that transaction's. All three belong to the writer's goroutine.
	client     *kgo.Client
	producerID int64
	epoch      int16
}

// discard closes the client (K6). What it has open stays open (K5).
func (s *slot) discard() {
	if s.client != nil {
		s.client.Close()
		s.client = nil
	}
}

// pool hands out the slots of a subtask. Its lock is held for moments: waiting for a slot blocks
// neither Commit nor Release.
type pool struct {
	mu    sync.Mutex
	slots []*slot
	freed chan struct{} // holds one token after a slot became free
}

func newPool(prefix, lineage string, subtask, size int) *pool {
	p := &pool{freed: make(chan struct{}, 1)}
	for n := range size {
		id := settle.ID{Prefix: prefix, Lineage: lineage, Subtask: subtask, Slot: n}
		p.slots = append(p.slots, &slot{txnID: id.String()})
	}
	return p
}

// acquire waits for a slot to write in. A full pool is backpressure.
func (p *pool) acquire(ctx context.Context) (*slot, error) {
	for {
		if s := p.take(); s != nil {
			return s, nil
		}
		select {
		case <-p.freed:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for a free transactional ID (all %d hold a checkpoint that is not "+
				"released): %w", len(p.slots), ctx.Err())
		}
	}
}

func (p *pool) take() *slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	var best *slot
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

// giveBack frees a slot in which nothing was written.
func (p *pool) giveBack(s *slot) {
	p.mu.Lock()
	s.state = slotFree
	p.mu.Unlock()
	p.signal()
}

// pend records that the slot's transaction is named by a committable.
func (p *pool) pend(s *slot, h *settle.Handle, checkpoint uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.state, s.handle, s.checkpoint = slotPending, h, checkpoint
}

// find returns the slot that holds the transaction, or nil: another generation wrote it, or its
// slot has been released.
func (p *pool) find(h *settle.Handle) *slot {
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

// isSettled reports whether the slot's transaction is settled.
func (p *pool) isSettled(s *slot) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return s.state == slotSettled
}

// inTurn reports an unsettled transaction of an earlier checkpoint than the given one (K3).
func (p *pool) inTurn(checkpoint uint64) error {
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

func (p *pool) settled(s *slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.state = slotSettled
}

var errNotSettled = errors.New("released before it was settled")

// release frees the slot of a transaction that is settled and that no CURRENT names (K1).
func (p *pool) release(h *settle.Handle) error {
	s := p.find(h)
	if s == nil {
		return nil
	}
	p.mu.Lock()
	if s.state != slotSettled {
		p.mu.Unlock()
		return errNotSettled
	}
	s.state, s.handle = slotFree, nil
	p.mu.Unlock()
	p.signal()
	return nil
}

func (p *pool) signal() {
	select {
	case p.freed <- struct{}{}:
	default:
	}
}

// close closes every client. It ends no transaction (K5).
func (p *pool) close() {
	for _, s := range p.slots {
		s.discard()
	}
}
