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

// span is what the jobs of this test write: the sum of a tenant's window, or that it is taken back.
type span struct {
	Tenant     string
	Start, End time.Time
	Sum        int
	Revision   int
	Gone       bool
}

func (s span) String() string {
	return fmt.Sprintf("%s %s-%s %d #%d %t", s.Tenant, s.Start.Format("04:05"), s.End.Format("04:05"), s.Sum, s.Revision, s.Gone)
}

type spans struct{}

func (spans) Add(acc *int, e *event) error { *acc += e.N; return nil }
func (spans) Fire(w *weir.WindowContext[string], acc *int, out *weir.Out[span]) error {
	out.Emit(span{w.Key, w.Start, w.End, *acc, w.Revision, false})
	return nil
}
func (spans) Merge(into, from *int) error { *into += *from; return nil }
func (spans) Retract(w *weir.WindowContext[string], out *weir.Out[span]) error {
	out.Emit(span{w.Key, w.Start, w.End, 0, w.Revision, true})
	return nil
}

// spanned is a job over windows, with what is outside of it.
type spanned struct {
	*world
	windows  weir.Windows
	lateness time.Duration
	sink     *weirtest.Sink[span]
	byBytes  bool
}

func newSpanned(t *testing.T, windows weir.Windows, lateness time.Duration) *spanned {
	return &spanned{newWorld(t, 2), windows, lateness, weirtest.NewSink[span](connector.ExactlyOnce), false}
}

// keyed keys the events by their tenant: by the string or, which is to make no difference, by its bytes.
func (s *spanned) keyed(j *weir.Job) weir.KeyedStream[string, event] {
	if s.byBytes {
		return weir.KeyByBytes(s.events(j), func(dst []byte, e *event) []byte { return append(dst, e.Tenant...) })
	}
	return weir.KeyBy(s.events(j), (*event).tenant)
}

func (s *spanned) job(parallelism int) *weir.Job {
	j := weir.NewJob("spans", s.config(parallelism))
	late := weir.NewSideOutput[event]("late")
	all := weir.Aggregate(weir.Window(s.keyed(j), s.windows,
		weir.AllowedLateness(s.lateness), weir.LateTo(late)), "spans", spans{})
	weir.SinkTo(all, "sink", s.sink)
	weir.SinkTo(weir.Side(all, late), "sink-late", s.late)
	return j
}

// final is what a consumer is left with that keys results by the bounds of their windows.
func (s *spanned) final(t *testing.T) map[string]int {
	sums, revisions := map[string]int{}, map[string]int{}
	for _, r := range s.sink.Rows() {
		key := fmt.Sprint(r.Tenant, r.Start.Format(" 15:04:05 "), r.End.Format("15:04:05"))
		if r.Gone {
			require.Equal(t, revisions[key], r.Revision, "%s is taken back, and was not written", key)
			require.Contains(t, sums, key)
			delete(sums, key)
			continue
		}
		require.Greater(t, r.Revision, revisions[key], key)
		sums[key], revisions[key] = r.Sum, r.Revision
	}
	return sums
}

// sessionsOf computes the sessions of a set of events.
func sessionsOf(events []event, gap time.Duration) map[string]int {
	slices.SortFunc(events, func(a, b event) int { return a.At.Compare(b.At) })
	type session struct {
		start, end time.Time
		sum        int
	}
	open, all := map[string]session{}, map[string]int{}
	close := func(tenant string, s session) {
		all[fmt.Sprint(tenant, s.start.Format(" 15:04:05 "), s.end.Format("15:04:05"))] = s.sum
	}
	for _, e := range events {
		s, ok := open[e.Tenant]
		if !ok || !e.At.Before(s.end) {
			if ok {
				close(e.Tenant, s)
			}
			s = session{start: e.At}
		}
		s.end, s.sum = e.At.Add(gap), s.sum+e.N
		open[e.Tenant] = s
	}
	for tenant, s := range open {
		close(tenant, s)
	}
	return all
}

