package weir_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir"
	"example.com/weir/connector"
	"example.com/weir/weirtest"
)

// The journey of a job: it is stopped, upgraded, taken back to the release before, spread over more subtasks and
// fewer, killed, restored and drained, while it has state of every kind, timers of both clocks and open windows.
// After each step what is there is counted and asked for, and held against an oracle that reads the rows once.

// trip is what the job reads.
type trip struct {
	Key   string
	At    time.Time
	N     int
	Late  bool      // for its minute, which takes it all the same
	Query bool      // asks for the state of the key, and counts as nothing
	Clock time.Time // of a timer in processing time, if not zero
}

func (e *trip) eventTime() time.Time { return e.At }
func (e *trip) key() string          { return e.Key }

// account is what the job keeps of a key. The next release has one field more.
type (
	account     struct{ Rows, Sum int }
	accountNext struct {
		Rows, Sum int
		Max       int // since the upgrade
	}
)

// accounts is the processor of both releases.
type accounts[A any] struct {
	add  func(a *A, e *trip)
	tell func(a *A) string

	value weir.Value[A]
	byN   weir.MapState[int, int]
	all   weir.ListState[int]
}

// end is when a timer of each key fires that only a drain brings about.
var end = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

func (p *accounts[A]) Open(o *weir.OpenContext[string]) (err error) {
	if p.value, err = weir.NewValue[A](o, "account", nil); err != nil {
		return err
	}
	if p.byN, err = weir.NewMapState[int, int](o, "by N", nil); err != nil {
		return err
	}
	p.all, err = weir.NewListState[int](o, "all", nil)
	return err
}

func (p *accounts[A]) Process(ctx *weir.Context[string], e *trip, out *weir.Out[string]) error {
	if e.Query {
		out.Emit(p.state(ctx.Key(), "is"))
		return nil
	}
	if p.value.Peek() == nil {
		ctx.SetTimer(end)
	}
	a, err := p.value.Put()
	if err != nil {
		return err
	}
	p.add(a, e)
	n, _ := p.byN.Get(e.N % 5)
	if e.N%4 == 0 {
		ctx.SetTimer(alarm(e))
	}
	if !e.Clock.IsZero() {
		ctx.SetProcessingTimer(e.Clock)
	}
	return errors.Join(p.byN.Put(e.N%5, n+e.N), p.all.Append(e.N))
}

func alarm(e *trip) time.Time { return e.At.Add(90 * time.Second) }

func (p *accounts[A]) OnTimer(ctx *weir.Context[string], out *weir.Out[string]) error {
	switch {
	case ctx.TimerDomain() == weir.ProcessingTimer:
		out.Emit(fmt.Sprint(ctx.Key(), " clock ", ctx.TimerTime().UnixMicro()))
	case ctx.TimerTime().Equal(end):
		out.Emit(p.state(ctx.Key(), "was"))
	default:
		out.Emit(fmt.Sprint(ctx.Key(), " alarm ", ctx.TimerTime().UnixMicro()))
	}
	return nil
}

func (p *accounts[A]) state(key, verb string) string {
	value := "nothing"
	if a := p.value.Peek(); a != nil {
		value = p.tell(a)
	}
	return tell(key, verb, value, maps.Collect(p.byN.All()), slices.Collect(p.all.All()))
}

func tell(key, verb, value string, byN map[int]int, all []int) string {
	return fmt.Sprint(key, " ", verb, " ", value, " ", byN, " ", all)
}

func release1() weir.Processor[string, trip, string] {
	return &accounts[account]{
		add:  func(a *account, e *trip) { a.Rows, a.Sum = a.Rows+1, a.Sum+e.N },
		tell: func(a *account) string { return fmt.Sprint(a.Rows, a.Sum) },
	}
}

func release2() weir.Processor[string, trip, string] {
	return &accounts[accountNext]{
		add:  func(a *accountNext, e *trip) { a.Rows, a.Sum, a.Max = a.Rows+1, a.Sum+e.N, max(a.Max, e.N) },
		tell: func(a *accountNext) string { return fmt.Sprint(a.Rows, a.Sum, " max ", a.Max) },
	}
}

