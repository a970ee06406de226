package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"example.com/weir/connector"
	"example.com/weir/internal/protocol"
)

// Entry is a checkpoint that can be restored: one of the last ones, from CURRENT back, or one that a
// savepoint keeps.
type Entry struct {
	Ref        Ref
	Manifest   Manifest // zero if Err is not nil
	Savepoints []string // that keep it, by name
	Current    bool     // it is CURRENT's checkpoint
	Retained   bool     // it is CURRENT's or comes before it; false for one that only savepoints keep
	// Settled: all that it names is committed and known to be.
	Settled bool
	Size    int64 // bytes of the files that it names, as the manifest says; some may be shared
	Err     error // why it cannot be read
}

// Name is what the checkpoint is called: lineage, generation and checkpoint ID.
func (e Entry) Name() string { return e.Ref.CheckpointName() }

// CheckpointName is what the checkpoint of a manifest is called: lineage, generation and checkpoint ID.
func (r Ref) CheckpointName() string { return strings.TrimSuffix(path.Base(r.Name), manifestSuffix) }

// List returns what can be restored: the retained checkpoints, newest first, and behind them those that
// only savepoints keep. What cannot be read is listed with the reason. Beside a running job, one that
// is let go meanwhile is left out.
func List(ctx context.Context, s Store) ([]Entry, error) {
	cur, err := s.Current(ctx)
	if err != nil {
		return nil, err
	}
	savepoints, err := s.Savepoints(ctx)
	if err != nil {
		return nil, err
	}
	var all []Entry
	if cur.Manifest != "" {
		all = chain(ctx, s, Ref{Name: cur.Manifest, Digest: cur.ManifestDigest})
		all[0].Current = true
	}
	for _, p := range savepoints {
		i := slices.IndexFunc(all, func(e Entry) bool { return e.Ref.Name == p.Manifest.Name })
		if i < 0 {
			i = len(all)
			all = append(all, read(ctx, s, p.Manifest))
			all[i].Current = takenOver(cur, p.Manifest)
		}
		all[i].Savepoints = append(all[i].Savepoints, p.Name)
	}
	for i := range all {
		all[i].Settled = settledAt(cur, all[0], all[i])
	}
	return all, ctx.Err()
}

// takenOver reports whether CURRENT names another manifest of the same checkpoint: a restore has written
// again what had been lost of it.
func takenOver(cur protocol.Current, r Ref) bool {
	of, _ := parseOrigin(cur.Manifest)
	o, ok := parseOrigin(r.Name)
	return ok && o.sameCheckpoint(of)
}

// chain returns a checkpoint and those before it, as far as they are there.
func chain(ctx context.Context, s Store, r Ref) []Entry {
	all := []Entry{read(ctx, s, r)}
	for last := all[0]; last.Err == nil && last.Manifest.Parent.Name != ""; last = all[len(all)-1] {
		e := read(ctx, s, last.Manifest.Parent)
		if errors.Is(e.Err, fs.ErrNotExist) {
			break // let go
		}
		all = append(all, e)
	}
	for i := range all {
		all[i].Retained = true
	}
	return all
}

func read(ctx context.Context, s Store, r Ref) Entry {
	m, err := s.GetManifest(ctx, r)
	e := Entry{Ref: r, Manifest: m, Err: err}
	if err != nil {
		e.Manifest = Manifest{}
		return e
	}
	for _, sn := range m.Snapshots {
		for _, h := range sn.Handles {
			e.Size += h.Size
		}
	}
	for _, c := range m.Committables {
		e.Size += int64(len(c.Payload)) + int64(len(c.Kept.Inline))
	}
	return e
}

// settledAt reports whether everything that e names is settled, as CURRENT and the manifest that it
// names say: what is not travels from manifest to manifest. Another lineage was settled before the one
// that followed it began.
func settledAt(cur protocol.Current, newest, e Entry) bool {
	if cur.Settled || e.Err != nil || e.Manifest.Lineage != cur.Lineage {
		return e.Err == nil
	}
	return newest.Err == nil && !slices.ContainsFunc(newest.Manifest.Committables,
		func(c connector.Committable) bool { return c.Checkpoint <= e.Manifest.Checkpoint })
}

// ErrNoCheckpoint reports that nothing to be restored is called so.
var ErrNoCheckpoint = errors.New("no such checkpoint or savepoint")

// Find returns the checkpoint that a name stands for: a savepoint's name, a checkpoint's number, or what
// List calls it. A number is looked for from CURRENT back.
func Find(ctx context.Context, s Store, name string) (Entry, error) {
	all, err := List(ctx, s)
	if err != nil {
		return Entry{}, err
	}
	for _, e := range all {
		if e.called(name) {
			return e, e.Err
		}
	}
	if e, ok := behindDamage(ctx, s, all, name); ok {
		return e, e.Err
	}
	return Entry{}, connector.Stop(fmt.Errorf("%w: %s; there is %s", ErrNoCheckpoint, name, names(all)))
}

