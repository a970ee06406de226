package kafka

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/weir/connector"
	"example.com/weir/internal/kafkatest"
	"example.com/weir/internal/proof"
)

// killSubtasks is how many transactions are being committed when the broker is killed.
const killSubtasks = 6

// Several subtasks commit at once, and the broker is killed at one of their EndTxns. The job is killed with it and
// restored, or it rides the outage out.
func TestABrokerKilledInTheMiddleOfCommitsLosesAndDoublesNothing(t *testing.T) {
	kafkatest.OnceIsEnough(t)
	for _, version := range []int{2, 1} {
		t.Run(fmt.Sprintf("transaction version %d", version), func(t *testing.T) {
			t.Parallel()
			n := kafkatest.NewNode(t, kafkatest.NodeConfig{TransactionVersion: version})
			r := &killRounds{node: n, testJob: newTestJob(t, &n.Broker), proxy: kafkatest.NewProxy(t, &n.Broker)}
			r.cfg.Brokers, r.cfg.CommitDeadline = r.proxy.Brokers(), 2*time.Minute
			// Each is told by where it strikes: with the commits of two subtasks under way, and of two more to come.
			r.round(t, "broker killed at EndTxn before it answers", kafkatest.CutAfter, false)
			r.round(t, "broker killed at EndTxn's answer", kafkatest.DropResponse, false)
			r.round(t, "broker killed at EndTxn before it answers, and the job goes on", kafkatest.CutAfter, true)
			r.check(t)
		})
	}
}

// killRounds are rounds of killing one broker under one job.
type killRounds struct {
	*testJob
	node  *kafkatest.Node
	proxy *kafkatest.Proxy

	checkpoint uint64
	outcomes   []killed
}

// killed is one transaction whose commit was under way, and how it was found.
type killed struct {
	fault  string
	values []string
}

func (r *killRounds) round(t *testing.T, fault string, at kafkatest.Action, goesOn bool) {
	r.checkpoint++
	s := r.restore(t)
	var writers []*txnWriter[testRow]
	var named []connector.Committable
	var values [][]string
	for subtask := range killSubtasks {
		w := r.writer(t, s, subtask)
		v := batchOf(fmt.Sprintf("%d/%d", r.checkpoint, subtask))
		write(t, w, v...)
		writers, named, values = append(writers, w), append(named, prepare(t, w, r.checkpoint)), append(values, v)
	}

	process := r.node.Process(t)
	kill := r.proxy.Inject(t, kafkatest.Fault{Key: kmsg.EndTxn, Do: at, Nth: killSubtasks / 2, Then: func() {
		if err := process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("kill the broker: %v", err)
		}
	}})
	errs := make([]error, killSubtasks)
	var committing sync.WaitGroup
	ctx, crash := context.WithCancel(t.Context())
	defer crash()
	for i, w := range writers {
		committing.Go(func() { errs[i] = w.Commit(ctx, named[i]) })
	}
	<-kill.Hit()
	if goesOn {
		r.node.Kill(t)
		r.node.Start(t)
		committing.Wait()
		for i := range errs {
			require.NoError(t, errs[i])
			r.outcomes = append(r.outcomes, killed{fault: fault, values: values[i]})
		}
		return
	}
	crash()
	committing.Wait()
	for _, w := range writers {
		require.NoError(t, w.Close())
	}
	r.node.Kill(t)
	r.node.Start(t)
	for i := range named {
		found := r.state(t, handleOf(t, named[i]).TransactionalID).State
		r.outcomes = append(r.outcomes, killed{fault: fmt.Sprintf("%s; found %s", fault, found), values: values[i]})
	}
	r.restore(t, named...)
}

// check holds what readers see against what was named, by what had been found.
func (r *killRounds) check(t *testing.T) {
	got := r.visible(t)
	counts := map[string]proof.Count{}
	var all []string
	for _, o := range r.outcomes {
		prefix := o.values[0][:len(o.values[0])-len("/0/1")]
		missing, doubled := kafkatest.Difference(o.values, ofCase(prefix, got))
		c := counts[o.fault]
		c.Injected++
		c.Hit++
		c.Records += int64(len(o.values))
		c.Missing += int64(missing)
		c.Doubled += int64(doubled)
		counts[o.fault] = c
		all = append(all, o.values...)
	}
	for fault, c := range counts {
		t.Logf("%s: %d transactions", fault, c.Hit)
		c.Suite, c.Fault, c.Broker = proof.Outage, fault, r.b.Title()
		proof.Note(t, c)
	}
	require.ElementsMatch(t, all, got)
}
