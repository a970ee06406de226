package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/settle"
	"example.com/weir/internal/kafkatest"
)

// testRow is what the tests write: a value into a named partition.
type testRow struct {
	partition int32
	value     string
}

func encodeTestRow(row *testRow, r *Record) error {
	if row.value == "unencodable" {
		return errors.New("cannot be encoded")
	}
	r.Partition = row.partition
	r.Value = append(r.Value, row.value...)
	return nil
}

// testJob is a job with one exactly-once sink, over several generations.
type testJob struct {
	b       *kafkatest.Broker
	cfg     SinkConfig
	lineage string
	owner   atomic.Pointer[func(context.Context) error] // what StillOwner says; nil is yes. A writer asks beside the test
	asked   atomic.Int64                                // how often StillOwner was asked
}

const partitionsOfTests = 3

func newTestJob(t *testing.T, b *kafkatest.Broker) *testJob {
	return &testJob{
		b: b,
		cfg: SinkConfig{
			Config: Config{Brokers: b.Brokers}, Topic: b.CreateTopic(t, partitionsOfTests), Guarantee: ExactlyOnce,
			TransactionalIDPrefix: b.TopicName(t), TransactionTimeout: time.Minute, CommitDeadline: 30 * time.Second,
			Linger: -1, betweenLooks: func(context.Context) error { return nil },
		},
		lineage: fmt.Sprintf("%016x", rand.Uint64()),
	}
}

func (j *testJob) stillOwner(ctx context.Context) error {
	j.asked.Add(1)
	if says := j.owner.Load(); says != nil {
		return (*says)(ctx)
	}
	return nil
}

// owned lets StillOwner say something from now on.
func (j *testJob) owned(says func(context.Context) error) { j.owner.Store(&says) }

func (j *testJob) sink(t *testing.T) connector.TwoPhaseSink[testRow] {
	s, ok := Sink(j.cfg, encodeTestRow).(connector.TwoPhaseSink[testRow])
	require.True(t, ok)
	require.NoError(t, s.Validate(true))
	return s
}

func (j *testJob) restoreContext(named ...connector.Committable) connector.RestoreContext {
	return connector.RestoreContext{
		Job: "job", Lineage: j.lineage, Generation: 1, Operator: "out", Parallelism: 1,
		Named: named, StillOwner: j.stillOwner,
	}
}

// restore starts a generation: a sink of its own, restored.
func (j *testJob) restore(t *testing.T, named ...connector.Committable) connector.TwoPhaseSink[testRow] {
	s := j.sink(t)
	require.NoError(t, s.Restore(t.Context(), j.restoreContext(named...)))
	return s
}

func (j *testJob) writer(t *testing.T, s connector.TwoPhaseSink[testRow], subtask int) *txnWriter[testRow] {
	w, err := s.Writer(t.Context(), connector.WriterContext{
		Job: "job", Lineage: j.lineage, Generation: 1, Operator: "out", Subtask: subtask, Parallelism: 1,
		StillOwner: j.stillOwner,
	})
	require.NoError(t, err)
	tw := w.(*txnWriter[testRow])
	t.Cleanup(func() { require.NoError(t, tw.Close()) })
	return tw
}

// write writes values, each to the partition that follows from its length.
func write(t *testing.T, w connector.Writer[testRow], values ...string) {
	require.NoError(t, w.Write(t.Context(), rowsOf(values...)))
}

func rowsOf(values ...string) []testRow {
	rows := make([]testRow, len(values))
	for i, v := range values {
		rows[i] = testRow{partition: partitionOf(v), value: v}
	}
	return rows
}

// partitionOf puts a1, a2, a3 into partitions 0, 1, 2: by the last byte.
func partitionOf(v string) int32 { return int32(v[len(v)-1]-'1') % partitionsOfTests }

// prepare passes a barrier, and waits for what the writer takes ahead: one that a test then leaves for dead would
// take an ID from the next one at some moment or other.
func prepare(t *testing.T, w connector.TwoPhaseWriter[testRow], checkpoint uint64) connector.Committable {
	require.NoError(t, w.Flush(t.Context(), false))
	c, err := w.PrepareCommit(t.Context(), checkpoint)
	require.NoError(t, err)
	require.NotNil(t, c)
	if tw := w.(*txnWriter[testRow]); hasRoom(tw) {
		<-tw.next.done
	}
	return *c
}