// totals sums windows of both kinds.
type totals struct{}

func (totals) Add(acc *int, e *trip) error { *acc += e.N; return nil }
func (totals) Merge(into, from *int) error { *into += *from; return nil }
func (totals) Fire(w *weir.WindowContext[string], acc *int, out *weir.Out[string]) error {
	out.Emit(total(w.Key, w.Start, w.End, *acc, w.Revision))
	return nil
}

func total(key string, start, end time.Time, sum, revision int) string {
	return fmt.Sprint(key, start.Format(" 15:04:05-"), end.Format("15:04:05 "), sum, " #", revision)
}

const (
	size     = time.Minute
	lateness = 3 * time.Minute
	gap      = 25 * time.Second
)

// journey is a job on its way, and what is outside of it.
type journey struct {
	source *weirtest.Source[trip]
	sinks  map[string]*weirtest.Sink[string]
	disk   string
	oracle *oracle
	job    *weirtest.Running
	leg    int  // stretches of the topic written so far
	late   bool // rows are
	keys   []string
}

func newJourney(t *testing.T) *journey {
	j := &journey{
		source: weirtest.NewSource[trip](4), sinks: map[string]*weirtest.Sink[string]{}, disk: t.TempDir(),
		oracle: newOracle(), late: true,
	}
	for _, name := range []string{"accounts", "minutes", "sessions"} {
		j.sinks[name] = weirtest.NewSink[string](connector.ExactlyOnce)
	}
	for i := range 40 {
		j.keys = append(j.keys, fmt.Sprint("k", i))
	}
	return j
}

// depart runs a release, until it has taken a checkpoint.
func (j *journey) depart(
	t *testing.T, release func() weir.Processor[string, trip, string], parallelism int, more ...weirtest.Option,
) {
	t.Helper()
	j.job = weirtest.Run(t, func(cfg weir.Config) *weir.Job {
		job := weir.NewJob("journey", cfg)
		trips := weir.From(job, "trips", j.source, weir.EventTime((*trip).eventTime, 0))
		rows := weir.Filter(trips, "rows", func(e *trip) (bool, error) { return !e.Query, nil })
		onTime := weir.Filter(rows, "on time", func(e *trip) (bool, error) { return !e.Late, nil })
		accounts := weir.Process(weir.KeyBy(trips, (*trip).key), "accounts", release)
		minutes := weir.Aggregate(weir.Window(weir.KeyBy(rows, (*trip).key), weir.Tumbling(size),
			weir.AllowedLateness(lateness)), "minutes", totals{})
		sessions := weir.Aggregate(weir.Window(weir.KeyBy(onTime, (*trip).key), weir.Session(gap)), "sessions", totals{})
		weir.SinkTo(accounts, "to accounts", j.sinks["accounts"])
		weir.SinkTo(minutes, "to minutes", j.sinks["minutes"])
		weir.SinkTo(sessions, "to sessions", j.sinks["sessions"])
		return job
	}, append(more, weirtest.Storage(j.disk), weirtest.Parallelism(parallelism))...)
	time.Sleep(1500 * time.Millisecond) // of the bubble
}

// goOn runs a release, and holds what it has restored against the oracle before it reads anything new.
func (j *journey) goOn(
	t *testing.T, release func() weir.Processor[string, trip, string], parallelism int, more ...weirtest.Option,
) {
	t.Helper()
	j.depart(t, release, parallelism, more...)
	j.requireThere(t, parallelism)
	j.query()
}

