package engine_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/engine"
	"example.com/weir/internal/protocol"
)

// inDirectory gives the job checkpoints in a directory.
func (n *numbers) inDirectory(t *testing.T, dir string) (release func()) {
	store, err := checkpoint.Open("file://"+dir, checkpoint.Options{Job: "numbers"})
	require.NoError(t, err)
	n.store.Store = store
	return func() { require.NoError(t, store.Close()) }
}

// A fork of a running job begins where the parent's checkpoint stands, under a lineage of its own, and
// disturbs nobody. What the parent has not committed the parent commits; started again with the same words,
// the fork goes on.
func TestAForkBeginsWithACheckpointOfAJobThatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, child := newNumbers(), newNumbers()
		dir := t.TempDir()
		defer parent.inDirectory(t, dir)()
		parent.source.Add(0, 1, 2)
		release := make(chan struct{})
		parent.sink.commit = func(ctx context.Context, c connector.Committable) error {
			if c.Checkpoint > 2 {
				select {
				case <-release:
				case <-ctx.Done():
				}
			}
			return ctx.Err()
		}
		control, wait := parent.beside(t)
		time.Sleep(1500 * time.Millisecond)
		_, err := control.Savepoint(t.Context(), "a")
		require.NoError(t, err)
		parent.source.Add(0, 3)
		time.Sleep(5 * time.Second) // 3 is named and not committed

		child.source, child.cfg.Restore.Fork = parent.source, "file://"+dir
		defer child.inDirectory(t, t.TempDir())()
		require.ErrorIs(t, child.runFor(t, 5*time.Second), context.DeadlineExceeded)
		require.Empty(t, child.sink.rows(), "3 is the parent's to commit")
		begins := child.sink.restores[0]
		require.True(t, begins.Fresh)
		require.Empty(t, begins.Named)
		require.Empty(t, begins.AcceptLineages, "the parent lives: sinks need names of their own")
		require.NotEqual(t, parent.lineage(t), begins.Lineage)

		close(release)
		parent.source.Add(0, 4)
		time.Sleep(5 * time.Second)
		for range 5 {
			require.ErrorIs(t, child.runFor(t, 3*time.Second), context.DeadlineExceeded)
			require.Equal(t, begins.Lineage, child.lineage(t))
		}
		require.Equal(t, []int{4}, child.sink.rows())
		require.Equal(t, []int{1, 2, 3, 4}, parent.sink.rows())
		control.Stop(false)
		require.NoError(t, wait())

		// Of a savepoint, and of a job that has stopped.
		again := newNumbers()
		again.source = parent.source
		again.cfg.Restore = engine.RestoreConfig{Fork: "file://" + dir, From: "a"}
		defer again.inDirectory(t, t.TempDir())()
		require.ErrorIs(t, again.runFor(t, 5*time.Second), context.DeadlineExceeded)
		require.Equal(t, []int{3, 4}, again.sink.rows())

		// Into a storage that holds something else.
		child.cfg.Restore.From = "a"
		err = child.runFor(t, time.Second)
		require.ErrorIs(t, err, engine.ErrForkTarget)
		require.True(t, connector.IsStop(err))
		again.cfg.Restore = engine.RestoreConfig{Fork: "file://" + dir, From: "b"}
		defer again.inDirectory(t, t.TempDir())()
		require.ErrorIs(t, again.runFor(t, time.Second), checkpoint.ErrNoCheckpoint)
	})
}

// A fork that is cut short leaves a storage in which it can begin again, and no other lineage is taken
// for lost.
func TestAForkThatIsCutShortBeginsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, child := newNumbers(), newNumbers()
		dir := t.TempDir()
		defer parent.inDirectory(t, dir)()
		parent.source.Add(0, 1, 2)
		require.ErrorIs(t, parent.runFor(t, 5*time.Second), context.DeadlineExceeded)
		parent.source.Add(0, 3)

		target := t.TempDir()
		child.source, child.cfg.Restore.Fork = parent.source, "file://"+dir
		errDied := errors.New("the process died")
		for range 3 {
			release := child.inDirectory(t, target)
			child.store.before = func(old, _ protocol.Current) error {
				if !old.Exists() {
					return errDied
				}
				return nil
			}
			require.ErrorIs(t, child.runFor(t, 5*time.Second), errDied)
			release()
		}
		child.store.before = nil
		release := child.inDirectory(t, target)
		require.ErrorIs(t, child.runFor(t, 4500*time.Millisecond), context.DeadlineExceeded) // not at the instant of a checkpoint
		require.Equal(t, []int{3}, child.sink.rows())
		g, err := checkpoint.FindGarbage(t.Context(), child.store.Store)
		require.NoError(t, err)
		require.Len(t, g.Files, 6, "three manifests and three snapshots that nothing refers to")
		g, err = checkpoint.DeleteGarbage(t.Context(), child.store.Store)
		require.NoError(t, err)
		require.Len(t, g.Files, 6)
		release()

		// From now on a CURRENT that is missing is a CURRENT that was lost.
		require.NoError(t, os.Remove(filepath.Join(target, "CURRENT")))
		_, err = checkpoint.Open("file://"+target, checkpoint.Options{Job: "numbers"})
		var corrupt *checkpoint.CorruptError
		require.ErrorAs(t, err, &corrupt)
	})
}