// hasRoom reports whether a slot is free. Without one, nothing is taken ahead before a release.
func hasRoom(w *txnWriter[testRow]) bool {
	s := w.pool.Acquire()
	if s != nil {
		w.pool.GiveBack(s)
	}
	return s != nil
}

func handleOf(t *testing.T, c connector.Committable) *settle.Handle {
	h, err := settle.DecodeHandle(c.Payload)
	require.NoError(t, err)
	return h
}

// visible returns what a reader of committed records sees, by partition and in order. It fails
// where a transaction is still open: the reader would wait there.
func (j *testJob) visible(t *testing.T) []string {
	t.Helper()
	end := "|end|" + j.b.TopicName(t)
	for p := range int32(partitionsOfTests) {
		j.b.Produce(t, j.cfg.Topic, p, end)
	}
	from := map[int32]kgo.Offset{}
	for p := range int32(partitionsOfTests) {
		from[p] = kgo.NewOffset().At(0)
	}
	cl := j.b.Client(t, kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{j.cfg.Topic: from}))
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	seen := make([][]string, partitionsOfTests)
	for left := partitionsOfTests; left > 0; {
		fetches := cl.PollFetches(ctx)
		require.NoError(t, fetches.Err0(), "the reader waits for an open transaction")
		fetches.EachRecord(func(r *kgo.Record) {
			switch v := string(r.Value); {
			case v == end:
				left--
			case !strings.HasPrefix(v, "|end|"):
				seen[r.Partition] = append(seen[r.Partition], v)
			}
		})
	}
	var all []string
	for _, values := range seen {
		all = append(all, values...)
	}
	return all
}

func (j *testJob) state(t *testing.T, txnID string) settle.Coordinator {
	a, err := newAdmin(j.cfg)
	require.NoError(t, err)
	defer a.close()
	c, err := a.Describe(t.Context(), txnID)
	require.NoError(t, err)
	return c
}

// takeOver sends an InitProducerID from outside, as a stranger or a late request would, and waits
// until what it aborts has ended.
func (j *testJob) takeOver(t *testing.T, txnID string) {
	a, err := newAdmin(j.cfg)
	require.NoError(t, err)
	defer a.close()
	require.NoError(t, a.Fence(t.Context(), txnID, time.Minute))
	require.Eventually(t, func() bool {
		switch j.state(t, txnID).State {
		case settle.NoHistory, settle.CompleteAbort, settle.CompleteCommit:
			return true
		}
		return false
	}, 30*time.Second, 5*time.Millisecond)
}

// lossyDialer cuts a connection once the answer to a request has arrived on it, and before the
// client reads it: the broker has done the work and the client cannot know.
type lossyDialer struct {
	key  int16
	left atomic.Int64 // answers to lose
	lost atomic.Int64
}

func (d *lossyDialer) option() kgo.Opt {
	return kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
		var nd net.Dialer
		c, err := nd.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &lossyConn{Conn: c, d: d}, nil
	})
}

type lossyConn struct {
	net.Conn
	d *lossyDialer

	mu  sync.Mutex
	cut bool
}

// Write sees each request whole: the client writes one at a time.
func (c *lossyConn) Write(p []byte) (int, error) {
	if len(p) >= 6 && int16(binary.BigEndian.Uint16(p[4:])) == c.d.key && c.d.left.Add(-1) >= 0 {
		c.mu.Lock()
		c.cut = true
		c.mu.Unlock()
	}
	return c.Conn.Write(p)
}

func (c *lossyConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut && err == nil {
		c.d.lost.Add(1)
		_ = c.Conn.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

func loseAnswers(key kmsg.Key, n int64) *lossyDialer {
	d := &lossyDialer{key: int16(key)}
	d.left.Store(n)
	return d
}

// noneLeft reports goroutines that were not there before, but for those of a fake broker's
// connections, which end a moment after the client's.
func noneLeft(t *testing.T, before goleak.Option) {
	t.Helper()
	goleak.VerifyNone(t, before,
		goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*clientConn).read"),
		goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*clientConn).write"))
}
