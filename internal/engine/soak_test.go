package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/weir/connector"
	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/engine"
	"example.com/weir/internal/protocol"
	"example.com/weir/weirtest"
)

// visit is what the soak's job reads. A visit can come again: soon, and it is the same one, or long
// after it was forgotten, and it counts as another one.
type visit struct {
	Meter        string
	ID, Copy, N  int
	At           time.Time
	split, times int // where it was written, and how many visits of its ID count so far
}

// counted is a visit on its way: No numbers those of a meter.
type counted struct {
	Meter           string
	ID, Copy, N, No int
	Due             int64 // when it goes on, in event or processing time, µs
}

// span is what a window says of the visits in it.
type span struct {
	Meter      string
	Start, End time.Time
	Sum        int
	Revision   int
}

const (
	soakFor   = 2 * time.Hour
	forgotten = 10 * time.Minute // how long a visit is remembered
	onHold    = 20 * time.Second // how long it waits for its timer
	soakGap   = 12 * time.Second // between two sessions
	soakSize  = time.Minute
	soakSlide = 20 * time.Second
	pinged    = 5 // every fifth visit sets a timer in processing time
)

// doorkeeper lets each visit through once, numbered, when event time has come to the end of its hold, and
// pings for some of them by the wall clock.
type doorkeeper struct {
	faults *mishaps
	pings  *engine.SideOutput[counted]

	seen   engine.Map[int, bool]
	number engine.Value[int]
	held   engine.List[counted]
	due    engine.List[counted]
}

func (d *doorkeeper) Open(o *engine.OpenContext[string]) (err error) {
	if d.seen, err = engine.NewMap[int, bool](o, "seen", nil, engine.TTL(forgotten)); err != nil {
		return err
	}
	if d.number, err = engine.NewValue[int](o, "number", nil, engine.TTL(forgotten)); err != nil {
		return err
	}
	if d.held, err = engine.NewList[counted](o, "held", nil); err != nil {
		return err
	}
	d.due, err = engine.NewList[counted](o, "due", nil)
	return err
}

func (d *doorkeeper) Process(ctx *engine.Context[string], v *visit, _ *engine.Out[counted]) error {
	if d.faults.befalls("a processor panics") {
		panic("a mishap")
	}
	if _, again := d.seen.Get(v.ID); again {
		return nil
	}
	number, err := d.number.Put()
	if err != nil {
		return err
	}
	*number++
	c := counted{Meter: v.Meter, ID: v.ID, Copy: v.Copy, N: v.N, No: *number}
	if v.ID%pinged == 0 {
		at := ctx.Now().Add(time.Duration(v.ID%30+1) * time.Second)
		c.Due = at.UnixMicro()
		ctx.SetProcessingTimer(at)
		if err := d.due.Append(c); err != nil {
			return err
		}
	}
	at := v.At.Add(onHold)
	c.Due = at.UnixMicro()
	ctx.SetTimer(at)
	return errors.Join(d.held.Append(c), d.seen.Put(v.ID, true))
}

func (d *doorkeeper) OnTimer(ctx *engine.Context[string], out *engine.Out[counted]) error {
	if d.faults.befalls("a timer fails") {
		return errMishap
	}
	list, emit := d.held, out.Emit
	if ctx.TimerDomain() == engine.ProcessingTimer {
		list, emit = d.due, func(c counted) { engine.EmitSide(ctx, d.pings, c) }
	}
	var rest []counted
	for c := range list.All() {
		if c.Due <= ctx.TimerTime().UnixMicro() {
			emit(c)
		} else {
			rest = append(rest, c)
		}
	}
	list.Clear()
	for _, c := range rest {
		if err := list.Append(c); err != nil {
			return err
		}
	}
	return nil
}

type spans struct{}

func (spans) Add(acc *int, c *counted) error { *acc += c.N; return nil }
func (spans) Merge(into, from *int) error    { *into += *from; return nil }
func (spans) Fire(w *engine.WindowContext[string], acc *int, out *engine.Out[span]) error {
	out.Emit(span{Meter: w.Key, Start: w.Start, End: w.End, Sum: *acc, Revision: w.Revision})
	return nil
}

