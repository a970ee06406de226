package engine

import (
	"encoding/binary"
	"fmt"
	"time"

	"example.com/weir/connector"
	"example.com/weir/internal/keygroup"
	"example.com/weir/internal/state"
	"example.com/weir/internal/window"
)

// WindowConfig says how a keyed stream is cut into windows.
type WindowConfig[T any] struct {
	// Size of the tumbling windows, aligned to 1970-01-01T00:00:00Z.
	Size time.Duration
	// AllowedLateness is how long after its end a window takes late records and fires again.
	AllowedLateness time.Duration
	// Late receives the records that come later than that. Nil: they are only counted.
	Late *SideOutput[T]
}

// Aggregator turns the rows of a window into a result. It keeps nothing itself: what it adds up
// is in the accumulator.
type Aggregator[K comparable, T, A, R any] interface {
	// Add adds a row to the accumulator of its window, which is zero at first.
	Add(acc *A, row *T) error
	// Fire emits the window's result, or nothing.
	Fire(w *WindowContext[K], acc *A, out *Out[R]) error
}

// AccumulatorCodec is implemented by aggregators whose accumulators have an encoding of their
// own; without it they are encoded as CBOR by field name.
type AccumulatorCodec[A any] interface{ AccumulatorCodec() connector.Codec[A] }

// WindowContext is the window that fires.
type WindowContext[K comparable] struct {
	Key        K
	Start, End time.Time // [Start, End), UTC
	// Firing counts the window's firings, from 1.
	Firing int
	// Revision is 1 + the number of earlier firings that emitted a result.
	Revision int

	sides sides
}

func (w *WindowContext[K]) emitter() *sides { return &w.sides }

// Aggregate adds a windowed operator.
func Aggregate[K comparable, T, A, R any](
	k KeyedStream[K, T], uid string, cfg WindowConfig[T], agg Aggregator[K, T, A, R],
) Stream[R] {
	op := k.Plan.add(Operator{UID: uid, Kind: "window", Stateful: true, Inputs: k.edges()})
	if cfg.Size < time.Microsecond || cfg.AllowedLateness < 0 {
		k.Plan.Reject("window %s: size %s and allowed lateness %s: want a size of at least 1µs and a "+
			"lateness not below 0", uid, cfg.Size, cfg.AllowedLateness)
	}
	outs, side := &outputs[R]{}, &sideOutputs{}
	k.exchangeTo(op, func(t *task) (Collector[T], error) {
		return buildWindows(t, uid, k, cfg, agg, outs, side)
	})
	return streamOf(k.Plan, op, outs, side)
}

// windowKey names a window of a key.
type windowKey[K comparable] struct {
	Start int64
	Key   K
}

// pane is what a window holds.
type pane[A any] struct {
	acc     A
	firings int
	emitted int // firings that emitted a result
}

type windows[K comparable, T, A, R any] struct {
	keyedBase[windowKey[K]]
	row      *T                  // at work
	ofRow    func() windowKey[K] // its key, made once
	encoded  []byte              // of it
	cfg      WindowConfig[T]
	assign   window.Tumbling
	lateness int64
	agg      Aggregator[K, T, A, R]
	panes    *state.Table[windowKey[K], pane[A]]
	ctx      WindowContext[K]
	out      *Out[R]
	groups   int
	key      state.Key[windowKey[K]]
}

func buildWindows[K comparable, T, A, R any](
	t *task, uid string, k KeyedStream[K, T], cfg WindowConfig[T], agg Aggregator[K, T, A, R],
	outs *outputs[R], side *sideOutputs,
) (Collector[T], error) {
	t.operator = uid
	o := &windows[K, T, A, R]{
		keyedBase: *newKeyedBase(t, uid, windowKeyCodec(k.codec)), cfg: cfg, agg: agg, groups: t.gen.plan.maxParallelism,
		assign:   window.Tumbling{Size: cfg.Size.Microseconds()},
		lateness: cfg.AllowedLateness.Microseconds(),
	}
	o.stand, o.fire = o.standAt, o.onTimer
	o.ofRow = func() windowKey[K] { return windowKey[K]{Start: startOf(o.encoded), Key: k.Key(o.row)} }
	codec, err := accumulatorCodec[K, T, A, R](agg)
	if err != nil {
		return nil, err
	}
	if o.panes, err = state.Declare(o.keyed, "panes", connector.Codec[pane[A]](paneCodec[A]{codec})); err != nil {
		return nil, fmt.Errorf("operator %s: %w", uid, err)
	}
	if err := o.restore(); err != nil {
		return nil, err
	}
	to, err := outs.collector(t)
	if err != nil {
		return nil, err
	}
	o.out = newOut(t, to, o.stats)
	o.ctx.sides, err = side.build(t)
	return o, err
}

func (o *windows[K, T, A, R]) batch(b *Batch[T]) error {
	o.task.enter(o.stats, len(b.Rows))
	for i := range b.Rows {
		if err := o.advance(b.Marks[i]); err != nil {
			return err
		}
		o.standAt(o.watermark)
		bound := o.watermark
		if b.Bounds != nil {
			bound = b.Bounds[i]
		}
		if err := o.add(&b.Rows[i], b.Times[i], b.Hashes[i], b.key(i), bound); err != nil {
			return err
		}
	}
	if err := o.keyed.Work(); err != nil {
		return err
	}
	return o.done()
}

// standAt sets the watermark that goes with what is emitted.
func (o *windows[K, T, A, R]) standAt(mark int64) { o.out.mark, o.ctx.sides.mark = mark, mark }

