package checkpoint

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
)

// owned opens a directory as its owner and gives it up again.
func owned(t *testing.T, dir string, acceptCopy bool) error {
	t.Helper()
	opts := testOptions()
	opts.AcceptCopy = acceptCopy
	s, err := Open("file://"+dir, opts)
	if err == nil {
		require.NoError(t, s.Close())
	}
	return err
}

// usedDir returns a directory that holds a checkpoint.
func usedDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "checkpoints")
	s, err := Open("file://"+dir, testOptions())
	require.NoError(t, err)
	l := &life{s: s.(*dirStore), retain: 1}
	require.NoError(t, l.claim())
	require.NoError(t, l.checkpoint(1))
	require.NoError(t, s.Close())
	return dir
}

func copyDir(t *testing.T, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	require.NoError(t, os.CopyFS(to, os.DirFS(from)))
	return to
}

// Of two copies of one directory the copy is refused, until somebody says that it takes the other one's place; then
// it is a directory like any other, and a copy of it is one again.
func TestACopiedDirectoryIsRefusedUntilItIsAccepted(t *testing.T) {
	dir := usedDir(t)
	second := copyDir(t, dir)
	for range 2 { // it does not become the owner's by being tried
		err := owned(t, second, false)
		var copied *CopiedError
		require.ErrorAs(t, err, &copied)
		require.True(t, connector.IsStop(err))
		require.Equal(t, os.Getpid(), copied.Holder.PID)
		require.ErrorContains(t, err, "--accept-copied-directory")
		require.ErrorContains(t, err, "--fork-from")
	}
	looking := testOptions()
	looking.ReadOnly = true
	s, err := Open("file://"+second, looking) // to look at it, and to fork from it, is no harm
	require.NoError(t, err)
	_, _, err = Latest(t.Context(), s)
	require.NoError(t, err)
	require.NoError(t, s.Close())

	require.NoError(t, owned(t, dir, false))
	require.NoError(t, owned(t, second, true))
	require.NoError(t, owned(t, second, false), "once is enough")
	require.Error(t, owned(t, copyDir(t, second), false))
}

// What was put back in a directory's place is a copy, whatever number the file system gives it.
func TestADirectoryPutBackFromABackupIsRefused(t *testing.T) {
	dir := usedDir(t)
	backup := copyDir(t, dir)
	for _, name := range []string{lockName, currentName} { // file by file, as a tool does that writes aside and renames
		data, err := os.ReadFile(filepath.Join(backup, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "aside"), data, 0o600))
		require.NoError(t, os.Rename(filepath.Join(dir, "aside"), filepath.Join(dir, name)))
	}
	var copied *CopiedError
	require.ErrorAs(t, owned(t, dir, false), &copied)
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.CopyFS(dir, os.DirFS(backup)))
	require.ErrorAs(t, owned(t, dir, false), &copied)
}

// A directory that was moved or linked to is what it was; so is one whose LOCK was lost, or written by a release that
// noted no place, and one in which nothing has been checkpointed.
func TestADirectoryThatWasMovedIsNoCopy(t *testing.T) {
	dir := usedDir(t)
	moved := filepath.Join(t.TempDir(), "moved")
	require.NoError(t, os.Rename(dir, moved))
	require.NoError(t, owned(t, moved, false))
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(moved, link))
	require.NoError(t, owned(t, link, false))

	second := copyDir(t, moved)
	require.NoError(t, os.WriteFile(filepath.Join(second, lockName), []byte(`{"pid":1,"host":"a","since":"2026-03-02T10:00:00Z"}`), 0o600))
	require.NoError(t, owned(t, second, false))
	third := copyDir(t, moved)
	require.NoError(t, os.Remove(filepath.Join(third, lockName)))
	require.NoError(t, owned(t, third, false))

	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, owned(t, empty, false))
	require.NoError(t, owned(t, copyDir(t, empty), false))
}
