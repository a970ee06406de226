package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
)

// Garbage is what nothing refers to.
type Garbage struct {
	Files []string // names inside the store, in the order in which they are to be deleted
	Bytes int64
}

// garbage returns every file that neither CURRENT, nor a checkpoint before it that is still there, nor a
// savepoint refers to: what dead generations and imports that were cut short have left, and other
// lineages; and kept records that CURRENT does not wait for. Only files that the store names itself are looked at. Beside a running job the answer may
// hold what is just being written: only deleteGarbage, which the owner of the store alone can call,
// is certain.
func (s *dirStore) garbage(ctx context.Context) (g Garbage, err error) {
	cur, _, err := s.readCurrent()
	if err != nil {
		return g, fmt.Errorf("garbage: %w", err)
	}
	kept, err := s.kept(ctx, cur, everything)
	if err != nil {
		return g, fmt.Errorf("garbage: %w", err)
	}
	for _, dir := range []string{manifestsDir, snapshotsDir, committablesDir} {
		names, err := s.fs.List(dir)
		if err != nil {
			return g, fmt.Errorf("garbage: %w", err)
		}
		slices.Sort(names)
		for _, base := range names {
			name := path.Join(dir, base)
			if _, keep := kept[name]; keep || !isOurs(base) {
				continue
			}
			g.Files = append(g.Files, name)
		}
	}
	records, err := s.needlessRecords(ctx, cur)
	if err != nil {
		return g, fmt.Errorf("garbage: %w", err)
	}
	g.Files = append(g.Files, records...)
	for _, name := range g.Files {
		size, err := s.fs.Size(name)
		if err != nil {
			return g, fmt.Errorf("garbage: %w", err)
		}
		g.Bytes += size
	}
	return g, nil
}

// everything is a count of checkpoints that none reaches.
const everything = 1 << 30

func isOurs(base string) bool {
	_, ok := parseOrigin(base)
	return ok
}

// deleteGarbage deletes what garbage returns: manifests first, and made durable, then what only they
// referred to (K6). No job may be running on the store; Open sees to that.
func (s *dirStore) deleteGarbage(ctx context.Context) (g Garbage, err error) {
	leave, err := s.enter(ctx)
	if err != nil {
		return g, fmt.Errorf("delete garbage: %w", err)
	}
	defer leave()
	if g, err = s.garbage(ctx); err != nil {
		return g, err
	}
	dir := ""
	for _, name := range g.Files {
		if d := path.Dir(name); d != dir && dir != "" {
			if err := s.syncDir(dir); err != nil {
				return g, err
			}
		}
		dir = path.Dir(name)
		if err := errors.Join(ctx.Err(), s.fs.Remove(name)); err != nil {
			return g, fmt.Errorf("delete garbage: %w", err)
		}
	}
	if dir == "" {
		return g, nil
	}
	return g, s.syncDir(dir)
}

// FindGarbage returns every file that neither CURRENT, nor a checkpoint before it that is still there, nor
// a savepoint refers to: what dead generations left, and other lineages. Beside a running job some of it
// may be just being written.
func FindGarbage(ctx context.Context, s Store) (Garbage, error) {
	d, err := keepsFiles(s)
	if err != nil {
		return Garbage{}, err
	}
	return d.garbage(ctx)
}

// DeleteGarbage deletes what FindGarbage returns. The store must be open for writing: then no job runs
// on it.
func DeleteGarbage(ctx context.Context, s Store) (Garbage, error) {
	d, err := keepsFiles(s)
	if err != nil {
		return Garbage{}, err
	}
	return d.deleteGarbage(ctx)
}

func keepsFiles(s Store) (*dirStore, error) {
	d, ok := s.(*dirStore)
	if !ok {
		return nil, errors.New("this checkpoint storage keeps no files")
	}
	return d, nil
}