// add adds a row to its window. bound is how far event time had come when the row was sent: with
// several inputs, this subtask's own watermark can be behind it, and which of them is behind
// differs from run to run.
func (o *windows[K, T, A, R]) add(row *T, at int64, hash uint64, key []byte, bound int64) error {
	start, end := o.assign.Of(at)
	group := keygroup.Of(hash, o.groups)
	judged := window.Judge(end, o.lateness, o.watermarkOf(group))
	if judged == window.Late || window.Judge(end, o.lateness, bound) == window.Late {
		o.stats.late.Add(1)
		if o.cfg.Late != nil {
			o.ctx.sides.time = at
			EmitSide(&o.ctx, o.cfg.Late, *row)
		}
		return nil
	}
	o.row, o.encoded = row, append(state.AppendInt(o.encoded[:0], start), key...)
	o.key.Stand(o.keyed.Codec(), windowHash(hash, start), group, o.encoded, o.ofRow)
	p := o.panes.Get(&o.key)
	if p == nil {
		var err error
		if p, err = o.open(end, judged); err != nil {
			return err
		}
	}
	if err := o.agg.Add(&p.acc, row); err != nil {
		return err
	}
	if judged == window.Refire {
		return o.fireWindow(&o.key, p)
	}
	return nil
}

// open makes the pane of o.key and sets the timers of its window.
func (o *windows[K, T, A, R]) open(end int64, judged window.Judgement) (*pane[A], error) {
	p, err := o.panes.Put(&o.key)
	if err != nil {
		return nil, err
	}
	if judged == window.Open {
		if err := o.keyed.Timers.Set(&o.key, end); err != nil {
			return nil, err
		}
	}
	return p, o.keyed.Timers.Set(&o.key, window.CloseTime(end, o.lateness))
}

func (o *windows[K, T, A, R]) done() error {
	if err := o.out.done(); err != nil {
		return err
	}
	return o.ctx.sides.done()
}

func (o *windows[K, T, A, R]) signal(s signal) error {
	if err := o.observe(s, o.done); err != nil {
		return err
	}
	if err := o.out.signal(s); err != nil {
		return err
	}
	return o.ctx.sides.signal(s)
}

// onTimer fires the window at its end, and forgets it once it is closed for good.
func (o *windows[K, T, A, R]) onTimer(k *state.Key[windowKey[K]], at int64) error {
	p := o.panes.Get(k)
	if p == nil {
		return nil
	}
	_, end := o.assign.Of(startOf(k.Encoded))
	if p.firings == 0 {
		if err := o.fireWindow(k, p); err != nil {
			return err
		}
	}
	if at >= window.CloseTime(end, o.lateness) {
		o.panes.Delete(k)
	}
	return nil
}

// fireWindow lets the window emit its result, at the last microsecond of the window.
func (o *windows[K, T, A, R]) fireWindow(k *state.Key[windowKey[K]], p *pane[A]) error {
	start, end := o.assign.Of(startOf(k.Encoded))
	p.firings++
	o.ctx.Key, o.ctx.Firing, o.ctx.Revision = k.Value().Key, p.firings, p.emitted+1
	o.ctx.Start, o.ctx.End = time.UnixMicro(start).UTC(), time.UnixMicro(end).UTC()
	o.out.time, o.ctx.sides.time = end-1, end-1
	before := o.out.emitted
	if err := o.agg.Fire(&o.ctx, &p.acc, o.out); err != nil {
		return err
	}
	if o.out.emitted > before {
		p.emitted++
	}
	return nil
}

func windowHash(keyHash uint64, start int64) uint64 {
	return (keyHash ^ uint64(start)*0x9E3779B97F4A7C15) * 0xD6E8FEB86659FD93
}

// windowKeyCodec encodes a window key as its start and the key's own encoding.
func windowKeyCodec[K comparable](codec state.KeyCodec[K]) state.KeyCodec[windowKey[K]] {
	return state.KeyCodec[windowKey[K]]{
		Schema: state.Compose("window", "key", codec.Schema),
		Own:    codec.Own,
		Append: func(dst []byte, k *windowKey[K]) []byte {
			return codec.Append(state.AppendInt(dst, k.Start), &k.Key)
		},
		Decode: func(src []byte) (k windowKey[K], err error) {
			if len(src) < 8 {
				return k, state.ErrCorrupt
			}
			k.Start = startOf(src)
			k.Key, err = codec.Decode(src[8:])
			return k, err
		},
		Hash: func(encoded []byte) uint64 {
			return windowHash(codec.Hash(encoded[8:]), startOf(encoded))
		},
	}
}

// startOf returns the start of the window that an encoded key names.
func startOf(encoded []byte) int64 { return int64(binary.LittleEndian.Uint64(encoded)) }

func accumulatorCodec[K comparable, T, A, R any](agg Aggregator[K, T, A, R]) (connector.Codec[A], error) {
	if own, ok := agg.(AccumulatorCodec[A]); ok {
		return own.AccumulatorCodec(), nil
	}
	return state.NewCBOR[A]()
}

type paneCodec[A any] struct{ acc connector.Codec[A] }

// Schema implements state.Described.
func (c paneCodec[A]) Schema() state.Schema {
	return state.Compose("pane", "accumulator", state.SchemaOf(c.acc))
}

func (c paneCodec[A]) Append(dst []byte, p *pane[A]) ([]byte, error) {
	dst = state.AppendInt(dst, int64(p.firings))
	dst = state.AppendInt(dst, int64(p.emitted))
	return c.acc.Append(dst, &p.acc)
}

func (c paneCodec[A]) Decode(src []byte, p *pane[A]) error {
	d := state.NewDecoder(src)
	p.firings, p.emitted = int(d.Int()), int(d.Int())
	if d.Err() != nil {
		return d.Err()
	}
	return c.acc.Decode(src[16:], &p.acc)
}
