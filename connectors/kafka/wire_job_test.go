package kafka

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/weir/connector"
	"example.com/weir/internal/kafkatest"
	"example.com/weir/internal/proof"
)

// wireJob is a job whose sink reaches its broker through a proxy. It goes from checkpoint to checkpoint as the
// engine does: what a checkpoint names is committed, and after an error a new generation restores that and writes
// again what no checkpoint names.
type wireJob struct {
	*storedJob // its current is what CURRENT names, and nobody has seen committed
	proxy      *kafkatest.Proxy

	w          *txnWriter[testRow] // nil between two generations
	checkpoint uint64
	restarts   int

	want [partitionsOfTests][]string // what its checkpoints named, by partition and in order
}

// clientRetries is how often the client asks again by itself. What is met once more than that is the sink's.
const clientRetries = 1

// maxRestarts is how many generations in a row may fail, which no fault here explains.
const maxRestarts = 10

func newWireJob(t *testing.T, b *kafkatest.Broker) *wireJob {
	r := &wireJob{storedJob: newStoredJob(t, b), proxy: kafkatest.NewProxy(t, b)}
	r.cfg.Brokers = r.proxy.Brokers()
	soon := 200 * time.Millisecond
	if b.Kind == kafkatest.Apache {
		soon = 500 * time.Millisecond // where what is slow is not lost
	}
	// What is lost on the way is noticed soon, and the client does not ask again for ever.
	r.cfg.clientOptions = []kgo.Opt{
		kgo.RequestRetries(clientRetries),
		kgo.RequestTimeoutOverhead(soon), kgo.ProduceRequestTimeout(soon),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
	}
	return r
}

// batchOf makes two values for each partition.
func batchOf(name string) []string {
	var values []string
	for n := range 2 {
		for p := range partitionsOfTests {
			values = append(values, fmt.Sprintf("%s/%d/%d", name, n, p+1))
		}
	}
	return values
}

// generation is there, restored, or begins one.
func (r *wireJob) generation(t *testing.T) {
	for n := 0; r.w == nil; n++ {
		if err := r.restoreErr(t); err != nil {
			r.failed(t, n, err)
			continue
		}
		r.current = nil
		r.w = r.writer(t, 0)
	}
}

// failed ends the generation as the engine does, and begins the next one, if there may be one.
func (r *wireJob) failed(t *testing.T, n int, err error) {
	require.False(t, connector.IsStop(err), "%v", err)
	require.Less(t, n, maxRestarts, "%v", err)
	t.Logf("the generation fails: %v", err)
	r.restarts++
	r.crash(t)
}

// crash ends the generation where it is.
func (r *wireJob) crash(t *testing.T) {
	if r.w != nil {
		require.NoError(t, r.w.Close())
		r.w = nil
	}
}

// write writes values until a checkpoint names them.
func (r *wireJob) write(t *testing.T, values ...string) {
	for n := 0; ; n++ {
		r.generation(t)
		err := r.tryWrite(t, values)
		if err == nil {
			break
		}
		r.failed(t, n, err)
	}
	for _, v := range values {
		r.want[partitionOf(v)] = append(r.want[partitionOf(v)], v)
	}
}

func (r *wireJob) tryWrite(t *testing.T, values []string) error {
	if err := r.w.Write(t.Context(), rowsOf(values...)); err != nil {
		return err
	}
	if err := r.w.Flush(t.Context(), false); err != nil {
		return err
	}
	c, err := r.w.PrepareCommit(t.Context(), r.checkpoint+1)
	if err != nil {
		return err
	}
	r.checkpoint++
	r.current = append(r.current, *c)
	return nil
}

// commit commits what is named: in this generation or, if that fails, in the restore of another.
func (r *wireJob) commit(t *testing.T) {
	for n := 0; len(r.current) > 0; n++ {
		if r.w == nil {
			r.generation(t)
			return
		}
		if err := r.w.Commit(t.Context(), r.current[0]); err != nil {
			r.failed(t, n, err)
			continue
		}
		r.w.Release(r.current[0])
		r.current = r.current[1:]
	}
}

// lose lets somebody else abort what is named.
func (r *wireJob) lose(t *testing.T) {
	for _, c := range r.current {
		r.takeOver(t, handleOf(t, c).TransactionalID)
	}
}

// leave writes and flushes what no checkpoint will name.
func (r *wireJob) leave(t *testing.T, values ...string) {
	r.generation(t)
	require.NoError(t, r.w.Write(t.Context(), rowsOf(values...)))
	require.NoError(t, r.w.Flush(t.Context(), false))
}

// wanted returns what a reader has to see.
func (r *wireJob) wanted() []string { return slices.Concat(r.want[:]...) }

// countByCase notes, for each fault, the records that were written under it, and then holds all that can be read
// against all that was to be, in order.
func (r *wireJob) countByCase(t *testing.T, cases []wireCase) {
	got := r.visible(t)
	for _, c := range cases {
		want, seen := ofCase(c.name, r.wanted()), ofCase(c.name, got)
		missing, doubled := kafkatest.Difference(want, seen)
		proof.Note(t, proof.Count{
			Suite: proof.Wire, Fault: c.name, Broker: r.b.Title(), Injected: int64(c.hit), Hit: int64(c.hit),
			Records: int64(len(want)), Missing: int64(missing), Doubled: int64(doubled),
		})
		require.Zero(t, missing, "%s: records missing", c.name)
		require.Zero(t, doubled, "%s: records doubled", c.name)
	}
	require.Equal(t, r.wanted(), got, "records are not in order, or of no case")
}

// wireCase is one row of a matrix of faults.
type wireCase struct {
	name string
	hit  int
}

func ofCase(name string, values []string) []string {
	var of []string
	for _, v := range values {
		if strings.HasPrefix(v, name+"/") {
			of = append(of, v)
		}
	}
	return of
}
