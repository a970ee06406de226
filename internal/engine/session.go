package engine

import (
	"fmt"
	"slices"

	"example.com/weir/connector"
	"example.com/weir/internal/keygroup"
	"example.com/weir/internal/state"
	"example.com/weir/internal/window"
)

// Merger is implemented by aggregators of sessions: a record between two sessions makes one of them.
type Merger[A any] interface {
	// Merge adds what another accumulator holds. from is not used again.
	Merge(into, from *A) error
}

// Retractor is implemented by aggregators of sessions that take results back: w is a session that has
// emitted a result, of that Revision, and has become part of another one with other bounds.
type Retractor[K comparable, R any] interface {
	Retract(w *WindowContext[K], out *Out[R]) error
}

// sessionsOf are the sessions of a key that are not closed for good, in order.
type sessionsOf[A any] struct {
	spans    []window.Span
	sessions []sessionPane[A]
}

// sessionPane is what a session holds.
type sessionPane[A any] struct {
	pane[A]
	fired bool  // with the bounds it has
	shown bool  // it has emitted a result with them
	timer int64 // when it is looked at next: its end, or its closing, or earlier
}

// sessions is the operator behind session windows. Timers are of keys: one that comes looks for the
// sessions whose time it is, so a timer of a session that was merged finds nothing, or looks too early.
type sessions[K comparable, T, A, R any] struct {
	keyedBase[K]
	windowOut[K, T, A, R]
	row     *T       // at work
	ofRow   func() K // its key, made once
	cfg     WindowConfig[T]
	assign  window.Session
	merger  Merger[A]
	retract Retractor[K, R] // nil: nothing is taken back
	table   *state.Table[K, sessionsOf[A]]
	groups  int
	key     state.Key[K]
}

func buildSessions[K comparable, T, A, R any](
	t *task, uid string, k KeyedStream[K, T], cfg WindowConfig[T], agg Aggregator[K, T, A, R],
	merger Merger[A], outs *outputs[R], side *sideOutputs,
) (Collector[T], error) {
	t.operator = uid
	o := &sessions[K, T, A, R]{
		keyedBase: *newKeyedBase(t, uid, k.codec), cfg: cfg, merger: merger,
		assign: window.Session{Gap: cfg.Gap.Microseconds(), AllowedLateness: cfg.AllowedLateness.Microseconds()},
		groups: t.gen.plan.maxParallelism,
	}
	o.retract, _ = agg.(Retractor[K, R])
	o.agg = agg
	o.stand, o.fire = o.standAt, o.onTimer
	o.ofRow = k.keyOf(&o.row)
	codec, err := accumulatorCodec[K, T, A, R](agg)
	if err != nil {
		return nil, err
	}
	o.table, err = state.Declare(o.keyed, "sessions", connector.Codec[sessionsOf[A]](sessionsCodec[A]{codec}))
	if err != nil {
		return nil, fmt.Errorf("operator %s: %w", uid, err)
	}
	if err := o.restore(); err != nil {
		return nil, err
	}
	return o, o.connect(t, o.stats, outs, side, &o.ctx.sides)
}

func (o *sessions[K, T, A, R]) batch(b *Batch[T]) error {
	o.task.enter(o.stats, len(b.Rows))
	for i := range b.Rows {
		if err := o.advance(b.Marks[i]); err != nil {
			return err
		}
		o.standAt(o.watermark)
		o.row = &b.Rows[i]
		o.key.Stand(o.keyed.Codec(), b.Hashes[i], keygroup.Of(b.Hashes[i], o.groups), b.key(i), o.ofRow)
		now := o.watermarkOf(o.key.Group)
		if b.Bounds != nil {
			now = max(now, b.Bounds[i])
		}
		if err := o.add(b.Times[i], now); err != nil {
			return err
		}
	}
	if err := o.keyed.Work(); err != nil {
		return err
	}
	return o.done()
}

// add adds the row at work to the session that it makes. now is how far event time had come when the row
// was sent.
func (o *sessions[K, T, A, R]) add(at, now int64) error {
	list := o.table.Get(&o.key)
	if list == nil {
		list = &sessionsOf[A]{}
	}
	if !o.assign.Taken(list.spans, at, now) {
		o.stats.late.Add(1)
		o.late(o.cfg.Late, o.row, at)
		return nil
	}
	list, err := o.table.Put(&o.key)
	if err != nil {
		return err
	}
	i, err := o.join(list, at)
	if err != nil {
		return err
	}
	s, span := &list.sessions[i], list.spans[i]
	if err := o.agg.Add(&s.acc, o.row); err != nil {
		return err
	}
	if window.Judge(span.End, o.assign.AllowedLateness, o.watermarkOf(o.key.Group)) == window.Open {
		return o.wake(s, span.End)
	}
	if err := o.fireSession(&o.key, s, span); err != nil {
		return err
	}
	return o.wake(s, window.CloseTime(span.End, o.assign.AllowedLateness))
}

