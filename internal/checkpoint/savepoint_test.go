package checkpoint

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
)

func TestSavepointNames(t *testing.T) {
	for _, name := range []string{
		"a", "before-upgrade", "v1.2_3", "2026-11-30", "0a", strings.Repeat("x", 100), "c..d", "17-", "current",
	} {
		require.NoError(t, CheckSavepointName(name))
	}
	for _, name := range []string{
		"", ".", "..", "../a", "a/b", ".tmp", "-a", "_a", "A", "ä", "a b", "a\n", "17", strings.Repeat("x", 101),
		testLineage + "-g1-c2",
	} {
		require.ErrorIs(t, CheckSavepointName(name), ErrSavepointName, name)
		s, err := openMem(newMemFS())
		require.NoError(t, err)
		_, err = s.PutSavepoint(t.Context(), name, Ref{})
		require.ErrorIs(t, err, ErrSavepointName)
		require.ErrorIs(t, s.DeleteSavepoint(t.Context(), name), ErrSavepointName)
	}
}

// A savepoint keeps its checkpoint, every file of it, however many checkpoints follow and whatever
// generation collects, until it is deleted by name.
func TestCollectKeepsWhatASavepointNames(t *testing.T) {
	fsys, l := newMemFS(), &life{retain: 1}
	l.s, _ = openMem(fsys)
	require.NoError(t, l.claim())
	require.NoError(t, l.checkpoint(1))
	require.NoError(t, l.checkpoint(2))
	put, err := l.s.PutSavepoint(t.Context(), "before", l.ref)
	require.NoError(t, err)
	require.Equal(t, Savepoint{Name: "before", Created: testTime(), Manifest: l.ref}, put)
	require.Equal(t, "savepoint before (checkpoint 2 of lineage "+testLineage+")", put.String())
	_, err = l.s.PutSavepoint(t.Context(), "before", l.ref)
	require.ErrorIs(t, err, ErrSavepointExists)
	l.s, _ = openMem(fsys)
	require.NoError(t, l.claim())
	for n := range uint64(5) {
		require.NoError(t, l.checkpoint(n+3))
	}

	all, err := l.s.Savepoints(t.Context())
	require.NoError(t, err)
	require.Equal(t, []Savepoint{put}, all)
	m, err := l.s.GetManifest(t.Context(), put.Manifest)
	require.NoError(t, err)
	requireSound(t, l.s, m)
	names, err := fsys.List(manifestsDir)
	require.NoError(t, err)
	require.Len(t, names, 2, "CURRENT's and the savepoint's")

	require.NoError(t, l.s.DeleteSavepoint(t.Context(), "before"))
	require.ErrorIs(t, l.s.DeleteSavepoint(t.Context(), "before"), ErrNoSavepoint)
	n, err := l.s.Collect(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, Collected{Manifests: 1, Files: 4}, n)
	_, err = l.s.PutSavepoint(t.Context(), "gone", put.Manifest)
	require.ErrorContains(t, err, "file does not exist")
}

// Cut short anywhere, a savepoint is there whole or not at all; one that was answered for is there.
func TestCrashWhileSavepointsComeAndGo(t *testing.T) {
	for _, how := range []crash{killed, powerLost, entriesOnDisk} {
		fsys, l := newMemFS(), &life{retain: 1}
		must, may := map[string]bool{}, map[string]bool{}
		fsys.before = func() {
			if l.s == nil {
				return
			}
			s, err := openMem(fsys.crashed(how))
			require.NoError(t, err)
			all, err := s.Savepoints(t.Context())
			require.NoError(t, err)
			got := map[string]bool{}
			for _, p := range all {
				got[p.Name] = true
				require.True(t, may[p.Name], "%s was not asked for", p.Name)
				m, err := s.GetManifest(t.Context(), p.Manifest)
				require.NoError(t, err)
				requireSound(t, s, m)
			}
			for name := range must {
				require.True(t, got[name], "%s was answered for", name)
			}
			_, err = s.Collect(t.Context(), 1)
			require.NoError(t, err)
		}
		l.s, _ = openMem(fsys)
		require.NoError(t, l.claim())
		for n, name := range []string{"a", "b", "c"} {
			require.NoError(t, l.checkpoint(uint64(n)+1))
			may[name] = true
			_, err := l.s.PutSavepoint(t.Context(), name, l.ref)
			require.NoError(t, err)
			must[name] = true
		}
		delete(must, "b")
		require.NoError(t, l.s.DeleteSavepoint(t.Context(), "b"))
		delete(may, "b")
		require.NoError(t, l.checkpoint(4))
		require.NoError(t, l.checkpoint(5))
	}
}

// What a damaged savepoint keeps is not known: nothing is deleted until it is gone, by name.
func TestDamagedSavepointStopsTheCleanUpUntilItIsDeleted(t *testing.T) {
	fsys, s, m := sample(t)
	cur, err := s.Current(t.Context())
	require.NoError(t, err)
	_, err = s.PutSavepoint(t.Context(), "a", Ref{Name: cur.Manifest, Digest: cur.ManifestDigest})
	require.NoError(t, err)
	file := savepointName("a")
	data, err := fsys.ReadFile(file)
	require.NoError(t, err)
	before := string(data)
	sound, err := s.Savepoints(t.Context())
	require.NoError(t, err)
	damage(data, 3, func(what string, damaged []byte) {
		put(fsys, file, damaged)
		got, err := s.Savepoints(t.Context())
		if err == nil { // read as the same content: a change in white space, or in the case of a field's name
			require.Equal(t, sound, got, what)
			return
		}
		requireNamed(t, err, file, what)
		_, err = s.Collect(t.Context(), 1)
		requireNamed(t, err, file, what)
	})
	put(fsys, savepointName("b"), []byte(before))
	_, err = s.Savepoints(t.Context())
	require.Error(t, err)
	require.True(t, connector.IsStop(err))
	require.NoError(t, s.DeleteSavepoint(t.Context(), "a"))
	require.NoError(t, s.DeleteSavepoint(t.Context(), "b"))
	_, err = s.Collect(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, uint64(2), m.Checkpoint)
}
