package checkpoint

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
)

var recordsOf7 = RecordsName{Lineage: testLineage, Generation: 7, Sink: "large/sink", Subtask: 3}

// rows is content that does not compress to nothing.
func rows(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "row %d of %x;", i, uint32(i)*2654435761)
	}
	return b.Bytes()
}

func readAll(t *testing.T, s Store, k connector.Kept) ([]byte, error) {
	t.Helper()
	r, err := ReadRecords(t.Context(), s, k)
	if err != nil {
		return nil, err
	}
	defer func() { require.NoError(t, r.Close()) }()
	return io.ReadAll(r)
}

// What was kept is read back, of whatever size, from a file or from the manifest; and one after the other.
func TestKeptRecordsAreReadBack(t *testing.T) {
	dir, err := newDirStore(newMemFS(), testOptions())
	require.NoError(t, err)
	for _, s := range []Store{dir, NewMemory("gatewaymeter")} {
		rec := NewRecorder(s, recordsOf7)
		var all []connector.Kept
		sizes := []int{0, 1, 30, 300, 5000, 40000, 300}
		for _, n := range sizes {
			x := rec.Begin()
			for _, row := range bytes.SplitAfter(rows(n), []byte(";")) {
				x.Write(row)
			}
			k := x.Seal()
			require.NoError(t, x.Sync())
			require.True(t, x.Done())
			require.Equal(t, x.Size(), k.Size)
			require.Equal(t, n < 1000, k.Inline != nil, "%d rows are %d bytes", n, k.Size)
			all = append(all, k)
		}
		for i, k := range all {
			got, err := readAll(t, s, k)
			require.NoError(t, err)
			require.Equal(t, string(rows(sizes[i])), string(got))
		}
		require.Greater(t, all[5].Size, int64(3*recordsBuffer), "several buffers")
		require.Less(t, all[5].Size, int64(len(rows(sizes[5]))), "compressed")
	}
}

// However long a stream is, it takes the same of memory, and what is written is on disk meanwhile.
func TestKeptRecordsTakeBoundedMemory(t *testing.T) {
	fsys := newMemFS()
	s, err := newDirStore(fsys, testOptions())
	require.NoError(t, err)
	x := NewRecorder(s, recordsOf7).Begin()
	data := rows(200_000)
	for len(data) > 0 {
		n := min(1000, len(data))
		x.Write(data[:n])
		data = data[n:]
		onDisk := int64(0)
		if x.file != nil {
			onDisk, err = fsys.Size(x.Name())
			require.NoError(t, err)
		}
		require.LessOrEqual(t, x.Size()-onDisk, int64(recordsBuffer))
		require.LessOrEqual(t, cap(x.held), 4*recordsBuffer)
	}
	require.Greater(t, x.Size(), int64(10*recordsBuffer))
	x.Discard()
	names, err := fsys.List(recordsDir)
	require.NoError(t, err)
	require.Empty(t, names)
}

// Every byte of a file counts: what is damaged is named, at the latest at its end.
func TestDamagedRecordsAreNamed(t *testing.T) {
	fsys := newMemFS()
	s, err := newDirStore(fsys, testOptions())
	require.NoError(t, err)
	rec := NewRecorder(s, recordsOf7)
	for _, n := range []int{100, 8000} {
		x := rec.Begin()
		x.Write(rows(n))
		k := x.Seal()
		require.NoError(t, x.Sync())
		data := k.Inline
		if data == nil {
			data, err = fsys.ReadFile(k.Name)
			require.NoError(t, err)
		}
		damage(data, 1+len(data)/3000, func(what string, bad []byte) {
			damaged := k
			if k.Inline != nil {
				damaged.Inline = bad
			} else {
				put(fsys, k.Name, bad)
			}
			_, err := readAll(t, s, damaged)
			requireNamed(t, err, k.Name, what)
		})
		if k.Inline == nil {
			require.NoError(t, fsys.Remove(k.Name))
			_, err := readAll(t, s, k)
			requireNamed(t, err, k.Name, "gone")
			require.ErrorContains(t, err, "it is missing")
			require.Equal(t, 1, strings.Count(err.Error(), k.Name), err)
		}
	}
	_, err = readAll(t, s, connector.Kept{})
	require.ErrorContains(t, err, "not kept")
}

