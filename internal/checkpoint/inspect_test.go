package checkpoint

import (
	"context"
	"io/fs"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
)

// aged is a store with a retained chain of two checkpoints and a savepoint of an older one.
func aged(t *testing.T) (*memFS, *life) {
	t.Helper()
	fsys, l := newMemFS(), &life{retain: 2}
	l.s, _ = openMem(fsys)
	require.NoError(t, l.claim())
	for n := range uint64(5) {
		require.NoError(t, l.checkpoint(n+1))
		if n == 1 {
			_, err := l.s.PutSavepoint(t.Context(), "second", l.ref)
			require.NoError(t, err)
		}
	}
	_, err := l.s.PutSavepoint(t.Context(), "newest", l.ref)
	require.NoError(t, err)
	return fsys, l
}

func TestListNamesWhatCanBeRestored(t *testing.T) {
	_, l := aged(t)
	all, err := List(t.Context(), l.s)
	require.NoError(t, err)
	require.Len(t, all, 3)
	for i, want := range []struct {
		checkpoint  uint64
		current     bool
		retained    bool
		savepoint   []string
		committable int
	}{{5, true, true, []string{"newest"}, 3}, {4, false, true, nil, 3}, {2, false, false, []string{"second"}, 3}} {
		e := all[i]
		require.NoError(t, e.Err)
		require.Equal(t, want.checkpoint, e.Manifest.Checkpoint)
		require.Equal(t, want.current, e.Current)
		require.Equal(t, want.retained, e.Retained)
		require.Equal(t, want.savepoint, e.Savepoints)
		require.Len(t, e.Manifest.Committables, want.committable)
		require.Greater(t, e.Size, int64(2*inlineLimit))
	}
	// CURRENT names committables of 4 and 5: what came before is settled.
	require.Equal(t, []bool{false, false, true}, []bool{all[0].Settled, all[1].Settled, all[2].Settled})
	next := l.cur
	next.Settled = true
	require.NoError(t, l.swap(next))
	all, err = List(t.Context(), l.s)
	require.NoError(t, err)
	require.True(t, all[0].Settled && all[1].Settled)

	for name, want := range map[string]uint64{
		"5": 5, "4": 4, "newest": 5, "second": 2, testLineage + "-g1-c4": 4, testLineage + "-g1-c2": 2,
	} {
		e, err := Find(t.Context(), l.s, name)
		require.NoError(t, err, name)
		require.Equal(t, want, e.Manifest.Checkpoint)
	}
	for _, name := range []string{"2", "3", "6", "first", ""} {
		_, err := Find(t.Context(), l.s, name)
		require.ErrorIs(t, err, ErrNoCheckpoint, name)
		require.ErrorContains(t, err, "there is checkpoint 5, savepoint newest, checkpoint 4, savepoint second")
		require.True(t, connector.IsStop(err))
	}
}

