package connector

import (
	"context"
	"log/slog"
	"time"
)

// Administered is implemented by two-phase sinks whose transactions an operator can look at and end from
// beside the job: what the commands txn of a job's program do.
type Administered interface {
	// Administer reaches the outside as the sink's own writers do. Whoever asked closes what it returns.
	Administer(logger *slog.Logger) (TransactionAdmin, error)
}

// TransactionAdmin looks at the transactions that a sink has outside, and ends them.
//
// It knows no checkpoint: the caller says which committable of CURRENT names a transaction, or that none
// does (nil), and sees to it that no generation of the transaction's lineage runs where a method says so.
type TransactionAdmin interface {
	// Prefix begins the names of the sink's transactions.
	Prefix() string

	// Owner reads from its name whose a transaction is. It reports false for one of another sink.
	Owner(id string) (TransactionOwner, bool)

	// ID is what the outside calls the transaction of a committable.
	ID(c Committable) (string, error)

	// List returns what is open outside under the sink's prefix, in every lineage; what has ended and
	// lacks its end in some partition; and all that is named, whatever became of it.
	List(ctx context.Context, named []Committable) ([]OutsideTransaction, error)

	// Inspect tells all there is about one transaction. With named it is about the one that this
	// committable holds, even if the outside has another one under its name by now.
	Inspect(ctx context.Context, id string, named *Committable) (OutsideTransaction, error)

	// Settle brings a named transaction to its end as a restore does, but writes nothing again: it
	// returns nil once the outside shows that it is committed. No generation may run.
	Settle(ctx context.Context, named Committable) error

	// Abort ends an open transaction, as Inspect has returned it, and returns nil once the outside
	// shows that nothing of it is open. Readers never see its records then. No generation may run.
	Abort(ctx context.Context, t *OutsideTransaction) error

	// Repair writes the markers that a transaction is found to lack, and returns the names of the
	// partitions. It writes none that the outside does not prove. No generation may run: a marker
	// that comes late would end the next transaction of that name.
	Repair(ctx context.Context, id string, named *Committable) (repaired []string, err error)

	// IfAborted says what becomes of a named transaction's records if it is aborted.
	IfAborted(c Committable) string

	// Close lets go of the outside.
	Close()
}

// TransactionOwner is whose a transaction is.
type TransactionOwner struct {
	Lineage string `json:"lineage"`
	Subtask int    `json:"subtask"`
	Slot    int    `json:"slot"`
}

// OutsideTransaction is a transaction as the outside holds it. Encoded as JSON it is what the commands
// txn print with --json: times are RFC 3339, durations nanoseconds.
type OutsideTransaction struct {
	ID string `json:"id"`
	TransactionOwner
	// Named is the committable that it was asked for, or found to be.
	Named       *CommittableID `json:"-"`
	State       string         `json:"state"` // at the coordinator, in the outside's own word
	Coordinator string         `json:"coordinator,omitempty"`
	ProducerID  int64          `json:"producer_id"` // -1: not known
	Epoch       int            `json:"epoch"`
	Began       time.Time      `json:"began,omitzero"` // zero: not known, or it has ended
	Age         time.Duration  `json:"age"`            // 0: the same
	Timeout     time.Duration  `json:"timeout"`        // after which the outside ends it; 0: not known
	// Found is what it is judged to be, and Why what that rests on.
	Found TransactionFound `json:"found"`
	Why   string           `json:"why"`
	// Missing is the marker that was lost, if it is unmarked: COMMIT or ABORT.
	Missing    string                 `json:"missing,omitempty"`
	Partitions []TransactionPartition `json:"partitions"`
}

// TransactionFound is what a transaction is judged to be.
type TransactionFound string

// What a transaction can be.
const (
	FoundOpen      TransactionFound = "open"      // it waits for its end
	FoundCommitted TransactionFound = "committed" // every partition shows its records
	FoundAborted   TransactionFound = "aborted"   // none shows them, and none ever will
	FoundEnded     TransactionFound = "ended"     // nothing of it is open, and nobody says what it held
	FoundUnmarked  TransactionFound = "unmarked"  // it has ended, and some partition lacks the marker
	FoundUnknown   TransactionFound = "unknown"   // the log is no proof
	FoundWait      TransactionFound = "wait"      // its end is on the way, or somebody does not answer
)

// TransactionPartition is what a transaction wrote into one partition, and what is seen of it there.
type TransactionPartition struct {
	Name    string `json:"name"` // topic/partition
	First   int64  `json:"first"`
	Last    int64  `json:"last"`    // -1: not known
	Records int64  `json:"records"` // -1: not known
	Stable  int64  `json:"stable"`  // where readers of committed records stand; -1: not known
	End     int64  `json:"end"`     // of what is written; -1: not known
	// Marker is the end that the log shows: COMMIT, ABORT, or none. At is its offset, and -1 where that
	// was not looked for.
	Marker string `json:"marker,omitempty"`
	At     int64  `json:"marker_at"`
	// Open: the partition itself holds the transaction open.
	Open bool `json:"open"`
}

// Holds reports that readers of committed records stand at this very transaction.
func (p *TransactionPartition) Holds() bool { return p.Open && p.Stable == p.First }

// Behind is how many offsets lie between where readers of committed records stand and the end.
func (p *TransactionPartition) Behind() int64 { return max(p.End-p.Stable, 0) }

// Records counts the records of the transaction. It reports false where that is not known.
func (t *OutsideTransaction) Records() (n int64, known bool) {
	for i := range t.Partitions {
		if t.Partitions[i].Records < 0 {
			return 0, false
		}
		n += t.Partitions[i].Records
	}
	return n, true
}
