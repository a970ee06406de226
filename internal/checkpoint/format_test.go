package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
	"example.com/weir/internal/protocol"
)

// TestFormat1 holds the files of testdata/v1, which stay as the first release wrote them, against
// what is written and read today. -rewrite writes them again: only for a format not yet released.
func TestFormat1(t *testing.T) {
	const golden = "testdata/v1"
	written := t.TempDir()
	l := goldenLife(t, written)
	for n := range uint64(3) {
		require.NoError(t, l.checkpoint(n+1))
	}
	endGoldenLife(t, l, written)
	requireGolden(t, golden, written)

	s := openCopy(t, golden)
	require.Equal(t, l.cur, requireComplete(t, s))
	retained, err := Retained(t.Context(), s)
	require.NoError(t, err)
	require.Len(t, retained, 2)
	require.Equal(t, testTime(), retained[0].Created)
	require.Equal(t, Operator{UID: "assemble", Kind: "process", Parallelism: 2, Stateful: true},
		retained[0].Operators[0])
}

// goldenLife begins a life whose files are the same each time.
func goldenLife(t *testing.T, written string) *life {
	t.Helper()
	s, err := Open("file://"+written, testOptions())
	require.NoError(t, err)
	l := &life{retain: 2, s: s.(*dirStore)}
	l.s.nonce = func() string { return strings.Repeat("0f", 16) }
	l.s.me = func() Holder { return Holder{PID: 4711, Host: "host-a", Since: testTime()} }
	require.NoError(t, l.claim())
	return l
}

func endGoldenLife(t *testing.T, l *life, written string) {
	t.Helper()
	require.NoError(t, l.s.Close())
	require.NoError(t, os.Remove(filepath.Join(written, lockName)))
}

// openCopy opens a copy of golden files.
func openCopy(t *testing.T, golden string) *dirStore {
	t.Helper()
	copied := t.TempDir()
	require.NoError(t, os.CopyFS(copied, os.DirFS(golden)))
	s, err := Open("file://"+copied, testOptions())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s.(*dirStore)
}

// requireGolden holds what was written against the golden files, each of which is there.
func requireGolden(t *testing.T, golden, written string) {
	t.Helper()
	rewriteGolden(t, golden, written)
	require.NoError(t, fs.WalkDir(os.DirFS(golden), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		want, err := os.ReadFile(filepath.Join(golden, name))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(written, name))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "%s is written in another way", name)
		return nil
	}))
}

func rewriteGolden(t *testing.T, golden, written string) {
	t.Helper()
	if flag.Lookup("rewrite").Value.String() == "true" {
		require.NoError(t, os.RemoveAll(golden))
		require.NoError(t, os.CopyFS(golden, os.DirFS(written)))
	}
}

// TestFormat4 reads what format 4 has more: a checkpoint behind which sinks have shown nothing.
func TestFormat4(t *testing.T) {
	const golden = "testdata/v4"
	written := t.TempDir()
	l := goldenLife(t, written)
	require.NoError(t, l.checkpoint(1))
	m, err := l.manifest(2)
	require.NoError(t, err)
	m.Committables, m.QuietSince = nil, 1
	ref, err := l.s.PutManifest(t.Context(), m)
	require.NoError(t, err)
	next := l.cur
	next.Checkpoint, next.Manifest, next.ManifestDigest, next.Nonce = 2, ref.Name, ref.Digest, ""
	require.NoError(t, l.swap(next))
	endGoldenLife(t, l, written)
	requireGolden(t, golden, written)

	s := openCopy(t, golden)
	_, read, err := Latest(t.Context(), s)
	require.NoError(t, err)
	require.EqualValues(t, 1, read.QuietSince)
}