// requireThere holds what was counted at the last barrier against the oracle.
func (j *journey) requireThere(t *testing.T, parallelism int) {
	t.Helper()
	state, timers := map[string]int{}, map[string]int{}
	s := j.job.Status()
	for _, o := range s.Operators {
		if o.Kind != "process" && o.Kind != "window" {
			continue
		}
		require.Len(t, o.Subtasks, parallelism)
		for _, u := range o.Subtasks {
			require.NotZero(t, u.StateKeys, "%s[%d] has no key", o.UID, u.Index)
			require.Zero(t, u.Late, "%s[%d], leg %d", o.UID, u.Index, j.leg)
			state[o.UID] += int(u.StateKeys)
			timers[o.UID] += int(u.Timers)
		}
	}
	o := j.oracle
	require.Equal(t, map[string]int{
		"accounts": o.entries(), "minutes": len(o.openMinutes()), "sessions": o.openSessions(),
	}, state)
	require.GreaterOrEqual(t, timers["sessions"], o.openSessions()) // one that has grown keeps its earlier ones
	delete(timers, "sessions")
	require.Equal(t, map[string]int{"accounts": o.pending(time.Now()), "minutes": o.windowTimers()}, timers)
}

// query asks for the state of each key.
func (j *journey) query() {
	for i, key := range j.keys {
		e := trip{Key: key, At: j.oracle.watermark, Query: true}
		j.source.Add(i%4, e)
		j.oracle.read(e)
	}
	synctest.Wait()
}

// A stretch is two minutes and a half of event time, so that windows and sessions are open at its end, and
// ten seconds by the clock.
const (
	stretch = 150 * time.Second
	rest    = 10 * time.Second
)

// travel lets the job read the next stretch.
func (j *journey) travel() {
	j.write()
	j.arrive()
}

// write writes the next stretch: of each key rows of its split alone, whose times rise.
func (j *journey) write() {
	random := newRandom(uint64(j.leg))
	from := start.Add(time.Duration(j.leg) * stretch)
	splits := make([][]trip, 4)
	for i, key := range j.keys {
		if j.late && i%3 == 0 && j.leg > 0 { // into a minute that has fired
			splits[i%4] = append(splits[i%4], trip{Key: key, At: from.Add(-2 * time.Minute), N: 1000, Late: true})
		}
		for at := from; ; {
			at = at.Add(time.Duration(500+random.IntN(30_000)) * time.Millisecond)
			if !at.Before(from.Add(stretch)) {
				break
			}
			e := trip{Key: key, At: at, N: 1 + random.IntN(99)}
			if e.N%3 == 0 { // in this stretch or one of the next two, and not while anybody counts
				e.Clock = began.Add(time.Duration(j.leg+random.IntN(3))*rest + time.Duration(4e6+random.IntN(5e6))*time.Microsecond)
			}
			splits[i%4] = append(splits[i%4], e)
		}
	}
	for i, rows := range splits {
		slices.SortStableFunc(rows, func(a, b trip) int { return a.At.Compare(b.At) })
		for _, e := range rows {
			j.oracle.read(e)
		}
		j.source.Add(i, rows...)
	}
	j.leg++
}

// arrive lets the job read what there is, moves event time to the end of the stretch, and waits for the clock.
func (j *journey) arrive() {
	synctest.Wait()
	j.oracle.watermark = start.Add(time.Duration(j.leg) * stretch)
	j.source.AdvanceTo(j.oracle.watermark)
	time.Sleep(time.Until(began.Add(time.Duration(j.leg) * rest)))
	synctest.Wait()
}

// halt ends the job. Its consumers have seen by then what the oracle says, and nothing else.
func (j *journey) halt(t *testing.T, parallelism int) {
	t.Helper()
	outcome, err := j.job.Stop()
	require.NoError(t, err)
	require.Equal(t, weir.Stopped, outcome)
	j.requireThere(t, parallelism)
	j.requireSeen(t, j.oracle.seen(time.Now()))
}

func (j *journey) drain(t *testing.T) {
	t.Helper()
	outcome, err := j.job.Drain()
	require.NoError(t, err)
	require.Equal(t, weir.Finished, outcome)
}

func (j *journey) requireSeen(t *testing.T, want map[string][]string) {
	t.Helper()
	for name, rows := range want {
		require.NotEmpty(t, rows, name)
		require.Equal(t, slices.Sorted(slices.Values(rows)), slices.Sorted(slices.Values(j.sinks[name].Rows())), name)
	}
}

func TestAJobLosesNothingOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJourney(t)
		j.source.AdvanceTo(start) // a split that is empty holds nothing back
		j.depart(t, release1, 2)
		j.travel()
		j.halt(t, 2)

		j.oracle.forgetMax() // the upgrade: a field is added
		j.goOn(t, release2, 2)
		j.travel()
		j.halt(t, 2)

		j.oracle.next = false
		j.goOn(t, release1, 2) // back again: a field that this release does not have is ignored
		j.travel()
		j.halt(t, 2)

		j.oracle.forgetMax() // and is in no checkpoint since
		j.goOn(t, release2, 4)
		j.write()
		time.Sleep(1300 * time.Millisecond) // of the bubble: some of it is behind the last checkpoint
		j.job.Kill()
		j.depart(t, release2, 1)
		j.arrive()
		j.halt(t, 1)

		j.goOn(t, release2, 1)
		j.travel()
		j.job.Savepoint(t, "again")
		j.job.Savepoint(t, "here")
		before := j.oracle.seen(time.Now())
		j.job.Kill()
		j.late = false // what is late for a window that fired is so again only where splits are read in step
		j.goOn(t, release2, 3, weirtest.Restore("here"))
		j.travel()
		j.halt(t, 3)

		j.depart(t, release2, 3, weirtest.Restore("again"))
		_, err := j.job.Stop() // it has ended
		require.ErrorIs(t, err, weir.ErrRewind)
		j.goOn(t, release2, 2)
		j.travel()
		j.drain(t)
		all := j.oracle.drained()
		j.requireSeen(t, all)

		// Back to the savepoint, with the results since then a second time, as was accepted by name.
		j.depart(t, release2, 4, weirtest.Restore("again"), func(c *weir.Config) { c.Restore.AcceptDuplicates = true })
		synctest.Wait()
		j.drain(t)
		for name, rows := range all {
			again := slices.Clone(rows)
			for _, r := range before[name] {
				i := slices.Index(again, r)
				require.GreaterOrEqual(t, i, 0)
				again = slices.Delete(again, i, i+1)
			}
			require.NotEmpty(t, again)
			all[name] = slices.Concat(rows, again)
		}
		j.requireSeen(t, all)
	})
}

// oracle reads the rows once, in the order of their keys, and knows what a job has to have and to say.
type oracle struct {
	watermark time.Time
	next      bool // the release at work has Max
	keys      map[string]*known
	minutes   map[minuteOf]*minuteTotal
	sessions  []*sessionTotal
	open      map[string]*sessionTotal // the last of each key
	alarms    map[string]time.Time     // by what they say
	clocks    map[string]time.Time
	said      []string // answers
	fired     []string // minutes that late rows fired
}

type known struct {
	rows, sum, max int
	byN            map[int]int
	all            []int
}

type minuteOf struct {
	key string
	end time.Time
}

type minuteTotal struct {
	minuteOf
	sum, revision int
	first         string // what the first firing says, once all that is on time has been read
}

type sessionTotal struct {
	key        string
	start, end time.Time
	sum        int
}

func newOracle() *oracle {
	return &oracle{
		watermark: start, keys: map[string]*known{}, minutes: map[minuteOf]*minuteTotal{},
		open: map[string]*sessionTotal{}, alarms: map[string]time.Time{}, clocks: map[string]time.Time{},
	}
}

// forgetMax begins the release that has Max, over checkpoints that do not.
func (o *oracle) forgetMax() {
	o.next = true
	for _, k := range o.keys {
		k.max = 0
	}
}

func (o *oracle) read(e trip) {
	if e.Query {
		o.said = append(o.said, o.state(e.Key, "is"))
		return
	}
	o.account(e)
	o.minute(e)
	if !e.Late {
		o.session(e)
	}
}

