package weir_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir"
	"example.com/weir/connector"
	"example.com/weir/weirtest"
)

// events adds a source of events to a job.
func (w *world) events(j *weir.Job) weir.Stream[event] {
	return weir.From(j, "events", w.source, weir.EventTime((*event).eventTime, 5*time.Second))
}

func keep[T any](v *T) (T, error) { return *v, nil }

// delayed hands each event on, at its own time, 10 seconds of event time later.
type delayed struct{ held weir.Value[event] }

func (d *delayed) Open(o *weir.OpenContext[int]) (err error) {
	d.held, err = weir.NewValue[event](o, "held", nil)
	return err
}

func (d *delayed) Process(ctx *weir.Context[int], e *event, _ *weir.Out[event]) error {
	held, err := d.held.Put()
	if err != nil {
		return err
	}
	*held = *e
	ctx.SetTimer(e.At.Add(10 * time.Second))
	return nil
}

func (d *delayed) OnTimer(_ *weir.Context[int], out *weir.Out[event]) error {
	e := d.held.Get()
	out.EmitAt(*e, e.At)
	d.held.Clear()
	return nil
}

// halves sends every second event to a side output.
type halves struct{ odd *weir.SideOutput[event] }

func (halves) Open(*weir.OpenContext[string]) error { return nil }
func (h halves) Process(ctx *weir.Context[string], e *event, out *weir.Out[event]) error {
	if e.N%2 == 1 {
		weir.EmitSide(ctx, h.odd, *e)
	} else {
		out.Emit(*e)
	}
	return nil
}
func (halves) OnTimer(*weir.Context[string], *weir.Out[event]) error { return nil }

// spreads are ways from a source to a keyed operator that change nothing of what it computes.
func spreads() map[string]func(weir.Stream[event]) weir.Stream[event] {
	return map[string]func(weir.Stream[event]) weir.Stream[event]{
		"direct": func(s weir.Stream[event]) weir.Stream[event] { return s },
		"rebalanced": func(s weir.Stream[event]) weir.Stream[event] {
			return weir.Map(weir.Rebalance(s), "spread", keep)
		},
		"rebalanced twice": func(s weir.Stream[event]) weir.Stream[event] {
			return weir.Map(weir.Rebalance(weir.Map(weir.Rebalance(s), "spread", keep)), "again", keep)
		},
		"united halves": func(s weir.Stream[event]) weir.Stream[event] {
			odd := weir.NewSideOutput[event]("odd")
			even := weir.Process(weir.KeyBy(s, (*event).tenant), "halves",
				func() weir.Processor[string, event, event] { return halves{odd} })
			return weir.Union(even, weir.Side(even, odd))
		},
	}
}

// What is late, and what a timer emits is judged by, depends on the order of the records alone: not on how
// many subtasks there are, nor on how rows get to them.
func TestEveryExchangeKeepsWhatIsLate(t *testing.T) {
	var want []string
	for _, parallelism := range []int{1, 2, 4} {
		for name, spread := range spreads() {
			if name != "direct" && want == nil {
				continue
			}
			got := judged(t, parallelism, spread)
			if want == nil {
				want = got
				late := slices.IndexFunc(want, func(s string) bool { return s[0] != 'l' })
				require.Greater(t, late, 10, "some are late")
				require.Greater(t, len(want)-late, 10, "some are not")
			}
			require.Equal(t, want, got, "%s, parallelism %d", name, parallelism)
		}
	}
	for name, spread := range spreads() {
		require.Equal(t, want, judged(t, 1, spread), name)
	}
}