// Killed at any moments, with sessions open, fired and merged, a job of sessions leaves its consumer with
// those of the set of records that were not late.
func TestSessionsAreThoseOfTheRecordsWheneverTheJobIsKilled(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			random := newRandom(seed)
			lateness := time.Duration(seed%3) * 20 * time.Second
			s, parallelism := newSpanned(t, weir.Session(15*time.Second), lateness), []int{1, 2, 3}[seed%3]
			s.byBytes = seed%2 == 1
			var written []event
			for i := range 15 {
				r := weirtest.Start(t, s.job(parallelism))
				for range random.IntN(12) {
					late := time.Duration(random.IntN(4)*random.IntN(4)) * 3 * time.Second
					e := at(time.Duration(i*30+random.IntN(30))*time.Second-late, string(rune('a'+random.IntN(4))), 1+random.IntN(99))
					s.source.Add(random.IntN(2), e)
					written = append(written, e)
				}
				time.Sleep(time.Duration(random.IntN(2500)) * time.Millisecond)
				r.Kill()
			}
			s.source.AdvanceTo(start.Add(time.Hour))
			r := weirtest.Start(t, s.job(parallelism))
			time.Sleep(10 * time.Second)
			_, err := r.Stop()
			require.NoError(t, err)
			for _, e := range s.late.Rows() {
				i := slices.Index(written, e)
				require.GreaterOrEqual(t, i, 0)
				written = slices.Delete(written, i, i+1)
			}
			require.Equal(t, sessionsOf(written, 15*time.Second), s.final(t), "seed %d", seed)
			if lateness == 0 {
				for _, row := range s.sink.Rows() {
					require.Equal(t, 1, row.Revision, "without lateness a session fires once")
				}
			}
		})
	}
}

func TestASessionThatHasFiredAndGrowsIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpanned(t, weir.Session(10*time.Second), time.Minute)
		s.source = weirtest.NewSource[event](1)
		r := weirtest.Start(t, s.job(1))
		s.source.Add(0, at(0, "a", 1), at(12*time.Second, "a", 10), at(40*time.Second, "b", 0)) // to 35 s
		require.Equal(t, []string{"a 00:00-00:10 1 #1 false", "a 00:12-00:22 10 #1 false"}, texts(await(t, s.sink, 2)))
		r.Kill() // both fired
		s.source.Add(0, at(5*time.Second, "a", 100))
		r = weirtest.Start(t, s.job(2))
		require.Equal(t, []string{"a 00:00-00:10 0 #1 true", "a 00:00-00:22 111 #2 false", "a 00:12-00:22 0 #1 true"},
			texts(await(t, s.sink, 5)[2:]))
		s.source.Add(0, at(6*time.Second, "a", 1000))
		require.Equal(t, "a 00:00-00:22 1111 #3 false", await(t, s.sink, 6)[5].String())
		r.Kill()
		s.source.Add(0, at(21*time.Second, "a", 1), at(80*time.Second, "b", 0), at(200*time.Second, "b", 0))
		r = weirtest.Start(t, s.job(1))
		rows := texts(await(t, s.sink, 10)[6:])
		require.Equal(t, []string{
			"a 00:00-00:22 0 #3 true", "a 00:00-00:31 1112 #4 false", "b 00:40-00:50 0 #1 false", "b 01:20-01:30 0 #1 false",
		}, rows)
		r.Kill()
	})
}