// join makes one session of the record's own and of those that it meets, and returns which it is.
func (o *sessions[K, T, A, R]) join(list *sessionsOf[A], at int64) (int, error) {
	from, to, span := o.assign.Join(list.spans, at)
	joined := sessionPane[A]{timer: endTime}
	for i := from; i < to; i++ {
		old := &list.sessions[i]
		if err := o.takeBack(old, list.spans[i], span); err != nil {
			return 0, err
		}
		if i == from {
			same := list.spans[i] == span
			joined.acc, joined.fired, joined.shown = old.acc, old.fired && same, old.shown && same
		} else if err := o.merger.Merge(&joined.acc, &old.acc); err != nil {
			return 0, err
		}
		joined.firings, joined.emitted = max(joined.firings, old.firings), max(joined.emitted, old.emitted)
		joined.timer = min(joined.timer, old.timer)
	}
	list.spans = slices.Replace(list.spans, from, to, span)
	list.sessions = slices.Replace(list.sessions, from, to, joined)
	return from, nil
}

// takeBack lets the aggregator take back what a session has emitted with its bounds, if it gets other ones.
func (o *sessions[K, T, A, R]) takeBack(s *sessionPane[A], was, becomes window.Span) error {
	if was == becomes || !s.shown || o.retract == nil {
		return nil
	}
	o.standAtWindow(o.key.Value(), s.firings, s.emitted, was.Start, was.End)
	return o.retract.Retract(&o.ctx, o.out)
}

// wake sees to it that the session is looked at no later than at a time. There is one timer for a session
// at a time, however many records it has.
func (o *sessions[K, T, A, R]) wake(s *sessionPane[A], at int64) error {
	if s.timer <= at {
		return nil
	}
	s.timer = at
	return o.keyed.Timers.Set(&o.key, at)
}

// onTimer fires the sessions of a key that end, and forgets those that are closed for good.
func (o *sessions[K, T, A, R]) onTimer(k *state.Key[K], at int64) error {
	list := o.table.Get(k)
	if list == nil {
		return nil
	}
	for i := 0; i < len(list.spans); {
		closed, err := o.look(k, &list.sessions[i], list.spans[i], at)
		if err != nil {
			return err
		}
		if !closed {
			i++
			continue
		}
		list.spans = slices.Delete(list.spans, i, i+1)
		list.sessions = slices.Delete(list.sessions, i, i+1)
	}
	if len(list.spans) == 0 {
		o.table.Delete(k)
	}
	return nil
}

// look does what it is time for in a session, and reports whether it is closed for good.
func (o *sessions[K, T, A, R]) look(
	k *state.Key[K], s *sessionPane[A], span window.Span, at int64,
) (closed bool, err error) {
	if s.timer != at {
		return false, nil
	}
	next := span.End
	if at >= span.End {
		if !s.fired {
			if err := o.fireSession(k, s, span); err != nil {
				return false, err
			}
		}
		next = window.CloseTime(span.End, o.assign.AllowedLateness)
	}
	if at >= next {
		return true, nil
	}
	s.timer = next
	return false, o.keyed.Timers.Set(k, next)
}

// fireSession lets the session emit its result, at its last microsecond.
func (o *sessions[K, T, A, R]) fireSession(k *state.Key[K], s *sessionPane[A], span window.Span) error {
	s.fired = true
	before := s.emitted
	err := o.fireAt(k.Value(), &s.pane, span.Start, span.End)
	s.shown = s.shown || s.emitted > before
	return err
}

func (o *sessions[K, T, A, R]) signal(s signal) error {
	if err := o.observe(s, o.done); err != nil {
		return err
	}
	return o.pass(s)
}

// Whether a session has fired, as it is encoded. Once there was no difference between the two.
const (
	firedAndShown = 1
	firedUnshown  = 2
)

// sessionsCodec encodes the sessions of a key.
type sessionsCodec[A any] struct{ acc connector.Codec[A] }

// Schema implements state.Described.
func (c sessionsCodec[A]) Schema() state.Schema {
	return state.Compose("sessions", "accumulator", state.SchemaOf(c.acc))
}

func (c sessionsCodec[A]) Append(dst []byte, l *sessionsOf[A]) (_ []byte, err error) {
	for i, span := range l.spans {
		s := &l.sessions[i]
		fired := int64(0)
		switch {
		case s.shown:
			fired = firedAndShown
		case s.fired:
			fired = firedUnshown
		}
		for _, v := range []int64{span.Start, span.End, fired, s.timer, int64(s.firings), int64(s.emitted)} {
			dst = state.AppendInt(dst, v)
		}
		if dst, err = state.AppendSized(dst, func(dst []byte) ([]byte, error) {
			return c.acc.Append(dst, &s.acc)
		}); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

func (c sessionsCodec[A]) Decode(src []byte, l *sessionsOf[A]) error {
	*l = sessionsOf[A]{}
	d := state.NewDecoder(src)
	for !d.Empty() {
		span := window.Span{Start: d.Int(), End: d.Int()}
		fired := d.Int()
		s := sessionPane[A]{fired: fired != 0, timer: d.Int()}
		s.firings, s.emitted = int(d.Int()), int(d.Int())
		s.shown = fired == firedAndShown && s.emitted > 0
		encoded := d.Sized()
		if d.Err() != nil {
			return d.Err()
		}
		if err := c.acc.Decode(encoded, &s.acc); err != nil {
			return err
		}
		l.spans, l.sessions = append(l.spans, span), append(l.sessions, s)
	}
	return d.Err()
}
