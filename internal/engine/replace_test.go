package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/engine"
	"example.com/weir/internal/fault"
	"example.com/weir/internal/protocol"
)

// outage is the world outside of a ledger that ends transactions by itself: what is lost is never shown,
// and a restore writes it again.
type outage struct {
	ledger *ledger
	lost   map[string]bool // by payload
	agains int             // transactions that were written again
	step   func(name string) error
}

var errLostNow = errors.New("the transaction is lost")

func newOutage(l *ledger) *outage {
	o := &outage{ledger: l, lost: map[string]bool{}}
	l.restore = o.restore
	return o
}

// loseAll ends all that is open and not committed.
func (o *outage) loseAll() {
	for id := range o.ledger.prepared {
		if !o.ledger.done[id] {
			o.lost[id] = true
		}
	}
}

func (o *outage) reach(name string) error {
	if o.step == nil {
		return nil
	}
	return o.step(name)
}

// restore settles what is named in order. What was lost is written again, and what lies behind that in
// its sequence too.
func (o *outage) restore(ctx context.Context, rc connector.RestoreContext) error {
	behind := map[int]bool{}
	for _, c := range rc.Named {
		id := string(c.Payload)
		if !o.ledger.done[id] && (o.lost[id] || behind[c.Subtask]) {
			o.lost[id], behind[c.Subtask] = true, true
			o.agains++
			again := fmt.Sprintf("%s again %d", id, o.agains)
			o.ledger.prepared[again] = o.ledger.prepared[id]
			c.Payload = []byte(again)
			if err := o.reach("written"); err != nil {
				return err
			}
			if err := rc.Replace(ctx, c); err != nil {
				return err
			}
			if err := o.reach("replaced"); err != nil {
				return err
			}
		}
		o.ledger.mu.Lock()
		o.ledger.settle(c)
		o.ledger.mu.Unlock()
		if err := o.reach("settled"); err != nil {
			return err
		}
	}
	return nil
}

// cutOff is a job that was killed between CURRENT and the commit of 1, 2, 3; then the outside has ended the
// transaction.
func cutOff(t *testing.T) (*numbers, *outage) {
	t.Helper()
	n := newNumbers()
	o := newOutage(n.sink)
	n.source.Add(0, 1, 2, 3)
	n.sink.commit = func(ctx context.Context, _ connector.Committable) error { <-ctx.Done(); return ctx.Err() }
	require.ErrorIs(t, n.runFor(t, 1500*time.Millisecond), context.DeadlineExceeded)
	require.Empty(t, n.sink.rows())
	n.sink.commit = nil
	o.loseAll()
	require.Len(t, o.lost, 1)
	return n, o
}

func (n *numbers) current(t *testing.T) (protocol.Current, checkpoint.Manifest) {
	t.Helper()
	current, m, err := checkpoint.Latest(t.Context(), n.store)
	require.NoError(t, err)
	return current, m
}

// What was lost outside is written again in the restore, is named by CURRENT before it is committed, and
// nothing is read before that.
func TestWhatWasLostOutsideIsWrittenAgainBeforeAnythingIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, o := cutOff(t)
		before, old := n.current(t)
		o.step = func(name string) error {
			current, m := n.current(t)
			switch name {
			case "written":
				require.Equal(t, before.Manifest, current.Manifest)
			case "replaced":
				require.NotEqual(t, before.Manifest, current.Manifest)
				require.True(t, strings.HasSuffix(current.Manifest, "-g2-c2-r1.json"), current.Manifest)
				require.False(t, current.Settled)
				require.Equal(t, uint64(2), m.Generation)
				require.Equal(t, old.Parent, m.Parent, "it stands in the same place")
				require.Equal(t, old.Snapshots, m.Snapshots)
				require.Equal(t, old.Committables[0].Digest, m.Committables[0].Digest)
				require.True(t, m.Committables[0].Opened.After(old.Committables[0].Opened), "it is another transaction")
				require.Empty(t, n.sink.rows())
			}
			return nil
		}
		n.source.Add(0, 4)
		require.ErrorIs(t, n.runFor(t, 1500*time.Millisecond), context.DeadlineExceeded)
		require.Equal(t, []int{1, 2, 3, 4}, n.sink.rows())
		require.Equal(t, 1, o.agains)
		all, err := checkpoint.Retained(t.Context(), n.store)
		require.NoError(t, err)
		var history []uint64
		for _, m := range all {
			history = append(history, m.Checkpoint)
		}
		require.Equal(t, []uint64{3, 2, 1}, history, "each checkpoint is there once")
	})
}