// soak is everything outside of the job, and what is known of each visit.
type soak struct {
	faults   *mishaps
	open     *openings
	random   *rand.Rand
	dir      string
	sources  [2]*weirtest.Source[visit]
	visits   *weirtest.Sink[counted]
	pings    *weirtest.Sink[counted]
	late     *weirtest.Sink[counted]
	windows  *weirtest.Sink[span]
	sessions *weirtest.Sink[span]

	began    time.Time
	restarts int
	lives    int
	counts   []visit // those that count, in order
	ids      []visit // the last visit of each ID that counts
	samples  []sample
}

// sample is what a running job holds.
type sample struct {
	at                    time.Duration
	keys, timers, written int64
	files, bytes          int64
}

func newSoak(dir string, seed uint64) *soak {
	s := &soak{
		faults: newMishaps(), open: &openings{}, random: rand.New(rand.NewPCG(seed, 9)), dir: dir,
		visits:   weirtest.NewSink[counted](connector.ExactlyOnce),
		pings:    weirtest.NewSink[counted](connector.ExactlyOnce),
		late:     weirtest.NewSink[counted](connector.ExactlyOnce),
		windows:  weirtest.NewSink[span](connector.ExactlyOnce),
		sessions: weirtest.NewSink[span](connector.ExactlyOnce),
		began:    time.Now(),
	}
	s.sources = [2]*weirtest.Source[visit]{weirtest.NewSource[visit](3), weirtest.NewSource[visit](2)}
	return s
}

func (s *soak) plan(parallelism int) *engine.Plan {
	p := engine.NewPlan("soak", parallelism, 16)
	var streams []engine.Stream[visit]
	for i, src := range s.sources {
		streams = append(streams, engine.Source(p, fmt.Sprint("visits-", i), mishapSource[visit]{src, s.faults, s.open},
			engine.SourceConfig[visit]{
				EventTime: func(v *visit) time.Time { return v.At }, OutOfOrderness: 5 * time.Second,
			}, &engine.DeadLetters{}))
	}
	pings, late := &engine.SideOutput[counted]{Name: "pings"}, &engine.SideOutput[counted]{Name: "late"}
	visits := engine.Process(engine.KeyBy(engine.Union(streams[0], streams[1]), func(v *visit) string { return v.Meter }),
		"doorkeeper", func() engine.Processor[string, visit, counted] {
			return &doorkeeper{faults: s.faults, pings: pings}
		})
	byMeter := engine.KeyBy(visits, func(c *counted) string { return c.Meter })
	windows := engine.Aggregate(byMeter, "windows",
		engine.WindowConfig[counted]{Size: soakSize, Slide: soakSlide, Late: late}, spans{})
	sessions := engine.Aggregate(byMeter, "sessions", engine.WindowConfig[counted]{Gap: soakGap, Late: late}, spans{})
	engine.Sink(visits, "sink-visits", mishapSink[counted]{s.visits, s.faults, s.open})
	engine.Sink(engine.Side(visits, pings), "sink-pings", mishapSink[counted]{s.pings, s.faults, s.open})
	engine.Sink(engine.Side(windows, late), "sink-late", mishapSink[counted]{s.late, s.faults, s.open})
	engine.Sink(engine.Side(sessions, late), "sink-late-2", mishapSink[counted]{s.late, s.faults, s.open})
	engine.Sink(windows, "sink-windows", mishapSink[span]{s.windows, s.faults, s.open})
	engine.Sink(sessions, "sink-sessions", mishapSink[span]{s.sessions, s.faults, s.open})
	return p
}

// aSecondPasses writes what one second brings, and lets it pass.
func (s *soak) aSecondPasses() {
	now := time.Now()
	for range s.random.IntN(5) {
		v := s.next(now.Add(-time.Duration(s.random.IntN(3000)) * time.Millisecond))
		if v.split < 3 {
			s.sources[0].Add(v.split, v)
		} else {
			s.sources[1].Add(v.split-3, v)
		}
	}
	for _, src := range s.sources {
		src.AdvanceTo(now.Add(-4 * time.Second))
	}
	time.Sleep(time.Second)
}

