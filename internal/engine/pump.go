package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/weir/connector"
)

// pump reads a source subtask's reader in a goroutine of its own, so that decoding and processing
// overlap. At a barrier, a batch that has been fetched but not taken over lies after the cut.
//
// The reader belongs to that goroutine. Who has more splits for it leaves them and interrupts the
// read, which loses nothing:
//
//	subtask: leaves the splits, then takes the interrupt and pulls it, if it is there
//	pump:    puts a new interrupt there if the last one was pulled, then looks for splits, then reads
//
// If the pump looks before the splits are there, its interrupt is there for the subtask to find, and
// ends the read. If the subtask finds none, the last one was pulled, and the pump has yet to look.
type pump[T any] struct {
	uid        string
	reader     connector.Reader[T]
	now        func() time.Time
	batches    chan fetched[T]
	recycle    chan *connector.Batch[T]
	added      chan []connector.Split  // one element; what is not taken is joined with what follows
	interrupts chan context.CancelFunc // one element
}

// fetched is a batch on its way from the reader to the subtask, or the reader's error.
type fetched[T any] struct {
	batch *connector.Batch[T]
	err   error
}

func newPump[T any](uid string, reader connector.Reader[T], now func() time.Time) *pump[T] {
	p := &pump[T]{
		uid: uid, reader: reader, now: now,
		batches: make(chan fetched[T]), recycle: make(chan *connector.Batch[T], 2),
		added: make(chan []connector.Split, 1), interrupts: make(chan context.CancelFunc, 1),
	}
	p.recycle <- &connector.Batch[T]{}
	p.recycle <- &connector.Batch[T]{}
	return p
}

// start reads until ctx ends or the reader fails. The function that it returns ends it, and waits.
func (p *pump[T]) start(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.run(ctx)
	}()
	return func() { cancel(); <-done }
}

func (p *pump[T]) run(ctx context.Context) {
	reading := p.interruptible(ctx)
	for {
		f := p.fetch(ctx, reading)
		interrupted := reading.Err() != nil
		if interrupted && ctx.Err() == nil {
			reading = p.interruptible(ctx)
		}
		if interrupted && errors.Is(f.err, context.Canceled) {
			if ctx.Err() != nil {
				return
			}
			continue
		}
		select {
		case p.batches <- f:
		case <-ctx.Done():
			return
		}
		if f.err != nil {
			return
		}
	}
}

// interruptible returns a context that ends when add says so.
func (p *pump[T]) interruptible(ctx context.Context) context.Context {
	reading, interrupt := context.WithCancel(ctx)
	p.interrupts <- interrupt // there is room: the last one was taken out and pulled
	return reading
}

// add hands more splits to the reader. One goroutine calls it.
func (p *pump[T]) add(splits []connector.Split) {
	select {
	case earlier := <-p.added:
		splits = append(earlier, splits...)
	default:
	}
	p.added <- splits
	select {
	case interrupt := <-p.interrupts:
		interrupt()
	default:
	}
}

// fetch adds the splits that are waiting and reads a batch. A panic in what a user or a connector
// brings is the reader's error.
func (p *pump[T]) fetch(ctx, reading context.Context) (f fetched[T]) {
	defer func() {
		if r := recover(); r != nil {
			f = fetched[T]{err: fmt.Errorf("source %s: panic while reading or decoding: %v", p.uid, r)}
		}
	}()
	select {
	case splits := <-p.added:
		if err := p.addToReader(ctx, splits); err != nil {
			return fetched[T]{err: err}
		}
	default:
	}
	select {
	case b := <-p.recycle:
		b.Reset()
		if err := p.reader.Read(reading, b); err != nil {
			p.recycle <- b
			return fetched[T]{err: err}
		}
		if b.At.IsZero() { // here, and not when it is taken over: that may be much later
			b.At = p.now()
		}
		return fetched[T]{batch: b}
	case <-reading.Done():
		return fetched[T]{err: reading.Err()}
	}
}

// addToReader is not interrupted by splits that come meanwhile: they are next.
func (p *pump[T]) addToReader(ctx context.Context, splits []connector.Split) error {
	adder, ok := p.reader.(connector.SplitAdder)
	if !ok {
		return connector.Stop(fmt.Errorf("source %s has more splits, and its reader takes none", p.uid))
	}
	if err := adder.AddSplits(ctx, splits); err != nil {
		return fmt.Errorf("source %s: add splits: %w", p.uid, err)
	}
	return nil
}
