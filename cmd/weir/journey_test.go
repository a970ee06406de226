package main

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"example.com/weir"
	"example.com/weir/apps/gatewaymeter/ledger"
	"example.com/weir/apps/gatewaymeter/truebill"
	"example.com/weir/internal/kafkatest"
	"example.com/weir/internal/status"
)

// replaying writes events to the job's topic until the test ends it, and then knows what it has written.
func (l *life) replaying(t *testing.T) (end func()) {
	t.Helper()
	p := startProcess(t, l.binary, "gateway", "replay", "--brokers", l.b.Brokers[0], "--topic", l.name,
		"--requests", "10000000", "--rate", "5", "--speedup", "200", "--start", "2026-03-02T09:00:00Z",
		"--prices", sample+"prices.json")
	return func() {
		t.Helper()
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
		p.ended(t)
		require.Contains(t, p.text(), "records written to "+l.name)
		for _, r := range l.b.ReadCommitted(t, l.name) {
			l.records = append(l.records, truebill.Record{
				Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp, Key: r.Key, Value: r.Value,
			})
		}
	}
}

// bills waits until the consumer of the bill finds more minutes than it has found before.
func (l *life) bills(t *testing.T) {
	t.Helper()
	admin := l.b.Admin(t)
	before := int64(-1)
	require.Eventually(t, func() bool {
		ends, err := admin.ListCommittedOffsets(t.Context(), l.out)
		require.NoError(t, err)
		sum := int64(0)
		ends.Each(func(o kadm.ListedOffset) { sum += o.Offset })
		if before < 0 {
			before = sum
		}
		return sum > before
	}, time.Minute, 20*time.Millisecond)
}

// stop stops the job by its command.
func (l *life) stop(t *testing.T, p *process) {
	t.Helper()
	require.Equal(t, "job gatewaymeter stopped", l.command(t, weir.ExitOK, "stop"))
	l.end(t, p, weir.ExitOK, "stopped")
}

// refused tries to start the job with flags, and is told why it does not.
func (l *life) refused(t *testing.T, why string, flags ...string) {
	t.Helper()
	p := startProcess(t, l.binary, append(l.args(l.checkpoints, 1), flags...)...)
	require.Equal(t, weir.ExitRefused, p.ended(t), "%s", p.text())
	require.Contains(t, p.text(), why)
}

// A job is stopped, spread over more subtasks and fewer, and restored from a savepoint while its topic grows
// without an end. What it bills is the true bill. Going back behind what was billed is refused, unless
// somebody takes the results twice by name; then no minute is missing, and those since the savepoint are doubled.
func TestAnEndlessBillIsExactWhateverBecomesOfItsJob(t *testing.T) {
	binary := build(t)
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		l := newLife(t, binary, b)
		end := l.replaying(t)
		p := l.start(t, 2)
		l.bills(t)
		l.stop(t, p)

		p = l.start(t, 4)
		l.bills(t)
		l.stop(t, p)

		p = l.start(t, 1)
		l.command(t, weir.ExitOK, "savepoint", "running")
		l.bills(t)
		l.stop(t, p)
		l.refused(t, "to go back to it writes again what has been committed since", "--restore", "running")

		l.command(t, weir.ExitOK, "savepoint", "stopped")
		p = l.start(t, 2, "--restore", "stopped")
		l.bills(t)
		require.NoError(t, p.cmd.Process.Kill())
		p.ended(t)
		p = l.start(t, 2, "--restore", "stopped") // the same words go on from where it is
		l.bills(t)
		l.stop(t, p)

		p = l.start(t, 4)
		l.bills(t)
		end()
		l.drain(t, p)
		require.Equal(t, "finished", l.status(t).Outcome)

		l.refused(t, "to go back to it writes again what has been committed since", "--restore", "running")
		p = l.start(t, 2, "--restore", "running", "--accept-duplicates")
		l.caughtUp(t)
		require.Equal(t, "job gatewaymeter finished", l.command(t, weir.ExitOK, "stop", "--drain"))
		l.end(t, p, weir.ExitOK, "finished")
		l.requireDoubled(t)
	})
}

// requireDoubled holds the bill of a job that has gone back to the true one.
func (l *life) requireDoubled(t *testing.T) {
	t.Helper()
	bill, err := truebill.Compute(truebill.Config{}, l.prices, l.records)
	require.NoError(t, err)
	var read ledger.Ledger
	for _, r := range l.b.ReadCommitted(t, l.out) {
		require.NoError(t, read.Add(r.Key, r.Value))
	}
	report := read.Compare(bill)
	require.Empty(t, report.Missing)
	require.Empty(t, report.Unexpected)
	require.Empty(t, report.Different)
	require.NotEmpty(t, report.Doubled)
	require.Less(t, len(report.Doubled), report.Minutes, "what was billed before the savepoint is not billed again")
}