// next is a new visit, or one that comes again, in the split of the first.
func (s *soak) next(at time.Time) visit {
	if n := len(s.ids); n > 0 && s.random.IntN(20) == 0 {
		v := &s.ids[n-1-s.random.IntN(min(n, 100))]
		if age := at.Sub(v.At); age > 0 && age < 2*time.Minute { // it is known, and does not count
			again := *v
			again.At, again.Copy = at, -1
			return again
		}
	}
	if n := len(s.ids); n > 0 && s.random.IntN(20) == 0 {
		v := &s.ids[s.random.IntN(n)]
		if at.Sub(v.At) > 2*forgotten { // it is forgotten, and counts
			v.times++
			v.At, v.Copy = at, v.times
			s.counts = append(s.counts, *v)
			return *v
		}
	}
	v := visit{ID: len(s.ids), N: 1 + s.random.IntN(9), At: at, split: s.random.IntN(5)}
	v.Meter = fmt.Sprint("meter-", s.random.IntN(16))
	if s.random.IntN(2) == 0 {
		v.Meter = fmt.Sprint("once-", v.ID)
	}
	s.ids, s.counts = append(s.ids, v), append(s.counts, v)
	return v
}

// liveThroughMishaps runs the job for a while, with mishaps, and ends it in one way or another.
func (s *soak) liveThroughMishaps(t *testing.T) {
	store, err := checkpoint.Open("file://"+s.dir, checkpoint.Options{Job: "soak"})
	require.NoError(t, err, "the life before has left the lock")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	control, ended := engine.NewControl(), make(chan error, 1)
	go func() {
		_, err := engine.Run(ctx, s.plan([]int{1, 2, 4}[s.lives%3]), s.config(store), control)
		ended <- err
	}()
	seconds, stop := 60+s.random.IntN(600), s.random.IntN(2) == 0
	for i := 0; i < seconds && len(ended) == 0; i++ {
		if s.random.IntN(25) == 0 {
			s.faults.ask(s.random)
		}
		s.aSecondPasses()
		if i%30 == 29 {
			s.sample(t, control)
		}
	}
	if stop {
		control.Stop(false)
	} else {
		time.Sleep(time.Duration(s.random.IntN(1000)) * time.Millisecond)
		cancel()
	}
	err = <-ended
	require.True(t, err == nil || errors.Is(err, context.Canceled) || errors.Is(err, checkpoint.ErrSwapRefused) ||
		strings.Contains(err.Error(), errMishap.Error()) || errors.Is(err, checkpoint.ErrSwapUnknown), "%v", err) // or a panic
	s.restarts += control.Status().Restarts
	s.lives++
	require.NoError(t, store.Close())
}

func (s *soak) config(store checkpoint.Store) engine.RunConfig {
	cfg := engine.RunConfig{
		Store: &mishapStore{store, s.faults}, Interval: 5 * time.Second, Timeout: 4 * time.Second, Retain: 2,
		TolerableFailures: 1,
	}
	switch s.lives % 3 {
	case 0:
		cfg.Restart = &protocol.FixedDelay{Delay: 700 * time.Millisecond}
	case 1:
		cfg.Restart = &protocol.FailureRate{Delay: time.Second, MaxFailures: 5, Interval: time.Minute}
	}
	return cfg
}

// sample looks at the running job.
func (s *soak) sample(t *testing.T, control *engine.Control) {
	st := control.Status()
	if !st.Ready() || st.Checkpoints.Completed == 0 {
		return
	}
	require.Positive(t, descriptors(s.dir), "a running job has its storage open")
	x := sample{at: time.Since(s.began), written: st.Checkpoints.LastFullSize}
	for _, o := range st.Operators {
		for _, sub := range o.Subtasks {
			x.keys, x.timers = x.keys+sub.StateKeys, x.timers+sub.Timers
		}
	}
	x.files, x.bytes = filesIn(t, s.dir)
	s.samples = append(s.samples, x)
}

