package engine

import (
	"slices"

	"example.com/weir/internal/keygroup"
)

// sender is a subtask's end of an exchange: what the senders share. Rows gather in a batch for each subtask
// behind it, and leave before any signal does (E4).
type sender[T any] struct {
	task    *task
	ch      *channels[T]
	first   int  // the subtask that target 0 is
	input   int  // of each subtask behind, which of its inputs this is
	paths   bool // how event time moves is of use behind the exchange
	pending []*Batch[T]
}

// to returns the batch that gathers for a target.
func (s *sender[T]) to(target int) *Batch[T] {
	p := s.pending[target]
	if p == nil {
		p = s.ch.take()
		s.pending[target] = p
	}
	return p
}

func (s *sender[T]) signal(sig signal) error {
	if sig.kind == pathSignal { // it may overtake rows: they have their marks
		if !s.paths {
			return nil
		}
		sig.path = slices.Clone(sig.path)
		return s.broadcast(sig)
	}
	for target := range s.pending {
		if err := s.leave(target); err != nil {
			return err
		}
	}
	if sig.kind == flushSignal {
		return nil
	}
	return s.broadcast(sig)
}

func (s *sender[T]) broadcast(sig signal) error {
	for target := range s.pending {
		if err := s.send(target, message[T]{signal: sig}); err != nil {
			return err
		}
	}
	return nil
}

// leave sends what has gathered for a target.
func (s *sender[T]) leave(target int) error {
	p := s.pending[target]
	if p == nil {
		return nil
	}
	s.pending[target] = nil
	return s.send(target, message[T]{batch: p})
}

func (s *sender[T]) send(target int, m message[T]) error {
	target += s.first
	select {
	case s.ch.to[target][s.input] <- m:
	default: // full: wait, which is backpressure
		s.task.heldBack()
		select {
		case s.ch.to[target][s.input] <- m:
			s.task.goesOn()
		case <-s.task.ctx.Done():
			return s.task.ctx.Err()
		}
	}
	select {
	case s.ch.wake[target] <- struct{}{}:
	default: // a token is there already: the receiver will look at every channel
	}
	return nil
}

// hashSender distributes rows by the key group of their key.
type hashSender[T any, K comparable] struct {
	sender[T]
	encode  keyEncoder[T]
	hash    func(encoded []byte) uint64
	owner   []uint16 // of each key group, the subtask
	encoded []byte   // the key at work
}

func newHashSender[T any, K comparable](end sender[T], k KeyedStream[K, T]) *hashSender[T, K] {
	p := end.task.gen.plan
	return &hashSender[T, K]{
		sender: end, encode: k.encoder(), hash: k.codec.Hash, owner: owners(p.maxParallelism, p.parallelism),
	}
}

func (s *hashSender[T, K]) batch(b *Batch[T]) error {
	for i := range b.Rows {
		s.encoded = s.encode(s.encoded[:0], &b.Rows[i])
		hash := s.hash(s.encoded)
		target := s.owner[keygroup.Of(hash, len(s.owner))]
		p := s.pending[target]
		if p == nil {
			p = s.to(int(target))
		}
		p.Rows = append(p.Rows, b.Rows[i])
		p.Times = append(p.Times, b.Times[i])
		p.Marks = append(p.Marks, b.Marks[i])
		p.addKey(hash, s.encoded)
		if len(p.Rows) >= BatchSize {
			if err := s.leave(int(target)); err != nil {
				return err
			}
		}
	}
	return nil
}

// turnSender gives each target a row in turn, however rows come in batches: the nth row of subtask s goes to
// subtask s + n, counted round.
type turnSender[T any] struct {
	sender[T]
	next int
}

func (s *turnSender[T]) batch(b *Batch[T]) error {
	for i := range b.Rows {
		p := s.to(s.next)
		p.Rows = append(p.Rows, b.Rows[i])
		p.Times = append(p.Times, b.Times[i])
		p.Marks = append(p.Marks, b.Marks[i])
		if len(p.Rows) >= BatchSize {
			if err := s.leave(s.next); err != nil {
				return err
			}
		}
		if s.next++; s.next == len(s.pending) {
			s.next = 0
		}
	}
	return nil
}

// copySender gives every target every row. A forward exchange has one target.
type copySender[T any] struct{ sender[T] }

func (s *copySender[T]) batch(b *Batch[T]) error {
	for target := range s.pending {
		if err := s.copyTo(target, b); err != nil {
			return err
		}
	}
	return nil
}

func (s *copySender[T]) copyTo(target int, b *Batch[T]) error {
	for from := 0; from < len(b.Rows); {
		p := s.to(target)
		n := min(len(b.Rows)-from, BatchSize-len(p.Rows))
		p.Rows = append(p.Rows, b.Rows[from:from+n]...)
		p.Times = append(p.Times, b.Times[from:from+n]...)
		p.Marks = append(p.Marks, b.Marks[from:from+n]...)
		from += n
		if len(p.Rows) == BatchSize {
			if err := s.leave(target); err != nil {
				return err
			}
		}
	}
	return nil
}