// Two of one subtask are replaced one after the other, each by a manifest of its own.
func TestTwoLostOfOneSubtaskAreReplacedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers()
		n.cfg.TolerableFailures = 3
		o := newOutage(n.sink)
		n.cfg.Store = &failingManifests{Store: n.store, fails: func(m checkpoint.Manifest) bool { return m.Checkpoint == 2 }}
		n.source.Add(0, 1, 2)
		time.AfterFunc(1500*time.Millisecond, func() { n.source.Add(0, 3) })
		n.sink.commit = func(ctx context.Context, _ connector.Committable) error { <-ctx.Done(); return ctx.Err() }
		require.ErrorIs(t, n.runFor(t, 2500*time.Millisecond), context.DeadlineExceeded)
		_, m := n.current(t)
		require.Len(t, m.Committables, 2)
		n.sink.commit = nil
		o.loseAll()
		var named []string
		o.step = func(name string) error {
			if name == "replaced" {
				current, _ := n.current(t)
				named = append(named, current.Manifest[strings.LastIndex(current.Manifest, "-g"):])
			}
			return nil
		}
		require.ErrorIs(t, n.runFor(t, 4500*time.Millisecond), context.DeadlineExceeded)
		require.Equal(t, []string{"-g2-c3-r1.json", "-g2-c3-r2.json"}, named)
		require.Equal(t, []int{1, 2, 3}, n.sink.rows())
	})
}

// Cut short at any swap or manifest, or at any step of the sink, a restore comes to the same place.
func TestWritingAgainThatIsCutShortComesToTheSamePlace(t *testing.T) {
	type cut struct {
		name string
		at   func(n *numbers, o *outage, hit *bool)
	}
	var cuts []cut
	for _, step := range []string{"written", "replaced", "settled"} {
		cuts = append(cuts, cut{step, func(_ *numbers, o *outage, hit *bool) {
			o.step = func(name string) error {
				if name == step {
					*hit = true
					return errLostNow
				}
				return nil
			}
		}})
	}
	isReplacement := func(next protocol.Current) bool { return strings.HasSuffix(next.Manifest, "-r1.json") && !next.Settled }
	cuts = append(cuts, cut{"swap unknown, and it was not", func(n *numbers, _ *outage, hit *bool) {
		n.store.before = func(_, next protocol.Current) error {
			if isReplacement(next) {
				*hit = true
				return checkpoint.ErrSwapUnknown
			}
			return nil
		}
	}}, cut{"swap unknown, and it was", func(n *numbers, _ *outage, hit *bool) {
		n.cfg.Store = &forgottenSwaps{Store: n.store, forget: func(next protocol.Current) bool {
			*hit = *hit || isReplacement(next)
			return isReplacement(next)
		}}
	}}, cut{"manifest", func(n *numbers, _ *outage, hit *bool) {
		n.cfg.Store = &failingManifests{Store: n.store, fails: func(m checkpoint.Manifest) bool {
			*hit = *hit || m.Replacement != 0
			return m.Replacement != 0
		}}
	}})
	for _, c := range cuts {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, o := cutOff(t)
				for range 3 {
					hit := false
					c.at(n, o, &hit)
					require.ErrorIs(t, n.runFor(t, 4500*time.Millisecond), engine.ErrNotRestarted)
					require.True(t, hit)
					o.step, n.store.before, n.cfg.Store = nil, nil, n.store
					o.loseAll()
				}
				n.source.Add(0, 4)
				require.ErrorIs(t, n.runFor(t, 4500*time.Millisecond), context.DeadlineExceeded)
				require.Equal(t, []int{1, 2, 3, 4}, n.sink.rows())
			})
		})
	}
}

// forgottenSwaps makes swaps and loses the answers of some.
type forgottenSwaps struct {
	checkpoint.Store
	forget func(next protocol.Current) bool
}

func (s *forgottenSwaps) Swap(ctx context.Context, old, next protocol.Current) (protocol.Current, error) {
	got, err := s.Store.Swap(ctx, old, next)
	if err == nil && s.forget(next) {
		return protocol.Current{}, checkpoint.ErrSwapUnknown
	}
	return got, err
}