// Two hours of visits, with a mishap twice a minute: readers, writers, commits, functions and the storage
// fail; the job is stopped, killed and started again at another parallelism. Nothing of it is left when it is
// down, what it holds while it runs depends on how long things are remembered and not on how long it has run,
// and each visit counts as often as it should.
func TestTwoHoursOfMishapsLeaveNothingBehindAndChangeNothing(t *testing.T) {
	dir := filepath.Join(memoryDir(t), "checkpoints")
	synctest.Test(t, func(t *testing.T) {
		before := goleak.IgnoreCurrent()
		s := newSoak(dir, 1)
		for time.Since(s.began) < soakFor {
			s.liveThroughMishaps(t)
			require.NoError(t, goleak.Find(before), "life %d", s.lives)
			s.requireAllClosed(t)
			for range s.random.IntN(40) { // nobody reads
				s.aSecondPasses()
			}
		}
		s.liveToTheEnd(t)
		require.NoError(t, goleak.Find(before))
		s.requireAllClosed(t)
		s.requireBounded(t)
		s.requireExact(t)
		require.Greater(t, s.lives, 10)
		require.Greater(t, s.restarts, 50)
		for _, kind := range everyMishap() {
			require.Positive(t, s.faults.happened[kind], kind)
		}
		t.Logf("%d lives, %d restarts, %d visits, mishaps %v", s.lives, s.restarts, len(s.counts), s.faults.happened)
	})
}

func (s *soak) requireAllClosed(t *testing.T) {
	t.Helper()
	require.Positive(t, s.open.opened.Load())
	require.Equal(t, s.open.opened.Load(), s.open.closed.Load(), "readers and writers that were opened and closed")
	require.Zero(t, s.open.closedTwice.Load())
	require.Zero(t, descriptors(s.dir), "files of the storage are open")
}

// liveToTheEnd takes event time to the end: what is in state then would be there for ever.
func (s *soak) liveToTheEnd(t *testing.T) {
	s.faults.forget()
	store, err := checkpoint.Open("file://"+s.dir, checkpoint.Options{Job: "soak"})
	require.NoError(t, err)
	control, ended := engine.NewControl(), make(chan error, 1)
	cfg := s.config(store)
	go func() {
		outcome, err := engine.Run(t.Context(), s.plan(2), cfg, control)
		if err == nil && outcome != protocol.Finished {
			err = fmt.Errorf("outcome %s", outcome)
		}
		ended <- err
	}()
	time.Sleep(time.Minute)
	control.Stop(true)
	require.NoError(t, <-ended)
	for _, o := range control.Status().Operators {
		for _, sub := range o.Subtasks {
			require.Zero(t, sub.StateKeys, "%s[%d]", o.UID, sub.Index)
			require.Zero(t, sub.Timers, "%s[%d]", o.UID, sub.Index)
		}
	}
	_, err = store.Collect(t.Context(), 1)
	require.NoError(t, err)
	retained, err := checkpoint.Retained(t.Context(), store)
	require.NoError(t, err)
	require.Len(t, retained, 1)
	want := map[string]bool{"CURRENT": true, "LOCK": true, manifestOf(t, store): true}
	for _, sub := range retained[0].Snapshots {
		for _, h := range sub.Handles {
			want[h.Name] = true
		}
	}
	require.NoError(t, store.Close())
	got := map[string]bool{}
	require.NoError(t, filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			name, _ := filepath.Rel(s.dir, path)
			got[filepath.ToSlash(name)] = true
		}
		return err
	}))
	require.Equal(t, want, got)
}

func manifestOf(t *testing.T, store checkpoint.Store) string {
	t.Helper()
	current, err := store.Current(t.Context())
	require.NoError(t, err)
	return current.Manifest
}

// requireBounded compares what the job held in the second half of an hour with what it held in the second
// half of the next one. All visits together would be twice as many then. Of files and their sizes it compares the
// mean: the most there ever were is what a run of mishaps has left until the next checkpoint completed.
func (s *soak) requireBounded(t *testing.T) {
	t.Helper()
	held := func(from, to time.Duration) (most, mean sample) {
		n := int64(0)
		for _, x := range s.samples {
			if from <= x.at && x.at < to {
				n++
				most.keys, most.timers = max(most.keys, x.keys), max(most.timers, x.timers)
				mean.files, mean.bytes, mean.written = mean.files+x.files, mean.bytes+x.bytes, mean.written+x.written
			}
		}
		require.Greater(t, n, int64(10))
		mean.files, mean.bytes, mean.written = mean.files/n, mean.bytes/n, mean.written/n
		return most, mean
	}
	early, earlyMean := held(soakFor/4, soakFor/2)
	late, lateMean := held(3*soakFor/4, soakFor+time.Hour)
	t.Logf("%d and %d keys, %d and %d timers at most; %d and %d files of %d and %d bytes, a checkpoint of %d and %d",
		early.keys, late.keys, early.timers, late.timers, earlyMean.files, lateMean.files,
		earlyMean.bytes, lateMean.bytes, earlyMean.written, lateMean.written)
	require.Positive(t, early.timers)
	require.Greater(t, early.keys, int64(1000), "what is not forgotten yet")
	for name, x := range map[string][2]int64{
		"keys": {early.keys, late.keys}, "timers": {early.timers, late.timers},
		"bytes of a checkpoint": {earlyMean.written, lateMean.written},
		"files":                 {earlyMean.files, lateMean.files}, "bytes on disk": {earlyMean.bytes, lateMean.bytes},
	} {
		require.LessOrEqual(t, 10*x[1], 14*x[0], name)
	}
}