// called reports whether e is what a name stands for.
func (e Entry) called(name string) bool {
	o, _ := parseOrigin(e.Ref.Name)
	n, err := strconv.ParseUint(name, 10, 64)
	return slices.Contains(e.Savepoints, name) || e.Name() == name || err == nil && e.Retained && o.checkpoint == n
}

// behindDamage looks for a checkpoint of CURRENT's lineage by number among all manifests, if one between
// it and CURRENT is damaged. A dead generation may have left a manifest of the same number that never
// became a checkpoint; then the one of the later generation did, or one that took its place.
func behindDamage(ctx context.Context, s Store, all []Entry, name string) (Entry, bool) {
	n, err := strconv.ParseUint(name, 10, 64)
	var damaged *CorruptError
	if err != nil || !slices.ContainsFunc(all, func(e Entry) bool {
		return e.Retained && errors.As(e.Err, &damaged)
	}) {
		return Entry{}, false
	}
	bad, _ := parseOrigin(damaged.File)
	var found origin
	for _, file := range damaged.Retained {
		o, _ := parseOrigin(file)
		if o.lineage == bad.lineage && o.checkpoint == n && o.compare(found) > 0 {
			found = o
		}
	}
	if found.generation == 0 {
		return Entry{}, false
	}
	e := read(ctx, s, Ref{Name: manifestName(found)})
	e.Retained = true
	return e, true
}

func names(all []Entry) string {
	var s []string
	for _, e := range all {
		o, _ := parseOrigin(e.Ref.Name)
		if e.Retained {
			s = append(s, "checkpoint "+strconv.FormatUint(o.checkpoint, 10))
		}
		for _, p := range e.Savepoints {
			s = append(s, "savepoint "+p)
		}
	}
	if len(s) == 0 {
		return "none"
	}
	return strings.Join(s, ", ")
}

// Verified is what Verify has read.
type Verified struct {
	Checkpoints int
	Files       int
	Bytes       int64   // of payloads and manifests
	Corrupt     []error // one for each file that is not what was written, by name
}

// Verify reads every file of the given checkpoints and holds it against its digests; kept records only as
// long as CURRENT waits for what they are kept for, for they go with that. What is damaged is
// reported, file by file; the error is of what could not be read at all.
func Verify(ctx context.Context, s Store, entries []Entry) (v Verified, err error) {
	seen := map[string]bool{}
	for _, e := range entries {
		waits := e.Current && !e.Settled
		e = read(ctx, s, e.Ref)
		v.Checkpoints++
		v.Files++
		if e.Err != nil {
			if err := v.damage(e.Err); err != nil {
				return v, err
			}
			continue
		}
		for _, c := range e.Manifest.Committables { // read with the manifest
			v.Bytes += int64(len(c.Payload))
			if k := c.Kept; k.Name != "" && waits && !seen[k.Name] {
				seen[k.Name] = true
				if err := v.records(ctx, s, k); err != nil {
					return v, err
				}
			}
		}
		for _, sn := range e.Manifest.Snapshots {
			for _, h := range sn.Handles {
				if seen[h.Name] {
					continue
				}
				seen[h.Name] = true
				v.Files++
				if err := v.snapshot(ctx, s, h); err != nil {
					return v, err
				}
			}
		}
	}
	return v, nil
}

func (v *Verified) snapshot(ctx context.Context, s Store, h protocol.Handle) error {
	payload, err := s.GetSnapshot(ctx, h)
	if err != nil {
		return v.damage(err)
	}
	v.Bytes += int64(len(payload))
	return nil
}

func (v *Verified) records(ctx context.Context, s Store, k connector.Kept) error {
	if k.Inline == nil {
		v.Files++
	}
	r, err := ReadRecords(ctx, s, k)
	if err == nil {
		_, err = io.Copy(io.Discard, r)
		_ = r.Close() // only read
	}
	if err != nil {
		return v.damage(fmt.Errorf("%w. A start needs them only if their transaction is lost outside: put them back from a "+
			"copy, or have it go on without them then (--lost-transaction skip)", err))
	}
	v.Bytes += k.Size
	return nil
}

// damage notes a damaged file, and returns any other error.
func (v *Verified) damage(err error) error {
	var corrupt *CorruptError
	var format *FormatError
	if !errors.As(err, &corrupt) && !errors.As(err, &format) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	v.Corrupt = append(v.Corrupt, err)
	return nil
}
