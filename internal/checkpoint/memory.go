package checkpoint

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"example.com/weir/connector"
	"example.com/weir/internal/protocol"
)

// Memory is a store that lasts as long as the value: for jobs without checkpoints, and for tests
// that restore a job in the same process.
type Memory struct {
	mu         sync.Mutex
	job        string
	current    protocol.Current
	snapshots  map[string][]byte
	manifests  map[Ref]Manifest
	savepoints map[string]Savepoint
	records    map[string][]byte
}

// NewMemory returns an empty store of a job.
func NewMemory(job string) *Memory {
	return &Memory{
		job: job, snapshots: map[string][]byte{}, manifests: map[Ref]Manifest{}, savepoints: map[string]Savepoint{},
		records: map[string][]byte{},
	}
}

// Current implements Store.
func (s *Memory) Current(context.Context) (protocol.Current, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current, nil
}

// Swap implements Store.
func (s *Memory) Swap(_ context.Context, old, next protocol.Current) (protocol.Current, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != old && (s.current.Exists() || old.Exists()) {
		return protocol.Current{}, &SwapRefusedError{Want: old, Have: s.current}
	}
	next.Nonce = randomHex(8)
	s.current = next
	return next, nil
}

// PutSnapshot implements Store.
func (s *Memory) PutSnapshot(
	_ context.Context, name SnapshotName, payload ...[]byte,
) (protocol.Handle, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := origin{lineage: name.Lineage, generation: name.Generation, checkpoint: name.Checkpoint}
	key := snapshotName(o, name.Subtask.Operator, name.Subtask.Index)
	whole := slices.Concat(payload...)
	s.snapshots[key] = whole
	return protocol.Handle{Name: key, Size: int64(len(whole)), Digest: sha256.Sum256(whole)}, nil
}

// GetSnapshot implements Store.
func (s *Memory) GetSnapshot(_ context.Context, h protocol.Handle) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	payload, ok := s.snapshots[h.Name]
	if !ok {
		return nil, connector.Stop(fmt.Errorf("snapshot %s: %w", h.Name, fs.ErrNotExist))
	}
	return payload, nil
}

// DeleteSnapshots implements Store.
func (s *Memory) DeleteSnapshots(_ context.Context, names []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		delete(s.snapshots, name)
	}
	return nil
}

// PutManifest implements Store.
func (s *Memory) PutManifest(_ context.Context, m Manifest) (Ref, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := Ref{Name: manifestName(m.origin())}
	s.manifests[r] = m
	return r, nil
}

// GetManifest implements Store.
func (s *Memory) GetManifest(_ context.Context, r Ref) (Manifest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.manifests[r]
	if !ok {
		return Manifest{}, fmt.Errorf("manifest %s: %w", r.Name, fs.ErrNotExist)
	}
	return m, nil
}

// CreateRecords implements Store.
func (s *Memory) CreateRecords(name string) (RecordsFile, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.records[name]; taken {
		return nil, fs.ErrExist
	}
	s.records[name] = nil
	return memoryFile{s, name}, nil
}

type memoryFile struct {
	store *Memory
	name  string
}

func (f memoryFile) Write(p []byte) (int, error) {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	f.store.records[f.name] = append(f.store.records[f.name], p...)
	return len(p), nil
}

func (memoryFile) Sync() error  { return nil }
func (memoryFile) Close() error { return nil }

// OpenRecords implements Store.
func (s *Memory) OpenRecords(_ context.Context, name string) (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, ok := s.records[name]
	if !ok {
		return nil, connector.Stop(&CorruptError{File: name, What: "it is missing"})
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

// DeleteRecords implements Store.
func (s *Memory) DeleteRecords(_ context.Context, names []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		delete(s.records, name)
	}
	return nil
}

// Records lists the files of kept records that there are.
func (s *Memory) Records() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.records))
}

// collectRecords deletes those of dead generations that CURRENT does not wait for.
func (s *Memory) collectRecords() (n int) {
	needed := map[string]bool{}
	for _, c := range s.manifests[Ref{Name: s.current.Manifest}].Committables {
		needed[c.Kept.Name] = !s.current.Settled
	}
	for name := range s.records {
		_, generation, _ := recordsOrigin(name)
		if !needed[name] && generation < s.current.Generation {
			delete(s.records, name)
			n++
		}
	}
	return n
}

// PutSavepoint implements Store.
func (s *Memory) PutSavepoint(_ context.Context, name string, r Ref) (Savepoint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := CheckSavepointName(name)
	if _, taken := s.savepoints[name]; err == nil && taken {
		err = ErrSavepointExists
	}
	if _, ok := s.manifests[r]; err == nil && !ok {
		err = fs.ErrNotExist
	}
	if err != nil {
		return Savepoint{}, fmt.Errorf("savepoint %s: %w", name, err)
	}
	p := Savepoint{Name: name, Created: s.manifests[r].Created, Manifest: r}
	s.savepoints[name] = p
	return p, nil
}

// Savepoints implements Store.
func (s *Memory) Savepoints(context.Context) ([]Savepoint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Savepoint
	for _, name := range slices.Sorted(maps.Keys(s.savepoints)) {
		all = append(all, s.savepoints[name])
	}
	return all, nil
}

// DeleteSavepoint implements Store.
func (s *Memory) DeleteSavepoint(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.savepoints[name]; !ok {
		return fmt.Errorf("delete savepoint %s: %w", name, ErrNoSavepoint)
	}
	delete(s.savepoints, name)
	return nil
}

// Collect implements Store: it keeps what the retained manifests refer to.
func (s *Memory) Collect(_ context.Context, retain int) (Collected, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keep, kept := map[Ref]bool{}, map[string]bool{}
	for r, n := (Ref{Name: s.current.Manifest}), 0; r.Name != "" && n < retain; n++ {
		m, ok := s.manifests[r]
		if !ok {
			break
		}
		keep[r] = true
		for _, name := range m.wire().files() {
			kept[name] = true
		}
		r = m.Parent
	}
	for _, p := range s.savepoints {
		keep[p.Manifest] = true
		for _, name := range s.manifests[p.Manifest].wire().files() {
			kept[name] = true
		}
	}
	c := Collected{Files: s.collectRecords()}
	for name := range s.snapshots {
		o, _ := parseOrigin(name)
		if o.lineage == s.current.Lineage && !kept[name] && !beingWritten(o, s.current) {
			delete(s.snapshots, name)
			c.Files++
		}
	}
	for r, m := range s.manifests {
		if !keep[r] && m.Lineage == s.current.Lineage && !beingWritten(m.origin(), s.current) {
			delete(s.manifests, r)
			c.Manifests++
		}
	}
	return c, nil
}

// Close implements Store.
func (s *Memory) Close() error { return nil }
