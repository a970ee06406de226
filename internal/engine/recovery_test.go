package engine_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
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

// hookedStore asks before a swap; an error is an answer that never came of a swap that was not made.
type hookedStore struct {
	checkpoint.Store
	before   func(old, next protocol.Current) error
	after    func(next protocol.Current)
	manifest func(checkpoint.Manifest) error // in front of writing one
	noted    func(*checkpoint.Manifest)      // changes what is written
}

func (s *hookedStore) PutManifest(ctx context.Context, m checkpoint.Manifest) (checkpoint.Ref, error) {
	if s.manifest != nil {
		if err := s.manifest(m); err != nil {
			return checkpoint.Ref{}, err
		}
	}
	if s.noted != nil {
		s.noted(&m)
	}
	return s.Store.PutManifest(ctx, m)
}

func (s *hookedStore) Swap(ctx context.Context, old, next protocol.Current) (protocol.Current, error) {
	if s.before != nil {
		if err := s.before(old, next); err != nil {
			return protocol.Current{}, err
		}
	}
	got, err := s.Store.Swap(ctx, old, next)
	if err == nil && s.after != nil {
		s.after(got)
	}
	return got, err
}

// ledger is a two-phase sink that records what it is told, in order, and the outside it writes to.
type ledger struct {
	mu       sync.Mutex
	outside  []int           // what a consumer has seen
	done     map[string]bool // committed
	calls    []string        // commit, release and close, in order
	restores []connector.RestoreContext
	prepared map[string][]int
	commit   func(ctx context.Context, c connector.Committable) error // in front of a commit
	flush    func() error
	restore  func(ctx context.Context, rc connector.RestoreContext) error // in place of settling what is named
	timeout  time.Duration                                                // of its transactions
	keep     bool                                                         // its rows
	shared   atomic.Bool                                                  // two goroutines have had a writer at once
}

func newLedger() *ledger { return &ledger{done: map[string]bool{}, prepared: map[string][]int{}} }

func (l *ledger) Guarantee() connector.Guarantee { return connector.ExactlyOnce }
func (l *ledger) Validate(bool) error            { return nil }

// TransactionTimeout and TransactionName make it connector.Transactional.
func (l *ledger) TransactionTimeout() time.Duration { return l.timeout }

func (l *ledger) TransactionName(c connector.Committable) string {
	if c.Payload == nil {
		return ""
	}
	return fmt.Sprintf("txn-%d", c.Checkpoint)
}

func (l *ledger) note(call string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, call)
}

func (l *ledger) rows() []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.outside)
}