func (o *oracle) account(e trip) {
	k := o.keys[e.Key]
	if k == nil {
		k = &known{byN: map[int]int{}}
		o.keys[e.Key] = k
	}
	k.rows, k.sum, k.max = k.rows+1, k.sum+e.N, max(k.max, e.N)
	k.byN[e.N%5] += e.N
	k.all = append(k.all, e.N)
	if e.N%4 == 0 {
		o.alarms[fmt.Sprint(e.Key, " alarm ", alarm(&e).UnixMicro())] = alarm(&e)
	}
	if !e.Clock.IsZero() {
		o.clocks[fmt.Sprint(e.Key, " clock ", e.Clock.UnixMicro())] = e.Clock
	}
}

func (o *oracle) state(key, verb string) string {
	k := o.keys[key]
	value := fmt.Sprint(k.rows, k.sum)
	if o.next {
		value += fmt.Sprint(" max ", k.max)
	}
	return tell(key, verb, value, k.byN, k.all)
}

func (o *oracle) minute(e trip) {
	of := minuteOf{e.Key, e.At.Truncate(size).Add(size)}
	w := o.minutes[of]
	if w == nil {
		w = &minuteTotal{minuteOf: of}
		o.minutes[of] = w
	}
	w.sum += e.N
	if e.Late || w.revision == 0 {
		w.revision++
	}
	text := total(e.Key, of.end.Add(-size), of.end, w.sum, w.revision)
	if e.Late {
		o.fired = append(o.fired, text)
	} else {
		w.first = text
	}
}

func (o *oracle) session(e trip) {
	s := o.open[e.Key]
	if s == nil || !e.At.Before(s.end) {
		s = &sessionTotal{key: e.Key, start: e.At}
		o.open[e.Key], o.sessions = s, append(o.sessions, s)
	}
	s.end, s.sum = e.At.Add(gap), s.sum+e.N
}

// entries is how many entries all states of the accounts have.
func (o *oracle) entries() int {
	n := 0
	for _, k := range o.keys {
		n += 1 + len(k.byN) + len(k.all)
	}
	return n
}

// pending is how many timers the accounts have: those that wait, and one for the end of each key.
func (o *oracle) pending(now time.Time) int {
	n := len(o.keys)
	for _, at := range o.alarms {
		if at.After(o.watermark) {
			n++
		}
	}
	for _, at := range o.clocks {
		if at.After(now) {
			n++
		}
	}
	return n
}

func (o *oracle) openMinutes() []*minuteTotal {
	var open []*minuteTotal
	for _, w := range o.minutes {
		if w.end.Add(lateness).After(o.watermark) {
			open = append(open, w)
		}
	}
	return open
}

// windowTimers is how many timers the minutes have: for the closing of each, and for each firing ahead.
func (o *oracle) windowTimers() int {
	open := o.openMinutes()
	n := len(open)
	for _, w := range open {
		if w.end.After(o.watermark) {
			n++
		}
	}
	return n
}

func (o *oracle) openSessions() int {
	n := 0
	for _, s := range o.open {
		if s.end.After(o.watermark) {
			n++
		}
	}
	return n
}

// seen is what consumers have seen of a job that has read everything and taken a checkpoint.
func (o *oracle) seen(now time.Time) map[string][]string {
	seen := map[string][]string{"accounts": slices.Clone(o.said), "minutes": slices.Clone(o.fired)}
	for text, at := range o.alarms {
		if !at.After(o.watermark) {
			seen["accounts"] = append(seen["accounts"], text)
		}
	}
	for text, at := range o.clocks {
		if !at.After(now) {
			seen["accounts"] = append(seen["accounts"], text)
		}
	}
	for _, w := range o.minutes {
		if w.first != "" && !w.end.After(o.watermark) {
			seen["minutes"] = append(seen["minutes"], w.first)
		}
	}
	for _, s := range o.sessions {
		if !s.end.After(o.watermark) {
			seen["sessions"] = append(seen["sessions"], total(s.key, s.start, s.end, s.sum, 1))
		}
	}
	return seen
}

// drained is what they have seen in the end.
func (o *oracle) drained() map[string][]string {
	o.watermark = end
	seen := o.seen(end)
	for key := range o.keys {
		seen["accounts"] = append(seen["accounts"], o.state(key, "was"))
	}
	return seen
}
