package txn

import (
	"context"
	"time"

	"example.com/weir/connectors/kafka/settle"
)

// Cluster is what this package asks of Kafka. Every method is one question or one order, to every
// broker that it concerns; it is bounded in time, and may be asked again after an error. The order of
// calls is this package's, and each may fail before it, after it, or in between.
type Cluster interface {
	// Place asks where a topic lies, past every cache.
	Place(ctx context.Context, topic string) (Place, error)

	// Describe asks the coordinator of a transactional ID (DescribeTransactions).
	Describe(ctx context.Context, id string) (settle.Coordinator, error)

	// Look reads what the log of every partition of the transaction shows, and says in which
	// cluster and topic. It leaves out the coordinator, and whatever does not answer. doubt says
	// that EndTxn was not answered with NONE: more is read then.
	Look(ctx context.Context, h *settle.Handle, doubt bool) settle.Observation

	// List lists what the coordinators hold under exactly this prefix, in every lineage
	// (ListTransactions).
	List(ctx context.Context, prefix string) ([]Listed, error)

	// Open lists the transactions that are open in the given partitions of a topic
	// (DescribeProducers). Every partition answers, or it is an error.
	Open(ctx context.Context, topic string, partitions []int32) ([]Open, error)

	// LeaderEpochs asks the leader of each partition for its epoch. Metadata can be older than the
	// records just written, and would make them look truncated.
	LeaderEpochs(ctx context.Context, topic string) (map[int32]int32, error)

	// Commit sends one EndTxn(commit), in the version that the handle names.
	Commit(ctx context.Context, h *settle.Handle) settle.Answer

	// Fence sends one InitProducerID for an ID, which aborts whatever is open under it. It does not
	// wait for the end of that.
	Fence(ctx context.Context, id string, timeout time.Duration) error

	// WriteMarker writes a control record to one partition (WriteTxnMarkers). ErrNoRight is that
	// this client may not.
	WriteMarker(ctx context.Context, m MarkerOrder) error

	// Produce sends one InitProducerID for an ID and returns the producer that it makes, under a
	// producer ID and epoch that no transaction has had. timeout is the transactions'.
	Produce(ctx context.Context, id string, timeout time.Duration) (Producer, error)
}

// Producer writes one transaction.
type Producer interface {
	// ID returns the producer ID and the epoch of the transaction.
	ID() (producerID int64, epoch int16)

	// Write writes records in order, each to the partition that it names, and returns once all are
	// acknowledged: where each partition's first and last record of this producer lie.
	Write(ctx context.Context, topic string, records []Record) ([]settle.Part, error)

	// EndTxnVersion is the version of the one EndTxn that may end the transaction.
	EndTxnVersion() int16

	// Close gives the producer up. What is open stays open (K5).
	Close()
}

// Place is where a topic lies right now.
type Place struct {
	ClusterID string
	TopicID   [16]byte // zero: there is no such topic
	Leaders   []int32  // by partition; -1 is none
}

// Partitions returns the numbers of the topic's partitions.
func (p *Place) Partitions() []int32 {
	all := make([]int32, len(p.Leaders))
	for i := range all {
		all[i] = int32(i)
	}
	return all
}

// Listed is a transaction as the coordinators list it.
type Listed struct {
	ID         settle.ID
	State      settle.State
	ProducerID int64
}

// Open is an open transaction of a producer in a partition.
type Open struct {
	Partition  int32
	ProducerID int64
	Epoch      int32
	Start      int64 // offset of its first record
}

// MarkerOrder asks for one control record.
type MarkerOrder struct {
	Topic      string
	Partition  int32
	ProducerID int64
	Epoch      int16
	Marker     settle.Marker
}

// Record is a record that is written again.
type Record struct {
	Partition int32
	Timestamp int64 // milliseconds since 1970-01-01T00:00:00Z
	Key       []byte
	Value     []byte
	Headers   []Header
}

// Header is a record header.
type Header struct {
	Key   string
	Value []byte
}

// Clock is how this package tells time and waits. It reads no other one, so a simulator runs all of it
// in a time of its own.
type Clock interface {
	Now() time.Time

	// Sleep waits about d, and returns ctx.Err() if ctx ends first. How far about is the clock's:
	// subtasks that wait for the same broker should not ask in step.
	Sleep(ctx context.Context, d time.Duration) error

	// WithTimeout returns a context whose Err is context.DeadlineExceeded once d has passed. This
	// package asks its Err and never waits for its Done.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
}
