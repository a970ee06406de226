package kafka

import (
	"testing"
	"time"

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

// Each request is delayed, lost, cut off, done without an answer, or refused: once while the job runs, and once in a
// restore that has a commit to make and an open transaction to end (what only writing sends, after that restore).
func TestFaultsOnTheWireLoseAndDoubleNothing(t *testing.T) {
	kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
		for do := kafkatest.Delay; do <= kafkatest.Answer; do++ {
			t.Run(do.String(), func(t *testing.T) {
				r := newWireJob(t, b)
				var cases []wireCase
				for _, req := range wireRequests(b.TransactionVersion) {
					c := wireCase{name: req.key.Name() + ": " + do.String()}
					fault := kafkatest.Fault{Key: req.key, Do: do, Code: req.again, By: 100 * time.Millisecond}
					if req.key == kmsg.EndTxn {
						fault.Times = clientRetries + 1 // the sink is left in doubt
					}
					r.crash(t) // every client is new, and so has everything to ask

					running := r.proxy.Inject(t, fault)
					r.write(t, batchOf(c.name+"/running")...)
					r.commit(t)

					r.write(t, batchOf(c.name+"/named")...)
					r.leave(t, batchOf("nobody names this")...)
					r.crash(t)
					restoring := r.proxy.Inject(t, fault)
					r.generation(t)
					r.write(t, batchOf(c.name+"/restored")...)
					r.commit(t)

					c.injected, c.hit = 2*max(fault.Times, 1), running.Hits()+restoring.Hits()
					cases = append(cases, c)
				}
				r.countByCase(t, cases)
			})
		}
	})
}
