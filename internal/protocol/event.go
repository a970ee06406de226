package protocol

import "example.com/weir/connector"

// Event is what the shell tells the coordinator. The types of this file are all there are.
//
//sumtype:decl
type Event interface{ event() }

// Begin is the first event of a generation.
type Begin struct {
	// Current is what the store holds. For a fresh start it is the lineage's first state as
	// the shell made it: Job and Lineage, everything else zero.
	Current Current
	// Named are the committables of CURRENT's manifest; they are ignored if it is settled.
	Named []connector.Committable
	// Fresh says that the store holds no CURRENT, and that the lineage is to be created.
	Fresh bool
	// Root says that CURRENT's checkpoint was not taken by its lineage: a restore has begun the
	// lineage with it. It names no committables.
	Root bool
	// AboveGeneration is the highest generation that any sink has seen: the one that begins
	// gets a higher number. Zero if none is known.
	AboveGeneration uint64
}

// Swapped says that CURRENT holds what SwapCurrent asked for, with the nonce the store made.
type Swapped struct{ Current Current }

// SwapRefused says that CURRENT held something else than expected, and was left alone.
type SwapRefused struct{ Err error }

// SwapUnknown says that CURRENT may or may not have been swapped. It is also the answer for a
// swap that failed for certain: the generation ends either way, and the next one reads CURRENT.
type SwapUnknown struct{ Err error }

// Reemitted says that the records of a committable which CURRENT names were lost outside, and that a
// restore has written them again, pre-committed as Committable: the same identity and digest, with
// another payload.
type Reemitted struct{ Committable connector.Committable }

// Restored says that everything named is settled, that nothing of a lost generation is open
// outside, and that state has been read.
type Restored struct{}

// RestoreFailed says that the restore did not come to its end.
type RestoreFailed struct{ Err error }

// CheckpointDue says that the interval has passed.
type CheckpointDue struct{}

// Acknowledged says that a subtask has passed the barrier and its snapshot is durable.
type Acknowledged struct {
	Checkpoint   uint64
	Subtask      SubtaskID
	Handles      []Handle
	Committables []connector.Committable
}

// Declined says that a subtask has passed the barrier and its snapshot could not be written.
// What was pre-committed at the barrier must be named all the same. Handles are the files that later cuts
// of the subtask may still build on.
type Declined struct {
	Checkpoint   uint64
	Subtask      SubtaskID
	Handles      []Handle
	Committables []connector.Committable
	Err          error
}

// TimedOut says that the checkpoint has taken longer than it may.
type TimedOut struct{ Checkpoint uint64 }

// ManifestWritten says that the manifest is durable.
type ManifestWritten struct {
	Checkpoint uint64
	Manifest   string // its name
	Digest     [32]byte
}

// ManifestFailed says that the manifest could not be written.
type ManifestFailed struct {
	Checkpoint uint64
	Err        error
}

// CommitSettled says that the outside shows the commit.
type CommitSettled struct{ ID connector.CommittableID }

// CommitFailed says that the commit could not be brought to an end.
type CommitFailed struct {
	ID  connector.CommittableID
	Err error
}

// InputEnded says that a source subtask has read everything there will ever be.
type InputEnded struct{ Subtask SubtaskID }

// StopRequested asks to end after a last checkpoint, with the rest of the input unread. The first
// one decides how; later ones are ignored.
type StopRequested struct {
	// Drain says to take event time to the end first: timers fire and windows close, and the
	// last checkpoint is marked finished.
	Drain bool
}

// SubtaskFailed says that a subtask has ended with an error.
type SubtaskFailed struct {
	Subtask SubtaskID
	Err     error
}

func (Begin) event()           {}
func (Swapped) event()         {}
func (SwapRefused) event()     {}
func (SwapUnknown) event()     {}
func (Reemitted) event()       {}
func (Restored) event()        {}
func (RestoreFailed) event()   {}
func (CheckpointDue) event()   {}
func (Acknowledged) event()    {}
func (Declined) event()        {}
func (TimedOut) event()        {}
func (ManifestWritten) event() {}
func (ManifestFailed) event()  {}
func (CommitSettled) event()   {}
func (CommitFailed) event()    {}
func (InputEnded) event()      {}
func (StopRequested) event()   {}
func (SubtaskFailed) event()   {}
