package checkpoint

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
	"example.com/weir/internal/protocol"
)

const testLineage = "5b1f00aa12cd34ef"

func testTime() time.Time { return time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC) }

func testOptions() Options { return Options{Job: "gatewaymeter", Now: testTime} }

// openMem opens a store over a memFS, with nonces that are the same in every run.
func openMem(fsys *memFS) (*dirStore, error) {
	s, err := newDirStore(fsys, testOptions())
	if err != nil {
		return nil, err
	}
	n := 0
	s.nonce = func() string {
		n++
		return fmt.Sprintf("%032x", n)
	}
	return s, nil
}

// life drives a store the way a job does, and knows what has been promised to it.
type life struct {
	s      *dirStore
	cur    protocol.Current // what the last swap that was answered said
	asked  protocol.Current // what the swap that is out asks for
	ref    Ref
	retain int
}

func (l *life) swap(next protocol.Current) error {
	l.asked = next
	cur, err := l.s.Swap(context.Background(), l.cur, next)
	if err != nil {
		return err
	}
	l.cur, l.asked = cur, cur
	return nil
}

// claim begins the next generation.
func (l *life) claim() error {
	cur, err := l.s.Current(context.Background())
	if err != nil {
		return err
	}
	l.cur, l.ref = cur, Ref{Name: cur.Manifest, Digest: cur.ManifestDigest}
	next := cur
	if !cur.Exists() {
		next = protocol.Current{Job: l.s.opts.Job, Lineage: testLineage}
	}
	next.Generation++
	next.Nonce = ""
	return l.swap(next)
}

// checkpoint takes checkpoint n: snapshots, manifest, swap, clean-up.
func (l *life) checkpoint(n uint64) error {
	m, err := l.manifest(n)
	if err != nil {
		return err
	}
	ref, err := l.s.PutManifest(context.Background(), m)
	if err != nil {
		return err
	}
	next := l.cur
	next.Checkpoint, next.Manifest, next.ManifestDigest, next.Nonce = n, ref.Name, ref.Digest, ""
	if err := l.swap(next); err != nil {
		return err
	}
	l.ref = ref
	_, err = l.s.Collect(context.Background(), l.retain)
	return err
}

// replace puts the manifest's first committable, written again, in the other one's place.
func (l *life) replace() error {
	m, err := l.s.GetManifest(context.Background(), l.ref)
	if err != nil {
		return err
	}
	if m.Generation != l.cur.Generation {
		m.Generation, m.Replacement = l.cur.Generation, 0
	}
	m.Replacement++
	m.Committables[0].Payload = append(m.Committables[0].Payload, again...)
	ref, err := l.s.PutManifest(context.Background(), m)
	if err != nil {
		return err
	}
	next := l.cur
	next.Manifest, next.ManifestDigest, next.Nonce = ref.Name, ref.Digest, ""
	if err := l.swap(next); err != nil {
		return err
	}
	l.ref = ref
	return nil
}

// again marks the payload of a committable that was written again.
const again = " again"

// manifest writes the snapshots of checkpoint n and describes it.
func (l *life) manifest(n uint64) (Manifest, error) {
	m := Manifest{
		Job: l.s.opts.Job, Lineage: l.cur.Lineage, Generation: l.cur.Generation, Checkpoint: n,
		Parent: l.ref, Created: testTime(), MaxParallelism: 128, KeyHash: "xxhash64",
		Operators: []Operator{
			{UID: "assemble", Kind: "process", Parallelism: 2, Stateful: true},
			{UID: "sink", Kind: "sink", Parallelism: 1},
		},
	}
	for i := range 2 {
		id := protocol.SubtaskID{Operator: "assemble", Index: i}
		h, err := l.s.PutSnapshot(context.Background(), SnapshotName{
			Lineage: m.Lineage, Generation: m.Generation, Checkpoint: n, Subtask: id,
		}, payloadOf(n, i))
		if err != nil {
			return m, err
		}
		m.Snapshots = append(m.Snapshots, protocol.SubtaskSnapshot{Subtask: id, Handles: []protocol.Handle{h}})
	}
	m.Snapshots = append(m.Snapshots, protocol.SubtaskSnapshot{
		Subtask: protocol.SubtaskID{Operator: "sink"},
	})
	// One small committable, and a large one that travels in the next manifest too.
	m.Committables = append(m.Committables, committableOf(n, 20))
	if n > 1 {
		m.Committables = append(m.Committables, committableOf(n-1, inlineLimit+1))
	}
	m.Committables = append(m.Committables, committableOf(n, inlineLimit+1))
	return m, nil
}

func payloadOf(n uint64, subtask int) []byte { return fmt.Appendf(nil, "state %d of %d", n, subtask) }

func committableOf(n uint64, size int) connector.Committable {
	payload := bytes.Repeat([]byte{byte('a' + n)}, size)
	sink := "small"
	if size > inlineLimit {
		sink = "large/sink"
	}
	return connector.Committable{
		Sink: sink, Checkpoint: n, Digest: sha256.Sum256(payload), Payload: payload,
	}
}

// requireComplete checks that CURRENT names a checkpoint that is all there, and returns it.
func requireComplete(t *testing.T, s *dirStore) protocol.Current {
	t.Helper()
	cur, m, err := Latest(t.Context(), s)
	require.NoError(t, err)
	if cur.Checkpoint == 0 {
		return cur
	}
	require.Equal(t, cur.Checkpoint, m.Checkpoint)
	requireSound(t, s, m)
	return cur
}

// requireSound checks a manifest's snapshots and committables against what was written.
func requireSound(t *testing.T, s *dirStore, m Manifest) {
	t.Helper()
	require.Len(t, m.Snapshots, 3)
	for _, sn := range m.Snapshots[:2] {
		require.Len(t, sn.Handles, 1)
		payload, err := s.GetSnapshot(t.Context(), sn.Handles[0])
		require.NoError(t, err)
		require.Equal(t, payloadOf(m.Checkpoint, sn.Subtask.Index), payload)
	}
	require.Empty(t, m.Snapshots[2].Handles)
	for _, c := range m.Committables {
		require.Equal(t, c.Digest, sha256.Sum256(bytes.ReplaceAll(c.Payload, []byte(again), nil)))
	}
}

// requireManifestsSound checks that no manifest in the directory lacks a file (K6).
func requireManifestsSound(t *testing.T, s *dirStore) {
	t.Helper()
	names, err := s.fs.List(manifestsDir)
	require.NoError(t, err)
	for _, name := range names {
		file := strings.Join([]string{manifestsDir, name}, "/")
		if _, err := s.readManifest(t.Context(), Ref{Name: file}); err != nil {
			continue // never became durable: nothing names it
		}
		m, err := s.GetManifest(t.Context(), Ref{Name: file})
		require.NoError(t, err)
		requireSound(t, s, m)
	}
}
