package settle

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Answer is what the last EndTxn for the transaction was answered: Kafka's error code, or one
// of the two below. It explains a verdict; it never makes one (S1).
type Answer int16

const (
	// AnswerNone is Kafka's NONE: the commit is decided.
	AnswerNone Answer = 0
	// NotAsked says that no EndTxn was sent by this process.
	NotAsked Answer = -100
	// NoAnswer says that an EndTxn was sent and no answer came back.
	NoAnswer Answer = -101
)

// String names the answer as Kafka does.
func (a Answer) String() string {
	switch a {
	case AnswerNone:
		return "NONE"
	case NotAsked:
		return "not asked"
	case NoAnswer:
		return "no answer"
	}
	if e := kerr.TypedErrorForCode(int16(a)); e != nil {
		return e.Message
	}
	return fmt.Sprintf("error code %d", int16(a))
}

// State is what the transaction coordinator says about a transactional ID.
type State uint8

const (
	// Unreached says that the coordinator has not answered.
	Unreached State = iota
	// NoHistory says that the coordinator holds no transaction for the ID: never used, taken
	// by a new producer since (Empty), or expired.
	NoHistory
	Ongoing
	PrepareCommit
	PrepareAbort
	CompleteCommit
	CompleteAbort
)

// String returns Kafka's word for the state.
func (s State) String() string {
	return [...]string{
		"unreached", "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort",
	}[s]
}

// ParseState reads Kafka's word for a state. Words of no consequence here are NoHistory.
func ParseState(word string) State {
	for s := Ongoing; s <= CompleteAbort; s++ {
		if s.String() == word {
			return s
		}
	}
	return NoHistory
}

// Coordinator is the coordinator's answer.
type Coordinator struct {
	State      State
	ProducerID int64
	Epoch      int16
}

// Marker is the kind of a control record that ends a transaction in a partition.
type Marker uint8

const (
	NoMarker Marker = iota
	Commit
	Abort
)

// String returns the marker's name.
func (m Marker) String() string { return [...]string{"no marker", "COMMIT", "ABORT"}[m] }

// Observation is what was seen of a transaction: the coordinator first, and the log after it.
// The order matters. Read the other way round, a log that was still open and a coordinator that
// had completed meanwhile would look like a lost marker.
type Observation struct {
	Coordinator Coordinator
	ClusterID   string     // empty: no broker answered
	TopicID     [16]byte   // zero: no broker knows the topic
	Parts       []PartSeen // one for each of the handle's, in the same order
	Overdue     bool       // whether the brokers have had all the time that they need
}

// Batch is what was found where the transaction's first record was answered to be.
type Batch uint8

const (
	// BatchGone says that the offset is in range and the batch is not there.
	BatchGone Batch = iota
	// BatchOurs is a transactional batch of the handle's producer ID and epoch.
	BatchOurs
	// BatchForeign is anybody else's.
	BatchForeign
)

// StartUnknown is a PartSeen.OpenAt that was not asked for.
const StartUnknown = -2

// PartSeen is what the leader of one partition showed.
type PartSeen struct {
	Answered  bool  // false: the leader was not reached, and nothing below is set
	Truncated bool  // the leader epoch of the handle ends at or below the last offset
	LogStart  int64 // first offset of the log
	Stable    int64 // last stable offset
	First     Batch // the batch at the first offset
	// Aborted says that the list of aborted transactions names this one: the producer at its
	// very first offset.
	Aborted bool
	// AbortedInside says that the list names the producer at an offset above the first and
	// not above the last: a part of the transaction was ended on its own.
	AbortedInside bool
	// Marker is the first control record of the producer above the first offset, where it was
	// looked for, and MarkerAt its offset.
	Marker   Marker
	MarkerAt int64
	// OpenAt is the start of the producer's open transaction (DescribeProducers), -1 if it has
	// none, or StartUnknown. It says that a marker is missing, never which one is there.
	OpenAt int64
}
