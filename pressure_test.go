package weir_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir"
	"example.com/weir/connector"
	"example.com/weir/weirtest"
)

// standing is a sink that takes nothing until it is let go, and then counts.
type standing struct {
	letGo chan struct{}
	rows  atomic.Int64
}

func newStanding() *standing { return &standing{letGo: make(chan struct{})} }

func (*standing) Guarantee() connector.Guarantee { return connector.None }
func (*standing) Validate(bool) error            { return nil }
func (s *standing) Writer(context.Context, connector.WriterContext) (connector.Writer[int], error) {
	return s, nil
}

func (s *standing) Write(ctx context.Context, rows []int) error {
	select {
	case <-s.letGo:
		s.rows.Add(int64(len(rows)))
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
func (*standing) Flush(context.Context, bool) error { return nil }
func (*standing) Close() error                      { return nil }

// self hands a row of either stream on.
type self struct{}

func (self) Open(*weir.OpenContext[int]) error { return nil }
func (self) Process(_ *weir.Context[int], v *int, out *weir.Out[int]) error {
	out.Emit(*v)
	return nil
}

func (s self) Process1(ctx *weir.Context[int], v *int, out *weir.Out[int]) error {
	return s.Process(ctx, v, out)
}

func (s self) Process2(ctx *weir.Context[int], v *int, out *weir.Out[int]) error {
	return s.Process(ctx, v, out)
}
func (self) OnTimer(*weir.Context[int], *weir.Out[int]) error { return nil }

// burst emits rows in masses: for one row, to a side output, or from timers.
type burst struct {
	aside   *weir.SideOutput[int] // nil: the rows go to the main output
	emitted *atomic.Int64
	rows    int
	timers  bool // a row for each timer
}

func (burst) Open(*weir.OpenContext[int]) error { return nil }

func (b burst) Process(ctx *weir.Context[int], e *event, out *weir.Out[int]) error {
	if b.timers {
		ctx.SetTimer(e.At.Add(time.Minute))
		return nil
	}
	return b.OnTimer(ctx, out)
}

func (b burst) OnTimer(ctx *weir.Context[int], out *weir.Out[int]) error {
	for i := range b.rows {
		b.emitted.Add(1)
		if b.aside != nil {
			weir.EmitSide(ctx, b.aside, i)
			continue
		}
		out.Emit(i)
	}
	return nil
}

// A sink that takes nothing holds back everything before it: what is in memory is bounded by the channels,
// whatever there is to read and however much an operator makes of one row.
func TestASinkThatStandsStillBoundsTheRowsInMemory(t *testing.T) {
	const (
		parallelism = 2
		batch       = 256
		channel     = 8*batch + 2*batch // what waits in it, and what gathers before and is at work behind
		bound       = 3 * parallelism * parallelism * channel
		many        = 10 * bound
	)
	number := func(e *event) int { return e.N }
	byValue := func(s weir.Stream[int]) weir.KeyedStream[int, int] {
		return weir.KeyBy(s, func(v *int) int { return *v })
	}
	masses := func(s weir.Stream[event], seen *atomic.Int64) weir.Stream[int] {
		return weir.FlatMap(s, "burst", func(_ *event, out *weir.Out[int]) error {
			for i := range many {
				seen.Add(1)
				out.Emit(i)
			}
			return nil
		})
	}
	for name, build := range map[string]func(s weir.Stream[event], seen *atomic.Int64) (out weir.Stream[int], rows, all int){
		"many rows": func(s weir.Stream[event], seen *atomic.Int64) (weir.Stream[int], int, int) {
			numbers := weir.Map(s, "number", func(e *event) (int, error) { seen.Add(1); return e.N, nil })
			spread := weir.Map(weir.Rebalance(numbers), "spread", keep)
			return weir.Map(weir.Union(weir.Rebalance(spread), weir.Rebalance(numbers)), "both", keep), many, 2 * many
		},
		"many rows of one": func(s weir.Stream[event], seen *atomic.Int64) (weir.Stream[int], int, int) {
			return weir.Rebalance(masses(s, seen)), 1, many
		},
		"broadcast": func(s weir.Stream[event], seen *atomic.Int64) (weir.Stream[int], int, int) {
			return weir.Broadcast(masses(s, seen)), 1, parallelism * many
		},
		"a union": func(s weir.Stream[event], seen *atomic.Int64) (weir.Stream[int], int, int) {
			all := masses(s, seen)
			return weir.Union(all, all), 1, 2 * many
		},
		"keyed": func(s weir.Stream[event], seen *atomic.Int64) (weir.Stream[int], int, int) {
			return weir.Process(byValue(masses(s, seen)), "self", func() weir.Processor[int, int, int] {
				return self{}
			}), 1, many
		},
		"two inputs": func(s weir.Stream[event], seen *atomic.Int64) (weir.Stream[int], int, int) {
			all := masses(s, seen)
			return weir.Process2(weir.Connect(byValue(all), byValue(all)), "self",
				func() weir.TwoInputProcessor[int, int, int, int] { return self{} }), 1, 2 * many
		},
		"a side output": func(s weir.Stream[event], seen *atomic.Int64) (weir.Stream[int], int, int) {
			aside := weir.NewSideOutput[int]("aside")
			main := weir.Process(weir.KeyBy(s, number), "burst", func() weir.Processor[int, event, int] {
				return burst{aside: aside, emitted: seen, rows: many}
			})
			return weir.Rebalance(weir.Side(main, aside)), 1, many
		},
		"timers": func(s weir.Stream[event], seen *atomic.Int64) (weir.Stream[int], int, int) {
			return weir.Process(weir.KeyBy(s, number), "burst", func() weir.Processor[int, event, int] {
				return burst{emitted: seen, rows: 1, timers: true}
			}), many, many
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, sink, seen, read := newWorld(t, 1), newStanding(), &atomic.Int64{}, &atomic.Int64{}
				j := weir.NewJob("pressure", weir.Config{Parallelism: parallelism, Logger: w.config(1).Logger})
				events := weir.From(j, "events", w.source, weir.EventTime(func(e *event) time.Time {
					read.Add(1)
					return e.At
				}, 0))
				out, rows, all := build(events, seen)
				weir.SinkTo(out, "sink", sink)
				for i := range rows {
					w.source.Add(0, at(0, "a", i))
				}
				w.source.End()
				r := weirtest.Start(t, j)
				time.Sleep(time.Minute) // of the bubble's time: nobody moves any more
				require.Positive(t, seen.Load())
				require.LessOrEqual(t, seen.Load(), int64(bound))
				if name != "timers" { // those are state
					require.LessOrEqual(t, read.Load(), int64(bound), "rows that were read")
				}
				require.Zero(t, sink.rows.Load())
				close(sink.letGo)
				_, err := r.Wait()
				require.NoError(t, err)
				require.EqualValues(t, all, sink.rows.Load())
			})
		})
	}
}

