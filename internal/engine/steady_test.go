package engine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir/internal/state"
)

// call is a row of the streams here: something happened to a key, at a time in microseconds.
type call struct {
	key string
	at  int64
	n   int64
}

// counted counts a key's calls until a timer forgets the key, a second after the first.
type counted struct{ count Value[int64] }

func (c *counted) Open(o *OpenContext[string]) (err error) {
	c.count, err = NewValue(o, "count", numberCodec{})
	return err
}

type numberCodec struct{}

func (numberCodec) Append(dst []byte, v *int64) ([]byte, error) { return state.AppendInt(dst, *v), nil }

func (numberCodec) Decode(src []byte, v *int64) error {
	d := state.NewDecoder(src)
	*v = d.Int()
	return d.Err()
}

func (c *counted) Process(ctx *Context[string], row *call, out *Out[int64]) error {
	n, err := c.count.Put()
	if err != nil {
		return err
	}
	if *n == 0 {
		ctx.SetTimer(time.UnixMicro(row.at + second))
	}
	*n += row.n
	out.Emit(*n)
	return nil
}

func (c *counted) OnTimer(*Context[string], *Out[int64]) error {
	c.count.Clear()
	return nil
}

const second = int64(1_000_000)

type callSum struct{}

func (callSum) Add(acc *int64, row *call) error { *acc += row.n; return nil }
func (callSum) Fire(_ *WindowContext[string], acc *int64, out *Out[int64]) error {
	out.Emit(*acc)
	return nil
}

// line is one subtask with the exchange before it, in one goroutine: what is sent is received at once.
type line struct {
	sender   *hashSender[call, string]
	receiver *receiver[call]
	rows     Batch[call]
	keys     []string
	next     int
	now      int64
	pace     int64 // from one row to the next; at first so that a key's timer has fired before it comes again
}

// newLine builds the subtask that build makes of a keyed stream, over so many keys that come in turn.
func newLine(
	t testing.TB, interval time.Duration, keys int,
	build func(own *task, k KeyedStream[string, call], outs *outputs[int64]) (Collector[call], error),
) *line {
	t.Helper()
	plan := NewPlan("test", 1, 128)
	g := &generation{cfg: RunConfig{Interval: interval}.withDefaults(), plan: plan, state: &restored{}}
	g.cfg.Interval = interval
	own := &task{
		parallelism: 1, gen: g, ctx: context.Background(), stats: &SubtaskStats{},
	}
	outs := &outputs[int64]{}
	outs.attach(func(*task) (Collector[int64], error) { return discard[int64]{}, nil })
	keyed := KeyBy(streamOf(plan, &Operator{UID: "source"}, &outputs[call]{}, nil), func(c *call) string { return c.key })
	op, err := build(own, keyed, outs)
	require.NoError(t, err)
	ch := newChannels[call](1, 1)
	l := &line{
		sender: newHashSender(sender[call]{task: own, ch: ch, pending: make([]*Batch[call], 1)}, keyed),
		now:    1_700_000_000 * second, pace: max(2*second/int64(keys), 1),
	}
	l.receiver = newReceiver(own, ch, false, op)
	require.NoError(t, l.receiver.moved(0))
	for i := range keys {
		l.keys = append(l.keys, fmt.Sprintf("tenant-%03d/request-%09d", i%100, i))
	}
	return l
}

func countingCalls(own *task, k KeyedStream[string, call], outs *outputs[int64]) (Collector[call], error) {
	return buildProcess(own, "count", k, Processor[string, call, int64](&counted{}), outs, &sideOutputs{})
}

func summingUp(own *task, k KeyedStream[string, call], outs *outputs[int64]) (Collector[call], error) {
	return buildWindows(own, "sum", k, WindowConfig[call]{Size: time.Second, Slide: time.Second},
		Aggregator[string, call, int64, int64](callSum{}), outs, &sideOutputs{})
}

// step sends a batch: each key in turn.
func (l *line) step(t testing.TB) {
	l.rows.reset()
	for range BatchSize {
		l.now += l.pace
		l.rows.Rows = append(l.rows.Rows, call{key: l.keys[l.next], at: l.now, n: 1})
		l.rows.Times = append(l.rows.Times, l.now)
		l.rows.Marks = append(l.rows.Marks, l.now)
		l.next = (l.next + 1) % len(l.keys)
	}
	if err := l.sender.batch(&l.rows); err != nil {
		t.Fatal(err)
	}
	if _, err := l.receiver.poll(); err != nil {
		t.Fatal(err)
	}
}

// A keyed operator with state and timers allocates nothing for a record, nor does the exchange before it, once
// it has the memory that its state needs.
func TestNothingIsAllocatedForARecord(t *testing.T) {
	l := newLine(t, 0, 4*BatchSize, countingCalls)
	for range 200 {
		l.step(t)
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { l.step(t) }))
}

// A window allocates nothing for a record either, but for the key that it names when it fires.
func TestAWindowAllocatesForItsFiringAlone(t *testing.T) {
	const keys, batches, windows = 50, 100, 10
	l := newLine(t, 0, keys, summingUp)
	l.pace = windows * second / (batches * BatchSize)
	step := func() {
		for range batches {
			l.step(t)
		}
	}
	step()
	step()
	require.LessOrEqual(t, testing.AllocsPerRun(20, step), float64((windows+1)*keys))
}

// Changes are logged, and cut, in memory that is used again.
func TestALoggedChangeAllocatesNothing(t *testing.T) {
	l := newLine(t, time.Second, 4*BatchSize, countingCalls)
	op := l.receiver.to.(*process[string, call, int64])
	step := func() {
		for range 16 {
			l.step(t)
		}
		_, records, err := op.keyed.Cut(op.watermarkOf)
		require.NoError(t, err)
		op.keyed.GiveBack(records)
	}
	for range 50 {
		step()
	}
	const head = 60 // a cut's header, which grows to its size
	require.LessOrEqual(t, testing.AllocsPerRun(20, step), float64(head))
}

// BenchmarkLine measures a record from its exchange through a keyed operator with a value, and a timer for each
// key: one look-up, one timer set and one fired for each record.
func BenchmarkLine(b *testing.B) {
	for _, keys := range []int{1_000, 100_000, 1_000_000} {
		for name, build := range map[string]func(*task, KeyedStream[string, call], *outputs[int64]) (Collector[call], error){
			"process": countingCalls, "window": summingUp,
		} {
			b.Run(fmt.Sprintf("%s/%d", name, keys), func(b *testing.B) {
				l := newLine(b, 0, keys, build)
				for range 2 * keys / BatchSize {
					l.step(b)
				}
				b.ReportAllocs()
				for b.Loop() {
					l.step(b)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/BatchSize, "ns/record")
			})
		}
	}
}