// TestFormat3 reads what format 3 has more: a manifest that has taken another one's place, and kept records, in
// a manifest and in a file. What is compressed has other bytes on other machines, so it is not compared as
// written.
func TestFormat3(t *testing.T) {
	const golden = "testdata/v3"
	written := t.TempDir()
	l := goldenLife(t, written)
	require.NoError(t, l.checkpoint(1))
	m, err := l.manifest(2)
	require.NoError(t, err)
	rec := NewRecorder(l.s, RecordsName{Lineage: testLineage, Generation: 1, Sink: "large/sink"})
	for i, n := range []int{5, 2000} {
		x := rec.Begin()
		x.Write(rows(n))
		m.Committables[i].Kept = x.Seal()
		require.NoError(t, x.Sync())
	}
	ref, err := l.s.PutManifest(t.Context(), m)
	require.NoError(t, err)
	next := l.cur
	next.Checkpoint, next.Manifest, next.ManifestDigest, next.Nonce = 2, ref.Name, ref.Digest, ""
	require.NoError(t, l.swap(next))
	l.ref = ref
	require.NoError(t, l.claim())
	require.NoError(t, l.replace())
	endGoldenLife(t, l, written)
	rewriteGolden(t, golden, written)

	s := openCopy(t, golden)
	require.Equal(t, l.cur.Manifest, requireComplete(t, s).Manifest)
	_, read, err := Latest(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, uint64(1), read.Replacement)
	for i, n := range []int{5, 2000} {
		require.Equal(t, i == 0, read.Committables[i].Kept.Inline != nil)
		got, err := readAll(t, s, read.Committables[i].Kept)
		require.NoError(t, err)
		require.Equal(t, string(rows(n)), string(got))
	}
}

// sample is a store with two small checkpoints, and the files of the second.
func sample(t *testing.T) (fsys *memFS, s *dirStore, m Manifest) {
	t.Helper()
	fsys = newMemFS()
	l := &life{retain: 2}
	l.s, _ = openMem(fsys)
	require.NoError(t, l.claim())
	require.NoError(t, l.checkpoint(1))
	require.NoError(t, l.checkpoint(2))
	_, m, err := Latest(t.Context(), l.s)
	require.NoError(t, err)
	return fsys, l.s, m
}

// damage lists a file's content damaged in every place: each byte changed, in one of several
// ways by turns, and cut to one length after the other. step is how many bytes lie between two.
func damage(data []byte, step int, each func(what string, damaged []byte)) {
	for i := 0; i < len(data); i += step {
		x := []byte{0x01, 0x20, 0xff, 0x80, 0x04}[i%5]
		d := bytes.Clone(data)
		d[i] ^= x
		each(fmt.Sprintf("byte %d ^ %#x", i, x), d)
		if i%7 == 0 {
			each(fmt.Sprintf("cut to %d bytes", i), data[:i])
		}
	}
	each("with a byte more", append(bytes.Clone(data), 'x'))
}

// put replaces a file's content behind the store's back.
func put(fsys *memFS, name string, data []byte) {
	d, base := fsys.entry(name)
	d.now[base] = &memInode{now: data, disk: data}
}

func requireNamed(t *testing.T, err error, file, what string) {
	t.Helper()
	require.Error(t, err, what)
	require.True(t, connector.IsStop(err), what)
	var corrupt *CorruptError
	var format *FormatError
	switch {
	case errors.As(err, &corrupt):
		require.Equal(t, file, corrupt.File, what)
		require.NotEmpty(t, corrupt.What)
	case errors.As(err, &format):
		require.Equal(t, file, format.File, what)
	default:
		require.Fail(t, "not named", "%s: %v", what, err)
	}
}

func TestDamagedSnapshotIsNamed(t *testing.T) {
	fsys, s, m := sample(t)
	h := m.Snapshots[0].Handles[0]
	data, err := fsys.ReadFile(h.Name)
	require.NoError(t, err)
	damage(data, 1, func(what string, damaged []byte) {
		put(fsys, h.Name, damaged)
		_, err := s.GetSnapshot(t.Context(), h)
		requireNamed(t, err, h.Name, what)
	})

	data[len(data)-1] ^= 1
	put(fsys, h.Name, data)
	_, err = s.GetSnapshot(t.Context(), h)
	require.ErrorContains(t, err, "the checksum of its payload differs")

	require.NoError(t, fsys.Remove(h.Name))
	_, err = s.GetSnapshot(t.Context(), h)
	requireNamed(t, err, h.Name, "removed")
	require.EqualError(t, err, "snapshots/5b1f00aa12cd34ef-g1-c2-assemble-0 of checkpoint 2 is corrupt: "+
		"it is missing; older checkpoints that are retained: manifests/5b1f00aa12cd34ef-g1-c1.json; "+
		"to go back to the newest of them, restore it by number: --restore 1")

	other, err := fsys.ReadFile(m.Snapshots[1].Handles[0].Name)
	require.NoError(t, err)
	put(fsys, h.Name, other)
	_, err = s.GetSnapshot(t.Context(), h)
	require.ErrorContains(t, err, "it is sound, and not the one that the manifest names")
}

