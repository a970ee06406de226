package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/engine"
	"example.com/weir/internal/protocol"
	"example.com/weir/weirtest"
)

// faultyStore is a store that fails as a schedule of random numbers says, while it is on.
type faultyStore struct {
	checkpoint.Store

	mu     sync.Mutex
	random *rand.Rand
	on     bool
	seen   map[string]int
}

var errStorage = errors.New("the storage does not answer")

func newFaultyStore(seed uint64, store checkpoint.Store) *faultyStore {
	return &faultyStore{
		Store: store, random: rand.New(rand.NewPCG(seed, 2)), on: true,
		seen: map[string]int{},
	}
}

// fault reports whether a fault comes now; on the average it comes once in so many calls.
func (s *faultyStore) fault(name string, once int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.on || s.random.IntN(once) != 0 {
		return false
	}
	s.seen[name]++
	return true
}

func (s *faultyStore) heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on = false
}

func (s *faultyStore) Current(ctx context.Context) (protocol.Current, error) {
	if s.fault("current", 20) {
		return protocol.Current{}, errStorage
	}
	return s.Store.Current(ctx)
}

func (s *faultyStore) Swap(ctx context.Context, old, next protocol.Current) (protocol.Current, error) {
	switch {
	case s.fault("swap refused", 40):
		return protocol.Current{}, checkpoint.ErrSwapRefused
	case s.fault("swap unknown, and it was not", 20):
		return protocol.Current{}, checkpoint.ErrSwapUnknown
	case s.fault("swap unknown, and it was", 20):
		_, _ = s.Store.Swap(ctx, old, next)
		return protocol.Current{}, checkpoint.ErrSwapUnknown
	}
	return s.Store.Swap(ctx, old, next)
}

func (s *faultyStore) PutSnapshot(
	ctx context.Context, name checkpoint.SnapshotName, payload ...[]byte,
) (protocol.Handle, error) {
	switch {
	case s.fault("snapshot fails", 15):
		return protocol.Handle{}, errStorage
	case s.fault("snapshot is slow", 15):
		select {
		case <-time.After(3 * time.Second):
		case <-ctx.Done():
			return protocol.Handle{}, ctx.Err()
		}
	}
	return s.Store.PutSnapshot(ctx, name, payload...)
}

func (s *faultyStore) GetSnapshot(ctx context.Context, h protocol.Handle) ([]byte, error) {
	if s.fault("snapshot cannot be read", 60) {
		return nil, errStorage
	}
	return s.Store.GetSnapshot(ctx, h)
}

func (s *faultyStore) PutManifest(ctx context.Context, m checkpoint.Manifest) (checkpoint.Ref, error) {
	if s.fault("manifest fails", 10) {
		return checkpoint.Ref{}, errStorage
	}
	return s.Store.PutManifest(ctx, m)
}

type reading struct {
	Meter string
	At    time.Time
	N     int
}

type total struct {
	Meter         string
	End           time.Time
	Sum, Revision int
}

// delay holds readings back until event time has come 20 seconds further, and numbers those of a
// meter.
type delay struct {
	held  engine.Value[[]reading]
	count engine.Value[int]
}

const heldFor = 20 * time.Second

func (d *delay) Open(o *engine.OpenContext[string]) (err error) {
	if d.held, err = engine.NewValue[[]reading](o, "held", nil); err != nil {
		return err
	}
	d.count, err = engine.NewValue[int](o, "count", nil)
	return err
}

func (d *delay) Process(ctx *engine.Context[string], r *reading, _ *engine.Out[reading]) error {
	n, err := d.count.Put()
	if err != nil {
		return err
	}
	*n++
	held, err := d.held.Put()
	if err != nil {
		return err
	}
	*held = append(*held, *r)
	ctx.SetTimer(r.At.Add(heldFor))
	return nil
}

func (d *delay) OnTimer(ctx *engine.Context[string], out *engine.Out[reading]) error {
	held := d.held.Get()
	if held == nil {
		return fmt.Errorf("timer of %s at %s without a reading", ctx.Key(), ctx.EventTime())
	}
	rest := (*held)[:0]
	for _, r := range *held {
		if r.At.Add(heldFor).Equal(ctx.EventTime()) {
			out.EmitAt(r, r.At)
		} else {
			rest = append(rest, r)
		}
	}
	if *held = rest; len(rest) == 0 {
		d.held.Clear()
	}
	return nil
}

type adder struct{}

func (adder) Add(acc *int, r *reading) error { *acc += r.N; return nil }
func (adder) Fire(w *engine.WindowContext[string], acc *int, out *engine.Out[total]) error {
	out.Emit(total{Meter: w.Key, End: w.End, Sum: *acc, Revision: w.Revision})
	return nil
}

