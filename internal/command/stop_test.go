package command

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/protocol"
)

// leave has CURRENT hold what a run left.
func (b *bench) leave(t *testing.T, left protocol.Current) {
	store, err := checkpoint.Open(b.settings.Storage, checkpoint.Options{Job: b.Name()})
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	current, err := store.Current(t.Context())
	require.NoError(t, err)
	next := current
	next.Generation++
	next.Settled, next.Finished, next.Clean, next.Nonce = left.Settled, left.Finished, left.Clean, ""
	_, err = store.Swap(t.Context(), current, next)
	require.NoError(t, err)
}

// How a job ended is read off CURRENT, by status and by stop alike, however often it was started since. A start
// drops Clean; a finished job that is started again stays finished.
func TestStatusAndStopSayHowAJobEnded(t *testing.T) {
	for name, c := range map[string]struct {
		left          protocol.Current
		outcome       string
		stops, drains int
		says          string
	}{
		"stopped":                    {protocol.Current{Settled: true, Clean: true}, "stopped", ExitOK, ExitFailed, "job fake: stopped"},
		"finished":                   {protocol.Current{Settled: true, Finished: true, Clean: true}, "finished", ExitOK, ExitOK, "job fake: finished"},
		"finished and started again": {protocol.Current{Settled: true, Finished: true}, "finished", ExitOK, ExitOK, "job fake: finished"},
		"killed":                     {protocol.Current{}, "", ExitFailed, ExitFailed, "the next start settles checkpoint 7 and goes on from it"},
		"killed at the end":          {protocol.Current{Finished: true}, "", ExitFailed, ExitFailed, "the next start settles checkpoint 7"},
		"killed, nothing to commit":  {protocol.Current{Settled: true}, "", ExitFailed, ExitFailed, "nothing is left to commit, and the next start goes on from checkpoint 7"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.complete(t, 7, false)
			b.leave(t, c.left)
			at := storage{address: b.settings.Storage}
			st, err := at.status(t.Context())
			require.NoError(t, err)
			require.Equal(t, c.outcome, st.Outcome)
			var out bytes.Buffer
			require.NoError(t, printStatus(&out, st))
			require.Contains(t, out.String(), c.says)
			for drain, code := range map[bool]int{false: c.stops, true: c.drains} {
				s := stopper{storage: at, drain: drain, out: &bytes.Buffer{}}
				require.Equal(t, code, ExitCode(s.run(t.Context())), "drain %v", drain)
			}
		})
	}
}

// Whoever gave up waiting is told why, and that the job goes on stopping.
func TestStopSaysWhyItWaitsNoLonger(t *testing.T) {
	s := stopper{timeout: 3e9}
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	require.Equal(t, "it did not end within --timeout 3s; the command status shows how it does", s.impatient(late))
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	require.Contains(t, s.impatient(interrupted), "a signal ended the wait")
}

// A command that is given too few or too many names says which it wants.
func TestAWrongNumberOfNamesIsToldWithTheNamesThatAreWanted(t *testing.T) {
	for args, want := range map[string]string{
		"savepoint":              "savepoint: want NAME, and there are 0 arguments",
		"savepoint a b":          "savepoint: want NAME, and there are 2 arguments",
		"checkpoints show":       "checkpoints show: want NAME|N, and there are 0 arguments",
		"checkpoints verify 1 2": "checkpoints verify: want [NAME|N], and there are 2 arguments",
		"txn show":               "txn show: want ID, and there are 0 arguments",
		"txn abort x y":          "txn abort: want ID, and there are 2 arguments",
		"txn repair":             "txn repair: want ID, and there are 0 arguments",
		"txn commit 1 2":         "txn commit: want [NAME], and there are 2 arguments",
	} {
		root := &cobra.Command{Use: "job", SilenceErrors: true, SilenceUsage: true}
		root.AddCommand(savepointCommand("file:///x"), checkpointsCommand("file:///x"), txnCommand(newBench(t)))
		root.SetArgs(strings.Fields(args))
		require.ErrorContains(t, root.Execute(), want, args)
	}
}