// What the parent's CURRENT names and is not settled has nobody but the parent to commit it: to replace its
// lineage by name would end it. A fork that its sinks refused the first time has begun, and is held back all
// the same, with whatever words it is started again.
func TestAForkDoesNotReplaceAParentThatHasSomethingToCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, dir := newNumbers(), t.TempDir()
		defer parent.inDirectory(t, dir)()
		parent.source.Add(0, 1, 2)
		control, wait := parent.beside(t)
		time.Sleep(1500 * time.Millisecond)
		_, err := control.Savepoint(t.Context(), "a")
		require.NoError(t, err)
		control.Stop(false)
		require.NoError(t, wait())
		parent.source.Add(0, 3)
		parent.sink.commit = func(ctx context.Context, _ connector.Committable) error { <-ctx.Done(); return ctx.Err() }
		require.ErrorIs(t, parent.runFor(t, 5500*time.Millisecond), context.DeadlineExceeded)
		current, err := parent.store.Current(t.Context())
		require.NoError(t, err)
		require.False(t, current.Settled)
		replaced := current.Lineage

		child := newNumbers()
		child.source = parent.source
		defer child.inDirectory(t, t.TempDir())()
		spared := func(r engine.RestoreConfig) {
			t.Helper()
			child.cfg.Restore, child.sink.restores = r, nil
			err := child.runFor(t, 5500*time.Millisecond)
			require.ErrorIs(t, err, engine.ErrParentUnsettled)
			require.True(t, connector.IsStop(err))
			require.ErrorContains(t, err, "names 1 not known to be committed (sink sink, subtask 0, checkpoint ")
			require.ErrorContains(t, err, ": txn-")
			require.ErrorContains(t, err, replaced)
			require.ErrorContains(t, err, "weir txn commit --from-checkpoint")
			require.Empty(t, child.sink.restores)
		}
		ofCurrent := engine.RestoreConfig{Fork: "file://" + dir}
		ofSettled := engine.RestoreConfig{Fork: "file://" + dir, From: "a"}
		child.cfg.AcceptLineages = []string{"0123456789abcdef", replaced}
		spared(ofSettled)
		spared(ofCurrent)
		begun, err := child.store.Current(t.Context())
		require.NoError(t, err)
		require.False(t, begun.Exists(), "it can begin otherwise")

		errRefused := errors.New("another lineage is known under the prefix")
		child.sink.restore = func(_ context.Context, rc connector.RestoreContext) error {
			if rc.Fresh && len(rc.AcceptLineages) == 0 {
				return connector.Stop(errRefused)
			}
			return nil
		}
		child.cfg.AcceptLineages, child.cfg.Restore = nil, ofCurrent
		require.ErrorIs(t, child.runFor(t, 5500*time.Millisecond), errRefused)
		begun, err = child.store.Current(t.Context())
		require.NoError(t, err)
		require.True(t, begun.Exists())
		child.cfg.AcceptLineages = []string{replaced}
		spared(ofCurrent)
		spared(engine.RestoreConfig{})

		// Settled by its own, it has nothing to lose.
		parent.sink.commit, parent.cfg.Interval = nil, time.Hour
		require.ErrorIs(t, parent.runFor(t, 5500*time.Millisecond), context.DeadlineExceeded)
		require.Equal(t, []int{1, 2, 3}, parent.sink.rows())
		current, m, err := checkpoint.Latest(t.Context(), parent.store)
		require.NoError(t, err)
		require.True(t, current.Settled)
		require.Len(t, m.Committables, 1)
		parent.source.Add(0, 4)
		child.cfg.Restore = ofCurrent
		require.ErrorIs(t, child.runFor(t, 5500*time.Millisecond), context.DeadlineExceeded)
		require.Equal(t, []string{replaced}, child.sink.restores[0].AcceptLineages)
		require.Equal(t, []int{4}, child.sink.rows())
	})
}

// Lineages of others may be replaced whatever the parent has to commit, and a parent that is gone holds
// nobody back.
func TestAForkReplacesLineagesThatAreNotItsParents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, dir := newNumbers(), t.TempDir()
		release := parent.inDirectory(t, dir)
		parent.source.Add(0, 1)
		parent.sink.commit = func(ctx context.Context, _ connector.Committable) error { <-ctx.Done(); return ctx.Err() }
		require.ErrorIs(t, parent.runFor(t, 5500*time.Millisecond), context.DeadlineExceeded)
		lineage := parent.lineage(t)

		child := newNumbers()
		child.source, child.cfg.Restore.Fork = parent.source, "file://"+dir
		child.cfg.AcceptLineages = []string{"0123456789abcdef"}
		defer child.inDirectory(t, t.TempDir())()
		require.ErrorIs(t, child.runFor(t, 5500*time.Millisecond), context.DeadlineExceeded)

		release()
		require.NoError(t, os.RemoveAll(dir))
		child.cfg.AcceptLineages = []string{lineage}
		require.ErrorIs(t, child.runFor(t, 5500*time.Millisecond), context.DeadlineExceeded)
	})
}

// A fork of what cannot be read says so: it does not look again and again for something newer.
func TestAForkOfWhatItCannotReadFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, dir := newNumbers(), t.TempDir()
		defer parent.inDirectory(t, dir)()
		require.ErrorIs(t, parent.runFor(t, 5500*time.Millisecond), context.DeadlineExceeded)
		current, err := parent.store.Current(t.Context())
		require.NoError(t, err)
		require.NoError(t, os.Remove(filepath.Join(dir, current.Manifest)))

		child := newNumbers()
		child.source, child.cfg.Restore.Fork = parent.source, "file://"+dir
		defer child.inDirectory(t, t.TempDir())()
		var corrupt *checkpoint.CorruptError
		require.ErrorAs(t, child.runFor(t, 5500*time.Millisecond), &corrupt)
		require.Equal(t, current.Manifest, corrupt.File)
	})
}
