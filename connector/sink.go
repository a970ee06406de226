package connector

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"
)

// Guarantee is what the consumer of a sink gets. There is no default: the zero value is
// refused when the job is built.
type Guarantee int

// The guarantees, weakest first.
const (
	// Unstated is no guarantee at all; a job with such a sink does not build.
	Unstated Guarantee = iota
	// None promises nothing: records may be lost or doubled.
	None
	// AtLeastOnce loses nothing; after a restart records may be doubled.
	AtLeastOnce
	// ExactlyOnce shows each result once to a consumer that reads the sink the right way.
	ExactlyOnce
)

// String returns the word used in configuration and logs.
func (g Guarantee) String() string {
	switch g {
	case None:
		return "none"
	case AtLeastOnce:
		return "at-least-once"
	case ExactlyOnce:
		return "exactly-once"
	case Unstated:
		return "unstated"
	}
	return fmt.Sprintf("Guarantee(%d)", int(g))
}

// ParseGuarantee reads the words none, at-least-once and exactly-once.
func ParseGuarantee(s string) (Guarantee, error) {
	for _, g := range []Guarantee{None, AtLeastOnce, ExactlyOnce} {
		if s == g.String() {
			return g, nil
		}
	}
	return Unstated, fmt.Errorf("guarantee %q: want none, at-least-once or exactly-once", s)
}

// Sink is a destination of records of type T. Like a source it is a description: it holds
// configuration, no connection.
type Sink[T any] interface {
	// Guarantee is the guarantee the job asked for by name.
	Guarantee() Guarantee

	// Validate reports what makes the configuration impossible, before anything starts and
	// without asking the outside. checkpoints says whether the job takes checkpoints.
	Validate(checkpoints bool) error

	// Writer opens the writer of one subtask of one generation.
	Writer(ctx context.Context, wc WriterContext) (Writer[T], error)
}

// Writer writes the records of one subtask. One goroutine at a time uses it, and not always the same one: at a
// barrier it is flushed beside the stream. With one exception: Commit and Release of a TwoPhaseWriter run beside
// everything else.
type Writer[T any] interface {
	// Write takes rows in order and keeps nothing of the slice. It may return before the
	// outside has acknowledged them, and it blocks for backpressure.
	Write(ctx context.Context, rows []T) error

	// Flush waits until the outside has acknowledged every row written so far (C3). The
	// engine calls it at each barrier and, with endOfInput, once before the last one.
	Flush(ctx context.Context, endOfInput bool) error

	// Close releases connections and goroutines, without flushing (C6).
	Close() error
}

// TwoPhaseSink is a sink whose writers pre-commit at a barrier and commit after the checkpoint.
// What Writer returns implements TwoPhaseWriter.
type TwoPhaseSink[T any] interface {
	Sink[T]

	// Restore runs once in a generation, before any writer of it is opened: it settles every
	// committable that CURRENT names, and ends whatever else the lineage left open outside.
	// It returns nil only when all of that is done and seen to be done; CURRENT then says so
	// before a writer is opened, and names none of it any more. What was lost outside may be
	// written again here, one committable at a time, and nowhere else: nothing new has been
	// written yet, so order is kept. An error marked by Stop stops the job; any other one fails
	// the generation.
	Restore(ctx context.Context, rc RestoreContext) error
}

// TwoPhaseWriter is a writer that takes part in checkpoints.
//
// The engine's promises: PrepareCommit is called after Flush, at each barrier; Commit is called
// for each committable once CURRENT has been swapped to a checkpoint that names it, one after
// the other in the order of checkpoints, each again from the start in a later generation if this
// one ends first; Release is called once a committed committable is named by no CURRENT.
type TwoPhaseWriter[T any] interface {
	Writer[T]

	// PrepareCommit ends the pre-committed unit of work and returns its committable, or nil
	// if nothing was written since the last one. The writer goes on with the next unit.
	PrepareCommit(ctx context.Context, checkpoint uint64) (*Committable, error)

	// Commit makes the committable's records visible and returns nil once the outside shows
	// that they are (C5).
	Commit(ctx context.Context, c Committable) error

	// Release tells that no CURRENT names the committable any more: what it held (a
	// transactional ID) may be used again.
	Release(c Committable)
}

// Exclusive is implemented by sinks that own something by name (transactional IDs under a prefix),
// which no two sinks of a job may share.
type Exclusive interface {
	// ExclusiveName names it for messages; empty is nothing.
	ExclusiveName() string
}

// Transactional is implemented by two-phase sinks whose committables are transactions that the outside
// ends by itself after a while. Its methods may be called at any time, and ask nobody.
type Transactional interface {
	// TransactionTimeout is how long after its first record a transaction is ended outside that has
	// not been committed. Zero is never.
	TransactionTimeout() time.Duration

	// TransactionName is what the outside calls the transaction of a committable, for displays and
	// logs. It is empty where that cannot be told, as before there is a payload.
	TransactionName(c Committable) string
}