// A storage that fails is told by Sync, nothing is named, and no file is left; nothing waits for it.
func TestRecordsThatCannotBeWrittenAreNotNamed(t *testing.T) {
	for k := 1; ; k++ {
		fsys := newMemFS()
		s, err := newDirStore(fsys, testOptions())
		require.NoError(t, err)
		fsys.failAt = len(fsys.ops) + k
		x := NewRecorder(s, recordsOf7).Begin()
		for range 10 {
			x.Write(rows(10_000))
		}
		kept := x.Seal()
		err = x.Sync()
		if fsys.failed == "" {
			require.NoError(t, err)
			require.Greater(t, k, 5)
			return
		}
		if strings.HasPrefix(fsys.failed, "close") {
			continue // it was synced
		}
		require.ErrorIs(t, err, errInjected, fsys.failed)
		require.Equal(t, strings.HasPrefix(fsys.failed, "fsync"), connector.IsStop(err), fsys.failed)
		require.True(t, x.Done())
		if !strings.HasPrefix(fsys.failed, "fsync") {
			names, err := fsys.List(recordsDir)
			require.NoError(t, err)
			require.Empty(t, names, fsys.failed)
		}
		_ = kept // named or not: whoever asks has to look at Sync
	}
}

// Records that a swapped CURRENT names are durable, whenever the power goes.
func TestKeptRecordsAreDurableBeforeTheyAreNamed(t *testing.T) {
	fsys, l := newMemFS(), &life{retain: 1}
	var want []byte
	l.s, _ = openMem(fsys)
	fsys.before = func() {
		for _, how := range []crash{killed, powerLost, entriesOnDisk} {
			s, err := openMem(fsys.crashed(how))
			require.NoError(t, err)
			_, m, err := Latest(t.Context(), s)
			require.NoError(t, err)
			for _, c := range m.Committables {
				if c.Kept.Name != "" {
					got, err := readAll(t, s, c.Kept)
					require.NoError(t, err)
					require.Equal(t, string(want), string(got))
				}
			}
		}
	}
	require.NoError(t, l.claim())
	x := NewRecorder(l.s, recordsOf7).Begin()
	want = rows(9000)
	x.Write(want)
	m, err := l.manifest(1)
	require.NoError(t, err)
	m.Committables[0].Kept = x.Seal()
	require.NoError(t, x.Sync())
	ref, err := l.s.PutManifest(t.Context(), m)
	require.NoError(t, err)
	next := l.cur
	next.Checkpoint, next.Manifest, next.ManifestDigest, next.Nonce = 1, ref.Name, ref.Digest, ""
	require.NoError(t, l.swap(next))
	fsys.before()
	_, read, err := Latest(t.Context(), l.s)
	require.NoError(t, err)
	require.Equal(t, m.Committables[0].Kept, read.Committables[0].Kept)
}

// aKeeping is a store of generation 8 whose CURRENT names records of generation 7, beside other ones.
func aKeeping(t *testing.T) (fsys *memFS, l *life, named string) {
	t.Helper()
	fsys, l = newMemFS(), &life{retain: 1}
	l.s, _ = openMem(fsys)
	for range 7 {
		require.NoError(t, l.claim())
	}
	require.NoError(t, l.checkpoint(1))
	m, err := l.manifest(2)
	require.NoError(t, err)
	rec := NewRecorder(l.s, recordsOf7)
	for i := range 3 {
		x := rec.Begin()
		x.Write(rows(3000))
		k := x.Seal()
		require.NoError(t, x.Sync())
		if i == 1 {
			m.Committables[0].Kept, named = k, k.Name
		}
	}
	ref, err := l.s.PutManifest(t.Context(), m)
	require.NoError(t, err)
	next := l.cur
	next.Checkpoint, next.Manifest, next.ManifestDigest, next.Nonce = 2, ref.Name, ref.Digest, ""
	require.NoError(t, l.swap(next))
	l.ref = ref
	require.NoError(t, l.claim())
	own := recordsOf7
	own.Generation = 8
	x := NewRecorder(l.s, own).Begin()
	x.Write(rows(3000))
	x.Seal()
	require.NoError(t, x.Sync())
	return fsys, l, named
}

