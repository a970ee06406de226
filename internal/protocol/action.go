package protocol

import "example.com/weir/connector"

// Action is what the coordinator asks of the shell. The types of this file are all there are;
// a shell carries them out in the order given. Restore, WriteManifest, RewriteManifest, SwapCurrent
// and each committable of a Commit are answered by an event; the others are not.
//
//sumtype:decl
type Action interface{ action() }

// SwapCurrent asks to replace Old by New, if CURRENT still holds Old. New has no nonce: the
// store makes one. An Old that does not exist asks to create CURRENT.
type SwapCurrent struct{ Old, New Current }

// Restore asks to settle what is named, to end what the lost generation left open outside, and
// to read the checkpoint's state. Subtasks are not to read anything yet.
type Restore struct {
	Permit  CommitPermit
	Current Current
	Named   []connector.Committable // in the order of checkpoints within (sink, subtask)
	// Clean says that the last generation left nothing open outside.
	Clean bool
	// Fresh says that no restore of this lineage has been completed, so that nothing of it
	// can exist outside: true at a fresh start, and again if that start did not get far.
	Fresh bool
}

// RewriteManifest asks to make another manifest of Current's checkpoint durable: all as it was, with
// these committables. It is answered as WriteManifest is.
type RewriteManifest struct {
	Current      Current
	Committables []connector.Committable // in the order of checkpoints within (sink, subtask)
}

// Replaced tells the restore, which goes on now, that CURRENT names the committable that was written
// again. The permit covers all that CURRENT names.
type Replaced struct {
	Permit      CommitPermit
	Committable connector.Committable
}

// StartSubtasks asks to start reading at the checkpoint of Current: at the positions the source
// resolves for a fresh start if that is 0.
type StartSubtasks struct{ Current Current }

// InjectBarrier asks the sources to send the barrier.
type InjectBarrier struct {
	Checkpoint uint64
	// Final is the outcome the generation ends with if this checkpoint completes, and None if
	// it is not the last one. No record follows a final barrier.
	Final Outcome
}

// AbortCheckpoint tells that the checkpoint will not complete: alignment ends, and its snapshots
// are not needed. What was pre-committed for it is carried by the next one.
type AbortCheckpoint struct {
	Checkpoint uint64
	Err        error
}

// WriteManifest asks to make the manifest durable.
type WriteManifest struct {
	Current      Current // the parent
	Checkpoint   uint64
	Finished     bool
	Snapshots    []SubtaskSnapshot       // in the order of Config.Subtasks
	Committables []connector.Committable // in the order of checkpoints within (sink, subtask)
}

// Commit asks to commit, in this order within each (sink, subtask), and to answer for each.
type Commit struct {
	Permit       CommitPermit
	Committables []connector.Committable
}

// Release tells writers that no CURRENT names these settled committables any more.
type Release struct{ Committables []connector.Committable }

// ReleasePositions tells sources that the positions of this checkpoint are safe to publish. A
// failure there is a warning.
type ReleasePositions struct{ Checkpoint uint64 }

// CheckpointCompleted tells that the checkpoint exists.
type CheckpointCompleted struct{ Current Current }

// DiscardSnapshots asks to delete files of snapshots that were written for checkpoints which were aborted:
// no checkpoint names them, and none will. A failure there is a warning.
type DiscardSnapshots struct{ Handles []Handle }

// Collect asks to delete what is older than the last Retain checkpoints of the lineage, and what
// dead generations left behind. A failure there is a warning.
type Collect struct {
	Current Current
	Retain  int
}

// StopReading asks the sources to read no further. Barriers still pass. With Drain, each source
// subtask then takes event time to the end and says InputEnded; a barrier that was injected before
// goes before that.
type StopReading struct{ Drain bool }

// Finish ends the generation well: nothing is left to commit.
type Finish struct{ Outcome Outcome }

// FailGeneration ends the generation. The restart strategy decides when the next one begins.
type FailGeneration struct{ Err error }

// Stop ends the job: no restart heals the error.
type Stop struct{ Err error }

// Superseded ends the process: another generation owns CURRENT.
type Superseded struct{ Err error }

func (SwapCurrent) action()         {}
func (Restore) action()             {}
func (RewriteManifest) action()     {}
func (Replaced) action()            {}
func (StartSubtasks) action()       {}
func (InjectBarrier) action()       {}
func (AbortCheckpoint) action()     {}
func (WriteManifest) action()       {}
func (Commit) action()              {}
func (Release) action()             {}
func (ReleasePositions) action()    {}
func (CheckpointCompleted) action() {}
func (DiscardSnapshots) action()    {}
func (Collect) action()             {}
func (StopReading) action()         {}
func (Finish) action()              {}
func (FailGeneration) action()      {}
func (Stop) action()                {}
func (Superseded) action()          {}
