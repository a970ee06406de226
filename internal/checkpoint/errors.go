package checkpoint

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"example.com/weir/connector"
	"example.com/weir/internal/protocol"
)

var (
	// ErrSwapRefused reports that CURRENT held something else than expected. It is also
	// connector.ErrSuperseded. The error is a SwapRefusedError.
	ErrSwapRefused = errors.New("swap refused")

	// ErrSwapUnknown reports that CURRENT may or may not have been swapped: only a new
	// generation, which reads it, knows.
	ErrSwapUnknown = errors.New("swap in doubt")

	// ErrAddress reports an address that names no storage this program knows.
	ErrAddress = errors.New("not an address of a checkpoint storage")

	// ErrReadOnly reports a write to a store that was opened to be looked at.
	ErrReadOnly = errors.New("checkpoint storage was opened read-only")
)

// SwapRefusedError says what CURRENT held instead, and who wrote it.
type SwapRefusedError struct {
	Want, Have protocol.Current
	By         Holder // the process that wrote Have; zero if there is no CURRENT
}

// Error names both states.
func (e *SwapRefusedError) Error() string {
	return fmt.Sprintf("%v: CURRENT is %s (nonce %.8s, written by %s), not %s (nonce %.8s)",
		ErrSwapRefused, e.Have, e.Have.Nonce, e.By, e.Want, e.Want.Nonce)
}

// Is reports that the error is ErrSwapRefused and connector.ErrSuperseded.
func (e *SwapRefusedError) Is(target error) bool {
	return target == ErrSwapRefused || target == connector.ErrSuperseded
}

// Holder is a process that owns a store, or owned it when it wrote something.
type Holder struct {
	PID   int       `json:"pid"`
	Host  string    `json:"host"`
	Since time.Time `json:"since"`
}

// String names the process.
func (h Holder) String() string {
	if h.PID == 0 {
		return "an unknown process"
	}
	return fmt.Sprintf("process %d on %s at %s", h.PID, h.Host, h.Since.UTC().Format(time.RFC3339))
}

// LockedError reports that another process owns the store. It may be tried again later.
type LockedError struct {
	Dir    string
	Holder Holder
}

// Error says who holds the directory.
func (e *LockedError) Error() string {
	return fmt.Sprintf("%s is held by %s: only one process may run a job", e.Dir, e.Holder)
}

// CopiedError reports a directory that is a copy of the one in which it was written: a second one beside it,
// or a backup that was put back.
type CopiedError struct {
	Dir    string
	Holder Holder // of the directory that it was copied from, before it was
}

// Error says what a copy can do, and what to do about it.
func (e *CopiedError) Error() string {
	return fmt.Sprintf("%s is a copy of a checkpoint directory, or was put back from a backup (%s last held the one "+
		"that it was copied from): a job that runs on it writes again what has been committed since it was "+
		"copied, and breaks into the transactions of a job that runs on the other one. To run beside that one, begin in "+
		"an empty storage with --fork-from and this directory's address. If this one takes the other's place for good, "+
		"no job will run on that again, and nothing was committed after the copy was made, say so once: "+
		"--accept-copied-directory", e.Dir, e.Holder)
}

// CorruptError reports a file that is not what was written (K5).
type CorruptError struct {
	File       string
	Checkpoint uint64 // 0 if the name of the file does not say
	What       string // what differs
	// Retained are the names of older manifests that are in order, newest first: what could
	// be restored instead, by name.
	Retained []string
}

// Error names file, checkpoint and difference, and what could be restored instead.
func (e *CorruptError) Error() string {
	s := fmt.Sprintf("%s is corrupt: %s", e.File, e.What)
	if e.Checkpoint != 0 {
		s = fmt.Sprintf("%s of checkpoint %d is corrupt: %s", e.File, e.Checkpoint, e.What)
	}
	switch {
	case e.File == currentName:
		return s + ": put the whole directory back as it was at one moment, or begin afresh in another one; " +
			"which checkpoint exists, nothing else says" + e.beside("; manifests that are in order: ")
	case len(e.Retained) > 0:
		s += e.beside("; older checkpoints that are retained: ")
		if o, ok := parseOrigin(e.Retained[0]); ok && e.Checkpoint != 0 {
			s += fmt.Sprintf("; to go back to the newest of them, restore it by number: --restore %d", o.checkpoint)
		}
	}
	return s
}

// beside lists what is in order, behind a word on it.
func (e *CorruptError) beside(word string) string {
	if len(e.Retained) == 0 {
		return ""
	}
	return word + strings.Join(e.Retained, ", ")
}

// FormatError reports a file written by a newer program (K5).
type FormatError struct {
	File            string
	Version, Newest int
}

// Error names the versions.
func (e *FormatError) Error() string {
	return fmt.Sprintf("%s has format version %d, and this program reads up to %d: use the newer program",
		e.File, e.Version, e.Newest)
}

// ForeignError reports a store that belongs to another job.
type ForeignError struct{ Have, Want string }

// Error names both jobs.
func (e *ForeignError) Error() string {
	return fmt.Sprintf("it holds the checkpoints of job %q, not of job %q: "+
		"each job has a storage address of its own", e.Have, e.Want)
}