// judged runs random events of one split through timers and windows, and tells which were late.
func judged(t *testing.T, parallelism int, spread func(weir.Stream[event]) weir.Stream[event]) (all []string) {
	synctest.Test(t, func(t *testing.T) {
		w, random := newWorld(t, 1), newRandom(7)
		for i := range 400 {
			offset := time.Duration(i*3+random.IntN(4)*random.IntN(4)-8) * time.Second
			w.source.Add(0, at(offset, string(rune('a'+random.IntN(9))), i))
		}
		w.source.End()
		late := weir.NewSideOutput[event]("late")
		j := weir.NewJob("judged", w.config(parallelism))
		held := weir.Process(weir.KeyBy(spread(w.events(j)), func(e *event) int { return e.N }), "delay",
			func() weir.Processor[int, event, event] { return &delayed{} })
		sums := weir.Aggregate(weir.Window(weir.KeyBy(held, (*event).tenant),
			weir.Tumbling(7*time.Second), weir.AllowedLateness(3*time.Second), weir.LateTo(late)), "sum", sum{})
		weir.SinkTo(sums, "sink-minutes", w.minutes)
		weir.SinkTo(weir.Side(sums, late), "sink-late", w.late)
		_, err := weirtest.Start(t, j).Wait()
		require.NoError(t, err)
		final := map[string]int{} // the number of firings is not fixed, the last one is
		for _, m := range w.minutes.Rows() {
			final["sum "+m.Tenant+m.End.Format(" 15:04:05")] = m.Sum
		}
		for key, v := range final {
			all = append(all, fmt.Sprint(key, " ", v))
		}
		for _, e := range w.late.Rows() {
			all = append(all, fmt.Sprint("late ", e.N))
		}
		slices.Sort(all)
	})
	return all
}

func TestEachExchangeBringsEachRowAsOftenAsItSays(t *testing.T) {
	for _, c := range []struct {
		name   string
		spread func(weir.Stream[event]) weir.Stream[event]
		times  func(parallelism int) int
	}{
		{"rebalance", weir.Rebalance[event], func(int) int { return 1 }},
		{"broadcast", weir.Broadcast[event], func(p int) int { return p }},
		{"union", func(s weir.Stream[event]) weir.Stream[event] { return weir.Union(s, s, s) }, func(int) int { return 3 }},
		{"all three", func(s weir.Stream[event]) weir.Stream[event] {
			return weir.Union(s, weir.Broadcast(s), weir.Rebalance(s))
		}, func(p int) int { return p + 2 }},
		{"keyed union", func(s weir.Stream[event]) weir.Stream[event] {
			return weir.Process(weir.KeyBy(weir.Union(s, s), (*event).tenant), "halves",
				func() weir.Processor[string, event, event] { return halves{weir.NewSideOutput[event]("no row")} })
		}, func(int) int { return 2 }},
	} {
		for _, parallelism := range []int{1, 3} {
			t.Run(fmt.Sprint(c.name, parallelism), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, 2)
					for i := range 1000 {
						w.source.Add(i%2, at(time.Duration(i)*time.Second, "a", 2*i))
					}
					w.source.End()
					j := weir.NewJob("spread", w.config(parallelism))
					weir.SinkTo(c.spread(w.events(j)), "sink", w.late)
					_, err := weirtest.Start(t, j).Wait()
					require.NoError(t, err)
					seen := map[int]int{}
					for _, e := range w.late.Rows() {
						seen[e.N]++
					}
					require.Len(t, seen, 1000)
					for n, times := range seen {
						require.Equal(t, c.times(parallelism), times, n)
					}
				})
			})
		}
	}
}

// A broadcast row comes to each subtask, and each subtask that spreads rows begins with another one: few rows of
// many splits would otherwise all go the same way.
func TestRowsReachEverySubtaskThatTheyShould(t *testing.T) {
	for name, c := range map[string]struct {
		spread func(weir.Stream[event]) weir.Stream[event]
		each   int64
	}{"broadcast": {weir.Broadcast[event], 3}, "rebalance": {weir.Rebalance[event], 1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 3)
				for split := range 3 {
					w.source.Add(split, at(0, "a", split))
				}
				j := weir.NewJob("spread", w.config(3))
				weir.SinkTo(weir.Map(c.spread(w.events(j)), "keep", keep), "sink", w.late)
				r := weirtest.Start(t, j)
				time.Sleep(2 * time.Second)
				for _, o := range r.Status().Operators {
					for _, s := range o.Subtasks {
						if o.UID == "keep" {
							require.Equal(t, c.each, s.RecordsIn, "subtask %d", s.Index)
						}
					}
				}
				r.Kill()
			})
		})
	}
}

