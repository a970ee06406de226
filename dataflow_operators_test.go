package weir_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/weir"
	"example.com/weir/connector"
)

// operators are those that a dataflow is drawn from.
func operators() []operator {
	return []operator{
		each("scale", func(v item) []item { v.N = 2*v.N + 1; return []item{v} }),
		each("rekey", func(v item) []item { v.Key = (v.Key + v.N) % 5; return []item{v} }),
		each("few", func(v item) []item {
			if v.N%3 == 0 {
				return nil
			}
			return []item{v}
		}),
		each("twin", func(v item) []item { w := v; w.N++; return []item{v, w} }),
		rebalanceOperator(), broadcastOperator(), unionOperator(), asideOperator(),
		holdOperator(), recentOperator(), onceOperator("throttle", weir.TTLFromCreation, false),
		onceOperator("pause", weir.TTL, true), pairOperator(),
		windowOperator("tumble", 10*time.Second, 10*time.Second), windowOperator("slide", 12*time.Second, 5*time.Second),
		sessionOperator(), clockOperator(), orderOperator(),
	}
}

func sourceOperator(i int) operator { return operator{name: fmt.Sprint("source-", i)} }

// each is an operator without state: a map, a filter or both.
func each(name string, f func(item) []item) operator {
	return operator{
		name: name, ins: 1,
		build: func(_ *dataflow, n *node, in []weir.Stream[item]) weir.Stream[item] {
			return weir.FlatMap(in[0], n.uid(), func(v *item, out *weir.Out[item]) error {
				for _, w := range f(*v) {
					out.Emit(w)
				}
				return nil
			})
		},
		model: func(_ *dataflow, in [][]item) (all []item) {
			for _, v := range in[0] {
				all = append(all, f(v)...)
			}
			return all
		},
	}
}

func rebalanceOperator() operator {
	return operator{
		name: "rebalance", ins: 1,
		build: func(_ *dataflow, n *node, in []weir.Stream[item]) weir.Stream[item] {
			return weir.Map(weir.Rebalance(in[0]), n.uid(), keep)
		},
		model: func(_ *dataflow, in [][]item) []item { return in[0] },
	}
}

func broadcastOperator() operator {
	return operator{
		name: "broadcast", ins: 1, wide: true,
		build: func(_ *dataflow, n *node, in []weir.Stream[item]) weir.Stream[item] {
			return weir.Map(weir.Broadcast(in[0]), n.uid(), keep)
		},
		model: func(d *dataflow, in [][]item) (all []item) {
			for range d.parallelism {
				all = append(all, in[0]...)
			}
			return all
		},
	}
}

func unionOperator() operator {
	return operator{
		name: "union", ins: 2,
		build: func(_ *dataflow, n *node, in []weir.Stream[item]) weir.Stream[item] {
			if n.id%2 == 0 {
				return weir.Union(weir.Rebalance(in[0]), in[1])
			}
			return weir.Union(in[0], in[1])
		},
		model: func(_ *dataflow, in [][]item) []item { return slices.Concat(in[0], in[1]) },
	}
}

// steps is a processor made of functions.
type steps struct {
	open    func(o *weir.OpenContext[int]) error
	process func(ctx *weir.Context[int], v *item, out *weir.Out[item]) error
	second  func(ctx *weir.Context[int], v *item, out *weir.Out[item]) error
	timer   func(ctx *weir.Context[int], out *weir.Out[item]) error
}

func (s *steps) Open(o *weir.OpenContext[int]) error { return s.open(o) }

func (s *steps) Process(ctx *weir.Context[int], v *item, out *weir.Out[item]) error {
	return s.process(ctx, v, out)
}

func (s *steps) Process1(ctx *weir.Context[int], v *item, out *weir.Out[item]) error {
	return s.process(ctx, v, out)
}

func (s *steps) Process2(ctx *weir.Context[int], v *item, out *weir.Out[item]) error {
	return s.second(ctx, v, out)
}

func (s *steps) OnTimer(ctx *weir.Context[int], out *weir.Out[item]) error { return s.timer(ctx, out) }

// keyed builds a keyed operator of such a processor.
func keyed(newSteps func() *steps) func(*dataflow, *node, []weir.Stream[item]) weir.Stream[item] {
	return func(_ *dataflow, n *node, in []weir.Stream[item]) weir.Stream[item] {
		return weir.Process(weir.KeyBy(in[0], (*item).key), n.uid(),
			func() weir.Processor[int, item, item] { return newSteps() })
	}
}