// failingManifests refuses to write some.
type failingManifests struct {
	checkpoint.Store
	fails func(m checkpoint.Manifest) bool
}

func (s *failingManifests) PutManifest(ctx context.Context, m checkpoint.Manifest) (checkpoint.Ref, error) {
	if s.fails(m) {
		return checkpoint.Ref{}, errStorage
	}
	return s.Store.PutManifest(ctx, m)
}

// Another generation that has claimed CURRENT meanwhile is not disturbed: this one gets no permit.
func TestAZombieIsNotAllowedToCommitWhatItHasWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, o := cutOff(t)
		o.step = func(name string) error {
			if name == "written" {
				current, _ := n.current(t)
				next := current
				next.Generation++
				_, err := n.store.Swap(t.Context(), current, next)
				require.NoError(t, err)
			}
			require.NotEqual(t, "replaced", name)
			return nil
		}
		require.ErrorIs(t, n.runFor(t, 4500*time.Millisecond), connector.ErrSuperseded)
		require.Empty(t, n.sink.rows())
	})
}

// What a superseded generation finds can be what its successor has done. It says that it is superseded, and
// not what to do about that.
func TestAZombieDoesNotStopByName(t *testing.T) {
	for name, takenOver := range map[string]bool{"superseded": true, "still the owner": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, _ := cutOff(t)
				unknown := errors.New("unknown: aborted here and committed there")
				n.sink.restore = func(context.Context, connector.RestoreContext) error {
					if takenOver {
						current, _ := n.current(t)
						next := current
						next.Generation++
						_, err := n.store.Swap(t.Context(), current, next)
						require.NoError(t, err)
					}
					return connector.Stop(unknown)
				}
				err := n.runFor(t, 4500*time.Millisecond)
				require.Equal(t, takenOver, errors.Is(err, connector.ErrSuperseded), "%v", err)
				require.Equal(t, !takenOver, errors.Is(err, unknown), "%v", err)
			})
		})
	}
}

// A sink that says of another one's that it has written it again, or that it has written again what is as
// it was, stops the job.
func TestAReplacementThatCannotBeStopsTheJob(t *testing.T) {
	for name, change := range map[string]func(c *connector.Committable){
		"which is not its own":         func(c *connector.Committable) { c.Sink = "other" },
		"does not name it":             func(c *connector.Committable) { c.Checkpoint++ },
		"came with digest":             func(c *connector.Committable) { c.Digest[0]++ },
		"again, and is what it was":    func(*connector.Committable) {},
		"the same records must always": func(c *connector.Committable) { c.Digest, c.Payload = [32]byte{}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, _ := cutOff(t)
				n.sink.restore = func(ctx context.Context, rc connector.RestoreContext) error {
					c := rc.Named[0]
					change(&c)
					return rc.Replace(ctx, c)
				}
				err := n.runFor(t, 4500*time.Millisecond)
				require.ErrorContains(t, err, name)
				require.True(t, connector.IsStop(err))
				require.Empty(t, n.sink.rows())
			})
		})
	}
}

// A savepoint that names the manifest which was replaced stands for the same checkpoint: to go on from it
// is the ordinary start, as long as CURRENT is there, and stays so when the job is started again.
func TestASavepointOfACheckpointThatWasWrittenAgainStandsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, o := cutOff(t)
		current, _ := n.current(t)
		_, err := n.store.PutSavepoint(t.Context(), "a", checkpoint.Ref{Name: current.Manifest, Digest: current.ManifestDigest})
		require.NoError(t, err)
		lineage := n.lineage(t)
		n.cfg.Restore.From = "a"
		o.step = func(name string) error {
			if name == "replaced" {
				return errLostNow
			}
			return nil
		}
		require.ErrorIs(t, n.runFor(t, 4500*time.Millisecond), errLostNow)
		replaced, _ := n.current(t)
		require.NotEqual(t, current.Manifest, replaced.Manifest)
		o.step = nil
		for i := range 4 { // more than are retained
			n.source.Add(0, i+4)
			require.ErrorIs(t, n.runFor(t, 4500*time.Millisecond), context.DeadlineExceeded)
			require.Equal(t, lineage, n.lineage(t))
		}
		require.Equal(t, []int{1, 2, 3, 4, 5, 6, 7}, n.sink.rows())
		all, err := checkpoint.List(t.Context(), n.store)
		require.NoError(t, err)
		i := slices.IndexFunc(all, func(e checkpoint.Entry) bool { return len(e.Savepoints) > 0 })
		require.NoError(t, all[i].Err, "what the savepoint names is kept")
		require.Equal(t, current.Manifest, all[i].Ref.Name)
		require.False(t, all[i].Current)
	})
}

