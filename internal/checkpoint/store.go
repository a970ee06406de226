package checkpoint

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"example.com/weir/connector"
	"example.com/weir/internal/protocol"
)

// Store keeps the checkpoints of one job. Snapshots may be put and got by several goroutines
// at once. Errors that no restart heals are marked by connector.Stop.
type Store interface {
	// Current returns what CURRENT holds, and the zero value if there is none.
	Current(ctx context.Context) (protocol.Current, error)

	// Swap replaces old by next if CURRENT still holds old, and returns next with the nonce
	// it was given. An old that does not exist creates CURRENT. The error is ErrSwapRefused if
	// CURRENT holds something else, and ErrSwapUnknown if it may or may not have been
	// swapped; with any other error it has not been.
	Swap(ctx context.Context, old, next protocol.Current) (protocol.Current, error)

	// PutSnapshot makes a payload durable under a name that has not been used: all parts, one behind
	// the other. It keeps nothing of the slices.
	PutSnapshot(ctx context.Context, name SnapshotName, payload ...[]byte) (protocol.Handle, error)

	// GetSnapshot reads a payload back and checks it.
	GetSnapshot(ctx context.Context, h protocol.Handle) ([]byte, error)

	// DeleteSnapshots deletes files of snapshots that no manifest which CURRENT has named names, and none
	// will. One that is gone is no error.
	DeleteSnapshots(ctx context.Context, names []string) error

	// PutManifest makes a manifest durable, and with it everything it refers to.
	PutManifest(ctx context.Context, m Manifest) (Ref, error)

	// GetManifest reads a manifest back and checks it. A manifest that does not exist is
	// fs.ErrNotExist.
	GetManifest(ctx context.Context, r Ref) (Manifest, error)

	// CreateRecords makes a file for kept records under a name that has not been used. It may be
	// lost until it is synced and a manifest that names it has been put.
	CreateRecords(name string) (RecordsFile, error)

	// OpenRecords opens the file of kept records. One that is not there is a CorruptError: whoever
	// asks has it from a manifest.
	OpenRecords(ctx context.Context, name string) (io.ReadCloser, error)

	// DeleteRecords deletes files of kept records that nobody needs any more. One that is gone is no
	// error.
	DeleteRecords(ctx context.Context, names []string) error

	// PutSavepoint keeps a manifest, with everything it refers to, under a name (see
	// CheckSavepointName) until DeleteSavepoint. A name that is taken is ErrSavepointExists.
	PutSavepoint(ctx context.Context, name string, r Ref) (Savepoint, error)

	// Savepoints returns all savepoints, ordered by name.
	Savepoints(ctx context.Context) ([]Savepoint, error)

	// DeleteSavepoint forgets a savepoint; what it kept is deleted by the next clean-up. A name
	// that none has is ErrNoSavepoint.
	DeleteSavepoint(ctx context.Context, name string) error

	// Collect deletes what is older than the last retain checkpoints of CURRENT's lineage,
	// and what dead generations of it left behind. It keeps what savepoints keep, and what the
	// running generation has written for a checkpoint that does not exist yet. Of kept records it
	// leaves what an unsettled CURRENT names, and what the running generation has: that deletes its
	// own.
	Collect(ctx context.Context, retain int) (Collected, error)

	// Close gives the store up. Another process may own it then.
	Close() error
}

// RecordsFile is a file of kept records being written. One goroutine at a time uses it.
type RecordsFile interface {
	io.Writer
	Sync() error
	Close() error
}

// Ref names a manifest and says what must be in it. The zero value names none.
type Ref struct {
	Name   string
	Digest [32]byte
}

// SnapshotName says whose snapshot it is.
type SnapshotName struct {
	Lineage    string
	Generation uint64
	Checkpoint uint64
	Subtask    protocol.SubtaskID
}

// Collected counts what Collect deleted.
type Collected struct{ Manifests, Files int }