// Idempotent is implemented by sinks that take what they have taken before without showing it twice: each
// row has a key, and replaces what is under it. A job whose sinks all do may go back behind what it has
// committed. Sessions that take nothing back (weir.Retractor) are refused in front of one.
type Idempotent interface {
	// Idempotent reports that writing again, in order, leaves what writing once leaves.
	Idempotent() bool
}

// Committable is what must happen outside once its checkpoint exists.
type Committable struct {
	Sink       string // uid of the sink
	Subtask    int    // the subtask that wrote it
	Checkpoint uint64 // the checkpoint at whose barrier it was made
	// Opened is when its first record was written, for displays and warnings. The engine sets it;
	// it is zero in checkpoints of releases that did not.
	Opened time.Time
	// Digest covers the content (the records alone, not the handle): the same identity with
	// another digest stops the job.
	Digest [32]byte
	// Payload is the connector's own, and carries a version.
	Payload []byte
	// Kept says where the records themselves are kept; the zero value: nowhere.
	Kept Kept
}

// CommittableID is the identity of a committable within a job's lineage.
type CommittableID struct {
	Sink       string
	Subtask    int
	Checkpoint uint64
}

// ID returns the identity of c.
func (c Committable) ID() CommittableID {
	return CommittableID{Sink: c.Sink, Subtask: c.Subtask, Checkpoint: c.Checkpoint}
}

// Compare orders identities by sink, subtask and checkpoint.
func (id CommittableID) Compare(to CommittableID) int {
	return cmp.Or(cmp.Compare(id.Sink, to.Sink), cmp.Compare(id.Subtask, to.Subtask),
		cmp.Compare(id.Checkpoint, to.Checkpoint))
}

// String names the committable as errors and logs do.
func (id CommittableID) String() string {
	return fmt.Sprintf("%s[%d]@%d", id.Sink, id.Subtask, id.Checkpoint)
}

// WriterContext is what the engine gives to a writer.
type WriterContext struct {
	Job         string
	Lineage     string // 16 hexadecimal digits: one history of checkpoints
	Generation  uint64
	Operator    string // uid of the sink
	Subtask     int
	Parallelism int
	Logger      *slog.Logger

	// TolerableCheckpointFailures is how many checkpoints in a row may fail: each holds its
	// committable until a later checkpoint names it.
	TolerableCheckpointFailures int

	// StillOwner returns nil while this generation owns CURRENT, and an error once another
	// one does. A writer asks before it does what would harm a newer generation.
	StillOwner func(ctx context.Context) error

	// Keep begins to keep the records of one committable in the storage of the checkpoints. It is
	// nil where there is none.
	Keep func() Keeper

	// Reached is told each step of a commit by name, for tests that end the process there. It is
	// never nil.
	Reached func(step string)
}

// RestoreContext is what the engine gives to TwoPhaseSink.Restore.
type RestoreContext struct {
	Job         string
	Lineage     string
	Generation  uint64
	Operator    string
	Parallelism int
	Logger      *slog.Logger

	// Named are the committables that CURRENT names and that are not known to be settled, in
	// the order of checkpoints within each subtask.
	Named []Committable

	// Fresh reports a fresh start: the lineage is new, and nothing of it can exist outside. A
	// sink that knows of another lineage of its own then stops the job, unless that lineage
	// is among AcceptLineages.
	Fresh          bool
	AcceptLineages []string

	// Clean reports that the last generation ended with nothing open outside: the sink need
	// not ask.
	Clean bool

	// CheckpointTimeout and RestartBudget bound how long a transaction may stay open, for the
	// sink to hold against its own limits. Zero is unknown.
	CheckpointTimeout time.Duration
	RestartBudget     time.Duration

	StillOwner func(ctx context.Context) error

	// Replace makes CURRENT name c in place of the committable with the same identity and digest,
	// at the same checkpoint: its records were lost outside, and c holds them written again. It
	// returns nil once CURRENT has been swapped; only then may c be committed. After an error
	// nothing may be committed any more, and Restore returns it.
	Replace func(ctx context.Context, c Committable) error

	// Kept opens the records of a committable that CURRENT names.
	Kept func(ctx context.Context, k Kept) (io.ReadCloser, error)

	// Reached is told each step by name, as that of WriterContext.
	Reached func(step string)
}

// Kept says where the records of a committable lie in the storage of the checkpoints. A committable that
// replaces another one has the same.
type Kept struct {
	Name   string // as the storage knows it; empty: the records are not kept
	Size   int64  // bytes in the storage, compressed
	Digest [32]byte
	Inline []byte // the bytes themselves, where they are too few for a file
}

// Keeper takes the records of one committable while they are written: a stream of bytes in the
// connector's own format, which carries a version. One goroutine at a time uses it.
//
// A storage that fails loses no records: they are outside already. The checkpoint fails then, as it
// does where a snapshot cannot be written, and the committable goes on without kept records.
type Keeper interface {
	// Write appends, and keeps nothing of p. It may wait for the storage.
	Write(p []byte)

	// Seal ends the stream and returns where it lies, which is durable before a checkpoint that
	// names it is. PrepareCommit puts it into the committable.
	Seal() Kept

	// Discard forgets the stream.
	Discard()
}