func (l *ledger) Restore(ctx context.Context, rc connector.RestoreContext) error {
	l.mu.Lock()
	l.restores = append(l.restores, rc)
	l.mu.Unlock()
	if l.restore != nil {
		return l.restore(ctx, rc)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range rc.Named {
		l.settle(c)
	}
	return nil
}

func (l *ledger) settle(c connector.Committable) {
	id := string(c.Payload)
	if !l.done[id] {
		l.done[id] = true
		l.outside = append(l.outside, l.prepared[id]...)
	}
}

func (l *ledger) Writer(_ context.Context, wc connector.WriterContext) (connector.Writer[int], error) {
	return &ledgerWriter{ledger: l, wc: wc}, nil
}

type ledgerWriter struct {
	ledger  *ledger
	wc      connector.WriterContext
	pending []int
	keeper  connector.Keeper
	had     atomic.Bool
}

// have is called by who uses the writer, and what it returns when that is over.
func (w *ledgerWriter) have() (over func()) {
	if w.had.Swap(true) {
		w.ledger.shared.Store(true)
	}
	return func() { w.had.Store(false) }
}

func (w *ledgerWriter) Write(_ context.Context, rows []int) error {
	defer w.have()()
	w.pending = append(w.pending, rows...)
	for _, row := range rows {
		if w.keeper == nil && w.ledger.keep {
			w.keeper = w.wc.Keep()
		}
		if w.keeper != nil {
			w.keeper.Write(fmt.Appendf(nil, "%d\n", row))
		}
	}
	return nil
}

func (w *ledgerWriter) Flush(context.Context, bool) error {
	defer w.have()()
	if w.ledger.flush != nil {
		return w.ledger.flush()
	}
	return nil
}

func (w *ledgerWriter) PrepareCommit(_ context.Context, n uint64) (*connector.Committable, error) {
	defer w.have()()
	if len(w.pending) == 0 {
		return nil, nil
	}
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	c := connector.Committable{Sink: w.wc.Operator, Subtask: w.wc.Subtask, Checkpoint: n}
	id := c.ID().String() + w.wc.Lineage + string(rune('a'+len(w.ledger.prepared)))
	w.ledger.prepared[id] = w.pending
	c.Payload, c.Digest = []byte(id), sha256.Sum256([]byte(id))
	w.pending = nil
	if w.keeper != nil {
		c.Kept, w.keeper = w.keeper.Seal(), nil
	}
	return &c, nil
}

func (w *ledgerWriter) Commit(ctx context.Context, c connector.Committable) error {
	if w.ledger.commit != nil {
		if err := w.ledger.commit(ctx, c); err != nil {
			return err
		}
	}
	w.ledger.note("commit " + c.ID().String())
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	w.ledger.settle(c)
	return nil
}

func (w *ledgerWriter) Release(c connector.Committable) { w.ledger.note("release " + c.ID().String()) }
func (w *ledgerWriter) Close() error                    { w.ledger.note("close"); return nil }

// numbers is a job that copies numbers.
type numbers struct {
	source *weirtest.Source[int]
	sink   *ledger
	store  *hookedStore
	cfg    engine.RunConfig
}

func newNumbers() *numbers {
	n := &numbers{
		source: weirtest.NewSource[int](1), sink: newLedger(),
		store: &hookedStore{Store: checkpoint.NewMemory("numbers")},
	}
	n.cfg = engine.RunConfig{Store: n.store, Interval: time.Second, Restart: protocol.NoRestart{}}
	return n
}

func (n *numbers) run(ctx context.Context, stop *engine.Control) (protocol.Outcome, error) {
	p := engine.NewPlan("numbers", 1, 16)
	s := engine.Source(p, "numbers", n.source, engine.SourceConfig[int]{}, &engine.DeadLetters{})
	engine.Sink(s, "sink", n.sink)
	return engine.Run(ctx, p, n.cfg, stop)
}

// runFor runs the job for some of the bubble's time and kills it.
func (n *numbers) runFor(t *testing.T, d time.Duration) error {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	_, err := n.run(ctx, nil)
	return err
}

func stopped() *engine.Control {
	c := engine.NewControl()
	c.Stop(false)
	return c
}

func TestTenKillsBeforeSettledChangeTheOutsideOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers()
		n.source.Add(0, 1, 2, 3)
		n.sink.commit = func(ctx context.Context, _ connector.Committable) error {
			<-ctx.Done() // the process dies between CURRENT and the commit
			return ctx.Err()
		}
		require.ErrorIs(t, n.runFor(t, 5*time.Second), context.DeadlineExceeded)
		require.Empty(t, n.sink.rows())
		n.sink.commit = nil
		n.store.before = func(old, next protocol.Current) error {
			if next.Settled && !old.Settled { // and then ten times before CURRENT says so
				return checkpoint.ErrSwapUnknown
			}
			return nil
		}
		for range 10 {
			require.ErrorIs(t, n.runFor(t, 5*time.Second), engine.ErrNotRestarted)
			require.Equal(t, []int{1, 2, 3}, n.sink.rows())
		}
		n.store.before = nil
		n.source.Add(0, 4)
		require.ErrorIs(t, n.runFor(t, 5*time.Second), context.DeadlineExceeded)
		require.Equal(t, []int{1, 2, 3, 4}, n.sink.rows())
		require.Len(t, n.sink.restores, 12)
		for i, rc := range n.sink.restores {
			require.Equal(t, i == 0, rc.Fresh)
			require.False(t, rc.Clean)
			require.Equal(t, i > 0, len(rc.Named) == 1, "every restore is given what is not settled")
		}
	})
}

func TestJobThatWasStoppedCleanlyStartsWithoutAskingTheSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers()
		n.source.Add(0, 1)
		stop := engine.NewControl()
		time.AfterFunc(5*time.Second, func() { stop.Stop(false) })
		outcome, err := n.run(t.Context(), stop)
		require.NoError(t, err)
		require.Equal(t, protocol.Stopped, outcome)
		current, err := n.store.Current(t.Context())
		require.NoError(t, err)
		require.True(t, current.Settled && current.Clean)

		require.Error(t, n.runFor(t, 5*time.Second)) // goes on, and is killed
		require.Error(t, n.runFor(t, 5*time.Second)) // so this one has to ask
		require.Len(t, n.sink.restores, 3)
		require.Equal(t, []bool{false, true, false},
			[]bool{n.sink.restores[0].Clean, n.sink.restores[1].Clean, n.sink.restores[2].Clean})
		require.Empty(t, n.sink.restores[1].Named)
		require.Equal(t, []int{1}, n.sink.rows())
	})
}

