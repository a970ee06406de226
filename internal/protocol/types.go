package protocol

import (
	"fmt"

	"example.com/weir/connector"
)

// Current is what the one durable object CURRENT holds: which checkpoint exists, and who may
// complete the next one. The zero value stands for a CURRENT that does not exist yet.
type Current struct {
	Job        string
	Lineage    string // 16 hexadecimal digits: one history of checkpoints
	Generation uint64 // one execution of the job between restarts, from 1
	Checkpoint uint64 // 0 until the first checkpoint of the lineage completes

	// Settled reports that everything the checkpoint names is committed and known to be. With
	// checkpoint 0, and with one that another lineage has taken, it reports that a restore of this
	// lineage has been completed.
	Settled bool
	// Finished reports that the input had ended and this is the last checkpoint of the lineage.
	Finished bool
	// Clean reports that the generation ended with nothing left open outside. The next claim
	// drops it.
	Clean bool

	Manifest       string // name of the checkpoint's manifest; empty with checkpoint 0
	ManifestDigest [32]byte
	Nonce          string // made by the store, another one at each swap
}

// Exists reports whether c is the content of a CURRENT that exists.
func (c Current) Exists() bool { return c.Lineage != "" }

// String names the state as errors and logs do: lineage g3 c17 settled.
func (c Current) String() string {
	if !c.Exists() {
		return "none"
	}
	s := fmt.Sprintf("%s g%d c%d", c.Lineage, c.Generation, c.Checkpoint)
	for _, f := range []struct {
		set  bool
		word string
	}{{c.Settled, "settled"}, {c.Finished, "finished"}, {c.Clean, "clean"}} {
		if f.set {
			s += " " + f.word
		}
	}
	return s
}

// SubtaskID names a subtask within its job.
type SubtaskID struct {
	Operator string // uid of the operator
	Index    int    // from 0
}

// String names the subtask as errors and logs do.
func (s SubtaskID) String() string { return fmt.Sprintf("%s[%d]", s.Operator, s.Index) }

// Subtask is a subtask that answers to barriers.
type Subtask struct {
	ID SubtaskID
	// Source says that the subtask reads a source: the input has ended once all of these have
	// said so.
	Source bool
}

// Handle says where a file of a snapshot lies.
type Handle struct {
	Name   string // as the store knows it
	Size   int64  // bytes of the payload
	Digest [32]byte
}

// SubtaskSnapshot is one subtask's part of a checkpoint: a chain of files, oldest first, that make
// its state when they are read in order. Earlier checkpoints may name some of them too. A subtask
// without state has none.
type SubtaskSnapshot struct {
	Subtask SubtaskID
	Handles []Handle
}

// Outcome says why a generation ends well.
type Outcome int

// The outcomes. None of them is the outcome of a barrier that is not the last one.
const (
	// None: the generation goes on.
	None Outcome = iota
	// Stopped: somebody asked for it. The job goes on from the last checkpoint when started.
	Stopped
	// Finished: the input ended. Started again, the job reads nothing.
	Finished
)

// String returns the word used in logs.
func (o Outcome) String() string {
	switch o {
	case None:
		return "none"
	case Stopped:
		return "stopped"
	case Finished:
		return "finished"
	}
	return fmt.Sprintf("Outcome(%d)", int(o))
}

// CommitPermit proves that CURRENT was swapped to a checkpoint that names certain committables.
// Only a Coordinator makes valid ones (P2); the zero value is valid for nothing.
type CommitPermit struct {
	current Current
	named   map[connector.CommittableID]struct{}
}

// Valid reports whether a swap stands behind the permit.
func (p CommitPermit) Valid() bool { return p.current.Exists() }

// Covers reports whether the permit allows to commit the committable with this identity.
func (p CommitPermit) Covers(id connector.CommittableID) bool {
	_, ok := p.named[id]
	return p.Valid() && ok
}

// Current is the state of CURRENT that the permit stands on.
func (p CommitPermit) Current() Current { return p.current }

// String names the permit as logs do.
func (p CommitPermit) String() string {
	if !p.Valid() {
		return "no permit"
	}
	return fmt.Sprintf("permit g%d c%d", p.current.Generation, p.current.Checkpoint)
}