// Whatever a session is made of, its revision is higher than all that its parts have shown: a consumer that
// keeps the highest one by the key and the beginning is not left with a part.
func TestAMergedSessionHasAHigherRevisionThanEachOfItsParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpanned(t, weir.Session(10*time.Second), time.Minute)
		s.source = weirtest.NewSource[event](1)
		r := weirtest.Start(t, s.job(1))
		s.source.Add(0, at(0, "a", 1), at(12*time.Second, "a", 10), at(40*time.Second, "b", 0)) // to 35 s
		await(t, s.sink, 2)
		s.source.Add(0, at(0, "a", 100), at(0, "a", 1000))
		require.Equal(t, []string{"a 00:00-00:10 101 #2 false", "a 00:00-00:10 1101 #3 false"}, texts(await(t, s.sink, 4)[2:]))
		r.Kill()
		s.source.Add(0, at(8*time.Second, "a", 10000))
		r = weirtest.Start(t, s.job(2))
		require.Equal(t, []string{
			"a 00:00-00:10 0 #3 true", "a 00:00-00:22 11111 #4 false", "a 00:12-00:22 0 #1 true",
		}, texts(await(t, s.sink, 7)[4:]))
		r.Kill()
	})
}

// silent shows nothing of sums above 100.
type silent struct{ spans }

func (silent) Fire(w *weir.WindowContext[string], acc *int, out *weir.Out[span]) error {
	if *acc > 100 {
		return nil
	}
	return spans{}.Fire(w, acc, out)
}

// Only what was shown is taken back: a session that grew and then showed nothing has nothing to take back when
// it grows again, also behind a restart, and one that shows nothing more with the same bounds still has.
func TestOnlyWhatWasShownIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpanned(t, weir.Session(10*time.Second), time.Minute)
		s.source = weirtest.NewSource[event](1)
		start := func() *weirtest.Running {
			j := weir.NewJob("spans", s.config(1))
			all := weir.Aggregate(weir.Window(s.keyed(j), s.windows,
				weir.AllowedLateness(s.lateness)), "spans", silent{})
			weir.SinkTo(all, "sink", s.sink)
			return weirtest.Start(t, j)
		}
		r := start()
		s.source.Add(0, at(0, "a", 1), at(40*time.Second, "b", 0)) // to 35 s
		require.Equal(t, []string{"a 00:00-00:10 1 #1 false"}, texts(await(t, s.sink, 1)))
		for i, e := range []event{
			at(0, "a", 100),              // shows nothing; what was shown stands
			at(5*time.Second, "a", 0),    // it is taken back, and nothing is shown for the longer one
			at(8*time.Second, "a", 1),    // so nothing is taken back
			at(9*time.Second, "a", -100), // and this one is shown
		} {
			s.source.Add(0, e)
			time.Sleep(1500 * time.Millisecond)
			if i%2 == 0 {
				r.Kill()
				r = start()
			}
		}
		require.Equal(t, []string{
			"a 00:00-00:10 0 #1 true", "a 00:00-00:10 1 #1 false", "a 00:00-00:19 2 #2 false",
		}, texts(s.sink.Rows()))
		r.Kill()
	})
}

func TestEachRecordLiesInEverySlidingWindowAroundIt(t *testing.T) {
	for _, parallelism := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			random := newRandom(uint64(parallelism))
			s := newSpanned(t, weir.Sliding(25*time.Second, 10*time.Second), 0)
			want := map[string]int{}
			for i := range 300 {
				e := at(time.Duration(i)*time.Second, string(rune('a'+random.IntN(3))), 1+random.IntN(9))
				s.source.Add(i%2, e)
				for begin := e.At.Add(-time.Minute).Truncate(10 * time.Second); !begin.After(e.At); begin = begin.Add(10 * time.Second) {
					if end := begin.Add(25 * time.Second); end.After(e.At) {
						want[fmt.Sprint(e.Tenant, begin.Format(" 15:04:05 "), end.Format("15:04:05"))] += e.N
					}
				}
			}
			s.source.End()
			_, err := weirtest.Start(t, s.job(parallelism)).Wait()
			require.NoError(t, err)
			require.Equal(t, want, s.final(t))
		})
	}
}