// A union goes on when one of its streams has ended, and does not run ahead of one that has not.
func TestUnionOfAnEndlessAndABoundedStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		history := weirtest.NewSource[event](1)
		history.Add(0, at(0, "a", 1), at(time.Minute, "a", 10))
		history.End()
		build := func() *weir.Job {
			j := weir.NewJob("union", w.config(2))
			old := weir.From(j, "history", history, weir.EventTime((*event).eventTime, 5*time.Second))
			minutes := weir.Aggregate(weir.Window(weir.KeyBy(weir.Union(old, w.events(j)), (*event).tenant),
				weir.Tumbling(time.Minute)), "sum", sum{})
			weir.SinkTo(minutes, "sink-minutes", w.minutes)
			return j
		}
		r := weirtest.Start(t, build())
		time.Sleep(5 * time.Second)
		require.Empty(t, w.minutes.Rows(), "the history has ended, and the other stream may begin anywhere")
		w.source.Add(0, at(30*time.Second, "a", 2), at(66*time.Second, "b", 100))
		require.Equal(t, []string{"a 10:01 3 #1"}, texts(await(t, w.minutes, 1)))
		r.Kill()
		r = weirtest.Start(t, build())
		w.source.Add(0, at(70*time.Second, "a", 20), at(3*time.Minute, "b", 100))
		require.Equal(t, []string{"a 10:01 3 #1", "a 10:02 30 #1", "b 10:02 100 #1"}, texts(await(t, w.minutes, 3)))
		r.Kill()
	})
}

// Whatever the moments at which a job of unions and exchanges is killed, each event counts as often as it was
// written.
func TestUnionsCountOnceWheneverTheJobIsKilled(t *testing.T) {
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			random := newRandom(seed)
			w, other := newWorld(t, 2), weirtest.NewSource[event](3)
			parallelism := []int{1, 2, 3}[seed%3]
			build := func() *weir.Job {
				j := weir.NewJob("union", w.config(parallelism))
				more := weir.From(j, "other", other, weir.EventTime((*event).eventTime, 5*time.Second))
				all := weir.Union(weir.Rebalance(w.events(j)), more, weir.Filter(more, "few", func(e *event) (bool, error) {
					return e.N%3 == 0, nil
				}))
				minutes := weir.Aggregate(weir.Window(weir.KeyBy(weir.Map(all, "keep", keep), (*event).tenant),
					weir.Tumbling(time.Minute), weir.AllowedLateness(time.Hour)), "sum", sum{})
				weir.SinkTo(minutes, "sink-minutes", w.minutes)
				return j
			}
			want := map[string]int{}
			for i := range 12 {
				r := weirtest.Start(t, build())
				for range random.IntN(30) {
					e := at(time.Duration(i*4+random.IntN(4))*time.Second, string(rune('a'+random.IntN(5))), 1+random.IntN(9))
					key := e.Tenant + " " + e.At.Truncate(time.Minute).Add(time.Minute).Format("15:04")
					if random.IntN(2) == 0 {
						w.source.Add(random.IntN(2), e)
						want[key] += e.N
						continue
					}
					other.Add(random.IntN(3), e)
					if want[key] += e.N; e.N%3 == 0 {
						want[key] += e.N
					}
				}
				time.Sleep(time.Duration(random.IntN(2500)) * time.Millisecond)
				r.Kill()
			}
			w.source.AdvanceTo(start.Add(24 * time.Hour))
			other.AdvanceTo(start.Add(24 * time.Hour))
			r := weirtest.Start(t, build())
			time.Sleep(10 * time.Second)
			_, err := r.Stop()
			require.NoError(t, err)
			got := map[string]int{}
			for _, m := range w.minutes.Rows() {
				got[m.Tenant+" "+m.End.Format("15:04")] = m.Sum
			}
			require.Equal(t, want, got)
		})
	}
}

// counted is how often an event has been seen.
type counted struct{ N, Times int }