// listed is an operator that keeps items in a list.
func listed(newSteps func(list *weir.ListState[item]) *steps, options ...weir.StateOption) func() *steps {
	return func() *steps {
		var list weir.ListState[item]
		s := newSteps(&list)
		s.open = func(o *weir.OpenContext[int]) (err error) {
			list, err = weir.NewListState[item](o, "list", nil, options...)
			return err
		}
		return s
	}
}

// asideOperator sends items two ways aside, and brings them back.
func asideOperator() operator {
	return operator{
		name: "aside", ins: 1,
		build: func(_ *dataflow, n *node, in []weir.Stream[item]) weir.Stream[item] {
			one, two := weir.NewSideOutput[item]("one"), weir.NewSideOutput[item]("two")
			rest := weir.Process(weir.KeyBy(in[0], (*item).key), n.uid(), func() weir.Processor[int, item, item] {
				return &steps{
					open: func(*weir.OpenContext[int]) error { return nil },
					process: func(ctx *weir.Context[int], v *item, out *weir.Out[item]) error {
						switch v.N % 3 {
						case 1:
							weir.EmitSide(ctx, one, *v)
						case 2:
							weir.EmitSide(ctx, two, *v)
						default:
							out.Emit(*v)
						}
						return nil
					},
				}
			})
			return weir.Union(rest, weir.Side(rest, one), weir.Side(rest, two))
		},
		model: func(_ *dataflow, in [][]item) []item { return in[0] },
	}
}

// summed adds up the items of a key and time.
func summed(all []item) (sums []item) {
	byTime := map[item]int{}
	for _, v := range all {
		byTime[item{Key: v.Key, At: v.At}] += v.N
	}
	for v, n := range byTime {
		v.N = n
		sums = append(sums, v)
	}
	return sums
}

const held = 5 * time.Second

// holding is a processor that hands on the sum of each key's items of one time, some time later.
func holding(list *weir.ListState[item]) *steps {
	return &steps{
		process: func(ctx *weir.Context[int], v *item, _ *weir.Out[item]) error {
			ctx.SetTimer(v.eventTime().Add(held))
			return list.Append(*v)
		},
		timer: func(ctx *weir.Context[int], out *weir.Out[item]) error {
			sum := item{Key: ctx.Key(), At: since(ctx.TimerTime())}
			rest := slices.Collect(list.All())
			list.Clear()
			for _, v := range rest {
				if v.At+held == sum.At {
					sum.N += v.N
				} else if err := list.Append(v); err != nil {
					return err
				}
			}
			out.Emit(sum)
			return nil
		},
	}
}

func heldSums(all []item) []item {
	sums := summed(all)
	for i := range sums {
		sums[i].At += held
	}
	return sums
}

func holdOperator() operator {
	return operator{
		name: "hold", ins: 1, build: keyed(listed(holding)),
		model: func(_ *dataflow, in [][]item) []item { return heldSums(in[0]) },
	}
}

// recentOperator counts, some time after each item, those of the last seconds. It forgets none itself.
func recentOperator() operator {
	const after, lives = 3 * time.Second, 8 * time.Second
	return operator{
		name: "recent", ins: 1,
		build: keyed(listed(func(list *weir.ListState[item]) *steps {
			return &steps{
				process: func(ctx *weir.Context[int], v *item, _ *weir.Out[item]) error {
					ctx.SetTimer(v.eventTime().Add(after))
					return list.Append(*v)
				},
				timer: func(ctx *weir.Context[int], out *weir.Out[item]) error {
					count := item{Key: ctx.Key(), At: since(ctx.TimerTime())}
					for v := range list.All() {
						if v.At <= count.At {
							count.N++
						}
					}
					out.Emit(count)
					return nil
				},
			}
		}, weir.TTL(lives))),
		model: func(_ *dataflow, in [][]item) (all []item) {
			for _, s := range summed(in[0]) {
				count := item{Key: s.Key, At: s.At + after}
				for _, v := range in[0] {
					if v.Key == s.Key && v.At <= count.At && count.At < v.At+lives {
						count.N++
					}
				}
				all = append(all, count)
			}
			return all
		},
	}
}

