package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/weir"
	"example.com/weir/apps/gatewaymeter/truebill"
	"example.com/weir/connector"
	"example.com/weir/internal/command"
	"example.com/weir/internal/kafkatest"
)

// The process ends between CURRENT and the commit of what it names. What it left is listed, is aborted by
// nobody who does not insist, and is committed from the checkpoint. The job, started again, loses and doubles
// nothing: not even what somebody has insisted to abort, which it writes again.
func TestWhatAKilledProcessLeftIsSettledFromBeside(t *testing.T) {
	weirBinary := build(t)
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		for _, end := range []string{"commit", "abort"} {
			t.Run(end, func(t *testing.T) {
				l := killedAtItsFirstCommit(t, weirBinary, b)
				open := l.open(t)
				for _, x := range open {
					require.Contains(t, l.txn(t, weir.ExitRefused, "abort", x.ID), "is to be committed")
					require.Contains(t, l.txn(t, weir.ExitOK, "show", x.ID), ", whole")
				}
				if end == "abort" {
					said := l.txn(t, weir.ExitOK, "abort", open[0].ID, "--yes")
					require.Contains(t, said, "writes its records again")
					require.Contains(t, said, "aborted: no partition")
					require.Contains(t, l.txn(t, weir.ExitRefused, "commit", "--from-checkpoint"), "not committed")
				} else {
					require.Contains(t, l.txn(t, weir.ExitOK, "commit", "--from-checkpoint"), "is settled")
					require.Contains(t, l.txn(t, weir.ExitOK, "commit", "--from-checkpoint"), "nothing is left")
				}
				requireExit(t, weirBinary, l.args, weir.ExitOK)
				l.requireBill(t, l.bill)
			})
		}
	})
}

// left is what a killed process has left.
type left struct {
	*topic
	binary string
	args   []string // of a run
	bill   *truebill.Bill
}

// killedAtItsFirstCommit runs the job until it asks for a commit, which is once CURRENT has been swapped, and
// kills it. No such request reaches the broker.
func killedAtItsFirstCommit(t *testing.T, binary string, b *kafkatest.Broker) *left {
	l := &left{topic: newTopic(t, b), binary: binary}
	l.append(t, 8000)
	var err error
	l.bill, err = truebill.Compute(truebill.Config{}, l.prices, l.records)
	require.NoError(t, err)
	l.args = l.topic.args(t.TempDir(), 2)
	p := kafkatest.NewProxy(t, b)
	commit := p.Inject(t, kafkatest.Fault{Key: kmsg.EndTxn, Do: kafkatest.DropRequest, Times: -1})
	through := slices.Clone(l.args)
	through[slices.Index(through, "--brokers")+1] = p.Brokers()[0] // a second --brokers would add to the first
	job := exec.Command(binary, through...)
	var log bytes.Buffer
	job.Stderr = &log
	require.NoError(t, job.Start())
	ended := make(chan error, 1)
	go func() { ended <- job.Wait() }()
	select {
	case <-commit.Hit():
	case err := <-ended:
		t.Fatalf("the job ended before its first commit: %v\n%s", err, log.Bytes())
	}
	l.txn(t, weir.ExitSuperseded, "commit", "--from-checkpoint")
	require.NoError(t, job.Process.Kill())
	<-ended
	return l
}

// txn runs a command txn against the brokers themselves, and returns what it prints.
func (l *left) txn(t *testing.T, code int, verb string, more ...string) string {
	t.Helper()
	cmd := exec.Command(l.binary, append(append([]string{"txn", verb, "gatewaymeter"}, more...), l.args[2:]...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, _ := cmd.Output()
	require.Equal(t, code, cmd.ProcessState.ExitCode(), "%s%s", out, stderr.Bytes())
	return string(out)
}

// open returns what is open and named by CURRENT.
func (l *left) open(t *testing.T) []command.Transaction {
	t.Helper()
	var all command.Transactions
	require.NoError(t, json.Unmarshal([]byte(l.txn(t, weir.ExitOK, "list", "--json")), &all))
	require.False(t, all.Settled)
	var open []command.Transaction
	for _, x := range all.Transactions {
		require.True(t, x.Ours)
		if x.Checkpoint != 0 && x.Found == connector.FoundOpen {
			open = append(open, x)
		}
	}
	require.NotEmpty(t, open, "%+v", all)
	return open
}
