package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/weir/connector"
	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/protocol"
)

// RestoreConfig says what a job goes on from. The zero value is CURRENT.
//
// What was asked for is noted in the manifests that follow, so a job that is started again with the same
// words goes on from where it is. To go back to the same place once more, give it another name.
type RestoreConfig struct {
	// From is a checkpoint by number or by what it is called, or a savepoint by name.
	From string
	// Fork is the address of the storage of a job, running or not, whose checkpoint From (empty: its
	// CURRENT) this job begins with, under a lineage of its own, in a storage that is empty.
	Fork string
	// AcceptDuplicates allows to go back behind what has been committed: sinks write it again. It also
	// allows to go on in exactly-once mode from a checkpoint whose state may have counted records twice.
	AcceptDuplicates bool
	// AcceptCopiedDirectory allows to go on in a directory that was copied, or put back from a backup. What was
	// committed after it was copied is written again.
	AcceptCopiedDirectory bool
	// NewLineage allows to go on from a checkpoint that is finished, which From names.
	NewLineage bool
	// EventTime is where event time goes on if it has come to its end in the checkpoint: what lies
	// before is late.
	EventTime time.Time
	// AllowNew and AllowDropped are uids of operators that the job has and the checkpoint does not, or
	// the other way round. AllowDropped also names states, as uid/state.
	AllowNew, AllowDropped []string
}

var (
	// ErrRewind reports a checkpoint that lies behind what has been committed.
	ErrRewind = errors.New("to go back to it writes again what has been committed since")

	// ErrFinished reports a checkpoint behind which there is nothing.
	ErrFinished = errors.New("it is finished: event time has come to its end")

	// ErrForkTarget reports a storage that a fork cannot begin in.
	ErrForkTarget = errors.New("a fork begins in an empty storage")
)

// course is what a start does before it claims CURRENT.
type course int

const (
	goOn      course = iota // from CURRENT
	goOnNamed               // from CURRENT, which was asked for by name
	rewind                  // to a new lineage that begins with another checkpoint
	fork                    // into an empty storage
)

// standing is what decide looks at.
type standing struct {
	current  protocol.Current
	manifest checkpoint.Manifest // that CURRENT names
	damaged  error               // why that one cannot be read
	target   checkpoint.Entry    // what From stands for
	missing  error               // why nothing is called so
	// doubling are the sinks that would show twice what is written again.
	doubling []string
}

// decide says what is done, and refuses what could lose or double an effect.
func (r RestoreConfig) decide(s standing) (course, error) {
	done := s.manifest.Restored
	switch {
	case r.Fork != "" && !s.current.Exists():
		return fork, nil
	case r.Fork != "" && (done.Storage != r.Fork || done.From != r.From):
		return goOn, connector.Stop(fmt.Errorf("%w: it holds lineage %s, which was not forked from %s %s",
			ErrForkTarget, s.current.Lineage, r.Fork, r.From))
	case r.Fork != "":
		return goOn, nil
	case done.Storage == "" && done.From == r.From && !s.renamed(r.From):
		return goOn, nil
	case s.missing != nil:
		return goOn, s.missing
	case s.target.Current && !s.current.Finished:
		return goOnNamed, nil
	}
	return r.decideRewind(s)
}

// renamed reports whether a savepoint's name stands for something else than when it was restored.
func (s standing) renamed(name string) bool {
	return slices.Contains(s.target.Savepoints, name) && s.target.Ref != s.manifest.Restored.Manifest
}

// quiet reports whether nothing has been shown outside since the target was taken.
func (s standing) quiet() bool {
	m, target := s.manifest, s.target.Manifest
	return s.damaged == nil && m.QuietSince != 0 && target.Lineage == m.Lineage && target.Checkpoint >= m.QuietSince
}