// requireExact holds what consumers have seen against what is known of each visit.
func (s *soak) requireExact(t *testing.T) {
	t.Helper()
	want, got := map[string]int{}, map[string]int{}
	times := map[string][]visit{}
	for _, v := range s.counts {
		want[fmt.Sprintf("visit %d/%d", v.ID, v.Copy)]++
		if v.ID%pinged == 0 {
			want[fmt.Sprintf("ping %d/%d", v.ID, v.Copy)]++
		}
		times[v.Meter] = append(times[v.Meter], v)
	}
	for meter, visits := range times {
		expectSpans(want, meter, visits)
	}
	numbers := map[string][]int{}
	for _, c := range s.visits.Rows() {
		got[fmt.Sprintf("visit %d/%d", c.ID, c.Copy)]++
		numbers[c.Meter] = append(numbers[c.Meter], c.No)
	}
	for _, c := range s.pings.Rows() {
		got[fmt.Sprintf("ping %d/%d", c.ID, c.Copy)]++
	}
	for _, w := range s.windows.Rows() {
		got[w.text("window")]++
	}
	for _, w := range s.sessions.Rows() {
		got[w.text("session")]++
	}
	for text := range maps.All(want) {
		require.Equal(t, want[text], got[text], text)
	}
	require.Len(t, got, len(want))
	require.Empty(t, s.late.Rows())
	for meter, all := range numbers {
		slices.Sort(all)
		for i, n := range all {
			if strings.HasPrefix(meter, "once-") {
				i = 0 // it was forgotten in between
			}
			require.Equal(t, i+1, n, meter)
		}
	}
}

func (w span) text(kind string) string {
	return fmt.Sprintf("%s %s %s–%s %d #%d", kind, w.Meter, w.Start.Format("15:04:05.000"), w.End.Format("15:04:05.000"),
		w.Sum, w.Revision)
}

// expectSpans notes the windows and the sessions of a meter.
func expectSpans(want map[string]int, meter string, visits []visit) {
	windows := map[time.Time]int{}
	slices.SortFunc(visits, func(a, b visit) int { return a.At.Compare(b.At) })
	session := span{Meter: meter, Revision: 1}
	for _, v := range visits {
		at := v.At.Add(onHold).UTC()
		for start := at.Truncate(soakSlide); start.Add(soakSize).After(at); start = start.Add(-soakSlide) {
			windows[start] += v.N
		}
		if !at.Before(session.End) {
			if session.Sum > 0 {
				want[session.text("session")]++
			}
			session.Start, session.Sum = at, 0
		}
		session.End, session.Sum = at.Add(soakGap), session.Sum+v.N
	}
	want[session.text("session")]++
	for start, sum := range windows {
		want[span{meter, start, start.Add(soakSize), sum, 1}.text("window")]++
	}
}

// memoryDir is a directory for the test, in memory where there is such a file system: two hours of
// checkpoints are some ten thousand files, each with its fsync.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "weir-soak-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// descriptors counts the files below dir that this process has open, where that can be asked.
func descriptors(dir string) (n int) {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	for _, fd := range fds {
		if name, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(name, dir) {
			n++
		}
	}
	return n
}

func filesIn(t *testing.T, dir string) (files, bytes int64) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was collected meanwhile
		}
		if err != nil || d.IsDir() {
			return err
		}
		if info, err := d.Info(); err == nil {
			files, bytes = files+1, bytes+info.Size()
		}
		return nil
	}))
	return files, bytes
}
