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
	// Size of the windows, one of which begins at each multiple of Slide since 1970-01-01T00:00:00Z. Slide
	// zero: the size, so that they tumble.
	Size, Slide time.Duration
	// Gap, above zero, makes sessions of records that are less than it apart, in place of windows of a size.
	Gap time.Duration
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
	op := k.Plan.add(Operator{
		UID: uid, Kind: "window", Stateful: true, Inputs: k.edges(), moving: movingSessions[K, T, R](cfg, agg),
	})
	if cfg.Slide == 0 {
		cfg.Slide = cfg.Size
	}
	if err := cfg.validate(); err != nil {
		k.Plan.Reject("window %s: %w", uid, err)
	}
	outs, side := &outputs[R]{}, &sideOutputs{}
	if cfg.Gap > 0 {
		merger, ok := agg.(Merger[A])
		if !ok {
			k.Plan.Reject("window %s: sessions merge, and %T has no Merge(into, from *A) error", uid, agg)
		}
		k.exchangeTo(op, func(t *task) (Collector[T], error) {
			return buildSessions(t, uid, k, cfg, agg, merger, outs, side)
		})
		return streamOf(k.Plan, op, outs, side)
	}
	k.exchangeTo(op, func(t *task) (Collector[T], error) {
		return buildWindows(t, uid, k, cfg, agg, outs, side)
	})
	return streamOf(k.Plan, op, outs, side)
}

func (c WindowConfig[T]) validate() error {
	switch {
	case c.AllowedLateness < 0:
		return fmt.Errorf("allowed lateness %s: want 0 or more", c.AllowedLateness)
	case c.Gap != 0 && c.Gap < time.Microsecond:
		return fmt.Errorf("session gap %s: want at least 1µs", c.Gap)
	case c.Gap == 0 && c.Size < time.Microsecond:
		return fmt.Errorf("size %s: want at least 1µs", c.Size)
	case c.Gap == 0 && (c.Slide < time.Microsecond || c.Slide > c.Size):
		return fmt.Errorf("slide %s: want 1µs to the size, which is %s: records between two windows would be "+
			"in none", c.Slide, c.Size)
	}
	return nil
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
	windowOut[K, T, A, R]
	row      *T                  // at work
	ofRow    func() windowKey[K] // its key, made once
	encoded  []byte              // of it
	cfg      WindowConfig[T]
	assign   window.Sliding
	lateness int64
	panes    *state.Table[windowKey[K], pane[A]]
	groups   int
	key      state.Key[windowKey[K]]
}

func buildWindows[K comparable, T, A, R any](
	t *task, uid string, k KeyedStream[K, T], cfg WindowConfig[T], agg Aggregator[K, T, A, R],
	outs *outputs[R], side *sideOutputs,
) (Collector[T], error) {
	t.operator = uid
	o := &windows[K, T, A, R]{
		keyedBase: *newKeyedBase(t, uid, windowKeyCodec(k.codec)), cfg: cfg, groups: t.gen.plan.maxParallelism,
		assign:   window.Sliding{Size: cfg.Size.Microseconds(), Slide: cfg.Slide.Microseconds()},
		lateness: cfg.AllowedLateness.Microseconds(),
	}
	o.agg = agg
	o.stand, o.fire = o.standAt, o.onTimer
	if key := k.keyOf(&o.row); key != nil {
		o.ofRow = func() windowKey[K] { return windowKey[K]{Start: startOf(o.encoded), Key: key()} }
	}
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
	return o, o.connect(t, o.stats, outs, side, &o.ctx.sides)
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

// add adds a row to its windows, latest first. bound is how far event time had come when the row was sent:
// with several inputs, this subtask's own watermark can be behind it, and which of them is behind differs
// from run to run.
//
// A row that is late for some of its windows is counted as late, and is in the others. It goes to the late
// ones only if it is in none: whoever adds it by hand adds it to all.
func (o *windows[K, T, A, R]) add(row *T, at int64, hash uint64, key []byte, bound int64) error {
	group := keygroup.Of(hash, o.groups)
	o.row = row
	last := o.assign.Last(at)
	for start := last; start > at-o.assign.Size; start -= o.assign.Slide {
		end := start + o.assign.Size
		judged := window.Judge(end, o.lateness, o.watermarkOf(group))
		if judged != window.Late && window.Judge(end, o.lateness, bound) != window.Late {
			if err := o.addTo(start, end, group, hash, key, judged); err != nil {
				return err
			}
			continue
		}
		o.stats.late.Add(1)
		if start == last { // then it is late for the earlier ones too
			o.late(o.cfg.Late, row, at)
		}
		return nil
	}
	return nil
}

// addTo adds the row at work to a window.
func (o *windows[K, T, A, R]) addTo(
	start, end int64, group int, hash uint64, key []byte, judged window.Judgement,
) error {
	row := o.row
	o.encoded = append(state.AppendInt(o.encoded[:0], start), key...)
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

func (o *windows[K, T, A, R]) signal(s signal) error {
	if err := o.observe(s, o.done); err != nil {
		return err
	}
	return o.pass(s)
}

// onTimer fires the window at its end, and forgets it once it is closed for good.
func (o *windows[K, T, A, R]) onTimer(k *state.Key[windowKey[K]], at int64) error {
	p := o.panes.Get(k)
	if p == nil {
		return nil
	}
	end := startOf(k.Encoded) + o.assign.Size
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

func (o *windows[K, T, A, R]) fireWindow(k *state.Key[windowKey[K]], p *pane[A]) error {
	start := startOf(k.Encoded)
	return o.fireAt(k.Value().Key, p, start, start+o.assign.Size)
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
