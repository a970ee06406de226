package checkpoint

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"example.com/weir/connector"
	"example.com/weir/internal/protocol"
)

// dirStore keeps checkpoints in a directory.
type dirStore struct {
	fs     fileSystem
	opts   Options
	lock   *dirLock // nil if the store was opened read-only
	nonce  func() string
	me     func() Holder
	inside chan struct{} // holds one token: taken by whoever swaps, writes a manifest or collects

	// written are the committables' files of this process: a large payload is written once.
	written map[string]struct{}

	mu     sync.Mutex
	failed error // K4: the first fsync that failed, or that the store is closed
	closed bool
}

// openDir makes, checks and locks the directory.
func openDir(dir string, opts Options) (*dirStore, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if !opts.ReadOnly {
		if err := makeDir(dir); err != nil {
			return nil, err
		}
	}
	name, err := networkFileSystem(dir)
	if err == nil {
		err = acceptFileSystem(dir, name, opts.AcceptFileSystem)
	}
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	var lock *dirLock
	if !opts.ReadOnly {
		if lock, err = lockDir(root, dir, owner(opts.Now()), opts.AcceptCopy); err != nil {
			_ = root.Close() // nothing was written through it
			return nil, err
		}
	}
	s, err := newDirStore(osFS{root}, opts)
	if err != nil {
		_ = root.Close()
		if lock != nil {
			_ = lock.Close()
		}
		return nil, err
	}
	s.lock = lock
	return s, nil
}

// acceptFileSystem refuses a network file system unless it was accepted by name.
func acceptFileSystem(dir, name, accepted string) error {
	if name == "" || name == accepted {
		return nil
	}
	return connector.Stop(fmt.Errorf("%s is on a file system that is refused, %s: "+
		"locks and fsync cannot be relied on there; use a local disk", dir, name))
}

// makeDir makes dir with its parents, and makes their entries durable: a CURRENT in a directory
// that a power cut takes away would be no CURRENT.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	parent := filepath.Dir(dir)
	if err := makeDir(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) { // K7
		return err
	}
	d, err := os.Open(parent)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// newDirStore makes the store over a file system, and reads CURRENT once to see whose it is.
func newDirStore(fsys fileSystem, opts Options) (*dirStore, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	s := &dirStore{
		fs:      fsys,
		opts:    opts,
		nonce:   func() string { return randomHex(16) },
		me:      func() Holder { return owner(opts.Now()) },
		inside:  make(chan struct{}, 1),
		written: map[string]struct{}{},
	}
	if !opts.ReadOnly {
		for _, d := range []string{manifestsDir, snapshotsDir, committablesDir, recordsDir} {
			if err := s.fs.Mkdir(d); err != nil {
				return nil, err
			}
		}
		if err := s.syncDir("."); err != nil {
			return nil, err
		}
	}
	current, _, err := s.readCurrent()
	if err != nil {
		return nil, err
	}
	if current.Exists() && !opts.ReadOnly {
		s.imported() // if the process that wrote CURRENT could not
	}
	return s, nil
}