// The clean-up leaves what an unsettled CURRENT names and what the running generation has; garbage is what
// CURRENT does not wait for, and so it is once it is settled.
func TestKeptRecordsGoWithWhatTheyAreKeptFor(t *testing.T) {
	fsys, l, named := aKeeping(t)
	_, err := l.s.PutSavepoint(t.Context(), "a", l.ref)
	require.NoError(t, err)
	own := filepath.Join(recordsDir, testLineage+"-g8-n1-large%2Fsink-3")
	g, err := FindGarbage(t.Context(), l.s)
	require.NoError(t, err)
	require.Len(t, g.Files, 3)
	require.Contains(t, g.Files, own, "no CURRENT waits for it")
	require.NotContains(t, g.Files, named)

	_, err = l.s.Collect(t.Context(), 1)
	require.NoError(t, err)
	names, err := fsys.List(recordsDir)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{filepath.Base(named), filepath.Base(own)}, names)

	next := l.cur
	next.Settled = true
	require.NoError(t, l.swap(next))
	_, err = l.s.Collect(t.Context(), 1)
	require.NoError(t, err)
	names, err = fsys.List(recordsDir)
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Base(own)}, names, "the savepoint keeps no records")
	require.NoError(t, l.s.DeleteRecords(t.Context(), []string{own, own}))
	g, err = FindGarbage(t.Context(), l.s)
	require.NoError(t, err)
	require.Empty(t, g.Files)
}

// Kept records are verified for as long as CURRENT waits for what they are kept for.
func TestVerifyReadsTheRecordsThatCurrentWaitsFor(t *testing.T) {
	fsys, l, named := aKeeping(t)
	verify := func() Verified {
		all, err := List(t.Context(), l.s)
		require.NoError(t, err)
		v, err := Verify(t.Context(), l.s, all)
		require.NoError(t, err)
		return v
	}
	require.Empty(t, verify().Corrupt)
	data, err := fsys.ReadFile(named)
	require.NoError(t, err)
	data[len(data)/2] ^= 1
	put(fsys, named, data)
	v := verify()
	require.Len(t, v.Corrupt, 1)
	requireNamed(t, v.Corrupt[0], named, "records")
	require.ErrorContains(t, v.Corrupt[0], "--lost-transaction skip")
	next := l.cur
	next.Settled = true
	require.NoError(t, l.swap(next))
	require.Empty(t, verify().Corrupt)
}

func TestNamesOfRecords(t *testing.T) {
	for _, sink := range []string{"a", "a-1", "a-n1-x", "a/b", "..", strings.Repeat("ä/", 100), ""} {
		n := RecordsName{Lineage: testLineage, Generation: 12, Sink: sink, Subtask: 4, Number: 5}
		lineage, generation, ok := recordsOrigin(n.file())
		require.True(t, ok, n.file())
		require.Equal(t, testLineage, lineage)
		require.Equal(t, uint64(12), generation)
		require.LessOrEqual(t, len(filepath.Base(n.file())), 255)
	}
	for _, name := range []string{
		"", "x", testLineage + "-g1-c2-a-0", testLineage + "-g1-n-a-0", testLineage + "-g0-n1-a-0", testLineage + "-g1-n1",
	} {
		_, _, ok := recordsOrigin(name)
		require.False(t, ok, name)
	}
}
