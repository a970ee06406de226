package engine

import (
	"slices"

	"example.com/weir/internal/keygroup"
	"example.com/weir/internal/state"
)

// Stream is the typed output of an operator, or of several (Union), and how it comes to whoever
// reads it. It is no operator itself: exchanges belong to the operator that reads.
type Stream[T any] struct {
	Plan *Plan
	From *Operator // for messages, and for side outputs
	legs []leg[T]
	side *sideOutputs // of the operator that the stream comes from; nil if it has none
}

// leg is an output that a stream consists of.
type leg[T any] struct {
	from     *Operator
	side     string // name of the side output that it is; empty: the main one
	outs     *outputs[T]
	exchange Exchange // that was asked for by name; Chained: none was
}

func streamOf[T any](p *Plan, op *Operator, outs *outputs[T], side *sideOutputs) Stream[T] {
	return Stream[T]{
		Plan: p, From: op, side: side, legs: []leg[T]{{from: op, outs: outs, exchange: Chained}},
	}
}

// Union is the stream of all rows of several streams. Event time is the least of theirs.
func Union[T any](first Stream[T], more ...Stream[T]) Stream[T] {
	u := Stream[T]{Plan: first.Plan, From: first.From, legs: slices.Clone(first.legs)}
	for _, s := range more {
		if s.Plan != u.Plan {
			u.Plan.Reject("union of streams of different jobs: %s is not of this one", s.From.UID)
		}
		u.legs = append(u.legs, s.legs...)
	}
	if len(u.legs) > 1 {
		u.From = &Operator{Kind: "union", UID: "of " + u.names()}
	}
	return u
}

// WithExchange is the stream with its rows spread over the subtasks of whoever reads it.
func (s Stream[T]) WithExchange(x Exchange) Stream[T] {
	s.legs, s.side = slices.Clone(s.legs), nil
	for i := range s.legs {
		if s.legs[i].exchange == Broadcast {
			s.Plan.Reject("the stream of %s is broadcast already: every subtask has every row", s.legs[i].from.UID)
		}
		s.legs[i].exchange = x
	}
	return s
}

func (s Stream[T]) names() string {
	all := ""
	for i, l := range s.legs {
		if i > 0 {
			all += ", "
		}
		all += l.from.UID
	}
	return all
}

// chained reports whether what reads the stream shares the goroutine of what it comes from.
func (s Stream[T]) chained() bool { return len(s.legs) == 1 && s.legs[0].exchange == Chained }

// edges describes the inputs of an operator that reads the stream.
func (s Stream[T]) edges() []Edge {
	all := make([]Edge, len(s.legs))
	for i, l := range s.legs {
		all[i] = Edge{From: l.from.UID, Side: l.side, Exchange: l.exchange}
		if l.exchange == Chained && !s.chained() {
			all[i].Exchange = Forward // another goroutine, where the legs meet
		}
	}
	return all
}

// attach puts an operator behind the stream.
func (s Stream[T]) attach(op *Operator, build func(t *task) (Collector[T], error)) {
	if s.chained() {
		s.legs[0].outs.attach(build)
		return
	}
	g := newGate[T](s.Plan, op)
	for i, l := range s.legs {
		l.outs.attach(func(t *task) (Collector[T], error) { return g.keyless(t, i), nil })
	}
	g.open(build)
}

// KeyedStream is a stream whose rows are distributed by key: every row of a key reaches the
// same subtask, behind the others of the same split.
type KeyedStream[K comparable, T any] struct {
	Stream[T]
	key   func(*T) K // nil: it is made from its encoding
	codec state.KeyCodec[K]
	// encoder returns what appends the encoding of a row's key; each sender has its own.
	encoder func() keyEncoder[T]
}

// keyEncoder appends the encoding of a row's key.
type keyEncoder[T any] func(dst []byte, row *T) []byte

// KeyBy keys a stream.
func KeyBy[K comparable, T any](s Stream[T], key func(*T) K) KeyedStream[K, T] {
	codec, err := state.NewKeyCodec[K]()
	if err != nil {
		s.Plan.Reject("keyed stream behind %s: %w", s.From.UID, err)
	}
	s.requireDistributable()
	return KeyedStream[K, T]{Stream: s, key: key, codec: codec, encoder: func() keyEncoder[T] {
		var k K // here so that it does not escape for each row
		return func(dst []byte, row *T) []byte {
			k = key(row)
			return codec.Append(dst, &k)
		}
	}}
}

// KeyByBytes keys a stream by bytes that are appended for each row: they are the key and its encoding, so that no
// key is lost in it.
func KeyByBytes[T any](s Stream[T], key func(dst []byte, row *T) []byte) KeyedStream[string, T] {
	s.requireDistributable()
	return KeyedStream[string, T]{
		Stream: s, codec: state.BytesKeyCodec(), encoder: func() keyEncoder[T] { return key },
	}
}