func TestDamagedCommittableIsNamed(t *testing.T) {
	fsys, s, _ := sample(t)
	names, err := fsys.List(committablesDir)
	require.NoError(t, err)
	file := committablesDir + "/" + names[len(names)-1]
	data, err := fsys.ReadFile(file)
	require.NoError(t, err)
	for _, i := range []int{0, 8, 12, 20, 52, headerSize, len(data) - 1} {
		damaged := bytes.Clone(data)
		damaged[i] ^= 0x80
		put(fsys, file, damaged)
		_, _, err := Latest(t.Context(), s)
		requireNamed(t, err, file, fmt.Sprint(i))
	}
}

func TestDamagedManifestIsNamed(t *testing.T) {
	fsys, s, _ := sample(t)
	cur, err := s.Current(t.Context())
	require.NoError(t, err)
	data, err := fsys.ReadFile(cur.Manifest)
	require.NoError(t, err)
	damage(data, 3, func(what string, damaged []byte) {
		put(fsys, cur.Manifest, damaged)
		_, _, err := Latest(t.Context(), s)
		requireNamed(t, err, cur.Manifest, what)
		require.ErrorContains(t, err, "manifests/5b1f00aa12cd34ef-g1-c")
		_, err = s.Collect(t.Context(), 1)
		require.Error(t, err, "what a damaged manifest refers to is not known: nothing is deleted")
	})
	names, err := fsys.List(manifestsDir)
	require.NoError(t, err)
	require.Len(t, names, 2)
	require.NoError(t, fsys.Remove(cur.Manifest))
	_, _, err = Latest(t.Context(), s)
	requireNamed(t, err, cur.Manifest, "removed")
	require.ErrorContains(t, err, "CURRENT names it and it is missing; older checkpoints that are retained: ")
	_, err = s.GetManifest(t.Context(), Ref{Name: "manifests/5b1f00aa12cd34ef-g1-c9.json"})
	require.ErrorIs(t, err, fs.ErrNotExist, "what CURRENT does not name may have been let go")
	require.False(t, connector.IsStop(err))
	all, err := List(t.Context(), s)
	require.NoError(t, err)
	v, err := Verify(t.Context(), s, all)
	require.NoError(t, err)
	require.Len(t, v.Corrupt, 1)
	requireNamed(t, v.Corrupt[0], cur.Manifest, "verified")
}

// TestDamagedCurrentIsNamed: a change that is read as the same content (in white space, in the
// case of a field's name) is no damage. A CURRENT that is not there is no fresh start.
func TestDamagedCurrentIsNamed(t *testing.T) {
	fsys, s, _ := sample(t)
	want, err := s.Current(t.Context())
	require.NoError(t, err)
	data, err := fsys.ReadFile(currentName)
	require.NoError(t, err)
	harmless := 0
	damage(data, 1, func(what string, damaged []byte) {
		put(fsys, currentName, damaged)
		got, err := s.Current(t.Context())
		if err == nil {
			require.Equal(t, want, got, what)
			harmless++
			return
		}
		requireNamed(t, err, currentName, what)
		_, err = s.Swap(t.Context(), want, want)
		require.Error(t, err, "nothing is put in the place of what cannot be read")
		_, err = openMem(fsys)
		requireNamed(t, err, currentName, what)
	})
	require.Less(t, harmless, len(data)/4)

	require.NoError(t, fsys.Remove(currentName))
	_, err = s.Current(t.Context())
	requireNamed(t, err, currentName, "removed")
	require.ErrorContains(t, err, "put the whole directory back as it was at one moment, or begin afresh in another one")
	require.ErrorContains(t, err, "manifests that are in order: "+
		"manifests/5b1f00aa12cd34ef-g1-c2.json, manifests/5b1f00aa12cd34ef-g1-c1.json")
	require.NotContains(t, err.Error(), "--restore", "without CURRENT no restore is known to be right")
}

// A manifest says since when nothing has been shown, in the version that has a word for it, and no other needs that.
func TestAQuietManifestIsReadAsItWasWritten(t *testing.T) {
	for since, version := range map[uint64]int{0: 1, 1: 4, 41: 4} {
		m := Manifest{Job: "quiet", Lineage: testLineage, Generation: 3, Checkpoint: 42, QuietSince: since}
		w := m.wire()
		require.Equal(t, version, w.version())
		data, err := seal(manifestKind, w.version(), w)
		require.NoError(t, err)
		read, err := decodeManifest(manifestName(m.origin()), data, digest{})
		require.NoError(t, err)
		require.Equal(t, since, read.manifest().QuietSince)
	}
}