// tally counts each event in keyed state.
type tally struct{ seen weir.Value[int] }

func (c *tally) Open(o *weir.OpenContext[int]) (err error) {
	c.seen, err = weir.NewValue[int](o, "seen", nil)
	return err
}

func (c *tally) Process(ctx *weir.Context[int], _ *event, out *weir.Out[counted]) error {
	n, err := c.seen.Put()
	if err != nil {
		return err
	}
	*n++
	out.Emit(counted{ctx.Key(), *n})
	return nil
}
func (c *tally) OnTimer(*weir.Context[int], *weir.Out[counted]) error { return nil }

// committing is a sink that shows rows behind a checkpoint, and promises no more than at-least-once.
type committing[T any] struct{ *weirtest.Sink[T] }

func (committing[T]) Guarantee() connector.Guarantee { return connector.AtLeastOnce }

// In at-least-once mode a record counts twice in state if it comes between the barriers of two inputs:
//
//	a checkpoint begins; the barrier passes input A; input B is held up before its own;
//	record 7 comes on A and is counted; B's barrier comes, and the snapshot has 7 in it;
//	the job dies, and A goes on from a position before 7.
//
// Aligned, A waits. And without state behind several inputs there is nothing to count it twice.
func TestOnlyWithoutAlignmentARecordCountsTwiceAndOnlyBehindSeveralInputs(t *testing.T) {
	for _, c := range []struct {
		name  string
		mode  weir.Mode
		keyed bool
		want  []counted
	}{
		{"at-least-once", weir.AtLeastOnce, true, []counted{{2, 1}, {7, 1}, {7, 2}}},
		{"exactly-once", weir.ExactlyOnce, true, []counted{{2, 1}, {7, 1}}},
		{"at-least-once, map and filter", weir.AtLeastOnce, false, []counted{{2, 0}, {7, 0}}},
		{"exactly-once, map and filter", weir.ExactlyOnce, false, []counted{{2, 0}, {7, 0}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &modes{world: newWorld(t, 1), mode: c.mode, keyed: c.keyed}
				require.Equal(t, c.want, m.restored(t))
			})
		})
	}
}

// modes is a job over two sources, one of which can be held up.
type modes struct {
	*world
	mode   weir.Mode
	accept bool // what counts twice
	keyed  bool
	other  *weirtest.Source[event]
	hold   chan struct{}
	sink   committing[counted]
}

func (m *modes) job() *weir.Job {
	cfg := m.config(1)
	cfg.Checkpoint.Mode, cfg.Checkpoint.Interval = m.mode, 10*time.Second
	cfg.Restore.AcceptDuplicates = m.accept
	j := weir.NewJob("modes", cfg)
	b := weir.From(j, "other", m.other, weir.EventTime((*event).eventTime, 0))
	held := weir.Map(b, "hold", func(e *event) (event, error) { <-m.hold; return *e, nil })
	zero := func(e *event) (counted, error) { return counted{N: e.N}, nil }
	if m.keyed {
		counts := weir.Process(weir.KeyBy(weir.Union(m.events(j), held), func(e *event) int { return e.N }), "count",
			func() weir.Processor[int, event, counted] { return &tally{} })
		weir.SinkTo(counts, "sink", m.sink)
		return j
	}
	all := func(*event) (bool, error) { return true, nil }
	weir.SinkTo(weir.Map(weir.Filter(m.events(j), "all", all), "zero", zero), "sink", m.sink)
	weir.SinkTo(weir.Map(held, "zero-b", zero), "sink-b", m.sink)
	return j
}

func (m *modes) restored(t *testing.T) []counted {
	m.other, m.hold = weirtest.NewSource[event](1), make(chan struct{})
	m.sink = committing[counted]{weirtest.NewSink[counted](connector.ExactlyOnce)}
	r := weirtest.Start(t, m.job())
	time.Sleep(time.Second) // the first checkpoint is behind
	m.other.Add(0, at(0, "b", 2))
	time.Sleep(10 * time.Second) // input A has delivered the barrier of the second one
	m.source.Add(0, at(0, "a", 7))
	time.Sleep(time.Second)
	close(m.hold)
	time.Sleep(time.Second)
	r.Kill()
	r = weirtest.Start(t, m.job())
	time.Sleep(30 * time.Second)
	r.Kill()
	rows := m.sink.Rows()
	slices.SortFunc(rows, func(a, b counted) int { return (a.N-b.N)*10 + a.Times - b.Times })
	return rows
}

