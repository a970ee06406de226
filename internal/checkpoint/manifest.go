package checkpoint

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"example.com/weir/connector"
	"example.com/weir/internal/protocol"
)

// Manifest describes one checkpoint: everything a restore needs to know.
type Manifest struct {
	Job        string
	Lineage    string
	Generation uint64
	Checkpoint uint64
	Parent     Ref       // of the checkpoint before it; zero for the first one of a lineage
	Created    time.Time // kept in UTC
	Finished   bool      // the input had ended
	// Replacement counts the manifests that Generation has written for a checkpoint that it found
	// there, from 1: this one has taken the place of another, of the same Parent, and names in it what
	// was lost outside and has been written again. 0: the checkpoint was taken with it.
	Replacement uint64
	// Unaligned says that it was taken in at-least-once mode, of a running job: subtasks with several inputs
	// may hold records that lie behind the sources' positions.
	Unaligned bool

	// QuietSince is a checkpoint of the same lineage behind which sinks have shown nothing up to and with this one:
	// whoever goes back to it, or to one after it, shows nothing twice. 0: this one has shown something, or it is
	// not known.
	QuietSince uint64

	// Root says that a restore made it: the lineage begins here, and no job has taken it. It names
	// no committables.
	Root bool
	// Restored is the last restore by name that led here; zero if there was none.
	Restored Restored
	// Ancestors are the lineages that this one follows, oldest first: their sinks are its own.
	Ancestors []string

	MaxParallelism int    // key groups
	KeyHash        string // name of the hash that assigns keys to key groups
	Operators      []Operator

	Snapshots    []protocol.SubtaskSnapshot
	Committables []connector.Committable
}

// Restored tells of a restore that was asked for by name.
type Restored struct {
	From     string // a checkpoint or savepoint, as it was asked for; empty for a fork of CURRENT
	Storage  string // where a fork was taken from
	Manifest Ref    // what that was
}

// Operator is what the manifest says of an operator of the job.
type Operator struct {
	UID         string
	Kind        string // source, process, window, sink, …
	Parallelism int
	Stateful    bool
}

func (m Manifest) origin() origin {
	return origin{
		lineage: m.Lineage, generation: m.Generation, checkpoint: m.Checkpoint, replacement: m.Replacement,
	}
}

// inlineLimit is the size, in bytes, up to which a committable's payload is kept in the manifest
// itself. A larger one has a file of its own, which is written once however many manifests the
// committable travels in.
const inlineLimit = 4 << 10

// The types below are how a manifest is written. Their field names are the format.
type (
	wireManifest struct {
		Job            string            `json:"job"`
		Lineage        string            `json:"lineage"`
		Generation     uint64            `json:"generation"`
		Checkpoint     uint64            `json:"checkpoint"`
		Parent         *wireRef          `json:"parent,omitempty"`
		Created        time.Time         `json:"created"`
		Finished       bool              `json:"finished,omitempty"`
		Replacement    uint64            `json:"replacement,omitempty"`
		Unaligned      bool              `json:"unaligned,omitempty"`
		QuietSince     uint64            `json:"quiet_since,omitempty"`
		Root           bool              `json:"root,omitempty"`
		Restored       *wireRestored     `json:"restored,omitempty"`
		Ancestors      []string          `json:"ancestors,omitempty"`
		MaxParallelism int               `json:"max_parallelism"`
		KeyHash        string            `json:"key_hash"`
		Operators      []wireOperator    `json:"operators"`
		Snapshots      []wireSnapshot    `json:"snapshots"`
		Committables   []wireCommittable `json:"committables"`
	}
	wireRef struct {
		Name   string `json:"name"`
		Digest digest `json:"sha256"`
	}
	wireRestored struct {
		From     string  `json:"from"`
		Storage  string  `json:"storage,omitempty"`
		Manifest wireRef `json:"manifest"`
	}
	wireOperator struct {
		UID         string `json:"uid"`
		Kind        string `json:"kind"`
		Parallelism int    `json:"parallelism"`
		Stateful    bool   `json:"stateful"`
	}
	wireHandle struct {
		Name   string `json:"name"`
		Size   int64  `json:"size"`
		Digest digest `json:"sha256"`
	}
	wireSnapshot struct {
		Operator string       `json:"operator"`
		Subtask  int          `json:"subtask"`
		Files    []wireHandle `json:"files,omitempty"` // in order; none for a subtask without state
	}
	wireCommittable struct {
		Sink       string      `json:"sink"`
		Subtask    int         `json:"subtask"`
		Checkpoint uint64      `json:"checkpoint"`
		Opened     time.Time   `json:"opened,omitzero"`
		Digest     digest      `json:"digest"`
		Payload    []byte      `json:"payload,omitempty"`
		File       *wireHandle `json:"file,omitempty"` // in place of the payload
		Kept       *wireKept   `json:"kept,omitempty"`
	}
	wireKept struct {
		Name   string `json:"name"`
		Size   int64  `json:"size"`
		Digest digest `json:"sha256"`
		Inline []byte `json:"inline,omitempty"` // in place of a file
	}
)

