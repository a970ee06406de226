package command

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/protocol"
	"example.com/weir/internal/status"
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

// The event time of an operator is the lowest of its subtasks. A source's subtask that reads no split has none, and
// holds nothing back: there are such wherever the parallelism is above the number of splits.
func TestTheEventTimeOfAnOperatorIsThatOfItsLowestSubtask(t *testing.T) {
	at := func(minute int) status.Subtask {
		w := time.Date(2026, 3, 2, 10, minute, 0, 0, time.UTC)
		return status.Subtask{Watermark: &w, Splits: []status.Split{{ID: "t/0"}}}
	}
	unknown, end := status.Subtask{Splits: []status.Split{{ID: "t/1"}}}, status.Subtask{EventTimeDone: true}
	for name, c := range map[string]struct {
		kind     string
		subtasks []status.Subtask
		want     string
	}{
		"the lowest":                   {"source", []status.Subtask{at(5), at(3)}, "2026-03-02T10:03:00Z"},
		"one is not known":             {"source", []status.Subtask{at(5), unknown}, "-"},
		"one reads nothing":            {"source", []status.Subtask{at(5), {}}, "2026-03-02T10:05:00Z"},
		"none reads":                   {"source", []status.Subtask{{}, {}}, "-"},
		"one has ended":                {"source", []status.Subtask{end, at(5)}, "2026-03-02T10:05:00Z"},
		"all that read have ended":     {"source", []status.Subtask{end, {}}, "end"},
		"one behind it knows nothing":  {"process", []status.Subtask{at(5), {}}, "-"},
		"it has not begun":             {"process", nil, "-"},
		"all that is behind has ended": {"window", []status.Subtask{end, end}, "end"},
	} {
		require.Equal(t, c.want, watermark(status.Operator{Kind: c.kind, Subtasks: c.subtasks}), name)
	}
}

// A checkpoint that cannot be read is a line of the table as any other; why stands behind the table.
func TestAListSaysWhyACheckpointIsDamagedBehindTheTable(t *testing.T) {
	b := newBench(t)
	b.complete(t, 6, false, connector.Committable{Sink: "bill", Checkpoint: 6, Payload: []byte("x")})
	b.complete(t, 7, true, connector.Committable{Sink: "bill", Checkpoint: 7, Payload: []byte("y")})
	at := storage{address: b.settings.Storage}
	listed := func() (out string) {
		require.NoError(t, at.look(t.Context(), func(s checkpoint.Store) error {
			var w bytes.Buffer
			err := listCheckpoints(t.Context(), s, &w, nil)
			out = w.String()
			return err
		}))
		return out
	}
	require.Regexp(t, `(?m)^7 .* current, settled +$`, listed())
	var shown bytes.Buffer
	require.NoError(t, at.look(t.Context(), func(s checkpoint.Store) error {
		return showCheckpoint(t.Context(), s, &shown, []string{"7"})
	}))
	require.Regexp(t, `(?m)^committed +1$`, shown.String(), "of a settled checkpoint nothing is left to commit")

	dir, err := at.dir()
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(dir, b.current(t).Manifest)))
	lines := strings.Split(listed(), "\n")
	require.Regexp(t, `^`+ownLineage+`-g1-c7 +current, damaged +$`, lines[1])
	require.Less(t, len(lines[1]), 120)
	require.Contains(t, lines[3], "CURRENT names it and it is missing; older checkpoints that are retained: ")
	require.Contains(t, lines[3], "--restore 6")
}