// What a sink that takes nothing holds back is little in bytes too, and is gone when the job is.
func TestASinkThatStandsStillBoundsTheHeap(t *testing.T) {
	const size, rows = 8 << 10, 40_000 // 320 MiB in all
	synctest.Test(t, func(t *testing.T) {
		w, letGo := newWorld(t, 1), make(chan struct{})
		j := weir.NewJob("heap", weir.Config{Parallelism: 2, Logger: w.config(1).Logger})
		made := weir.FlatMap(w.events(j), "burst", func(_ *event, out *weir.Out[[]byte]) error {
			for range rows {
				out.Emit(make([]byte, size))
			}
			return nil
		})
		behind := weir.Map(weir.Rebalance(made), "stand", func(b *[]byte) (int, error) { <-letGo; return len(*b), nil })
		sink := newStanding()
		close(sink.letGo)
		weir.SinkTo(behind, "sink", sink)
		w.source.Add(0, at(0, "a", 1))
		w.source.End()
		before := heap()
		r := weirtest.Start(t, j)
		time.Sleep(time.Minute)
		held := heap() - before
		require.Greater(t, held, int64(8*256*size), "what two channels of eight batches hold is not there")
		require.Less(t, held, int64(100<<20))
		close(letGo)
		_, err := r.Wait()
		require.NoError(t, err)
		require.EqualValues(t, rows, sink.rows.Load())
		require.Less(t, heap()-before, int64(20<<20))
	})
}

// heap is how many bytes are alive.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what pools held for one more
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// An error or a panic is the operator's whose function failed, also behind what it has passed on.
func TestWhoFailedIsNamedBehindAnExchangeAndAfterItsOutputWasPassedOn(t *testing.T) {
	for name, spread := range map[string]func(weir.Stream[event]) weir.Stream[event]{
		"chained":   func(s weir.Stream[event]) weir.Stream[event] { return s },
		"rebalance": weir.Rebalance[event],
		"broadcast": weir.Broadcast[event],
		"union":     func(s weir.Stream[event]) weir.Stream[event] { return weir.Union(s, s) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1)
				cfg := w.config(2)
				cfg.Restart = weir.ExponentialDelay{MaxRestarts: 1}
				j := weir.NewJob("fails", cfg)
				made := weir.FlatMap(spread(w.events(j)), "maker", func(_ *event, out *weir.Out[int]) error {
					for i := range 300 {
						out.Emit(i)
					}
					panic("no more")
				})
				weir.SinkTo(weir.Map(made, "behind", func(v *int) (int, error) { return *v, nil }), "sink",
					weirtest.NewSink[int](connector.None))
				w.source.Add(0, at(0, "a", 1))
				_, err := weirtest.Start(t, j).Wait()
				require.ErrorContains(t, err, "operator maker")
				require.ErrorContains(t, err, "panic: no more")
			})
		})
	}
}