// A committable is committed once a swap has named it, in order, and released once no CURRENT
// names it any more.
func TestCommitsFollowSwapsAndReleasesFollowCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers()
		n.store.after = func(c protocol.Current) { n.sink.note("swap " + c.String()[17:]) }
		for i := range 3 {
			time.AfterFunc(time.Duration(i)*time.Second+500*time.Millisecond, func() { n.source.Add(0, i) })
		}
		require.Error(t, n.runFor(t, 3800*time.Millisecond))
		require.Equal(t, []string{
			"swap g1 c0", "swap g1 c0 settled", "swap g1 c1 settled",
			"swap g1 c2", "commit sink[0]@2", "swap g1 c2 settled", "release sink[0]@2",
			"swap g1 c3", "commit sink[0]@3", "swap g1 c3 settled", "release sink[0]@3",
			"swap g1 c4", "commit sink[0]@4", "swap g1 c4 settled", "release sink[0]@4",
			"close",
		}, n.sink.calls)
		require.Equal(t, []int{0, 1, 2}, n.sink.rows())
	})
}

func TestCommitThatFailsIsDoneAgainByTheNextGeneration(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error": func() error { return errors.New("not now") },
		"panic": func() error { panic("not now") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNumbers()
				n.cfg.Restart = protocol.FixedDelay{}
				n.source.Add(0, 1, 2)
				failures := 0
				n.sink.commit = func(context.Context, connector.Committable) error {
					if failures++; failures == 1 {
						return fail()
					}
					return nil
				}
				time.AfterFunc(5*time.Second, func() { n.source.Add(0, 3) })
				require.ErrorIs(t, n.runFor(t, 10*time.Second), context.DeadlineExceeded)
				require.Equal(t, []int{1, 2, 3}, n.sink.rows())
				require.Len(t, n.sink.restores, 2)
				require.Len(t, n.sink.restores[1].Named, 1)
			})
		})
	}
}

// A send that failed is seen at the flush, and the barrier is not acknowledged: the records
// are read again (C3).
func TestFlushThatFailsAcknowledgesNoBarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers()
		n.cfg.Restart, n.cfg.TolerableFailures = protocol.FixedDelay{}, 5
		n.source.Add(0, 1, 2)
		flushes := 0
		n.sink.flush = func() error {
			if flushes++; flushes == 2 {
				return errors.New("the broker is away")
			}
			return nil
		}
		n.store.after = func(c protocol.Current) {
			if c.Generation == 1 {
				require.LessOrEqual(t, c.Checkpoint, uint64(1))
			}
		}
		require.ErrorIs(t, n.runFor(t, 10*time.Second), context.DeadlineExceeded)
		require.Equal(t, []int{1, 2}, n.sink.rows())
		require.Len(t, n.sink.restores, 2)
	})
}

// A stop cuts one delay short. A last generation that keeps failing is not repeated without one.
func TestStopWhileTheJobKeepsFailingWaitsBetweenRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers()
		n.cfg.Restart = protocol.FixedDelay{Delay: 10 * time.Second}
		attempts := 0
		n.store.before = func(protocol.Current, protocol.Current) error {
			attempts++
			return checkpoint.ErrSwapUnknown
		}
		stop := engine.NewControl()
		time.AfterFunc(5*time.Second, func() { stop.Stop(false) })
		ctx, cancel := context.WithTimeout(t.Context(), 36*time.Second)
		defer cancel()
		_, err := n.run(ctx, stop)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 5, attempts, "at 0, 5, 15, 25 and 35 s")
	})
}

func TestStopDuringTheDelayStillSettlesWhatIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers()
		n.cfg.Restart = protocol.FixedDelay{Delay: time.Hour}
		n.source.Add(0, 1)
		n.sink.commit = func(context.Context, connector.Committable) error { return errors.New("not now") }
		stop := engine.NewControl()
		time.AfterFunc(time.Minute, func() { stop.Stop(false) })
		outcome, err := n.run(t.Context(), stop)
		require.NoError(t, err)
		require.Equal(t, protocol.Stopped, outcome)
		require.Equal(t, []int{1}, n.sink.rows())
	})
}