// onceOperator hands on that something came for a key, unless it did so lately: since it last said so, or
// since something last came.
func onceOperator(name string, ttl func(time.Duration) weir.StateOption, renews bool) operator {
	const after, lives = time.Second, 6 * time.Second
	return operator{
		name: name, ins: 1,
		build: keyed(func() *steps {
			var lately weir.Value[bool]
			return &steps{
				open: func(o *weir.OpenContext[int]) (err error) {
					lately, err = weir.NewValue[bool](o, "lately", nil, ttl(lives))
					return err
				},
				process: func(ctx *weir.Context[int], v *item, _ *weir.Out[item]) error {
					ctx.SetTimer(v.eventTime().Add(after))
					return nil
				},
				timer: func(ctx *weir.Context[int], out *weir.Out[item]) error {
					if lately.Peek() == nil {
						out.Emit(item{Key: ctx.Key(), N: 1, At: since(ctx.TimerTime())})
					}
					_, err := lately.Put()
					return err
				},
			}
		}),
		model: func(_ *dataflow, in [][]item) (all []item) {
			ends := map[int]time.Duration{}
			sums := summed(in[0])
			slices.SortFunc(sums, func(a, b item) int { return cmp.Compare(a.At, b.At) })
			for _, s := range sums {
				at := s.At + after
				end, known := ends[s.Key]
				if over := !known || at >= end; over {
					all = append(all, item{Key: s.Key, N: 1, At: at})
				} else if !renews {
					continue
				}
				ends[s.Key] = at + lives
			}
			return all
		},
	}
}

// pairOperator holds the items of two streams, each in its own digits.
func pairOperator() operator {
	const digits = 1_000_000
	return operator{
		name: "pair", ins: 2,
		build: func(_ *dataflow, n *node, in []weir.Stream[item]) weir.Stream[item] {
			both := weir.Connect(weir.KeyBy(in[0], (*item).key), weir.KeyBy(in[1], (*item).key))
			return weir.Process2(both, n.uid(), func() weir.TwoInputProcessor[int, item, item, item] {
				s := listed(holding)()
				s.second = func(ctx *weir.Context[int], v *item, out *weir.Out[item]) error {
					w := *v
					w.N *= digits
					return s.process(ctx, &w, out)
				}
				return s
			})
		},
		model: func(_ *dataflow, in [][]item) []item {
			all := slices.Clone(in[0])
			for _, v := range in[1] {
				v.N *= digits
				all = append(all, v)
			}
			return heldSums(all)
		},
	}
}

// itemSum adds up the items of a window.
type itemSum struct{}

func (itemSum) Add(acc *int, v *item) error { *acc += v.N; return nil }
func (itemSum) Merge(into, from *int) error { *into += *from; return nil }
func (itemSum) Fire(w *weir.WindowContext[int], acc *int, out *weir.Out[item]) error {
	if w.Revision != 1 {
		return connector.Stop(fmt.Errorf("nothing is late, and %v fires again", w))
	}
	out.Emit(item{Key: w.Key, N: *acc, At: since(w.End) - time.Microsecond})
	return nil
}

func aggregated(windows weir.Windows) func(*dataflow, *node, []weir.Stream[item]) weir.Stream[item] {
	return func(_ *dataflow, n *node, in []weir.Stream[item]) weir.Stream[item] {
		return weir.Aggregate(weir.Window(weir.KeyBy(in[0], (*item).key), windows), n.uid(), itemSum{})
	}
}

// windowOperator adds up windows of one size.
func windowOperator(name string, size, slide time.Duration) operator {
	return operator{
		name: name, ins: 1, build: aggregated(weir.Sliding(size, slide)),
		model: func(_ *dataflow, in [][]item) []item {
			var all []item
			for _, v := range in[0] {
				for begin := v.At.Truncate(slide); begin > v.At-size; begin -= slide {
					all = append(all, item{Key: v.Key, N: v.N, At: begin + size - time.Microsecond})
				}
			}
			return summed(all)
		},
	}
}

// sessionOperator adds up sessions.
func sessionOperator() operator {
	const gap = 3 * time.Second
	return operator{
		name: "session", ins: 1, build: aggregated(weir.Session(gap)),
		model: func(_ *dataflow, in [][]item) (all []item) {
			byKey := map[int][]item{}
			for _, v := range in[0] {
				byKey[v.Key] = append(byKey[v.Key], v)
			}
			for key, rows := range byKey {
				slices.SortFunc(rows, func(a, b item) int { return cmp.Compare(a.At, b.At) })
				sum := item{Key: key}
				for i, v := range rows {
					sum.N, sum.At = sum.N+v.N, v.At+gap-time.Microsecond
					if i+1 == len(rows) || rows[i+1].At >= v.At+gap {
						all = append(all, sum)
						sum.N = 0
					}
				}
			}
			return all
		},
	}
}

// waiting is an item that waits for the wall clock.
type waiting struct {
	V   item
	Due int64 // microseconds
}

