package engine

import "math"

// BatchSize is the number of rows after which an operator passes a batch on.
const BatchSize = 256

// Batch is a run of rows with their event times (microseconds since 1970-01-01T00:00:00Z). Whoever
// passes a batch on may use its slices again as soon as the call returns.
type Batch[T any] struct {
	Rows  []T
	Times []int64
	// Marks are the watermarks before each row: what the rows before it have moved event time
	// to. They make what is late, and which timer comes before which row, depend on the order
	// of records alone, and not on how they were cut into batches.
	Marks []int64
	// Hashes are the hashes of the rows' keys behind a hash exchange, and empty elsewhere.
	Hashes []uint64
	// Keys are the encodings of these keys, one behind the other, and KeyEnds where each ends.
	Keys    []byte
	KeyEnds []uint32
	// Bounds are, behind an exchange, the watermarks that the sender had merged before each row:
	// event time has come that far everywhere, even if this subtask has not been told by all of
	// its inputs. Nil where the sender knows its own splits alone.
	Bounds []int64
}

func (b *Batch[T]) addKey(hash uint64, encoded []byte) {
	b.Hashes = append(b.Hashes, hash)
	b.Keys = append(b.Keys, encoded...)
	b.KeyEnds = append(b.KeyEnds, uint32(len(b.Keys)))
}

// key returns the encoding of a row's key.
func (b *Batch[T]) key(row int) []byte {
	begin := uint32(0)
	if row > 0 {
		begin = b.KeyEnds[row-1]
	}
	return b.Keys[begin:b.KeyEnds[row]]
}

func (b *Batch[T]) reset() {
	clear(b.Rows) // so that an idle batch keeps nothing alive
	b.Rows, b.Times, b.Marks, b.Hashes = b.Rows[:0], b.Times[:0], b.Marks[:0], b.Hashes[:0]
	b.Keys, b.KeyEnds = b.Keys[:0], b.KeyEnds[:0]
	b.Bounds = nil
}

// signalKind says what a signal means.
type signalKind uint8

const (
	// watermarkSignal: event time has reached Time.
	watermarkSignal signalKind = iota
	// idleSignal: this input will not move event time until its next watermark.
	idleSignal
	// barrierSignal: the cut of checkpoint Checkpoint.
	barrierSignal
	// pathSignal: before the rows that follow, what event time will come to with each of them.
	pathSignal
	// flushSignal: nothing more is ready; pass on what you hold. It crosses no exchange.
	flushSignal
)

// signal is what flows between records.
type signal struct {
	kind       signalKind
	final      bool // of a barrier: no record follows it
	endOfInput bool // of a barrier: the input has ended
	time       int64
	checkpoint uint64
	path       []int64 // rising; good while the signal is handled
}

// Collector is what an operator passes its output to: the next operator of its chain, or an
// exchange.
type Collector[T any] interface {
	batch(b *Batch[T]) error
	signal(s signal) error
}

// Out collects the output of an operator and passes it on in batches.
type Out[T any] struct {
	pending Batch[T]
	to      Collector[T]
	task    *task
	time    int64 // event time of what is being processed
	mark    int64 // watermark before it
	emitted int   // rows ever emitted
	stats   *operatorStats
	err     error
}

// newOut returns the output of an operator, which counts what goes out.
func newOut[T any](t *task, to Collector[T], stats *operatorStats) *Out[T] {
	return &Out[T]{task: t, to: to, stats: stats}
}

// Emit passes v on, at the event time of the row or timer at work.
func (o *Out[T]) Emit(v T) { o.emitAt(v, o.time) }

func (o *Out[T]) emitAt(v T, at int64) {
	o.emitted++
	o.pending.Rows = append(o.pending.Rows, v)
	o.pending.Times = append(o.pending.Times, at)
	o.pending.Marks = append(o.pending.Marks, o.mark)
	if len(o.pending.Rows) >= BatchSize {
		o.flush()
	}
}

// flush passes on what is pending. An error stays until signal reports it. Behind it the operator whose
// output this is goes on: what fails then is its own.
func (o *Out[T]) flush() {
	if len(o.pending.Rows) == 0 {
		return
	}
	if o.err == nil {
		o.stats.recordsOut.Add(int64(len(o.pending.Rows)))
		at := o.task.operator
		if o.err = o.to.batch(&o.pending); o.err == nil {
			o.task.operator = at
		}
	}
	o.pending.reset()
}

// done flushes and reports the first error since the last call.
func (o *Out[T]) done() error {
	o.flush()
	return o.err
}

// signal passes a signal on behind everything that is pending (E4).
func (o *Out[T]) signal(s signal) error {
	if err := o.done(); err != nil {
		return err
	}
	return o.to.signal(s)
}

// Event times that mean something else.
const (
	noTime  = math.MinInt64
	endTime = math.MaxInt64
)

// fanOut passes everything on to several collectors, in order.
type fanOut[T any] []Collector[T]

func (f fanOut[T]) batch(b *Batch[T]) error {
	for _, c := range f {
		if err := c.batch(b); err != nil {
			return err
		}
	}
	return nil
}

func (f fanOut[T]) signal(s signal) error {
	for _, c := range f {
		if err := c.signal(s); err != nil {
			return err
		}
	}
	return nil
}

// discard is where the output of an operator without successors goes.
type discard[T any] struct{}

func (discard[T]) batch(*Batch[T]) error { return nil }
func (discard[T]) signal(signal) error   { return nil }
