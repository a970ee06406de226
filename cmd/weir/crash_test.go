package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/weir"
	"example.com/weir/apps/gatewaymeter/truebill"
	"example.com/weir/connectors/kafka/txn"
	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/fault"
	"example.com/weir/internal/kafkatest"
	"example.com/weir/internal/proof"
)

// crashes is the binary, to be killed at points that have a name, and what must be in its topic at the end.
type crashes struct {
	*topic
	binary, dir string
	flags       []string
	bill        *truebill.Bill
	log         bytes.Buffer // of all runs
}

func newCrashes(t *testing.T, b *kafkatest.Broker, binary string, events, parallelism int) *crashes {
	t.Helper()
	c := &crashes{topic: newTopic(t, b), binary: binary, dir: t.TempDir()}
	c.append(t, events)
	c.flags = c.args(c.dir, parallelism)
	bill, err := truebill.Compute(truebill.Config{}, c.prices, c.records)
	require.NoError(t, err)
	c.bill = bill
	return c
}

// killAt runs the binary until it waits at a point, which it has come to for the nth time, and kills it
// there with SIGKILL. It reports false if the job finished without coming there.
func (c *crashes) killAt(t *testing.T, point string, nth int) bool {
	t.Helper()
	crash := fault.Crash{Point: point, Nth: nth, Hold: true}
	cmd := exec.Command(c.binary, c.flags...)
	cmd.Env = append(os.Environ(), fault.Variable+"="+crash.String())
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	reached := false
	for lines := bufio.NewScanner(io.TeeReader(stderr, &c.log)); lines.Scan(); {
		if lines.Text() == crash.Line() {
			reached = true
			require.NoError(t, cmd.Process.Kill())
		}
	}
	_ = cmd.Wait()
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(t, ok)
	if reached {
		require.Equal(t, syscall.SIGKILL, status.Signal(), "%s", &c.log)
		require.Contains(t, c.log.String(), "THIS PROCESS IS TOLD TO CRASH")
		return true
	}
	require.Equal(t, weir.ExitOK, status.ExitStatus(), "%s", &c.log)
	return false
}

// ongoing lists the job's transactional IDs under which something is open.
func (c *crashes) ongoing(t *testing.T) []string {
	t.Helper()
	var ids []string
	all, err := c.b.Admin(t).ListTransactions(t.Context(), nil, []string{"Ongoing"})
	require.NoError(t, err)
	for _, txn := range all.Sorted() {
		if strings.HasPrefix(txn.TxnID, "gatewaymeter-"+c.out) {
			ids = append(ids, txn.TxnID)
		}
	}
	return ids
}

// named returns how many committables CURRENT waits for.
func (c *crashes) named(t *testing.T) int {
	t.Helper()
	store, err := checkpoint.Open("file://"+c.dir, checkpoint.Options{ReadOnly: true})
	require.NoError(t, err)
	defer store.Close()
	current, m, err := checkpoint.Latest(t.Context(), store)
	require.NoError(t, err)
	if current.Settled {
		return 0
	}
	return len(m.Committables)
}

// requireExact lets the job finish, and compares what a consumer finds with the true bill. fault is what has
// been done to it, so many times, of which so many have hurt a transaction.
func (c *crashes) requireExact(t *testing.T, fault string, injected, hit int) {
	t.Helper()
	cmd := exec.Command(c.binary, c.flags...)
	cmd.Stderr = &c.log
	require.NoError(t, cmd.Run(), "%s", &c.log)
	records := c.requireBill(t, c.bill)
	require.Empty(t, c.ongoing(t))
	require.Empty(t, c.files(t, "records"), "records are kept of what is committed")
	proof.Note(t, proof.Count{
		Suite: proof.CrashPoints, Fault: "SIGKILL " + fault, Broker: c.b.Title(),
		Injected: int64(injected), Hit: int64(hit), Records: int64(records),
	})
}

func (c *crashes) files(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(c.dir, dir, "*"))
	require.NoError(t, err)
	return files
}

// The points of the sink are told by the names that a crash is asked for by.
func TestTheSinkTellsItsStepsByTheirNames(t *testing.T) {
	require.Equal(t, []string{
		fault.BeforeEndTxn, fault.AfterEndTxn, fault.LostFound, fault.ReemitTaken, fault.ReemitWritten,
		fault.ReemitReplaced, fault.ReemitBeforeEndTxn, fault.ReemitSettled,
	}, []string{
		txn.StepBeforeEndTxn, txn.StepAfterEndTxn, txn.StepLostFound, txn.StepReemitTaken, txn.StepReemitWritten,
		txn.StepReemitReplaced, txn.StepReemitBeforeEndTxn, txn.StepReemitSettled,
	})
}

// mostKills bounds how often a case is begun again until it is one.
const mostKills = 200

// Killed with SIGKILL at each point of a checkpoint, of its commit and of the restore that follows, the binary
// bills what it must. A kill counts only if there was a transaction that it could hurt.
func TestTheBinaryKilledAtAnyPointOfACommitBillsTheSame(t *testing.T) {
	weirBinary := build(t)
	b := kafkatest.NewFake(t)
	begin := func(t *testing.T) *crashes { return newCrashes(t, b, weirBinary, 3000, 2) }
	t.Run("commit", func(t *testing.T) { killInCommits(t, begin) })
	t.Run("restore", func(t *testing.T) { killInRestores(t, begin) })
	t.Run("lost", func(t *testing.T) { killInReemissions(t, begin) })
	t.Run("told to", func(t *testing.T) { crashAtOnce(t, begin(t)) })
}

