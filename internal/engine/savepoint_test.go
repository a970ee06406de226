package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/engine"
	"example.com/weir/internal/protocol"
)

// beside runs the job beside the test, until the test ends it or ends itself.
func (n *numbers) beside(t *testing.T) (control *engine.Control, wait func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	control, ended := engine.NewControl(), make(chan error, 1)
	go func() {
		_, err := n.run(ctx, control)
		ended <- err
		close(ended)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return control, func() error { return <-ended }
}

// A savepoint is a checkpoint like any other, committed as the others are, and outlives retention.
func TestASavepointIsAnOrdinaryCheckpointThatIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers()
		n.cfg.Interval = 10 * time.Second
		n.source.Add(0, 1, 2)
		control, wait := n.beside(t)
		time.Sleep(3 * time.Second)
		p, err := control.Savepoint(t.Context(), "a")
		require.NoError(t, err)
		lineage, id := p.Checkpoint()
		require.Equal(t, control.Status().Lineage, lineage)
		require.Equal(t, uint64(2), id, "it does not wait for the interval")
		synctest.Wait()
		require.Equal(t, []int{1, 2}, n.sink.rows())
		_, err = control.Savepoint(t.Context(), "a")
		require.ErrorIs(t, err, checkpoint.ErrSavepointExists)
		_, err = control.Savepoint(t.Context(), "A")
		require.ErrorIs(t, err, checkpoint.ErrSavepointName)

		time.Sleep(time.Minute)
		control.Stop(false)
		require.NoError(t, wait())
		all, err := n.store.Savepoints(t.Context())
		require.NoError(t, err)
		require.Equal(t, []checkpoint.Savepoint{p}, all)
		m, err := n.store.GetManifest(t.Context(), p.Manifest)
		require.NoError(t, err)
		for _, s := range m.Snapshots {
			for _, h := range s.Handles {
				_, err := n.store.GetSnapshot(t.Context(), h)
				require.NoError(t, err)
			}
		}
		_, err = control.Savepoint(t.Context(), "b")
		require.ErrorIs(t, err, engine.ErrNotRunning)
	})
}

// A request that comes while a checkpoint is in progress is for the next one: the barrier of this one
// may have passed what the request came after.
func TestASavepointWaitsForTheNextCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers()
		n.cfg.Store = &slowManifests{Store: n.store, delay: 5 * time.Second}
		n.cfg.Interval = time.Hour
		control, _ := n.beside(t)
		time.Sleep(time.Second) // the first one is being written
		p, err := control.Savepoint(t.Context(), "a")
		require.NoError(t, err)
		_, id := p.Checkpoint()
		require.Equal(t, uint64(2), id)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = control.Savepoint(ctx, "b")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "may still come to be")
		time.Sleep(10 * time.Second)
		all, err := n.store.Savepoints(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 2)
	})
}

// The last checkpoint of a job can be a savepoint, even if nothing else keeps the job from ending.
func TestASavepointOfTheLastCheckpointIsMadeBeforeTheJobEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, drain := range []bool{false, true} {
			n := newNumbers()
			slow := &slowManifests{Store: n.store}
			n.cfg.Store, n.cfg.Interval = slow, time.Hour
			control, wait := n.beside(t)
			time.Sleep(time.Second)
			synctest.Wait() // nobody reads it meanwhile
			slow.delay = 5 * time.Second
			go func() { _, _ = control.Savepoint(t.Context(), "first") }()
			time.Sleep(time.Second)
			control.Stop(drain)
			p, err := control.Savepoint(t.Context(), "last")
			require.NoError(t, err)
			require.NoError(t, wait())
			current, err := n.store.Current(t.Context())
			require.NoError(t, err)
			require.Equal(t, current.Manifest, p.Manifest.Name)
			require.Equal(t, drain, current.Finished)
		}
	})
}

// A savepoint that cannot be made is an error at once, and the job goes on.
func TestASavepointOfACheckpointThatIsAbortedFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers()
		n.cfg.TolerableFailures, n.cfg.Interval = 1, time.Hour
		fail := false
		n.cfg.Store = &failingManifests{Store: n.store, fails: func(checkpoint.Manifest) bool { return fail }}
		control, wait := n.beside(t)
		time.Sleep(time.Second)
		synctest.Wait() // nobody reads it meanwhile
		fail = true
		_, err := control.Savepoint(t.Context(), "a")
		require.ErrorIs(t, err, errStorage)
		synctest.Wait()
		fail = false
		_, err = control.Savepoint(t.Context(), "a")
		require.NoError(t, err)

		n.sink.flush = func() error { return connector.Stop(errStorage) }
		_, err = control.Savepoint(t.Context(), "b")
		require.ErrorIs(t, err, engine.ErrNotRunning)
		require.ErrorIs(t, wait(), errStorage)
	})
}

// A request that comes before the job runs, or between two generations, is for the one that comes.
func TestASavepointAskedForBetweenGenerationsIsTakenByTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers()
		n.cfg.Restart = protocol.FixedDelay{Delay: time.Minute}
		n.cfg.Interval = time.Hour
		failed := false
		n.store.before = func(_, next protocol.Current) error {
			if next.Checkpoint == 1 && !failed {
				failed = true
				return checkpoint.ErrSwapUnknown
			}
			return nil
		}
		control, _ := n.beside(t)
		time.Sleep(30 * time.Second)
		p, err := control.Savepoint(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, uint64(2), control.Status().Generation)
		_, id := p.Checkpoint()
		require.Equal(t, uint64(1), id)
	})
}