// A record that is late for some of its windows is in the others, and is handed out as late only if it is in none.
func TestARecordLateForSomeOfItsWindowsIsInTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpanned(t, weir.Sliding(20*time.Second, 10*time.Second), 0)
		s.source = weirtest.NewSource[event](1)
		s.source.Add(0, at(2*time.Second, "a", 1), at(17*time.Second, "b", 0), at(3*time.Second, "a", 10),
			at(40*time.Second, "b", 0), at(4*time.Second, "a", 100))
		s.source.End()
		_, err := weirtest.Start(t, s.job(1)).Wait()
		require.NoError(t, err)
		final := s.final(t)
		require.Equal(t, 1, final["a 09:59:50 10:00:10"])
		require.Equal(t, 11, final["a 10:00:00 10:00:20"])
		require.Equal(t, []event{at(4*time.Second, "a", 100)}, s.late.Rows())
	})
}

// joined pairs a tenant's name with the number of its events.
type joined struct{ seen weir.Value[event] }

func (j *joined) Open(o *weir.OpenContext[string]) (err error) {
	j.seen, err = weir.NewValue[event](o, "seen", nil)
	return err
}

func (j *joined) put(ctx *weir.Context[string], tenant string, n int) error {
	v, err := j.seen.Put()
	if err != nil {
		return err
	}
	if v.N += n; tenant != "" {
		v.Tenant = tenant
	}
	ctx.SetTimer(start.Add(time.Hour))
	return nil
}

func (j *joined) Process1(ctx *weir.Context[string], e *event, _ *weir.Out[string]) error {
	if !ctx.EventTime().Equal(e.At) {
		return fmt.Errorf("event of %s comes at %s", e.At, ctx.EventTime())
	}
	return j.put(ctx, "", e.N)
}

func (j *joined) Process2(ctx *weir.Context[string], name *string, _ *weir.Out[string]) error {
	return j.put(ctx, *name, 0)
}

func (j *joined) OnTimer(ctx *weir.Context[string], out *weir.Out[string]) error {
	v := j.seen.Get()
	out.Emit(fmt.Sprint(ctx.Key(), " is ", v.Tenant, " with ", v.N))
	return nil
}

// Rows of both inputs meet at their key, in state and timers that they share, whenever the job is killed.
func TestTwoInputsShareStateAndTimers(t *testing.T) {
	for _, parallelism := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			w, names := newWorld(t, 2), weirtest.NewSource[string](1)
			sink := weirtest.NewSink[string](connector.ExactlyOnce)
			build := func() *weir.Job {
				j := weir.NewJob("joined", w.config(parallelism))
				first := weir.From(j, "names", names, weir.EventTime(func(*string) time.Time { return start }, 0))
				both := weir.Connect(weir.KeyBy(weir.Union(w.events(j), w2(j, w)), (*event).tenant),
					weir.KeyBy(first, func(n *string) string { return (*n)[:1] }))
				weir.SinkTo(weir.Process2(both, "join", func() weir.TwoInputProcessor[string, event, string, string] {
					return &joined{}
				}), "sink", sink)
				return j
			}
			for i := range 6 {
				r := weirtest.Start(t, build())
				for _, tenant := range []string{"a", "b", "c"} {
					w.source.Add(i%2, at(time.Duration(i)*time.Second, tenant, 1))
				}
				if i == 3 {
					names.Add(0, "anna", "bert", "carl")
				}
				time.Sleep(1500 * time.Millisecond)
				r.Kill()
			}
			w.source.AdvanceTo(start.Add(2 * time.Hour))
			r := weirtest.Start(t, build())
			time.Sleep(5 * time.Second)
			require.Empty(t, sink.Rows(), "the other stream has not come so far")
			names.AdvanceTo(start.Add(2 * time.Hour))
			rows := await(t, sink, 3)
			slices.Sort(rows)
			require.Equal(t, []string{"a is anna with 12", "b is bert with 12", "c is carl with 12"}, rows)
			r.Kill()
		})
	}
}

// w2 reads the events a second time.
func w2(j *weir.Job, w *world) weir.Stream[event] {
	return weir.From(j, "events again", w.source, weir.EventTime((*event).eventTime, 5*time.Second))
}