func TestNewerFormatIsRefusedByName(t *testing.T) {
	fsys, s, m := sample(t)
	cur, err := s.Current(t.Context())
	require.NoError(t, err)
	for _, file := range []string{cur.Manifest, currentName} {
		data, err := fsys.ReadFile(file)
		require.NoError(t, err)
		var e map[string]any
		require.NoError(t, json.Unmarshal(data, &e))
		e["version"], e["content"] = newestText+1, "laid out in another way"
		data, err = json.Marshal(e)
		require.NoError(t, err)
		put(fsys, file, data)
		_, _, err = Latest(t.Context(), s)
		require.EqualError(t, err, file+" has format version 5, and this program reads up to 4: "+
			"use the newer program")
		require.True(t, connector.IsStop(err))
	}
	h := m.Snapshots[0].Handles[0]
	data, err := fsys.ReadFile(h.Name)
	require.NoError(t, err)
	data[11] = frameVersion + 1
	put(fsys, h.Name, data)
	_, err = s.GetSnapshot(t.Context(), h)
	require.ErrorContains(t, err, h.Name+" has format version 2, and this program reads up to 1")
}

func TestForeignDirectoryIsRefusedByName(t *testing.T) {
	fsys, _, _ := sample(t)
	opts := testOptions()
	opts.Job = "edi"
	_, err := newDirStore(fsys, opts)
	require.EqualError(t, err, `it holds the checkpoints of job "gatewaymeter", not of job "edi": `+
		"each job has a storage address of its own")
	require.True(t, connector.IsStop(err))
}

func TestNames(t *testing.T) {
	o := origin{lineage: testLineage, generation: 12, checkpoint: 345}
	long := strings.Repeat("ä/", 100)
	files := map[string]bool{}
	uids := []string{"a", "a-1", "a-1-2", "A.b_c", "a/b", "a%2Fb", "..", "ä", long, long + "x", ""}
	for _, uid := range uids {
		for _, name := range []string{snapshotName(o, uid, 3), committableName(o, uid, 3, digest{1})} {
			got, ok := parseOrigin(name)
			require.True(t, ok, name)
			require.Equal(t, o, got)
			require.False(t, files[name], "%s is the name of two things", name)
			require.LessOrEqual(t, len(filepath.Base(name)), 255)
			require.Len(t, strings.Split(name, "/"), 2)
			files[name] = true
		}
	}
	got, ok := parseOrigin(manifestName(o))
	require.True(t, ok)
	require.Equal(t, o, got)
	o.replacement = 7
	got, ok = parseOrigin(manifestName(o))
	require.True(t, ok)
	require.Equal(t, o, got)
	for _, name := range []string{
		testLineage + "-g1-c2-r0.json", testLineage + "-g1-c2-r.json", testLineage + "-g1-c2-x1.json",
		testLineage + "-g1-c2-r1-r2.json", testLineage + "-g1-c2-r-1.json",
		"", "CURRENT", "notes.txt", testLineage, testLineage + "-g1", testLineage + "-g1-c2",
		testLineage + "-g1-c2.txt", testLineage + "-g0-c2.json", "x-g1-c2.json",
		"5B1F00AA12CD34EF-g1-c2.json", testLineage + "-g1-cx-a-0", testLineage + "-g-1-c1.json",
	} {
		_, ok := parseOrigin(name)
		require.False(t, ok, name)
	}
	s, err := openMem(newMemFS())
	require.NoError(t, err)
	_, err = s.PutSnapshot(t.Context(), SnapshotName{Lineage: "../../etc", Generation: 1, Checkpoint: 1}, nil)
	require.ErrorContains(t, err, "want 16 hexadecimal digits")
	_, err = s.PutManifest(t.Context(), Manifest{Lineage: testLineage, Generation: 1})
	require.ErrorContains(t, err, "both begin at 1")
}

func TestNewLineage(t *testing.T) {
	a, b := NewLineage(), NewLineage()
	require.NoError(t, origin{lineage: a, generation: 1, checkpoint: 1}.valid())
	require.NotEqual(t, a, b)
}

func TestMemoryKeepsTheSameContract(t *testing.T) {
	var s Store = NewMemory("gatewaymeter")
	none, err := s.Current(t.Context())
	require.NoError(t, err)
	require.False(t, none.Exists())
	first, err := s.Swap(t.Context(), none, protocol.Current{Job: "gatewaymeter", Lineage: testLineage})
	require.NoError(t, err)
	second, err := s.Swap(t.Context(), first, first)
	require.NoError(t, err)
	require.NotEqual(t, first.Nonce, second.Nonce)
	_, err = s.Swap(t.Context(), first, first)
	require.ErrorIs(t, err, ErrSwapRefused)
}
