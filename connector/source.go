package connector

import (
	"context"
	"log/slog"
	"time"
)

// Source is a replayable (or honestly not replayable) origin of records of type T. A source is
// a description: it holds configuration, no connection. One source serves every generation of
// a job.
type Source[T any] interface {
	// Replayable reports whether the records after a position can be read again. A job over
	// a source that is not replayable has no state guarantee, and says so when it starts.
	Replayable() bool

	// Discover returns the splits of the source with concrete start positions, and with
	// concrete ends where the source is bounded. It is called once, at the fresh start of a
	// job and before its first checkpoint; what it returns is kept in that checkpoint, so the
	// meaning of "earliest", "latest" or "to the end" never changes afterwards. A source that
	// can get more splits later is Growing, too.
	Discover(ctx context.Context) ([]Split, error)

	// Reader opens a reader over the given splits, at their positions. It fails with an error
	// marked by Stop when a position can no longer be read (retention, a recreated topic, a
	// truncated log): going on would lose records in silence.
	Reader(ctx context.Context, rc ReaderContext[T], splits []Split) (Reader[T], error)
}

// Growing is implemented by sources that can get more splits while a job runs. Readers of such a
// source implement SplitAdder.
type Growing interface {
	// GrowthInterval is how often to look for more splits. Zero: this source gets none (a bounded
	// read of it), and nothing else of this interface is called.
	GrowthInterval() time.Duration

	// Grow returns the splits that are not among known, each at its very start. Known are all
	// splits that the job has, at positions that it has had since it was last started. Grow is
	// called in every restore and then once an interval.
	//
	// The start of a split is the same whenever it is asked for, even if records there are gone
	// by then: a split that was found after the last checkpoint is lost by a crash and found
	// again, and reading it from anywhere else would skip records in silence. An error marked by
	// Stop stops the job; any other one is a warning while the job runs, and fails a restore.
	Grow(ctx context.Context, known []Split) ([]Split, error)
}

// Split is a part of a source with an order of its own: a Kafka partition, a file.
type Split struct {
	// ID names the split within its source, the same in every generation: "topic/3".
	ID string
	// Position says where to go on and, in a bounded read, where to end. Its encoding is the
	// connector's own and carries a version.
	Position []byte
}

// ReaderContext is what the engine gives to a reader.
type ReaderContext[T any] struct {
	Job         string // name of the job
	Operator    string // uid of the source
	Subtask     int    // index of the subtask, from 0
	Parallelism int    // number of subtasks of the source
	Logger      *slog.Logger

	// Admit judges a decoded row. It returns the row's event time, or an error that says why
	// the record is to be rejected (a time too far ahead of its source timestamp, say).
	// sourceTime is the record's own timestamp in the source, in the unit of event times.
	Admit func(row *T, sourceTime int64) (eventTime int64, err error)
}

// Reader reads the splits of one source subtask. It is used by one goroutine at a time.
type Reader[T any] interface {
	// Read waits for records and fills b, reusing its slices. It returns ctx.Err() when ctx
	// ends first; nothing is lost then: the next Read goes on where this one began. Any other
	// error ends the generation.
	//
	// A batch may be without rows: it then tells that a split has been read up to its end
	// (CaughtUp), or that a bounded split has ended. Once every split has ended, Read waits
	// for ctx.
	Read(ctx context.Context, b *Batch[T]) error

	// Close releases connections and goroutines. It is called once, after the last Read.
	Close() error
}

// SplitAdder is a reader that takes more splits while it reads.
type SplitAdder interface {
	// AddSplits adds splits behind those that the reader has, so that Batch.Split counts on. It
	// is called between two calls of Read. A reader may have been opened without any split.
	AddSplits(ctx context.Context, splits []Split) error
}

// PositionReleaser is a reader that tells the outside how far a job has come (the committed offsets
// of a consumer group). That is for monitoring: no restore depends on it.
type PositionReleaser interface {
	// ReleasePositions tells the outside that the job has read up to these positions: those of a
	// checkpoint that has completed, never newer ones. It runs beside Read, one call at a time.
	// It reports false where there is nobody to tell. An error is a warning.
	ReleasePositions(ctx context.Context, splits []Split) (told bool, err error)
}

// PositionText is implemented by readers whose positions people can read, for logs and displays. It
// may be called beside anything else.
type PositionText interface {
	PositionText(position []byte) string
}

// Batch is a run of consecutive records of one split.
type Batch[T any] struct {
	// Split is the index of the split in the slice given to Source.Reader, or, behind those, of
	// one that was added.
	Split int
	// Rows are the decoded records. Their values belong to the job and stay valid; only the
	// slice itself is used again.
	Rows []T
	// Times holds the event time of each row, as Admit returned it.
	Times []int64
	// Rejected are the records that could not be decoded or were not admitted, in order.
	Rejected []DeadLetter
	// Reached, where HasReached is set, is an event time that the split has reached although no
	// row of this batch is at it (a heartbeat): records before it are late from here on.
	Reached    int64
	HasReached bool
	// Position is where the split goes on after this batch (C1). The engine copies it.
	Position []byte
	// CaughtUp reports that, when this batch was fetched, the split had no record after it:
	// only such a split may become idle. It is false when the source has not answered.
	CaughtUp bool
	// At is when the source answered: CaughtUp is as of then. Zero is when Read returned; a reader that
	// fetches ahead says when it was.
	At time.Time
	// Ended reports that a bounded split has been read to its end.
	Ended bool
	// Behind is about how many records lay after this batch when it was fetched, for displays
	// alone. Reset sets it to -1, which is unknown.
	Behind int64
}

// Reset empties b and keeps its memory.
func (b *Batch[T]) Reset() {
	clear(b.Rows)
	clear(b.Rejected)
	*b = Batch[T]{
		Rows: b.Rows[:0], Times: b.Times[:0], Rejected: b.Rejected[:0], Position: b.Position[:0],
		Behind: -1,
	}
}

// DeadLetter is a record that a source could not hand to the job, whole, with where it lies
// and why it was rejected.
type DeadLetter struct {
	Topic     string // or what stands for it: a file's name
	Partition int32
	Offset    int64
	Timestamp int64 // the record's own, in microseconds since 1970-01-01T00:00:00Z
	Key       []byte
	Value     []byte
	Headers   []Header
	Reason    string
}

// Header is a record header.
type Header struct {
	Key   string
	Value []byte
}
