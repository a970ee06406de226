package engine

// Connected are two keyed streams whose keys are of one type.
type Connected[K comparable, A, B any] struct {
	first  KeyedStream[K, A]
	second KeyedStream[K, B]
}

// Connect lets one operator read two keyed streams.
func Connect[K comparable, A, B any](first KeyedStream[K, A], second KeyedStream[K, B]) Connected[K, A, B] {
	if first.Plan != second.Plan {
		first.Plan.Reject("connected streams of different jobs: %s is not of this one", second.From.UID)
	}
	return Connected[K, A, B]{first: first, second: second}
}

// TwoInputProcessor is a Processor of two streams: state and timers of a key are shared by its rows in both.
type TwoInputProcessor[K comparable, A, B, R any] interface {
	// Open declares the state, before the first row.
	Open(o *OpenContext[K]) error
	// Process1 handles a row of the first stream. ctx stands at the row's key and event time.
	Process1(ctx *Context[K], row *A, out *Out[R]) error
	// Process2 handles a row of the second stream.
	Process2(ctx *Context[K], row *B, out *Out[R]) error
	// OnTimer handles a timer that is due. ctx stands at the timer's key and time.
	OnTimer(ctx *Context[K], out *Out[R]) error
}

// Process2 adds a keyed operator of two streams.
func Process2[K comparable, A, B, R any](
	c Connected[K, A, B], uid string, newProcessor func() TwoInputProcessor[K, A, B, R],
) Stream[R] {
	p := c.first.Plan
	op := p.add(Operator{
		UID: uid, Kind: "process2", Stateful: true, Inputs: append(c.first.edges(), c.second.edges()...),
	})
	both := eitherKeyed(c)
	g := newGate[either[A, B]](p, op)
	attachTagged(c.first.Stream, g, 0, both, func(e *either[A, B], row *A) { e.a = *row })
	attachTagged(c.second.Stream, g, len(c.first.legs), both, func(e *either[A, B], row *B) { e.second, e.b = true, *row })
	outs, side := &outputs[R]{}, &sideOutputs{}
	g.open(func(t *task) (Collector[either[A, B]], error) {
		return buildProcess(t, uid, both, Processor[K, either[A, B], R](twoInputs[K, A, B, R]{newProcessor()}), outs, side)
	})
	return streamOf(p, op, outs, side)
}

// eitherKeyed is what the two streams are keyed by.
func eitherKeyed[K comparable, A, B any](c Connected[K, A, B]) KeyedStream[K, either[A, B]] {
	both := KeyedStream[K, either[A, B]]{codec: c.first.codec, encoder: func() keyEncoder[either[A, B]] {
		first, second := c.first.encoder(), c.second.encoder()
		return func(dst []byte, e *either[A, B]) []byte {
			if e.second {
				return second(dst, &e.b)
			}
			return first(dst, &e.a)
		}
	}}
	if c.first.key != nil && c.second.key != nil {
		both.key = func(e *either[A, B]) K {
			if e.second {
				return c.second.key(&e.b)
			}
			return c.first.key(&e.a)
		}
	}
	return both
}

// either is a row of one of two streams.
type either[A, B any] struct {
	a      A
	b      B
	second bool
}

// twoInputs is a TwoInputProcessor as a Processor of tagged rows.
type twoInputs[K comparable, A, B, R any] struct{ TwoInputProcessor[K, A, B, R] }

// Process implements Processor.
func (p twoInputs[K, A, B, R]) Process(ctx *Context[K], row *either[A, B], out *Out[R]) error {
	if row.second {
		return p.Process2(ctx, &row.b, out)
	}
	return p.Process1(ctx, &row.a, out)
}

// attachTagged lets a stream's rows through a gate of tagged ones, whose edges begin at first.
func attachTagged[T, E any, K comparable](
	s Stream[T], g gate[E], first int, keyed KeyedStream[K, E], tag func(*E, *T),
) {
	for i, l := range s.legs {
		l.outs.attach(func(t *task) (Collector[T], error) {
			return &tagger[T, E]{to: newHashSender(g.sender(t, first+i), keyed), tag: tag}, nil
		})
	}
}

// tagger turns rows into tagged ones, on their way into an exchange.
type tagger[T, E any] struct {
	to     Collector[E]
	tag    func(*E, *T)
	tagged Batch[E]
}

func (c *tagger[T, E]) batch(b *Batch[T]) error {
	for i := range b.Rows {
		var e E
		c.tag(&e, &b.Rows[i])
		c.tagged.Rows = append(c.tagged.Rows, e)
	}
	err := c.to.batch(&Batch[E]{Rows: c.tagged.Rows, Times: b.Times, Marks: b.Marks})
	c.tagged.reset()
	return err
}

func (c *tagger[T, E]) signal(s signal) error { return c.to.signal(s) }