// meters is a job with two exchanges in a row, timers, state that stays, and windows.
type meters struct {
	source *weirtest.Source[reading]
	sink   *weirtest.Sink[total]
	store  *faultyStore
}

func newMeters(seed uint64, store checkpoint.Store) *meters {
	return &meters{
		source: weirtest.NewSource[reading](3), store: newFaultyStore(seed, store),
		sink: weirtest.NewSink[total](connector.ExactlyOnce),
	}
}

func (m *meters) plan(parallelism int) *engine.Plan {
	p := engine.NewPlan("faults", parallelism, 16)
	s := engine.Source(p, "readings", m.source, engine.SourceConfig[reading]{
		EventTime: func(r *reading) time.Time { return r.At }, OutOfOrderness: 5 * time.Second,
	}, &engine.DeadLetters{})
	meter := func(r *reading) string { return r.Meter }
	// Reading takes a while, so that barriers come in the middle of a backlog.
	slow := engine.FlatMap(s, "slow", "map", func(r *reading, out *engine.Out[reading]) error {
		<-time.After(time.Millisecond)
		out.Emit(*r)
		return nil
	})
	held := engine.Process(engine.KeyBy(slow, meter), "delay",
		func() engine.Processor[string, reading, reading] { return &delay{} })
	sums := engine.Aggregate(engine.KeyBy(held, meter), "sum", engine.WindowConfig[reading]{
		Size: time.Minute, AllowedLateness: 48 * time.Hour,
	}, adder{})
	engine.Sink(sums, "sink", m.sink)
	return p
}

// start runs the job beside the test; what it returns stops or kills it and waits for it.
func (m *meters) start(parallelism int) (stop func() error, kill func()) {
	ctx, cancel := context.WithCancel(context.Background())
	control, ended := engine.NewControl(), make(chan error, 1)
	go func() {
		_, err := engine.Run(ctx, m.plan(parallelism), engine.RunConfig{
			Store: m.store, Interval: 500 * time.Millisecond, Timeout: 2 * time.Second,
			TolerableFailures: 3, Restart: protocol.FixedDelay{Delay: 100 * time.Millisecond},
		}, control)
		ended <- err
	}()
	return func() error { control.Stop(false); defer cancel(); return <-ended }, func() { cancel(); <-ended }
}

// Whatever the storage does and whenever the job is killed, at whatever parallelism it comes back,
// the consumer sees each revision of each window once, and in the end the right sums.
func TestStorageThatFailsChangesNothingOutside(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { failRepeatedly(t, seed, seen) })
		})
	}
	require.Len(t, seen, 8, "every kind of fault has come: %v", seen)
}

// openStore returns a store in memory or, for some seeds, a directory.
func openStore(t *testing.T, seed uint64) checkpoint.Store {
	if seed%4 != 3 {
		return checkpoint.NewMemory("faults")
	}
	store, err := checkpoint.Open("file://"+t.TempDir(), checkpoint.Options{Job: "faults"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

func failRepeatedly(t *testing.T, seed uint64, seen map[string]int) {
	m, random := newMeters(seed, openStore(t, seed)), rand.New(rand.NewPCG(seed, 3))
	begin, want := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC), map[string]int{}
	add := func(r reading) {
		m.source.Add(random.IntN(3), r)
		want[r.Meter+" "+r.At.Truncate(time.Minute).Add(time.Minute).Format("15:04")] += r.N
	}
	for i := range 2500 { // so many that a cut cannot hold all of them whole
		add(reading{Meter: fmt.Sprint("m", i), At: begin, N: 1})
	}
	for run := range 12 {
		_, kill := m.start([]int{1, 2, 4}[random.IntN(3)])
		for range 1 + random.IntN(5) {
			for range random.IntN(20) {
				at := begin.Add(time.Duration(run*40+random.IntN(30)) * time.Second)
				add(reading{Meter: fmt.Sprint("m", random.IntN(8)), At: at, N: 1 + random.IntN(9)})
			}
			time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
		}
		kill()
	}
	m.store.heal()
	m.source.AdvanceTo(begin.Add(24 * time.Hour))
	stop, _ := m.start(2)
	time.Sleep(20 * time.Second)
	require.NoError(t, stop())
	got, revisions := map[string]int{}, map[string]int{}
	for _, r := range m.sink.Rows() {
		key := r.Meter + " " + r.End.Format("15:04")
		require.Equal(t, revisions[key]+1, r.Revision, "%s: a revision is missing or doubled", key)
		revisions[key], got[key] = r.Revision, r.Sum
	}
	require.Equal(t, want, got)
	for name, n := range m.store.seen {
		seen[name] += n
	}
}