// A job that goes back settles first, and writes again what was lost; cut short, it goes on from what
// CURRENT names by then.
func TestGoingBackWritesAgainFirstWhatWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := atSavepoint(t)
		o := newOutage(n.sink)
		o.loseAll()
		n.cfg.Restore = engine.RestoreConfig{From: "a", AcceptDuplicates: true}
		n.cfg.Restart = protocol.FixedDelay{}
		failures := 0
		o.step = func(name string) error {
			if name == "replaced" && failures < 2 {
				failures++
				return errLostNow
			}
			return nil
		}
		require.ErrorIs(t, n.runFor(t, 9500*time.Millisecond), context.DeadlineExceeded)
		require.Equal(t, 1, failures, "the next generation commits what CURRENT names")
		require.Equal(t, 1, o.agains)
		require.Equal(t, []int{1, 2, 3, 3}, n.sink.rows(), "3 was promised; and then it is read again")
	})
}

// Where the manifest that CURRENT names cannot be read, nothing can take a place in it.
func TestNothingIsWrittenAgainUnderADamagedManifest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers()
		o := newOutage(n.sink)
		dir := t.TempDir()
		store, err := checkpoint.Open("file://"+dir, checkpoint.Options{Job: "numbers"})
		require.NoError(t, err)
		defer store.Close()
		n.store.Store = store
		n.source.Add(0, 1, 2)
		time.AfterFunc(1500*time.Millisecond, func() { n.source.Add(0, 3) })
		n.sink.commit = func(ctx context.Context, _ connector.Committable) error { <-ctx.Done(); return ctx.Err() }
		require.ErrorIs(t, n.runFor(t, 4500*time.Millisecond), context.DeadlineExceeded)
		current, m := n.current(t)
		require.Equal(t, uint64(3), m.Checkpoint)
		require.Len(t, m.Committables, 2)
		damageFile(t, dir, current.Manifest)
		n.sink.commit = nil
		o.loseAll()
		n.cfg.Restore = engine.RestoreConfig{From: "2", AcceptDuplicates: true}
		err = n.runFor(t, 4500*time.Millisecond)
		require.ErrorContains(t, err, "the manifest that CURRENT names cannot be read")
		require.True(t, connector.IsStop(err))
		require.Empty(t, n.sink.rows())
	})
}

// Every step of a checkpoint and of a restore is told by name, in the order in which they happen, so that a
// test can end the process at any of them.
func TestEveryStepIsToldByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers()
		o := newOutage(n.sink)
		var mu sync.Mutex
		var steps []string
		n.cfg.Reached = func(point string) {
			mu.Lock()
			defer mu.Unlock()
			steps = append(steps, point)
		}
		n.source.Add(0, 1, 2, 3)
		require.ErrorIs(t, n.runFor(t, 1500*time.Millisecond), context.DeadlineExceeded)
		first := []string{
			fault.AfterClaim, fault.AfterRestore, fault.AfterSettled,
			fault.AfterFlush, fault.AfterSnapshot, fault.AfterAck, fault.AfterManifest, fault.AfterCurrent,
		}
		second := []string{
			fault.AfterFlush, fault.AfterPrepare, fault.AfterSnapshot, fault.AfterAck, fault.AfterManifest,
			fault.AfterCurrent, fault.BeforeCommit, fault.AfterCommit, fault.AfterSettled,
		}
		require.Equal(t, slices.Concat(first, second), steps)

		n.source.Add(0, 4)
		n.sink.commit = func(ctx context.Context, _ connector.Committable) error { <-ctx.Done(); return ctx.Err() }
		require.ErrorIs(t, n.runFor(t, 1500*time.Millisecond), context.DeadlineExceeded)
		o.loseAll()
		steps = nil
		require.ErrorIs(t, n.runFor(t, 500*time.Millisecond), context.DeadlineExceeded)
		require.Equal(t, []string{
			fault.AfterClaim, fault.ReemitManifest, fault.ReemitCurrent, fault.AfterRestore, fault.AfterSettled,
		}, steps)
	})
}
