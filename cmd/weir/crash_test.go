package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/weir"
	"example.com/weir/apps/gatewaymeter/truebill"
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
	kills       int64 // that were put in
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
	c.kills++
	crash := fault.Crash{Point: point, Nth: nth, Hold: true}
	cmd := exec.Command(c.binary, c.flags...)
	cmd.Env = append(os.Environ(), fault.Variable+"="+crash.String())
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var log bytes.Buffer
	reached := false
	for lines := bufio.NewScanner(io.TeeReader(stderr, &log)); lines.Scan(); {
		if lines.Text() == crash.Line() {
			reached = true
			require.NoError(t, cmd.Process.Kill())
		}
	}
	_ = cmd.Wait()
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(t, ok)
	if reached {
		require.Equal(t, syscall.SIGKILL, status.Signal(), "%s", log.Bytes())
		require.Contains(t, log.String(), "THIS PROCESS IS TOLD TO CRASH")
		return true
	}
	require.Equal(t, weir.ExitOK, status.ExitStatus(), "%s", log.Bytes())
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

// requireExact lets the job finish, and compares what a consumer finds with the true bill: no minute of it may be
// missing, and no revision be there twice. It notes that for the kill that hit.
func (c *crashes) requireExact(t *testing.T, hit string) {
	t.Helper()
	requireExit(t, c.binary, c.flags, weir.ExitOK)
	c.requireBill(t, c.bill)
	require.Empty(t, c.ongoing(t))
	proof.Note(t, proof.Count{
		Suite: proof.CrashPoints, Fault: "SIGKILL " + hit, Broker: c.b.Title(), Injected: c.kills, Hit: 1,
		Records: int64(len(c.bill.Minutes)),
	})
}

// mostKills bounds how often a case is begun again until it is one.
const mostKills = 25

// Killed with SIGKILL at each point of a checkpoint, of its commit and of the restore that follows, the binary
// bills what it must. A kill counts only if there was a transaction that it could hurt.
func TestTheBinaryKilledAtAnyPointOfACommitBillsTheSame(t *testing.T) {
	weirBinary := build(t)
	b := kafkatest.NewFake(t)
	begin := func(t *testing.T) *crashes { return newCrashes(t, b, weirBinary, 3000, 2) }
	t.Run("commit", func(t *testing.T) { killInCommits(t, begin) })
	t.Run("restore", func(t *testing.T) { killInRestores(t, begin) })
	t.Run("told to", func(t *testing.T) { crashAtOnce(t, begin(t)) })
}

// killInCommits kills later each time, until a transaction is open that CURRENT does not name, or one that it does.
func killInCommits(t *testing.T, begin func(t *testing.T) *crashes) {
	open := func(t *testing.T, c *crashes) bool { return len(c.ongoing(t)) > 0 && c.named(t) == 0 }
	named := func(t *testing.T, c *crashes) bool { return c.named(t) > 0 }
	always := func(*testing.T, *crashes) bool { return true }
	for _, p := range []struct {
		point  string
		counts func(t *testing.T, c *crashes) bool // what must be there for the kill to be one
	}{
		{fault.AfterFlush, open},
		{fault.AfterPrepare, open},
		{fault.AfterSnapshot, open},
		{fault.AfterAck, open},
		{fault.AfterManifest, open},
		{fault.AfterCurrent, named},
		{fault.BeforeCommit, named},
		{fault.AfterCommit, named},
		{fault.AfterSettled, always},
	} {
		t.Run(p.point, func(t *testing.T) {
			c := begin(t)
			hit := false
			for kills := 0; !hit && kills < mostKills; kills++ {
				require.True(t, c.killAt(t, p.point, 1+kills), "it finished first")
				hit = p.counts(t, c)
			}
			require.True(t, hit, "no kill found a transaction")
			c.requireExact(t, p.point)
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
			c.requireExact(t, "of a restore, "+point)
		})
	}
}

// leaveNamed kills the binary when CURRENT names transactions that it has not committed.
func (c *crashes) leaveNamed(t *testing.T) {
	t.Helper()
	for kills := range mostKills {
		require.True(t, c.killAt(t, fault.AfterCurrent, 1+kills), "it finished first")
		if c.named(t) > 0 {
			return
		}
	}
	require.Fail(t, "no CURRENT named a transaction")
}

// crashAtOnce lets the process end itself, where there is nobody to kill it.
func crashAtOnce(t *testing.T, c *crashes) {
	cmd := exec.Command(c.binary, c.flags...)
	cmd.Env = append(os.Environ(), fault.Variable+"="+fault.AfterCurrent)
	var log bytes.Buffer
	cmd.Stderr = &log
	require.Error(t, cmd.Run())
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(t, ok)
	require.Equal(t, syscall.SIGKILL, status.Signal(), "%s", log.Bytes())
	require.Contains(t, log.String(), fault.Crash{Point: fault.AfterCurrent, Nth: 1}.Line())
	c.kills++
	c.requireExact(t, "by the process itself, "+fault.AfterCurrent)
}