func (r RestoreConfig) decideRewind(s standing) (course, error) {
	name := "checkpoint " + s.target.Name()
	switch {
	case s.target.Current && !r.NewLineage:
		return goOn, nil // started again, a finished job changes nothing
	case s.target.Manifest.Finished && !r.NewLineage:
		return goOn, connector.Stop(fmt.Errorf("%s: %w; to go on from it all the same begins a new lineage, "+
			"and is to be asked for by name: --new-lineage", name, ErrFinished))
	case !s.target.Current && len(s.doubling) > 0 && !s.quiet() && !r.AcceptDuplicates:
		return goOn, connector.Stop(fmt.Errorf("%s: CURRENT is checkpoint %d of lineage %s: %w (sink %s); stop, or "+
			"accept that by name: --accept-duplicates", name, s.current.Checkpoint, s.current.Lineage, ErrRewind,
			strings.Join(s.doubling, ", ")))
	case s.damaged != nil && !s.current.Settled && s.target.Manifest.Lineage != s.current.Lineage:
		return goOn, fmt.Errorf("what CURRENT names is not settled, and not known: %w", s.damaged)
	}
	return rewind, nil
}

// begin makes CURRENT what the job was asked to go on from. Cut short anywhere and started again with
// the same words, it comes to the same place.
func (r *run) begin(ctx context.Context) error {
	req := r.cfg.Restore
	if err := r.sparesParent(ctx); err != nil {
		return fmt.Errorf("job %s: fork: %w", r.plan.name, err)
	}
	if req.From == "" && req.Fork == "" {
		return req.namesWhat(r.plan.name)
	}
	s, err := r.look(ctx)
	if err != nil {
		return fmt.Errorf("job %s: restore: %w", r.plan.name, err)
	}
	c, err := req.decide(s)
	if err != nil {
		return fmt.Errorf("job %s: restore: %w", r.plan.name, err)
	}
	switch c {
	case goOn:
		r.cfg.Logger.Warn("already restored: going on from CURRENT", "from", req.From, "fork", req.Fork,
			"current", s.current.String())
	case goOnNamed:
		r.restored = checkpoint.Restored{From: req.From, Manifest: s.target.Ref}
	case rewind:
		return r.rewind(ctx, s)
	case fork:
		return r.fork(ctx)
	}
	return nil
}

// namesWhat refuses what is said of a checkpoint where none is named: nobody could tell, at the next start with the
// same words, whether it has been done.
func (r RestoreConfig) namesWhat(job string) error {
	if !r.NewLineage {
		return nil
	}
	return connector.Stop(fmt.Errorf("job %s: %w: to go on from a checkpoint that is finished, name it: --restore N "+
		"--new-lineage --event-time TIME (Restore.From); the command checkpoints list shows its number", job, ErrInvalid))
}

// look reads what there is to decide on.
func (r *run) look(ctx context.Context) (s standing, err error) {
	var corrupt *checkpoint.CorruptError
	s.current, s.manifest, err = checkpoint.Latest(ctx, r.cfg.Store)
	if errors.As(err, &corrupt) && s.current.Exists() {
		s.damaged, err = err, nil
	}
	if err != nil {
		return s, err
	}
	if r.cfg.Restore.From != "" && r.cfg.Restore.Fork == "" {
		s.target, s.missing = checkpoint.Find(ctx, r.cfg.Store, r.cfg.Restore.From)
	}
	for _, sink := range r.plan.sinks {
		if !sink.idempotent {
			s.doubling = append(s.doubling, sink.uid)
		}
	}
	return s, ctx.Err()
}

// rewind settles what CURRENT names, as a restore of it would: nothing that was promised is lost. Then
// CURRENT is swapped to a new lineage, which begins with the other checkpoint.
func (r *run) rewind(ctx context.Context, s standing) error {
	if err := r.plan.compatible(s.target.Manifest, r.cfg.Restore); err != nil {
		return connector.Stop(fmt.Errorf("job %s: %w: %w", r.plan.name, ErrIncompatible, err))
	}
	settle := *r
	settle.settling = func(ctx context.Context) (protocol.Begin, checkpoint.Manifest, error) {
		if s.damaged != nil { // they travelled from there to what cannot be read
			current, err := r.cfg.Store.Current(ctx)
			return protocol.Begin{Current: current, Named: s.target.Manifest.Committables}, s.manifest, err
		}
		current, m, err := checkpoint.Latest(ctx, r.cfg.Store)
		return protocol.Begin{Current: current, Named: m.Committables}, m, err
	}
	if _, err := settle.generations(ctx); err != nil {
		return err
	}
	current, err := r.cfg.Store.Current(ctx)
	if err != nil {
		return fmt.Errorf("job %s: read CURRENT: %w", r.plan.name, err)
	}
	if !current.Settled {
		return connector.Stop(fmt.Errorf("job %s: CURRENT is %s after it was settled", r.plan.name, current))
	}
	m := s.target.Manifest
	m.Generation, m.Parent = current.Generation, s.target.Ref
	m.Restored = checkpoint.Restored{From: r.cfg.Restore.From, Manifest: s.target.Ref}
	m.Ancestors = nil
	for _, l := range slices.Concat(s.target.Manifest.Ancestors, s.manifest.Ancestors, []string{current.Lineage}) {
		if !slices.Contains(m.Ancestors, l) {
			m.Ancestors = append(m.Ancestors, l)
		}
	}
	r.cfg.Logger.Warn("going back", "to", s.target.Name(), "from", current.String(), "asked", r.cfg.Restore.From)
	return r.found(ctx, current, m)
}