// killInCommits kills until a transaction is open that CURRENT does not name, or one that it does. Where a checkpoint
// that is cut short brings the job no further, another one is killed one checkpoint later each time: the last one
// has transactions at any rate.
func killInCommits(t *testing.T, begin func(t *testing.T) *crashes) {
	// Those that CURRENT names may be open too: one more is one that it does not name.
	open := func(t *testing.T, c *crashes) bool { return len(c.ongoing(t)) > c.named(t) }
	named := func(t *testing.T, c *crashes) bool { return c.named(t) > 0 }
	settled := func(t *testing.T, c *crashes) bool { return c.named(t) == 0 }
	for _, p := range []struct {
		point  string
		counts func(t *testing.T, c *crashes) bool // what must be there for the kill to be one
		first  int                                 // how often the point is reached, at the first kill
		later  int
	}{
		{fault.AfterFlush, open, 1, 1},
		{fault.AfterPrepare, open, 1, 1},
		{fault.AfterSnapshot, open, 1, 1},
		{fault.AfterAck, open, 1, 1},
		{fault.AfterManifest, open, 1, 1},
		{fault.AfterCurrent, named, 1, 0},
		{fault.BeforeCommit, named, 1, 0},
		{fault.AfterCommit, named, 1, 0},
		{fault.BeforeEndTxn, named, 1, 0},
		{fault.AfterEndTxn, named, 1, 0},
		{fault.AfterSettled, settled, 2, 0},
	} {
		t.Run(p.point, func(t *testing.T) {
			c := begin(t)
			hit, kills, nth := false, 0, p.first
			for ; !hit && kills < mostKills; kills++ {
				reached := c.killAt(t, p.point, nth)
				if hit = reached && p.counts(t, c); hit {
					continue
				}
				nth += p.later
				if !reached {
					nth = p.first // it finished first
				}
				if !reached || p.later > 0 {
					c = begin(t) // what is left of one that was killed has fewer checkpoints
				}
			}
			require.True(t, hit, "no kill found a transaction")
			c.requireExact(t, p.point, kills, 1)
		})
	}
}

// killInRestores kills the start that follows a kill between CURRENT and the commit.
func killInRestores(t *testing.T, begin func(t *testing.T) *crashes) {
	for _, point := range []string{fault.AfterClaim, fault.AfterRestore, fault.AfterSettled} {
		t.Run(point, func(t *testing.T) {
			c := begin(t)
			c.leaveNamed(t)
			require.True(t, c.killAt(t, point, 1))
			c.requireExact(t, "of a restore, "+point, 1, 1)
		})
	}
}

// leaveNamed kills the binary when CURRENT names transactions that it has not committed.
func (c *crashes) leaveNamed(t *testing.T) {
	t.Helper()
	for range mostKills {
		require.True(t, c.killAt(t, fault.AfterCurrent, 1), "the last checkpoint names the last minutes")
		if c.named(t) > 0 {
			return
		}
	}
	require.Fail(t, "no CURRENT named a transaction")
}

// killInReemissions kills the start that finds that a stranger has taken the transactions which CURRENT names,
// while nobody was there: at each step of writing them again, and once more when what was written again has been
// lost as well.
func killInReemissions(t *testing.T, begin func(t *testing.T) *crashes) {
	for _, point := range []string{
		fault.LostFound, fault.ReemitTaken, fault.ReemitWritten, fault.ReemitManifest, fault.ReemitCurrent,
		fault.ReemitReplaced, fault.ReemitBeforeEndTxn, fault.ReemitSettled, fault.AfterRestore,
	} {
		t.Run(point, func(t *testing.T) {
			c := begin(t)
			c.leaveNamed(t)
			c.takeOver(t)
			require.True(t, c.killAt(t, point, 1))
			kills := 1
			if len(c.ongoing(t)) > 0 {
				c.takeOver(t)
				require.True(t, c.killAt(t, point, 1), "what was lost again is written again")
				kills++
			}
			c.requireExact(t, "of a re-emission, "+point, kills, kills)
			require.Contains(t, c.log.String(), "a lost transaction was written again")
		})
	}
}

// takeOver begins transactions under all of the job's transactional IDs that have one open, as a stranger with
// the same configuration would: what was open is aborted.
func (c *crashes) takeOver(t *testing.T) {
	t.Helper()
	ids := c.ongoing(t)
	require.NotEmpty(t, ids)
	for _, id := range ids {
		cl := c.b.Client(t, kgo.TransactionalID(id), kgo.TransactionTimeout(time.Minute))
		_, _, err := cl.ProducerID(t.Context())
		require.NoError(t, err)
		cl.Close()
	}
	require.Eventually(t, func() bool { return len(c.ongoing(t)) == 0 }, time.Minute, time.Millisecond)
}

// crashAtOnce lets the process end itself, where there is nobody to kill it.
func crashAtOnce(t *testing.T, c *crashes) {
	cmd := exec.Command(c.binary, c.flags...)
	cmd.Env = append(os.Environ(), fault.Variable+"="+fault.AfterCurrent)
	cmd.Stderr = &c.log
	require.Error(t, cmd.Run())
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(t, ok)
	require.Equal(t, syscall.SIGKILL, status.Signal(), "%s", &c.log)
	require.Contains(t, c.log.String(), fault.Crash{Point: fault.AfterCurrent, Nth: 1}.Line())
	c.requireExact(t, "by the process itself, "+fault.AfterCurrent, 1, 1)
}