func TestStorageThatCannotBeReadBetweenGenerationsIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers()
		n.cfg.Restart = protocol.FixedDelay{}
		store := &unreadable{Store: n.store, at: map[int]bool{2: true, 3: true}}
		n.cfg.Store = store
		n.source.Add(0, 1)
		n.sink.commit = func(context.Context, connector.Committable) error {
			n.sink.commit = nil
			return errors.New("not now")
		}
		require.ErrorIs(t, n.runFor(t, 10*time.Second), context.DeadlineExceeded)
		require.Equal(t, []int{1}, n.sink.rows())

		store.reads, store.at = 0, map[int]bool{1: true}
		require.ErrorIs(t, n.runFor(t, 10*time.Second), errStorage, "at the start it is said at once")
	})
}

// unreadable fails at the given reads of CURRENT.
type unreadable struct {
	checkpoint.Store
	reads int
	at    map[int]bool
}

func (s *unreadable) Current(ctx context.Context) (protocol.Current, error) {
	if s.reads++; s.at[s.reads] {
		return protocol.Current{}, errStorage
	}
	return s.Store.Current(ctx)
}

// A job that is killed before its first checkpoint exists has read nothing: what its source finds
// at the next start is where it begins and where it ends.
func TestNothingIsReadBeforeTheFirstCheckpointExists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers()
		wrote := weirtest.NewSink[int](connector.AtLeastOnce) // shows what it is given at once
		n.source.Add(0, 1, 2)
		n.source.End()
		p := engine.NewPlan("numbers", 1, 16)
		s := engine.Source(p, "numbers", n.source, engine.SourceConfig[int]{}, &engine.DeadLetters{})
		engine.Sink(s, "sink", wrote)
		slow := &slowManifests{Store: n.store, delay: time.Minute}
		n.cfg.Store = slow
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := engine.Run(ctx, p, n.cfg, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Empty(t, wrote.Rows())

		n.source.Add(0, 3) // the input grows meanwhile
		slow.delay = 10 * time.Second
		time.AfterFunc(15*time.Second, func() { n.source.Add(0, 4) })
		outcome, err := engine.Run(t.Context(), p, n.cfg, nil)
		require.NoError(t, err)
		require.Equal(t, protocol.Finished, outcome)
		require.Equal(t, []int{1, 2, 3}, wrote.Rows(), "the ends are those that the first checkpoint fixed")
	})
}

// slowManifests takes its time for manifests.
type slowManifests struct {
	checkpoint.Store
	delay time.Duration
}

func (s *slowManifests) PutManifest(ctx context.Context, m checkpoint.Manifest) (checkpoint.Ref, error) {
	<-time.After(s.delay)
	return s.Store.PutManifest(ctx, m)
}

// What a stopped job has written to a sink without transactions it does not write again: behind the
// last barrier nothing is read, and event time stands still.
func TestNothingFollowsTheLastBarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := checkpoint.NewMemory("numbers")
		source, sink := weirtest.NewSource[int](1), weirtest.NewSink[int](connector.AtLeastOnce)
		want := []int{}
		for run := range 30 {
			p := engine.NewPlan("numbers", 1, 16)
			s := engine.Source(p, "numbers", source, engine.SourceConfig[int]{}, &engine.DeadLetters{})
			slow := engine.FlatMap(s, "slow", "map", func(v *int, out *engine.Out[int]) error {
				time.Sleep(time.Millisecond)
				out.Emit(*v)
				return nil
			})
			engine.Sink(slow, "sink", sink)
			for i := range 200 { // more than is read before the stop
				source.Add(0, run*200+i)
			}
			stop := engine.NewControl()
			time.AfterFunc(time.Duration(50+run)*time.Millisecond, func() { stop.Stop(false) })
			_, err := engine.Run(t.Context(), p, engine.RunConfig{
				Store: &slowManifests{Store: store, delay: 5 * time.Millisecond}, Interval: time.Hour,
			}, stop)
			require.NoError(t, err)
		}
		rows := sink.Rows()
		for i := range rows {
			want = append(want, i)
		}
		require.Equal(t, want, rows)
		require.Greater(t, len(rows), 300)
	})
}

func TestJobThatIsStoppedBeforeItStartsEndsInGoodOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers()
		n.source.Add(0, 1)
		outcome, err := n.run(t.Context(), stopped())
		require.NoError(t, err)
		require.Equal(t, protocol.Stopped, outcome)
		require.Empty(t, n.sink.rows())
		require.Error(t, n.runFor(t, 5*time.Second))
		require.Equal(t, []int{1}, n.sink.rows())
	})
}