// requireDistributable refuses a stream whose rows cannot be distributed by key.
func (s Stream[T]) requireDistributable() {
	for _, l := range s.legs {
		if l.exchange == Broadcast {
			s.Plan.Reject("keyed stream behind %s, which is broadcast: every subtask has every row, and "+
				"a key belongs to one", l.from.UID)
		}
	}
}

// keyOf returns what makes the key of the row that at points to, once that is asked for; nil: its encoding does.
func (k KeyedStream[K, T]) keyOf(at **T) func() K {
	if k.key == nil {
		return nil
	}
	return func() K { return k.key(*at) }
}

// edges describes the inputs of a keyed operator.
func (k KeyedStream[K, T]) edges() []Edge {
	all := k.Stream.edges()
	for i := range all {
		all[i].Exchange = Hash
	}
	return all
}

// exchangeTo adds a hash exchange in front of an operator, which begins subtasks of its own.
func (k KeyedStream[K, T]) exchangeTo(op *Operator, build func(t *task) (Collector[T], error)) {
	g := newGate[T](k.Plan, op)
	for i, l := range k.legs {
		l.outs.attach(func(t *task) (Collector[T], error) {
			return newHashSender(g.sender(t, i), k), nil
		})
	}
	g.open(build)
}

// gate is the way into the subtasks that an operator begins: its exchanges.
type gate[T any] struct {
	plan *Plan
	id   int
	op   *Operator
}

func newGate[T any](p *Plan, op *Operator) gate[T] {
	g := gate[T]{plan: p, id: p.exchanges, op: op}
	p.exchanges++
	return g
}

// inputs returns the number of inputs that each subtask has from the operator's first n edges.
func (g gate[T]) inputs(n int) int {
	all := 0
	for _, e := range g.op.Inputs[:n] {
		if e.Exchange == Forward {
			all++
		} else {
			all += g.plan.parallelism
		}
	}
	return all
}

// channels returns the channels of the gate in a generation; the first that asks makes them.
func (g gate[T]) channels(gen *generation) *channels[T] {
	if gen.exchanges[g.id] == nil {
		gen.exchanges[g.id] = newChannels[T](g.inputs(len(g.op.Inputs)), g.plan.parallelism)
	}
	return gen.exchanges[g.id].(*channels[T])
}

// sender returns what a subtask before the gate sends with, by one of the operator's edges.
func (g gate[T]) sender(t *task, edge int) sender[T] {
	end := sender[T]{task: t, ch: g.channels(t.gen), input: g.inputs(edge), paths: g.plan.followed(g.op)}
	if g.op.Inputs[edge].Exchange == Forward {
		end.first, end.pending = t.subtask, make([]*Batch[T], 1)
		return end
	}
	end.input += t.subtask
	end.pending = make([]*Batch[T], g.plan.parallelism)
	return end
}

// keyless returns the collector of a subtask before the gate, if it needs no key.
func (g gate[T]) keyless(t *task, edge int) Collector[T] {
	end := g.sender(t, edge)
	if g.op.Inputs[edge].Exchange == Rebalance {
		return &turnSender[T]{sender: end, next: t.subtask % len(end.pending)}
	}
	return &copySender[T]{sender: end}
}

// open adds the operator's subtasks to the plan.
func (g gate[T]) open(build func(t *task) (Collector[T], error)) {
	g.plan.heads = append(g.plan.heads, head{uid: g.op.UID, build: func(t *task) (runnable, error) {
		to, err := build(t)
		if err != nil {
			return nil, err
		}
		r := newReceiver(t, g.channels(t.gen), g.plan.merged(g.op), to)
		r.mode = g.plan.mode
		return r, nil
	}})
}

// merged reports whether what each input of the operator says of event time is merged from all splits
// that any input comes from.
func (p *Plan) merged(op *Operator) bool {
	for _, in := range op.Inputs {
		from := p.operator(in.From)
		if !from.global || !slices.Equal(from.sources, op.sources) {
			return false
		}
	}
	return true
}

// followed reports whether how event time moves (pathSignal) is of use to the operator, or behind it: to
// whoever has timers, and somebody behind it who judges what they emit.
func (p *Plan) followed(op *Operator) bool {
	judged, useful := map[string]bool{}, map[string]bool{} // by uid: there is a keyed operator behind it
	for _, o := range slices.Backward(p.operators) {
		keyed := o.Stateful && len(o.Inputs) > 0
		useful[o.UID] = useful[o.UID] || keyed && judged[o.UID]
		for _, in := range o.Inputs {
			judged[in.From] = judged[in.From] || keyed || judged[o.UID]
			useful[in.From] = useful[in.From] || useful[o.UID]
		}
	}
	return useful[op.UID]
}

// owners returns the subtask of each key group.
func owners(maxParallelism, parallelism int) []uint16 {
	o := make([]uint16, maxParallelism)
	for g := range o {
		o[g] = uint16(keygroup.Subtask(g, maxParallelism, parallelism))
	}
	return o
}