// Options are what Open is told beside the address.
type Options struct {
	// Job is the name of the job; a store of another job is refused. Empty is whichever job it is.
	Job string
	// ReadOnly takes no lock and refuses to write: for looking at the checkpoints of a job
	// that may be running.
	ReadOnly bool
	// AcceptFileSystem is the name of a file system ("nfs", "fuse", …) to use although it is
	// one that is refused. Whoever sets it knows that its flock excludes other machines, and
	// that what was fsynced there stays.
	AcceptFileSystem string
	// AcceptCopy owns a directory that is a copy (see CopiedError).
	AcceptCopy bool
	// Now is the clock that dates the lock; default time.Now.
	Now func() time.Time
	// Logger is told about what is odd and harmless; default: nobody.
	Logger *slog.Logger
}

// Open opens the store at an address, which is file:///absolute/path, or file:relative/path
// from the working directory. The directory is made if it is missing.
//
// The process owns the store until Close: a second one gets a LockedError, and the first one in a copy of
// a directory a CopiedError (see Options.AcceptCopy). File systems where
// that could not be relied on are refused (see Options.AcceptFileSystem).
func Open(address string, opts Options) (Store, error) {
	dir, err := parseAddress(address)
	if err != nil {
		return nil, connector.Stop(fmt.Errorf("checkpoint storage %q: %w: %w", address, ErrAddress, err))
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	s, err := openDir(dir, opts)
	if err != nil {
		return nil, fmt.Errorf("checkpoint storage %q: %w", address, err)
	}
	return s, nil
}

// Dir returns the directory that an address names.
func Dir(address string) (string, error) {
	dir, err := parseAddress(address)
	if err != nil {
		return "", fmt.Errorf("checkpoint storage %q: %w: %w", address, ErrAddress, err)
	}
	return dir, nil
}

// parseAddress returns the directory that an address names.
func parseAddress(address string) (string, error) {
	scheme, rest, ok := strings.Cut(address, ":")
	switch {
	case !ok:
		return "", errors.New("an address is wanted, such as file:///var/lib/weir")
	case scheme != "file":
		return "", fmt.Errorf("scheme %q is not supported; supported is: file", scheme)
	}
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		host, _, _ := strings.Cut(after, "/")
		switch host {
		case "", ".", "..":
			rest = after
		case "localhost":
			rest = strings.TrimPrefix(after, "localhost")
		default:
			return "", fmt.Errorf("it names host %q; write file:///absolute/path", host)
		}
	}
	dir, err := url.PathUnescape(rest)
	if err != nil {
		return "", err
	}
	if dir == "" {
		return "", errors.New("it names no directory; write file:///absolute/path")
	}
	return dir, nil
}

// NewLineage makes the name of a new history of checkpoints.
func NewLineage() string { return randomHex(8) }

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: it ends the program instead
	return hex.EncodeToString(b)
}

// Latest returns CURRENT and the manifest it names. The manifest is zero with checkpoint 0.
func Latest(ctx context.Context, s Store) (protocol.Current, Manifest, error) {
	cur, err := s.Current(ctx)
	if err != nil || cur.Manifest == "" {
		return cur, Manifest{}, err
	}
	m, err := s.GetManifest(ctx, Ref{Name: cur.Manifest, Digest: cur.ManifestDigest})
	if errors.Is(err, fs.ErrNotExist) {
		err = connector.Stop(&CorruptError{File: cur.Manifest, What: "CURRENT names it and it is missing"})
	}
	return cur, m, err
}

// Retained returns the manifests of the checkpoints that can be restored, newest first.
func Retained(ctx context.Context, s Store) ([]Manifest, error) {
	_, m, err := Latest(ctx, s)
	var ms []Manifest
	for err == nil && m.Checkpoint != 0 {
		ms = append(ms, m)
		if m.Parent.Name == "" {
			return ms, nil
		}
		m, err = s.GetManifest(ctx, m.Parent)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // the parent was let go
	}
	return ms, err
}

// owner tells who holds a store or wrote CURRENT.
func owner(now time.Time) Holder {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return Holder{PID: os.Getpid(), Host: host, Since: now.UTC()}
}