// wire returns how m is written. The committables are the caller's to add, with their files.
func (m Manifest) wire() wireManifest {
	w := wireManifest{
		Job:            m.Job,
		Lineage:        m.Lineage,
		Generation:     m.Generation,
		Checkpoint:     m.Checkpoint,
		Created:        m.Created.UTC(),
		Finished:       m.Finished,
		MaxParallelism: m.MaxParallelism,
		KeyHash:        m.KeyHash,
		Operators:      make([]wireOperator, 0, len(m.Operators)),
		Snapshots:      make([]wireSnapshot, 0, len(m.Snapshots)),
		Committables:   make([]wireCommittable, 0, len(m.Committables)),
	}
	w.Unaligned, w.Root, w.Ancestors, w.Replacement = m.Unaligned, m.Root, m.Ancestors, m.Replacement
	w.QuietSince = m.QuietSince
	if r := m.Restored; r != (Restored{}) {
		w.Restored = &wireRestored{
			From: r.From, Storage: r.Storage, Manifest: wireRef{Name: r.Manifest.Name, Digest: r.Manifest.Digest},
		}
	}
	if m.Parent.Name != "" {
		w.Parent = &wireRef{Name: m.Parent.Name, Digest: m.Parent.Digest}
	}
	for _, o := range m.Operators {
		w.Operators = append(w.Operators, wireOperator(o))
	}
	for _, s := range m.Snapshots {
		ws := wireSnapshot{Operator: s.Subtask.Operator, Subtask: s.Subtask.Index}
		for _, h := range s.Handles {
			ws.Files = append(ws.Files, wireOfHandle(h))
		}
		w.Snapshots = append(w.Snapshots, ws)
	}
	return w
}

// manifest returns what w says, without the committables.
func (w wireManifest) manifest() Manifest {
	m := Manifest{
		Job:            w.Job,
		Lineage:        w.Lineage,
		Generation:     w.Generation,
		Checkpoint:     w.Checkpoint,
		Created:        w.Created.UTC(),
		Finished:       w.Finished,
		MaxParallelism: w.MaxParallelism,
		KeyHash:        w.KeyHash,
	}
	m.Unaligned, m.Root, m.Ancestors, m.Replacement = w.Unaligned, w.Root, w.Ancestors, w.Replacement
	m.QuietSince = w.QuietSince
	if r := w.Restored; r != nil {
		m.Restored = Restored{
			From: r.From, Storage: r.Storage, Manifest: Ref{Name: r.Manifest.Name, Digest: r.Manifest.Digest},
		}
	}
	if w.Parent != nil {
		m.Parent = Ref{Name: w.Parent.Name, Digest: w.Parent.Digest}
	}
	for _, o := range w.Operators {
		m.Operators = append(m.Operators, Operator(o))
	}
	for _, s := range w.Snapshots {
		ms := protocol.SubtaskSnapshot{
			Subtask: protocol.SubtaskID{Operator: s.Operator, Index: s.Subtask},
		}
		for _, h := range s.Files {
			ms.Handles = append(ms.Handles, h.handle())
		}
		m.Snapshots = append(m.Snapshots, ms)
	}
	return m
}

// version is the format that a program must understand to read w.
func (w wireManifest) version() int {
	if w.QuietSince != 0 {
		return 4
	}
	if w.Replacement != 0 || slices.ContainsFunc(w.Committables, func(c wireCommittable) bool { return c.Kept != nil }) {
		return 3
	}
	if w.Unaligned || w.Root || w.Restored != nil || len(w.Ancestors) > 0 {
		return 2
	}
	return 1
}

// files lists everything that the manifest refers to, beside other manifests.
func (w wireManifest) files() []string {
	var names []string
	for _, s := range w.Snapshots {
		for _, h := range s.Files {
			names = append(names, h.Name)
		}
	}
	for _, c := range w.Committables {
		if c.File != nil {
			names = append(names, c.File.Name)
		}
	}
	return names
}

func (h wireHandle) handle() protocol.Handle {
	return protocol.Handle{Name: h.Name, Size: h.Size, Digest: h.Digest}
}

// inFile reports whether the records of c are kept in a file of their own.
func inFile(c connector.Committable) bool { return c.Kept.Name != "" && c.Kept.Inline == nil }

// wireOfCommittable returns how c is written, but for its payload.
func wireOfCommittable(c connector.Committable) wireCommittable {
	w := wireCommittable{
		Sink: c.Sink, Subtask: c.Subtask, Checkpoint: c.Checkpoint, Opened: c.Opened, Digest: c.Digest,
	}
	if k := c.Kept; k.Name != "" {
		w.Kept = &wireKept{Name: k.Name, Size: k.Size, Digest: k.Digest, Inline: k.Inline}
	}
	return w
}

// committable returns what w says, but for a payload in a file.
func (w wireCommittable) committable() connector.Committable {
	c := connector.Committable{
		Sink: w.Sink, Subtask: w.Subtask, Checkpoint: w.Checkpoint, Opened: w.Opened,
		Digest: w.Digest, Payload: w.Payload,
	}
	if k := w.Kept; k != nil {
		c.Kept = connector.Kept{Name: k.Name, Size: k.Size, Digest: k.Digest, Inline: k.Inline}
	}
	return c
}

func wireOfHandle(h protocol.Handle) wireHandle {
	return wireHandle{Name: h.Name, Size: h.Size, Digest: h.Digest}
}

// decodeManifest reads a manifest's file. want is what CURRENT or a child says of it; the zero
// digest is what nobody says anything of.
func decodeManifest(name string, data []byte, want digest) (wireManifest, error) {
	var w wireManifest
	if err := unseal(name, manifestKind, data, &w); err != nil {
		return w, err
	}
	if got := digest(sha256.Sum256(data)); want != (digest{}) && got != want {
		return w, connector.Stop(&CorruptError{File: name, What: fmt.Sprintf(
			"it has digest %x, and what names it says %x", got[:4], want[:4])})
	}
	o := w.manifest().origin()
	if manifestName(o) != name {
		return w, connector.Stop(&CorruptError{File: name, What: "it is the manifest of " + o.String()})
	}
	return w, nil
}