// enter begins an operation that writes or must not meet a writer. The caller calls leave.
func (s *dirStore) enter(ctx context.Context) (leave func(), err error) {
	select {
	case s.inside <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := s.usable(ctx); err != nil {
		<-s.inside
		return nil, err
	}
	return func() { <-s.inside }, nil
}

// usable reports why nothing may be written.
func (s *dirStore) usable(ctx context.Context) error {
	if s.opts.ReadOnly {
		return ErrReadOnly
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.failed, ctx.Err())
}

// Current implements Store.
func (s *dirStore) Current(ctx context.Context) (protocol.Current, error) {
	if err := ctx.Err(); err != nil {
		return protocol.Current{}, err
	}
	c, _, err := s.readCurrent()
	return c, err
}

// readCurrent reads CURRENT. A store that has manifests and no CURRENT has lost it: to take that
// for a fresh start would read everything again.
func (s *dirStore) readCurrent() (protocol.Current, Holder, error) {
	data, err := s.fs.ReadFile(currentName)
	if errors.Is(err, fs.ErrNotExist) {
		return protocol.Current{}, Holder{}, s.checkEmpty()
	}
	if err != nil {
		return protocol.Current{}, Holder{}, err
	}
	c, by, err := decodeCurrent(data)
	if err != nil {
		return protocol.Current{}, Holder{}, s.withRetained(err)
	}
	if s.foreign(c.Job) {
		return protocol.Current{}, Holder{}, connector.Stop(&ForeignError{Have: c.Job, Want: s.opts.Job})
	}
	return c, by, nil
}

// foreign reports whether what says it belongs to a job belongs to another one than was asked for.
func (s *dirStore) foreign(job string) bool { return s.opts.Job != "" && job != s.opts.Job }

// checkEmpty looks for the manifests of a store without CURRENT.
func (s *dirStore) checkEmpty() error {
	names, err := s.fs.List(manifestsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := s.fs.ReadFile(importName); err == nil {
		return nil // a fork was cut short: nothing has run on it
	}
	if slices.ContainsFunc(names, isManifest) {
		return s.withRetained(connector.Stop(&CorruptError{
			File: currentName, What: "it is missing, and there are manifests",
		}))
	}
	return nil
}

func isManifest(name string) bool {
	_, ok := parseOrigin(name)
	return ok
}

// Swap implements Store.
func (s *dirStore) Swap(ctx context.Context, old, next protocol.Current) (protocol.Current, error) {
	leave, err := s.enter(ctx)
	if err != nil {
		return protocol.Current{}, fmt.Errorf("swap CURRENT to %s: %w", next, err)
	}
	defer leave()
	have, by, err := s.readCurrent()
	if err != nil {
		return protocol.Current{}, err
	}
	if have != old {
		return protocol.Current{}, &SwapRefusedError{Want: old, Have: have, By: by}
	}
	next.Nonce = s.nonce()
	data, err := encodeCurrent(next, s.me())
	if err != nil {
		return protocol.Current{}, err
	}
	if err := s.replaceCurrent(data); err != nil {
		return protocol.Current{}, fmt.Errorf("swap CURRENT to %s: %w", next, err)
	}
	if !old.Exists() {
		s.imported()
	}
	return next, nil
}

// importing notes that a manifest is written before there is a CURRENT. Without the note, a store whose
// making was cut short here would look like one that has lost its CURRENT.
func (s *dirStore) importing() error {
	if _, err := s.fs.ReadFile(currentName); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := s.write(importName, false); err != nil {
		return err
	}
	return s.syncDir(".")
}

// imported takes the note away, once there is a CURRENT.
func (s *dirStore) imported() {
	if _, err := s.fs.ReadFile(importName); err == nil {
		s.discard(importName)
	}
}

// replaceCurrent is the linearization point of everything (K2).
func (s *dirStore) replaceCurrent(data []byte) error {
	if err := s.write(currentTemp, false, data); err != nil {
		return err
	}
	if err := s.fs.Rename(currentTemp, currentName); err != nil {
		return fmt.Errorf("%w: %w", ErrSwapUnknown, err)
	}
	if err := s.syncDir("."); err != nil {
		return fmt.Errorf("%w: %w", ErrSwapUnknown, err)
	}
	return nil
}

// write makes the content of a file durable. Its name is durable once the directory is synced.
func (s *dirStore) write(name string, exclusive bool, parts ...[]byte) error {
	f, err := s.fs.Create(name, exclusive)
	if err != nil {
		return err
	}
	for _, p := range parts {
		if _, err := f.Write(p); err != nil {
			_ = f.Close()
			s.discard(name) // it may be the disk that is full
			return err
		}
	}
	if err := f.Sync(); err != nil {
		_ = f.Close()
		return s.fail(fmt.Errorf("fsync %s: %w", name, err))
	}
	return f.Close()
}

// discard removes what a failed write left. What cannot be removed is collected later.
func (s *dirStore) discard(name string) {
	if err := s.fs.Remove(name); err != nil {
		s.opts.Logger.Warn("a file that could not be written stays for now", "file", name, "error", err)
	}
}

func (s *dirStore) syncDir(name string) error {
	if err := s.fs.SyncDir(name); err != nil {
		return s.fail(fmt.Errorf("fsync of directory %s: %w", name, err))
	}
	return nil
}

// fail ends the use of the store (K4) and returns the error that every later call gets.
func (s *dirStore) fail(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = connector.Stop(fmt.Errorf("%w: what was written before it may be lost, "+
			"so this process writes nothing more", err))
	}
	return s.failed
}

// PutSnapshot implements Store. The directory is synced once, with the manifest.
func (s *dirStore) PutSnapshot(
	ctx context.Context, name SnapshotName, payload ...[]byte,
) (protocol.Handle, error) {
	o := origin{lineage: name.Lineage, generation: name.Generation, checkpoint: name.Checkpoint}
	err := errors.Join(s.usable(ctx), o.valid())
	if err == nil {
		file := snapshotName(o, name.Subtask.Operator, name.Subtask.Index)
		header, size, sum := frameHeader(snapshotMagic, payload...)
		if err = s.write(file, true, append([][]byte{header}, payload...)...); err == nil {
			return protocol.Handle{Name: file, Size: size, Digest: sum}, nil
		}
	}
	return protocol.Handle{}, fmt.Errorf("snapshot of %s for checkpoint %d: %w",
		name.Subtask, name.Checkpoint, err)
}

// GetSnapshot implements Store.
func (s *dirStore) GetSnapshot(ctx context.Context, h protocol.Handle) ([]byte, error) {
	return s.get(ctx, snapshotMagic, h)
}

func (s *dirStore) get(ctx context.Context, magic string, h protocol.Handle) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	data, err := s.fs.ReadFile(h.Name)
	if errors.Is(err, fs.ErrNotExist) {
		o, _ := parseOrigin(h.Name)
		err = connector.Stop(&CorruptError{File: h.Name, Checkpoint: o.checkpoint, What: "it is missing"})
	}
	if err == nil {
		data, err = unframe(magic, data, h)
	}
	if err != nil {
		return nil, s.withRetained(err)
	}
	return data, nil
}