// Where a job's consumer group stands is for who watches it. It may lag, be ahead or be gone: the job goes on
// where its checkpoint says, reads no record twice and passes none over, and sets the group right again.
func TestWhereTheGroupStandsDoesNotMatterToARestore(t *testing.T) {
	binary := build(t)
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		l := newLife(t, binary, b)
		group := b.TopicName(t)
		admin := b.Admin(t)
		set := func(at func(end int64) int64) {
			var all kadm.Offsets
			for p, end := range l.next {
				all.Add(kadm.Offset{Topic: l.name, Partition: p, At: at(end), LeaderEpoch: -1})
			}
			require.NoError(t, admin.CommitAllOffsets(t.Context(), group, all))
		}
		for _, change := range []func(){
			func() {}, // it is not there yet
			func() { set(func(int64) int64 { return 3 }) },
			func() { set(func(end int64) int64 { return end + 400 }) },
			func() {
				resp, err := admin.DeleteGroups(t.Context(), group)
				require.NoError(t, err)
				require.NoError(t, resp.Error())
			},
		} {
			change()
			l.append(t, 1000)
			p := l.start(t, 2, "--group", group, "--start", "group:"+group+":earliest")
			l.caughtUp(t)
			l.until(t, func(s *status.Status) bool { return sourceRows(s) >= 1000 })
			s := l.status(t)
			require.Equal(t, int64(1000), sourceRows(&s))
			l.stop(t, p)
			offsets, err := admin.FetchOffsets(t.Context(), group)
			require.NoError(t, err)
			for partition, end := range l.next {
				at, ok := offsets.Lookup(l.name, partition)
				require.True(t, ok)
				require.Equal(t, end, at.At)
			}
		}
		l.drain(t, l.start(t, 2))
	})
}

// sourceRows is how many records the sources have read in this process.
func sourceRows(s *status.Status) int64 {
	n := int64(0)
	for _, o := range s.Operators {
		if o.Kind == "source" {
			for i := range o.Subtasks {
				n += o.Subtasks[i].RecordsIn
			}
		}
	}
	return n
}

// A program is upgraded to a release that keeps one field more, taken back to the one before, and upgraded
// again, each over the checkpoints of the other and at another parallelism. Its topic shows each purchase once,
// with what is known of the buyer, and the window that was open all the time.
func TestAProgramIsUpgradedAndTakenBackOverItsCheckpoints(t *testing.T) {
	now, next := buildRelease(t), buildRelease(t, "-tags", "next")
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		in, out, storage := b.CreateTopic(t, 3), b.CreateTopic(t, 2), "file://"+t.TempDir()
		t.Setenv("PURCHASES_BROKERS", b.Brokers[0])
		t.Setenv("PURCHASES_IN", in)
		t.Setenv("PURCHASES_OUT", out)
		var want []string
		expect := func(lines ...string) {
			t.Helper()
			want = append(want, lines...)
			require.Eventually(t, func() bool { return len(b.ReadCommitted(t, out)) >= len(want) },
				time.Minute, 20*time.Millisecond)
			var got []string
			for _, r := range b.ReadCommitted(t, out) {
				got = append(got, string(r.Value))
			}
			require.ElementsMatch(t, want, got)
		}
		buyers := []string{"ann", "bob", "cy", "dee", "eve"}
		for leg, release := range []string{now, next, now, next} {
			last := leg == 3
			p := startProcess(t, release, "--storage", storage, "--parallelism", []string{"2", "4", "1", "3"}[leg])
			var lines, totals []string
			for i, buyer := range buyers {
				cents := strconv.Itoa(7 + i)
				b.Produce(t, in, int32((leg+i)%3), buyer+" "+cents)
				line := buyer + " " + strconv.Itoa(leg+1)
				if release == next { // of what this release has seen
					line += " cents " + cents
				}
				lines = append(lines, line)
				totals = append(totals, buyer+" total "+strconv.Itoa(4*(7+i)))
			}
			expect(lines...)
			command := exec.Command(release, "stop", "--storage", storage)
			if last {
				command.Args = append(command.Args, "--drain")
			}
			text, err := command.CombinedOutput()
			require.NoError(t, err, "%s", text)
			require.Equal(t, weir.ExitOK, p.ended(t), "%s", p.text())
			if last {
				expect(totals...)
			}
		}
	})
}

// buildRelease builds the user's program that the tests have.
func buildRelease(t *testing.T, flags ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "purchases")
	out, err := exec.Command("go", append(append([]string{"build", "-o", path}, flags...),
		"./testdata/purchases")...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}
