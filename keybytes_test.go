package weir_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir"
	"example.com/weir/connector"
	"example.com/weir/weirtest"
)

// spelled is a key with an encoding of its own: the bytes of its name.
type spelled struct{ name string }

func (s spelled) AppendKey(dst []byte) []byte { return append(dst, s.name...) }

func (s *spelled) DecodeKey(src []byte) error {
	s.name = string(src)
	return nil
}

// named is a sum under the name of its key.
type named struct {
	Key string
	Sum int
}

// spelledSum adds up what comes for a key, and emits the sum at each row and 10 seconds later.
type spelledSum[K comparable] struct {
	name func(*weir.Context[K]) string
	sum  weir.Value[int]
}

func (o *spelledSum[K]) Open(c *weir.OpenContext[K]) (err error) {
	o.sum, err = weir.NewValue[int](c, "sum", nil)
	return err
}

func (o *spelledSum[K]) Process(ctx *weir.Context[K], e *event, out *weir.Out[named]) error {
	sum, err := o.sum.Put()
	if err != nil {
		return err
	}
	*sum += e.N
	ctx.SetTimer(e.At.Add(10 * time.Second))
	out.Emit(named{o.name(ctx), *sum})
	return nil
}

func (o *spelledSum[K]) OnTimer(ctx *weir.Context[K], out *weir.Out[named]) error {
	out.Emit(named{o.name(ctx) + " later", *o.sum.Peek()})
	return nil
}

// Rows keyed by bytes come to the state that a key type with those bytes for its encoding has left, at another
// parallelism too, and rows and timers find the bytes of their key.
func TestAStreamIsKeyedByBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, sink := newWorld(t, 1), weirtest.NewSink[named](connector.ExactlyOnce)
		typed := weir.NewJob("keyed", w.config(1))
		weir.SinkTo(weir.Process(weir.KeyBy(w.events(typed), func(e *event) spelled { return spelled{e.Tenant} }), "total",
			func() weir.Processor[spelled, event, named] {
				return &spelledSum[spelled]{name: func(ctx *weir.Context[spelled]) string { return ctx.Key().name }}
			}), "sink", sink)
		bytes := weir.NewJob("keyed", w.config(2))
		weir.SinkTo(weir.Process(weir.KeyByBytes(w.events(bytes), func(dst []byte, e *event) []byte { return append(dst, e.Tenant...) }), "total",
			func() weir.Processor[string, event, named] {
				return &spelledSum[string]{name: func(ctx *weir.Context[string]) string {
					require.Equal(t, ctx.Key(), string(ctx.KeyBytes()))
					return string(ctx.KeyBytes())
				}}
			}), "sink", sink)

		w.source.Add(0, at(0, "a", 1), at(time.Second, "b", 10), at(2*time.Second, "", 100))
		r := weirtest.Start(t, typed)
		time.Sleep(3 * time.Second)
		_, err := r.Stop()
		require.NoError(t, err)
		w.source.Add(0, at(3*time.Second, "a", 2), at(4*time.Second, "", 200))
		w.source.AdvanceTo(start.Add(time.Hour))
		r = weirtest.Start(t, bytes)
		time.Sleep(3 * time.Second)
		_, err = r.Stop()
		require.NoError(t, err)
		require.ElementsMatch(t, []named{
			{"a", 1},
			{"b", 10},
			{"", 100},
			{"a", 3},
			{"", 300},
			{"a later", 3},
			{"a later", 3},
			{"b later", 10},
			{" later", 300},
			{" later", 300},
		}, sink.Rows())
	})
}