// found begins a lineage with a checkpoint that was taken elsewhere.
func (r *run) found(ctx context.Context, old protocol.Current, m checkpoint.Manifest) error {
	m.Root, m.Committables, m.QuietSince, m.Created = true, nil, 0, r.cfg.Now()
	if old.Exists() || m.Lineage == "" {
		m.Lineage = checkpoint.NewLineage()
	}
	ref, err := r.cfg.Store.PutManifest(ctx, m)
	if err != nil {
		return fmt.Errorf("job %s: restore: %w", r.plan.name, err)
	}
	_, err = r.cfg.Store.Swap(context.WithoutCancel(ctx), old, protocol.Current{
		Job: r.plan.name, Lineage: m.Lineage, Generation: m.Generation, Checkpoint: m.Checkpoint,
		Manifest: ref.Name, ManifestDigest: ref.Digest,
	})
	if err != nil {
		return fmt.Errorf("job %s: restore: %w", r.plan.name, err)
	}
	return nil
}

// fork copies a checkpoint of another job's storage into this one, which is empty. What the parent has
// not committed yet, the parent commits.
func (r *run) fork(ctx context.Context) (err error) {
	req := r.cfg.Restore
	parent, err := checkpoint.Open(req.Fork, checkpoint.Options{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("job %s: fork: %w", r.plan.name, err)
	}
	defer func() { err = errors.Join(err, parent.Close()) }()
	for {
		m, err := r.copyFrom(ctx, parent)
		if err == nil {
			return r.found(ctx, protocol.Current{}, m)
		}
		current, currentErr := parent.Current(ctx)
		if req.From != "" || currentErr != nil || current.Manifest == m.Restored.Manifest.Name {
			return fmt.Errorf("job %s: fork %s: %w", r.plan.name, req.Fork, err)
		}
		// The parent has gone on, and let go what was being copied: begin with the newer one.
	}
}

// copyFrom copies the snapshots of the parent's checkpoint and returns the manifest of the copy. With an error
// it tells at least which checkpoint that was.
func (r *run) copyFrom(ctx context.Context, parent checkpoint.Store) (m checkpoint.Manifest, err error) {
	req := r.cfg.Restore
	target, err := origin(ctx, parent, req.From)
	m = target.Manifest
	m.Restored = checkpoint.Restored{From: req.From, Storage: req.Fork, Manifest: target.Ref}
	if err != nil {
		return m, err
	}
	if err := r.plan.compatible(m, req); err != nil {
		return m, connector.Stop(fmt.Errorf("%w: %w", ErrIncompatible, err))
	}
	r.cfg.Logger.Warn("forking", "checkpoint", target.Name(), "storage", req.Fork,
		"committables_left_to_the_parent", len(m.Committables))
	m.Job, m.Lineage, m.Generation, m.Parent, m.Ancestors = r.plan.name, checkpoint.NewLineage(), 1, checkpoint.Ref{}, nil
	m.Snapshots, err = checkpoint.CopySnapshots(ctx, parent, r.cfg.Store, m)
	return m, err
}

// origin returns the checkpoint of the parent that a fork begins with.
func origin(ctx context.Context, parent checkpoint.Store, from string) (checkpoint.Entry, error) {
	if from != "" {
		return checkpoint.Find(ctx, parent, from)
	}
	all, err := checkpoint.List(ctx, parent)
	if err != nil {
		return checkpoint.Entry{}, err
	}
	if len(all) == 0 || !all[0].Current {
		return checkpoint.Entry{}, connector.Stop(fmt.Errorf("%w: it has none yet", checkpoint.ErrNoCheckpoint))
	}
	return all[0], all[0].Err
}
