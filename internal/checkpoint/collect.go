package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"example.com/weir/internal/protocol"
)

// Collect implements Store.
func (s *dirStore) Collect(ctx context.Context, retain int) (Collected, error) {
	leave, err := s.enter(ctx)
	if err != nil {
		return Collected{}, fmt.Errorf("clean-up of checkpoints: %w", err)
	}
	defer leave()
	n, err := s.collect(ctx, max(retain, 1))
	if err != nil {
		err = fmt.Errorf("clean-up of checkpoints: %w", err)
	}
	return n, err
}

// collect deletes manifests first, makes that durable, and then deletes what only they referred
// to (K6): a manifest that is there has all its files, however often this is cut short.
func (s *dirStore) collect(ctx context.Context, retain int) (n Collected, err error) {
	cur, _, err := s.readCurrent()
	if err != nil || !cur.Exists() {
		return n, err
	}
	kept, err := s.kept(ctx, cur, retain)
	if err != nil {
		return n, err
	}
	if n.Manifests, err = s.deleteIn(ctx, manifestsDir, cur, kept); err != nil {
		return n, err
	}
	for _, dir := range []string{snapshotsDir, committablesDir} {
		files, err := s.deleteIn(ctx, dir, cur, kept)
		n.Files += files
		if err != nil {
			return n, err
		}
	}
	files, err := s.collectRecords(ctx, cur)
	n.Files += files
	return n, err
}

// collectRecords deletes the kept records of dead generations that CURRENT does not wait for. Those of the
// running one it deletes itself, once what they are kept for is known to be committed.
func (s *dirStore) collectRecords(ctx context.Context, cur protocol.Current) (n int, err error) {
	waste, err := s.needlessRecords(ctx, cur)
	if err != nil {
		return 0, err
	}
	for _, name := range waste {
		lineage, generation, _ := recordsOrigin(name)
		if lineage != cur.Lineage || generation >= cur.Generation {
			continue
		}
		if err := errors.Join(ctx.Err(), s.fs.Remove(name)); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// needlessRecords lists the files of kept records that no unsettled CURRENT names: nothing that is restored
// needs any other.
func (s *dirStore) needlessRecords(ctx context.Context, cur protocol.Current) ([]string, error) {
	names, err := s.fs.List(recordsDir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil // a release without them has made the store
		}
		return nil, err
	}
	needed := map[string]bool{}
	if cur.Manifest != "" && !cur.Settled {
		w, err := s.readManifest(ctx, Ref{Name: cur.Manifest, Digest: cur.ManifestDigest})
		if err != nil {
			return nil, err
		}
		for _, c := range w.Committables {
			if c.Kept != nil {
				needed[c.Kept.Name] = true
			}
		}
	}
	var waste []string
	for _, base := range names {
		name := path.Join(recordsDir, base)
		if _, _, ours := recordsOrigin(base); ours && !needed[name] {
			waste = append(waste, name)
		}
	}
	slices.Sort(waste)
	return waste, nil
}

// kept returns the names of the last retain manifests, from CURRENT back, of the manifests of
// savepoints, and of all that they refer to. A savepoint or manifest that cannot be read ends the
// clean-up: what it refers to is not known.
func (s *dirStore) kept(
	ctx context.Context, cur protocol.Current, retain int,
) (map[string]struct{}, error) {
	kept := map[string]struct{}{}
	var next *wireRef
	if cur.Manifest != "" {
		next = &wireRef{Name: cur.Manifest, Digest: cur.ManifestDigest}
	}
	for i := 0; i < retain && next != nil; i++ {
		w, err := s.readManifest(ctx, Ref{Name: next.Name, Digest: next.Digest})
		if errors.Is(err, fs.ErrNotExist) && i > 0 {
			break // let go by an earlier clean-up
		}
		if err != nil {
			return nil, err
		}
		keep(kept, next.Name, w)
		next = w.Parent
	}
	savepoints, err := s.Savepoints(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range savepoints {
		if _, known := kept[p.Manifest.Name]; known {
			continue
		}
		w, err := s.readManifest(ctx, p.Manifest)
		if err != nil {
			return nil, fmt.Errorf("savepoint %s: %w", p.Name, err)
		}
		keep(kept, p.Manifest.Name, w)
	}
	return kept, nil
}

// keep adds a manifest and all that it refers to.
func keep(kept map[string]struct{}, name string, w wireManifest) {
	kept[name] = struct{}{}
	for _, f := range w.files() {
		kept[f] = struct{}{}
	}
}

// deleteIn deletes from one directory what is of CURRENT's lineage and not kept. Other lineages'
// files, and files that the store did not name, are not its business.
func (s *dirStore) deleteIn(
	ctx context.Context, dir string, cur protocol.Current, kept map[string]struct{},
) (n int, err error) {
	names, err := s.fs.List(dir)
	if err != nil {
		return 0, err
	}
	for _, base := range names {
		name := path.Join(dir, base)
		o, ok := parseOrigin(base)
		if _, keep := kept[name]; keep || !ok || o.lineage != cur.Lineage || beingWritten(o, cur) {
			continue
		}
		if err := errors.Join(ctx.Err(), s.fs.Remove(name)); err != nil {
			return n, err
		}
		delete(s.written, name)
		n++
	}
	if n == 0 {
		return 0, nil
	}
	return n, s.syncDir(dir)
}

// beingWritten reports whether a file may be part of the running generation's next checkpoint.
func beingWritten(o origin, cur protocol.Current) bool {
	return o.generation == cur.Generation && o.checkpoint > cur.Checkpoint
}