// Every damaged file is found, by name, and none that is sound.
func TestVerifyFindsEveryDamagedFile(t *testing.T) {
	fsys, l := aged(t)
	all, err := List(t.Context(), l.s)
	require.NoError(t, err)
	v, err := Verify(t.Context(), l.s, all)
	require.NoError(t, err)
	require.Empty(t, v.Corrupt)
	require.Equal(t, 3, v.Checkpoints)
	require.Equal(t, 9, v.Files, "a manifest and two snapshots each")
	require.Greater(t, v.Bytes, int64(3*2*inlineLimit))
	for _, e := range all {
		w, err := l.s.readManifest(t.Context(), e.Ref)
		require.NoError(t, err)
		for _, name := range append(w.files(), e.Ref.Name) {
			data, err := fsys.ReadFile(name)
			require.NoError(t, err)
			bad := append([]byte(nil), data...)
			bad[len(bad)*2/3] ^= 1
			put(fsys, name, bad)
			v, err := Verify(t.Context(), l.s, all)
			require.NoError(t, err)
			require.NotEmpty(t, v.Corrupt)
			for _, err := range v.Corrupt {
				requireNamed(t, err, name, name)
			}
			put(fsys, name, data)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Verify(ctx, l.s, all)
	require.ErrorIs(t, err, context.Canceled)
}

// Garbage is what no retained checkpoint and no savepoint refers to, of whatever lineage.
func TestGarbageIsWhatNothingRefersTo(t *testing.T) {
	fsys, l := aged(t)
	g, err := FindGarbage(t.Context(), l.s)
	require.NoError(t, err)
	require.Empty(t, g.Files)
	waste := []string{
		"manifests/0000000000000001-g1-c1.json", "snapshots/0000000000000001-g1-c1-assemble-0",
		"snapshots/" + testLineage + "-g1-c3-assemble-0", "committables/0000000000000001-g1-c1-sink-0-00",
	}
	others := []string{"manifests/notes.txt", "snapshots/" + testLineage + "-g1"}
	for _, name := range append(waste, others...) {
		require.NoError(t, l.s.write(name, true, []byte("xx")))
	}
	fsys.before = func() { // cut short anywhere, everything that can be restored is there
		s, err := openMem(fsys.crashed(powerLost))
		require.NoError(t, err)
		all, err := List(t.Context(), s)
		require.NoError(t, err)
		v, err := Verify(t.Context(), s, all)
		require.NoError(t, err)
		require.Equal(t, 3, v.Checkpoints)
		require.Empty(t, v.Corrupt)
	}
	before := maps.Clone(fsys.dirs[snapshotsDir].now)
	g, err = FindGarbage(t.Context(), l.s)
	require.NoError(t, err)
	require.ElementsMatch(t, waste, g.Files)
	require.Equal(t, int64(8), g.Bytes)
	require.Equal(t, before, fsys.dirs[snapshotsDir].now, "to look deletes nothing")
	g, err = DeleteGarbage(t.Context(), l.s)
	require.NoError(t, err)
	require.ElementsMatch(t, waste, g.Files)
	for _, name := range others {
		_, err := fsys.ReadFile(name)
		require.NoError(t, err)
	}
	g, err = FindGarbage(t.Context(), l.s)
	require.NoError(t, err)
	require.Empty(t, g.Files)

	l.s.opts.ReadOnly = true
	_, err = DeleteGarbage(t.Context(), l.s)
	require.ErrorIs(t, err, ErrReadOnly)
	_, err = FindGarbage(t.Context(), NewMemory("x"))
	require.Error(t, err)
}

// What leads to a lineage is in its manifests, in a format that an older program refuses by name.
func TestARestoreByNameIsInTheManifest(t *testing.T) {
	fsys, l := aged(t)
	m, err := l.manifest(6)
	require.NoError(t, err)
	m.Root, m.Finished = true, true
	m.Restored = Restored{From: "second", Storage: "file:///elsewhere", Manifest: l.ref}
	m.Ancestors = []string{"0000000000000001", testLineage}
	r, err := l.s.PutManifest(t.Context(), m)
	require.NoError(t, err)
	got, err := l.s.GetManifest(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, m, got)
	data, err := fsys.ReadFile(r.Name)
	require.NoError(t, err)
	require.Contains(t, string(data), `"version": 2`)
}

// A manifest that has taken another one's place is the checkpoint, under its number; a savepoint of the other
// one keeps that, and stands for CURRENT's checkpoint all the same. Without a savepoint it goes.
func TestAManifestThatTookAnothersPlaceIsTheCheckpoint(t *testing.T) {
	fsys, l := aged(t)
	replaced := l.ref
	l.s, _ = openMem(fsys)
	require.NoError(t, l.claim())
	require.NoError(t, l.replace())
	require.NoError(t, l.replace())
	require.Equal(t, "manifests/"+testLineage+"-g2-c5-r2.json", l.ref.Name)

	all, err := List(t.Context(), l.s)
	require.NoError(t, err)
	require.Len(t, all, 4)
	require.Equal(t, []Ref{l.ref, all[0].Manifest.Parent, replaced, all[3].Ref}, []Ref{all[0].Ref, all[1].Ref, all[2].Ref, all[3].Ref})
	require.Equal(t, []bool{true, false, true, false}, []bool{all[0].Current, all[1].Current, all[2].Current, all[3].Current})
	require.Equal(t, []bool{true, true, false, false}, []bool{all[0].Retained, all[1].Retained, all[2].Retained, all[3].Retained})
	for name, want := range map[string]Ref{
		"5": l.ref, testLineage + "-g2-c5-r2": l.ref, "newest": replaced, testLineage + "-g1-c5": replaced,
	} {
		e, err := Find(t.Context(), l.s, name)
		require.NoError(t, err, name)
		require.Equal(t, want, e.Ref, name)
		requireSound(t, l.s, e.Manifest)
	}
	v, err := Verify(t.Context(), l.s, all)
	require.NoError(t, err)
	require.Empty(t, v.Corrupt)
	require.ErrorIs(t, CheckSavepointName(testLineage+"-g2-c5-r2"), ErrSavepointName)

	g, err := FindGarbage(t.Context(), l.s)
	require.NoError(t, err)
	require.Equal(t, []string{"manifests/" + testLineage + "-g2-c5-r1.json"}, g.Files)
	require.NoError(t, l.s.DeleteSavepoint(t.Context(), "newest"))
	require.NoError(t, l.checkpoint(6))
	_, err = l.s.GetManifest(t.Context(), replaced)
	require.ErrorIs(t, err, fs.ErrNotExist)
	retained, err := Retained(t.Context(), l.s)
	require.NoError(t, err)
	require.Len(t, retained, 2)
	require.Equal(t, uint64(2), retained[1].Replacement)
	requireManifestsSound(t, l.s)
}