// State that may count records twice is not taken for exact in silence: a job that is to be exactly-once from
// now on refuses it, unless the last barrier was behind every record, or the user accepts it by name.
func TestAnExactJobDoesNotGoOnFromACheckpointThatIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &modes{world: newWorld(t, 1), mode: weir.AtLeastOnce, keyed: true}
		m.other, m.hold = weirtest.NewSource[event](1), make(chan struct{})
		m.sink = committing[counted]{weirtest.NewSink[counted](connector.ExactlyOnce)}
		close(m.hold)
		require.NoError(t, m.goesOn(t, weir.AtLeastOnce, (*weirtest.Running).Kill))
		err := m.goesOn(t, weir.ExactlyOnce, (*weirtest.Running).Kill)
		require.ErrorIs(t, err, weir.ErrIncompatible)
		require.True(t, connector.IsStop(err))
		require.ErrorContains(t, err, "--accept-duplicates")

		require.NoError(t, m.goesOn(t, weir.AtLeastOnce, func(r *weirtest.Running) { r.Stop() }))
		require.NoError(t, m.goesOn(t, weir.ExactlyOnce, (*weirtest.Running).Kill))

		require.NoError(t, m.goesOn(t, weir.AtLeastOnce, (*weirtest.Running).Kill))
		m.accept = true
		require.NoError(t, m.goesOn(t, weir.ExactlyOnce, (*weirtest.Running).Kill))
		m.accept = false
		require.NoError(t, m.goesOn(t, weir.ExactlyOnce, (*weirtest.Running).Kill), "its own checkpoints are exact")
	})
}

// goesOn starts the job in a mode, lets it take checkpoints and ends it. It returns why the job ended before.
func (m *modes) goesOn(t *testing.T, mode weir.Mode, end func(*weirtest.Running)) error {
	m.mode = mode
	r := weirtest.Start(t, m.job())
	time.Sleep(15 * time.Second)
	if st := r.Status(); st.State == "running" {
		end(r)
		return nil
	}
	_, err := r.Wait()
	return err
}

// What is late in a union is judged by the slowest of its streams, however far the stream of a row has come.
func TestUnionIsJudgedByTheSlowestOfItsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, slow := newWorld(t, 1), weirtest.NewSource[event](1)
		j := weir.NewJob("union", w.config(2))
		other := weir.From(j, "slow", slow, weir.EventTime((*event).eventTime, 5*time.Second))
		all := weir.Union(weir.Map(weir.Rebalance(w.events(j)), "fast", keep), weir.Map(weir.Rebalance(other), "keep", keep))
		late := weir.NewSideOutput[event]("late")
		minutes := weir.Aggregate(weir.Window(weir.KeyBy(all, (*event).tenant), weir.Tumbling(time.Minute),
			weir.LateTo(late)), "sum", sum{})
		weir.SinkTo(minutes, "sink-minutes", w.minutes)
		weir.SinkTo(weir.Side(minutes, late), "sink-late", w.late)
		r := weirtest.Start(t, j)
		slow.Add(0, at(0, "a", 1))
		w.source.Add(0, at(0, "a", 10), at(3*time.Hour, "b", 1), at(20*time.Second, "a", 100))
		time.Sleep(10 * time.Second)
		require.Empty(t, w.minutes.Rows())
		slow.Add(0, at(4*time.Hour, "b", 1))
		require.Equal(t, []string{"a 10:01 111 #1"}, texts(await(t, w.minutes, 1)))
		w.source.Add(0, at(3*time.Hour, "b", 1), at(50*time.Second, "a", 1000))
		require.Equal(t, 1000, await(t, w.late, 1)[0].N)
		r.Kill()
	})
}