// DeleteSnapshots implements Store. What a crash brings back is collected by the next generation.
func (s *dirStore) DeleteSnapshots(ctx context.Context, names []string) error {
	return s.deleteFiles(ctx, names)
}

// deleteFiles deletes files, of which some may be gone.
func (s *dirStore) deleteFiles(ctx context.Context, names []string) error {
	err := s.usable(ctx)
	for _, name := range names {
		if err != nil {
			return err
		}
		if err = s.fs.Remove(name); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return err
}

// PutManifest implements Store. When it returns, everything the manifest refers to is durable
// (K1): the files were fsynced when they were written, their directories are now.
func (s *dirStore) PutManifest(ctx context.Context, m Manifest) (Ref, error) {
	leave, err := s.enter(ctx)
	if err != nil {
		return Ref{}, fmt.Errorf("manifest of checkpoint %d: %w", m.Checkpoint, err)
	}
	defer leave()
	r, err := s.putManifest(m)
	if err != nil {
		return Ref{}, fmt.Errorf("manifest of checkpoint %d: %w", m.Checkpoint, err)
	}
	return r, nil
}

func (s *dirStore) putManifest(m Manifest) (Ref, error) {
	if err := m.origin().valid(); err != nil {
		return Ref{}, err
	}
	w := m.wire()
	dirs := []string{snapshotsDir}
	if slices.ContainsFunc(m.Committables, inFile) {
		dirs = append(dirs, recordsDir)
	}
	for _, c := range m.Committables {
		wc, err := s.putCommittable(m, c)
		if err != nil {
			return Ref{}, fmt.Errorf("committable %s: %w", c.ID(), err)
		}
		if wc.File != nil && !slices.Contains(dirs, committablesDir) {
			dirs = append(dirs, committablesDir)
		}
		w.Committables = append(w.Committables, wc)
	}
	for _, d := range dirs {
		if err := s.syncDir(d); err != nil {
			return Ref{}, err
		}
	}
	data, err := seal(manifestKind, w.version(), w)
	if err != nil {
		return Ref{}, err
	}
	if m.Root {
		if err := s.importing(); err != nil {
			return Ref{}, err
		}
	}
	name := manifestName(m.origin())
	if err := s.write(name, true, data); err != nil {
		return Ref{}, err
	}
	return Ref{Name: name, Digest: sha256.Sum256(data)}, s.syncDir(manifestsDir)
}

// putCommittable returns how the manifest says c, and writes the payload if it is a large one and
// no manifest of this process has written it before.
func (s *dirStore) putCommittable(m Manifest, c connector.Committable) (wireCommittable, error) {
	w := wireOfCommittable(c)
	if len(c.Payload) <= inlineLimit {
		w.Payload = c.Payload
		return w, nil
	}
	header, _, sum := frameHeader(committableMagic, c.Payload)
	made := origin{lineage: m.Lineage, generation: m.Generation, checkpoint: c.Checkpoint}
	if err := made.valid(); err != nil {
		return w, err
	}
	w.File = &wireHandle{
		Name:   committableName(made, c.Sink, c.Subtask, sum),
		Size:   int64(len(c.Payload)),
		Digest: sum,
	}
	if _, ok := s.written[w.File.Name]; ok {
		return w, nil
	}
	// Not exclusive: a write that failed may have left something under the name.
	if err := s.write(w.File.Name, false, header, c.Payload); err != nil {
		return w, err
	}
	s.written[w.File.Name] = struct{}{}
	return w, nil
}

// GetManifest implements Store. It reads the payloads of large committables too.
func (s *dirStore) GetManifest(ctx context.Context, r Ref) (Manifest, error) {
	w, err := s.readManifest(ctx, r)
	if errors.Is(err, fs.ErrNotExist) && s.currentNames(r) {
		err = connector.Stop(&CorruptError{File: r.Name, What: "CURRENT names it and it is missing"})
	}
	if err != nil {
		return Manifest{}, s.withRetained(err)
	}
	m := w.manifest()
	for _, wc := range w.Committables {
		c := wc.committable()
		if wc.File != nil {
			if c.Payload, err = s.get(ctx, committableMagic, wc.File.handle()); err != nil {
				return Manifest{}, err
			}
		}
		m.Committables = append(m.Committables, c)
	}
	return m, nil
}

// currentNames reports whether CURRENT names a manifest now. Beside a running job one that it named a moment ago may
// have been let go.
func (s *dirStore) currentNames(r Ref) bool {
	c, _, err := s.readCurrent()
	return err == nil && c.Manifest == r.Name
}

func (s *dirStore) readManifest(ctx context.Context, r Ref) (wireManifest, error) {
	if err := ctx.Err(); err != nil {
		return wireManifest{}, err
	}
	data, err := s.fs.ReadFile(r.Name)
	if err != nil {
		return wireManifest{}, fmt.Errorf("manifest %s: %w", r.Name, err)
	}
	w, err := decodeManifest(r.Name, data, r.Digest)
	if err == nil && s.foreign(w.Job) {
		err = connector.Stop(&ForeignError{Have: w.Job, Want: s.opts.Job})
	}
	return w, err
}

// withRetained adds to an error about a corrupt file which older manifests are sound. The newest
// ones that a lost CURRENT leaves behind are among them, whether they were completed or not.
func (s *dirStore) withRetained(err error) error {
	var c *CorruptError
	if !errors.As(err, &c) || c.Retained != nil {
		return err
	}
	bad, hasOrigin := parseOrigin(c.File)
	c.Checkpoint = bad.checkpoint
	names, listErr := s.fs.List(manifestsDir)
	if listErr != nil {
		return err // the error at hand is the one to tell
	}
	var sound []origin
	for _, name := range names {
		o, ok := parseOrigin(name)
		older := !hasOrigin || o.lineage == bad.lineage && o.checkpoint < bad.checkpoint
		if !ok || !older {
			continue
		}
		if _, err := s.readManifest(context.Background(), Ref{Name: manifestName(o)}); err == nil {
			sound = append(sound, o)
		}
	}
	slices.SortFunc(sound, func(a, b origin) int {
		return cmp.Or(cmp.Compare(b.checkpoint, a.checkpoint), b.compare(a))
	})
	for _, o := range sound {
		c.Retained = append(c.Retained, manifestName(o))
	}
	return err
}

// Close implements Store. It waits for what is being written.
func (s *dirStore) Close() error {
	s.inside <- struct{}{}
	defer func() { <-s.inside }()
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	if s.failed == nil {
		s.failed = errors.New("the checkpoint storage is closed")
	}
	s.mu.Unlock()
	if closed {
		return nil
	}
	err := s.fs.Close()
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return err
}