// clockOperator hands on each item by the wall clock, once.
func clockOperator() operator {
	return operator{
		name: "clock", ins: 1, last: true,
		build: keyed(func() *steps {
			var list weir.ListState[waiting]
			return &steps{
				open: func(o *weir.OpenContext[int]) (err error) {
					list, err = weir.NewListState[waiting](o, "waiting", nil)
					return err
				},
				process: func(ctx *weir.Context[int], v *item, _ *weir.Out[item]) error {
					due := ctx.Now().Add(time.Duration(1+v.N%20) * 200 * time.Millisecond)
					ctx.SetProcessingTimer(due)
					return list.Append(waiting{*v, due.UnixMicro()})
				},
				timer: func(ctx *weir.Context[int], out *weir.Out[item]) error {
					out.Emit(item{Key: ctx.Key(), Tag: fmt.Sprint("fired at ", ctx.TimerTime())})
					all := slices.Collect(list.All())
					list.Clear()
					for _, w := range all {
						if w.Due <= ctx.TimerTime().UnixMicro() {
							out.EmitAt(w.V, w.V.eventTime())
						} else if err := list.Append(w); err != nil {
							return err
						}
					}
					return nil
				},
			}
		}),
		check: func(in, out []item) error {
			fired := map[item]bool{}
			var handed []item
			for _, v := range out {
				if v.Tag == "" {
					handed = append(handed, v)
					continue
				}
				v.At = 0 // event time when it fired
				if fired[v] {
					return fmt.Errorf("the timer of key %d %s twice", v.Key, v.Tag)
				}
				fired[v] = true
			}
			if got, want := lines(handed), lines(in); !slices.Equal(got, want) {
				return fmt.Errorf("handed on %q, want %q", got, want)
			}
			return nil
		},
	}
}

// orderOperator keeps all items in a list and the last ones in a map, and tells in the end what it has kept.
func orderOperator() operator {
	theEnd := start.Add(1000 * time.Hour)
	return operator{
		name: "order", ins: 1, last: true,
		build: keyed(func() *steps {
			var list weir.ListState[item]
			var last weir.MapState[int, item]
			return &steps{
				open: func(o *weir.OpenContext[int]) (err error) {
					if list, err = weir.NewListState[item](o, "list", nil); err != nil {
						return err
					}
					last, err = weir.NewMapState[int, item](o, "last", nil)
					return err
				},
				process: func(ctx *weir.Context[int], v *item, out *weir.Out[item]) error {
					ctx.SetTimer(theEnd)
					w := *v
					w.Tag = fmt.Sprintf("came %04d", list.Len())
					out.Emit(w)
					return errors.Join(list.Append(w), remember(&w, last.Delete, last.Put))
				},
				timer: func(_ *weir.Context[int], out *weir.Out[item]) error {
					i := 0
					for v := range list.All() {
						v.Tag = fmt.Sprintf("list %04d, %s", i, v.Tag)
						out.Emit(v)
						i++
					}
					i = 0
					for name, v := range last.All() {
						v.Tag = fmt.Sprintf("map %04d, %d, %s", i, name, v.Tag)
						out.Emit(v)
						i++
					}
					return nil
				},
			}
		}),
		check: checkOrder,
	}
}

// remember keeps an item in a map, and forgets others.
func remember(v *item, forget func(int), put func(int, item) error) error {
	if v.N%4 == 3 {
		forget(v.Key + v.N/4%3)
		return nil
	}
	return put(v.Key+v.N%3, *v)
}

// checkOrder does again what came, in the order in which it came.
func checkOrder(in, out []item) error {
	var came, want, kept []item
	for _, v := range out {
		if strings.HasPrefix(v.Tag, "came") {
			came = append(came, v)
		} else {
			kept = append(kept, v)
		}
	}
	slices.SortFunc(came, func(a, b item) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Tag, b.Tag))
	})
	lists, names, last := map[int]int{}, map[int][]int{}, map[[2]int]item{}
	bare := make([]item, 0, len(came))
	for _, v := range came {
		key := v.Key
		forget := func(name int) {
			names[key] = slices.DeleteFunc(names[key], func(n int) bool { return n == name })
		}
		err := remember(&v, forget, func(name int, v item) error {
			if !slices.Contains(names[key], name) {
				names[key] = append(names[key], name)
			}
			last[[2]int{key, name}] = v
			return nil
		})
		if err != nil {
			return err
		}
		w := v
		w.Tag = fmt.Sprintf("list %04d, %s", lists[key], v.Tag)
		want = append(want, w)
		lists[key]++
		v.Tag = ""
		bare = append(bare, v)
	}
	for key, all := range names {
		for i, name := range all {
			v := last[[2]int{key, name}]
			v.Tag = fmt.Sprintf("map %04d, %d, %s", i, name, v.Tag)
			want = append(want, v)
		}
	}
	if got, all := lines(bare), lines(in); !slices.Equal(got, all) {
		return fmt.Errorf("came %q, want %q", got, all)
	}
	if got, all := lines(kept), lines(want); !slices.Equal(got, all) {
		return fmt.Errorf("kept %q, want %q", got, all)
	}
	return nil
}
