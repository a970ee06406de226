// Package status describes a running job at one moment: what metrics, health, weir top and the live
// display of the demo are all made from.
//
// It is not where anything is counted (the engine does that), and it draws nothing. It holds data
// alone, which goes over the control endpoint as JSON: the field names are the format.
package status

import "time"

// Status is a job at one moment.
type Status struct {
	Job         string    `json:"job"`
	Lineage     string    `json:"lineage"`
	Generation  uint64    `json:"generation"`
	State       State     `json:"state"`
	At          time.Time `json:"at"`      // when it was so, UTC
	Started     time.Time `json:"started"` // when this process began to run the job
	Restarts    int       `json:"restarts"`
	LastFailure string    `json:"last_failure,omitempty"`
	Outcome     string    `json:"outcome,omitempty"` // finished or stopped, of a job that ended so
	Parallelism int       `json:"parallelism"`
	// OwnsCurrent: CURRENT was swapped to this generation. Settled: what it named was settled by
	// the restore. Both together are what ready means.
	OwnsCurrent  bool          `json:"owns_current"`
	Settled      bool          `json:"settled"`
	Checkpoints  Checkpoints   `json:"checkpoints"`
	Operators    []Operator    `json:"operators"` // in the order of the dataflow
	Transactions []Transaction `json:"transactions"`
	Committed    int           `json:"committed"` // committables that this process has committed
}

// Ready reports that the job reads and writes: CURRENT is its own and the restore is settled.
func (s *Status) Ready() bool { return s.State == Running && s.OwnsCurrent && s.Settled }

// State is what the job is doing.
type State string

// The states.
const (
	Starting   State = "starting"
	Restoring  State = "restoring" // settling what CURRENT names, reading state
	Running    State = "running"
	Stopping   State = "stopping"   // the last checkpoint is on its way
	Restarting State = "restarting" // a generation has failed, and the delay is waited for
	Ended      State = "ended"
)

// Checkpoints tells of the checkpoints of this process. Durations are in nanoseconds in JSON.
type Checkpoints struct {
	Last         uint64        `json:"last"`           // ID of the last one completed, 0 if none
	LastAt       time.Time     `json:"last_at"`        // when CURRENT was swapped to it
	LastDuration time.Duration `json:"last_duration"`  // from its barrier to the swap
	LastSize     int64         `json:"last_size"`      // bytes written for it
	LastFullSize int64         `json:"last_full_size"` // bytes that a restore of it reads
	InProgress   uint64        `json:"in_progress"`    // 0 if none
	Completed    int           `json:"completed"`
	Aborted      int           `json:"aborted"`
	LastAborted  string        `json:"last_aborted,omitempty"` // why
}

// Operator is an operator with its subtasks.
type Operator struct {
	UID string `json:"uid"`
	// Kind is source, map, filter, flat-map, process, window, union, sink …
	Kind   string   `json:"kind"`
	Inputs []string `json:"inputs"` // uids
	// Chain is the uid of the operator at the head of its chain: those share a goroutine.
	Chain    string    `json:"chain"`
	Subtasks []Subtask `json:"subtasks"`
}

// Subtask holds the counters of one operator in one subtask, since this process began to run the job:
// a restart takes none of them back. What a goroutine does as a whole, from Idle to Paused, stands with
// the operator at the head of the chain and is zero at the others.
type Subtask struct {
	Index         int           `json:"index"`
	RecordsIn     int64         `json:"records_in"`
	RecordsOut    int64         `json:"records_out"`
	Late          int64         `json:"late"`
	DeadLetters   int64         `json:"dead_letters"`
	Watermark     *time.Time    `json:"watermark,omitempty"` // nil before event time is known
	EventTimeDone bool          `json:"event_time_done"`     // event time has come to the end
	Idle          time.Duration `json:"idle"`                // waited for input
	Backpressured time.Duration `json:"backpressured"`       // waited for who takes its output
	Busy          time.Duration `json:"busy"`                // the rest of the time that generations ran
	Aligned       time.Duration `json:"aligned"`             // alignment at the last barrier
	Paused        time.Duration `json:"paused"`              // stood still at the last barrier
	StateKeys     int64         `json:"state_keys"`          // entries in all states, at the last barrier
	// Timers pending at the last barrier, of both clocks, and deadlines. One that was set again may count more than once.
	Timers int64   `json:"timers"`
	Splits []Split `json:"splits,omitempty"` // of a source
	// ReleaseFailures counts how often a source could not tell the outside its positions.
	ReleaseFailures int64 `json:"release_failures,omitempty"`
}

// Split is a split that a source subtask reads.
type Split struct {
	ID       string `json:"id"`
	Position string `json:"position"` // as the connector writes it
	Released string `json:"released"` // the position last told to the outside (group offset)
	Behind   int64  `json:"behind"`   // records to the end of the split, -1 if unknown
	Idle     bool   `json:"idle"`
	// Watermark is how far the split's own event time has come; nil before it is known, and at its end.
	Watermark *time.Time `json:"watermark,omitempty"`
	Ended     bool       `json:"ended,omitempty"`
}

// held is by how much event time of other splits must be ahead before a quiet one is said to hold it back.
const held = time.Minute

// Held returns the splits that hold event time back without being behind: each has been read to its end,
// and other splits of its source have come more than a minute of event time further. Windows stand still
// until they get records, or are left out as idle.
func (s *Status) Held() []Split {
	var all []Split
	for i := range s.Operators {
		o := &s.Operators[i]
		latest := latest(o)
		for j := range o.Subtasks {
			for _, p := range o.Subtasks[j].Splits {
				quiet := !p.Idle && !p.Ended && p.Behind == 0 && p.Watermark != nil
				if quiet && latest.Sub(*p.Watermark) > held {
					all = append(all, p)
				}
			}
		}
	}
	return all
}

// latest is the latest event time of a source's splits.
func latest(o *Operator) time.Time {
	var at time.Time
	for i := range o.Subtasks {
		for _, p := range o.Subtasks[i].Splits {
			if p.Watermark != nil && p.Watermark.After(at) {
				at = *p.Watermark
			}
		}
	}
	return at
}

// Transaction is a committable that is not settled or, before a barrier has come, what its sink is
// writing for the next one.
type Transaction struct {
	ID         string        `json:"id"` // sink[subtask]@checkpoint, or sink[subtask]
	Sink       string        `json:"sink"`
	Subtask    int           `json:"subtask"`
	Checkpoint uint64        `json:"checkpoint"`       // 0 before the barrier
	Kept       int64         `json:"kept,omitempty"`   // bytes of its records that are kept
	Handle     string        `json:"handle,omitempty"` // as the outside names it, if it does
	Age        time.Duration `json:"age"`              // since its first record was written
	Timeout    time.Duration `json:"timeout"`          // after which the outside ends it, 0 if never
}

// Overdue reports that half of the time is up in which the transaction must be committed.
func (t *Transaction) Overdue() bool { return t.Timeout > 0 && t.Age > t.Timeout/2 }
