package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/weir"
	"example.com/weir/apps/gatewaymeter/truebill"
	"example.com/weir/connector"
	"example.com/weir/internal/command"
	"example.com/weir/internal/kafkatest"
)

// The process ends between CURRENT and the commit of what it names. The transaction is listed, is aborted
// by nobody who does not insist, and is committed from the checkpoint; the job, started again, doubles and
// loses nothing.
func TestWhatAKilledProcessLeftIsCommittedFromItsCheckpoint(t *testing.T) {
	weirBinary := build(t)
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		w := newTopic(t, b)
		w.append(t, 8000)
		bill, err := truebill.Compute(truebill.Config{}, w.prices, w.records)
		require.NoError(t, err)
		p := kafkatest.NewProxy(t, b)
		args := w.args(t.TempDir(), 2)
		through := append(append([]string(nil), args...), "--brokers", p.Brokers()[0])
		// Once a commit is asked for, CURRENT has been swapped. None of them reaches the broker.
		commit := p.Inject(t, kafkatest.Fault{Key: kmsg.EndTxn, Do: kafkatest.DropRequest, Times: -1})

		job := exec.Command(weirBinary, through...)
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
		txn := func(code int, verb string, more ...string) string {
			t.Helper()
			cmd := exec.Command(weirBinary, append(append([]string{"txn", verb, "gatewaymeter"}, more...), args[2:]...)...)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, _ := cmd.Output()
			require.Equal(t, code, cmd.ProcessState.ExitCode(), "%s%s", out, stderr.Bytes())
			return string(out)
		}
		txn(weir.ExitSuperseded, "commit", "--from-checkpoint")
		require.NoError(t, job.Process.Kill())
		<-ended
		p.Stop(commit)

		var all command.Transactions
		require.NoError(t, json.Unmarshal([]byte(txn(weir.ExitOK, "list", "--json")), &all))
		require.False(t, all.Settled)
		named := 0
		for _, x := range all.Transactions {
			require.True(t, x.Ours)
			if x.Checkpoint == 0 || x.Found != connector.FoundOpen {
				continue
			}
			named++
			require.Contains(t, txn(weir.ExitRefused, "abort", x.ID), "is to be committed")
			require.Contains(t, txn(weir.ExitOK, "show", x.ID), x.ID)
		}
		require.NotZero(t, named, "nothing was open: %+v", all)
		require.Contains(t, txn(weir.ExitOK, "commit", "--from-checkpoint"), "is settled")
		require.Contains(t, txn(weir.ExitOK, "commit", "--from-checkpoint"), "nothing is left")
		requireExit(t, weirBinary, args, weir.ExitOK)
		w.requireBill(t, bill)
	})
}
