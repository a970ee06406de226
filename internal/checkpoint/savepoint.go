package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"example.com/weir/connector"
)

// Savepoint is a checkpoint that is kept under a name until it is deleted by that name.
type Savepoint struct {
	Name     string
	Created  time.Time // when it was given the name, UTC
	Manifest Ref
}

// Checkpoint returns which checkpoint of which lineage the savepoint keeps.
func (s Savepoint) Checkpoint() (lineage string, checkpoint uint64) {
	o, _ := parseOrigin(s.Manifest.Name)
	return o.lineage, o.checkpoint
}

// String names the savepoint and its checkpoint.
func (s Savepoint) String() string {
	lineage, n := s.Checkpoint()
	return fmt.Sprintf("savepoint %s (checkpoint %d of lineage %s)", s.Name, n, lineage)
}

var (
	// ErrSavepointName reports a name that no savepoint can have.
	ErrSavepointName = errors.New("not a name of a savepoint")

	// ErrSavepointExists reports a name that is taken.
	ErrSavepointExists = errors.New("a savepoint of that name exists")

	// ErrNoSavepoint reports a name that no savepoint has.
	ErrNoSavepoint = errors.New("no such savepoint")
)

// longestSavepointName is the limit of names, in bytes.
const longestSavepointName = 100

// CheckSavepointName reports why a name is not one of a savepoint: it has 1 to 100 characters of a–z,
// 0–9, dot, underscore and hyphen, the first of them a letter or a digit, and it is neither a number
// nor what a checkpoint is called.
func CheckSavepointName(name string) error {
	why := ""
	switch {
	case name == "":
		why = "it is empty"
	case len(name) > longestSavepointName:
		why = fmt.Sprintf("it is longer than %d characters", longestSavepointName)
	case strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") != "":
		why = "it has other characters than a-z, 0-9, '.', '_' and '-'"
	case strings.ContainsRune("._-", rune(name[0])):
		why = "it does not begin with a letter or a digit"
	case strings.Trim(name, "0123456789") == "":
		why = "a number names a checkpoint"
	case isManifest(name + manifestSuffix):
		why = "a checkpoint is called so"
	default:
		return nil
	}
	return fmt.Errorf("%w: %q: %s", ErrSavepointName, name, why)
}

// wireSavepoint is how a savepoint is written. Its field names are the format.
type wireSavepoint struct {
	Job      string    `json:"job"`
	Name     string    `json:"name"`
	Created  time.Time `json:"created"`
	Manifest wireRef   `json:"manifest"`
}

func savepointName(name string) string { return path.Join(savepointsDir, name+manifestSuffix) }

// PutSavepoint implements Store.
func (s *dirStore) PutSavepoint(ctx context.Context, name string, r Ref) (Savepoint, error) {
	p, err := s.putSavepoint(ctx, name, r)
	if err != nil {
		return Savepoint{}, fmt.Errorf("savepoint %s: %w", name, err)
	}
	return p, nil
}

func (s *dirStore) putSavepoint(ctx context.Context, name string, r Ref) (p Savepoint, err error) {
	if err := CheckSavepointName(name); err != nil {
		return p, err
	}
	leave, err := s.enter(ctx)
	if err != nil {
		return p, err
	}
	defer leave()
	if _, err := s.readManifest(ctx, r); err != nil {
		return p, err
	}
	if err := s.fs.Mkdir(savepointsDir); err != nil {
		return p, err
	}
	if err := s.syncDir("."); err != nil {
		return p, err
	}
	if _, err := s.fs.ReadFile(savepointName(name)); !errors.Is(err, fs.ErrNotExist) {
		return p, errors.Join(err, ErrSavepointExists)
	}
	p = Savepoint{Name: name, Created: s.opts.Now().UTC(), Manifest: r}
	data, err := seal(savepointKind, textVersion, wireSavepoint{
		Job: s.opts.Job, Name: name, Created: p.Created,
		Manifest: wireRef{Name: r.Name, Digest: r.Digest},
	})
	if err != nil {
		return p, err
	}
	// By a rename: what a crash leaves half written is no savepoint, and would stop the clean-up.
	temp := path.Join(savepointsDir, savepointTemp)
	if err := s.write(temp, false, data); err != nil {
		return p, err
	}
	if err := s.fs.Rename(temp, savepointName(name)); err != nil {
		return p, err
	}
	return p, s.syncDir(savepointsDir)
}

// Savepoints implements Store.
func (s *dirStore) Savepoints(ctx context.Context) ([]Savepoint, error) {
	names, err := s.fs.List(savepointsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var all []Savepoint
	for _, base := range names {
		name, ok := strings.CutSuffix(base, manifestSuffix)
		if !ok || CheckSavepointName(name) != nil {
			continue // not one of ours
		}
		p, err := s.readSavepoint(ctx, name)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

func (s *dirStore) readSavepoint(ctx context.Context, name string) (Savepoint, error) {
	if err := ctx.Err(); err != nil {
		return Savepoint{}, err
	}
	file := savepointName(name)
	data, err := s.fs.ReadFile(file)
	if err != nil {
		return Savepoint{}, err
	}
	var w wireSavepoint
	if err := unseal(file, savepointKind, data, &w); err != nil {
		return Savepoint{}, err
	}
	switch {
	case s.foreign(w.Job):
		return Savepoint{}, connector.Stop(&ForeignError{Have: w.Job, Want: s.opts.Job})
	case w.Name != name || !isManifest(w.Manifest.Name):
		return Savepoint{}, connector.Stop(&CorruptError{File: file, What: fmt.Sprintf(
			"it is the savepoint %q of %s", w.Name, w.Manifest.Name)})
	}
	return Savepoint{
		Name: name, Created: w.Created.UTC(), Manifest: Ref{Name: w.Manifest.Name, Digest: w.Manifest.Digest},
	}, nil
}

// DeleteSavepoint implements Store. One that cannot be read is deleted too: that is how a damaged one
// is got rid of.
func (s *dirStore) DeleteSavepoint(ctx context.Context, name string) error {
	if err := CheckSavepointName(name); err != nil {
		return fmt.Errorf("delete savepoint: %w", err)
	}
	leave, err := s.enter(ctx)
	if err != nil {
		return fmt.Errorf("delete savepoint %s: %w", name, err)
	}
	defer leave()
	err = s.fs.Remove(savepointName(name))
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNoSavepoint
	}
	if err == nil {
		err = s.syncDir(savepointsDir)
	}
	if err != nil {
		return fmt.Errorf("delete savepoint %s: %w", name, err)
	}
	return nil
}
