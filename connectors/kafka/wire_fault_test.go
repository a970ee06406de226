package kafka

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/weir/internal/kafkatest"
)

// wireRequest is a request that a transaction lives by, and what a node answers when it wants to be asked again.
type wireRequest struct {
	key   kmsg.Key
	again int16
}

func wireRequests(transactionVersion int) []wireRequest {
	requests := []wireRequest{
		{kmsg.FindCoordinator, kerr.CoordinatorNotAvailable.Code},
		{kmsg.InitProducerID, kerr.CoordinatorLoadInProgress.Code},
		{kmsg.Produce, kerr.NotLeaderForPartition.Code},
		{kmsg.EndTxn, kerr.ConcurrentTransactions.Code},
		{kmsg.Fetch, kerr.NotLeaderForPartition.Code}, // the look at the log
	}
	if transactionVersion == 1 { // a later one adds them when they are written to
		requests = append(requests, wireRequest{kmsg.AddPartitionsToTxn, kerr.ConcurrentTransactions.Code})
	}
	return requests
}

// Each request is delayed, lost, cut off, done without an answer, or refused: while the job runs, in a restore that
// has a commit to make and an open transaction to end (what only writing sends, after it), and in a restore that
// has to write a lost transaction again.
func TestFaultsOnTheWireLoseAndDoubleNothing(t *testing.T) {
	kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
		for do := kafkatest.Delay; do <= kafkatest.Answer; do++ {
			t.Run(do.String(), func(t *testing.T) {
				t.Parallel() // most of it is waiting
				r := newWireJob(t, b)
				var cases []wireCase
				for _, req := range wireRequests(b.TransactionVersion) {
					cases = append(cases, r.fault(t, req, do))
				}
				r.countByCase(t, cases)
			})
		}
	})
}

// fault lets a request meet a fault in each part of a job's life.
func (r *wireJob) fault(t *testing.T, req wireRequest, do kafkatest.Action) wireCase {
	c := wireCase{name: req.key.Name() + ": " + do.String()}
	fault := kafkatest.Fault{Key: req.key, Do: do, Code: req.again, By: 100 * time.Millisecond}
	if req.key == kmsg.EndTxn {
		fault.Times = clientRetries + 1 // the client that asks again by itself is left in doubt, too
	}
	inject := func(part string, live func(values []string)) {
		f := r.proxy.Inject(t, fault)
		live(batchOf(c.name + "/" + part))
		r.proxy.Stop(f)
		require.Positive(t, f.Hits(), "%s, %s", c.name, part)
		c.hit += f.Hits()
	}
	r.crash(t) // every client is new, and so has everything to ask
	inject("running", func(values []string) {
		r.write(t, values...)
		r.commit(t)
	})
	r.write(t, batchOf(c.name+"/named")...)
	r.leave(t, batchOf("nobody names this")...)
	r.crash(t)
	inject("restored", func(values []string) {
		r.generation(t)
		r.write(t, values...)
		r.commit(t)
	})
	r.write(t, batchOf(c.name+"/lost")...)
	r.crash(t)
	r.lose(t)
	inject("after", func(values []string) {
		before := r.swaps
		r.generation(t)
		require.Greater(t, r.swaps, before, "nothing was written again")
		r.write(t, values...)
		r.commit(t)
	})
	return c
}
