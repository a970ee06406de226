package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/weir"
	"example.com/weir/apps/gatewaymeter/ledger"
	"example.com/weir/apps/gatewaymeter/truebill"
	"example.com/weir/internal/kafkatest"
	"example.com/weir/internal/status"
)

// trueBill is the bill of all that was written.
func (w *topic) trueBill(t *testing.T) *truebill.Bill {
	t.Helper()
	bill, err := truebill.Compute(truebill.Config{}, w.prices, w.records)
	require.NoError(t, err)
	return bill
}

// requireBillOf holds what consumers have read against the true bill.
func (w *topic) requireBillOf(t *testing.T, read ...[]*kgo.Record) {
	t.Helper()
	var l ledger.Ledger
	for _, records := range read {
		for _, r := range records {
			require.NoError(t, l.Add(r.Key, r.Value))
		}
	}
	report := l.Compare(w.trueBill(t))
	require.True(t, report.OK(), "%s", report)
}

// A job is forked into an empty storage and a topic of its own while it runs. What it had billed before, with
// what the fork bills, is the true bill; and so is its own, which the fork has not touched.
func TestAForkBillsWhatItsParentHadNotBilled(t *testing.T) {
	binary := build(t)
	b := kafkatest.NewFake(t)
	parent := newLife(t, binary, b)
	parent.append(t, 8000) // minutes close
	p := parent.start(t, 2)
	parent.caughtUp(t)
	parent.stop(t, p)
	parent.command(t, weir.ExitOK, "savepoint", "half")
	before := b.ReadCommitted(t, parent.out)
	require.NotEmpty(t, before)

	p = parent.start(t, 1)
	parent.append(t, 4000)
	own := *parent.topic
	own.out = b.CreateTopic(t, 2)
	child := &life{topic: &own, binary: binary, checkpoints: filepath.Join(t.TempDir(), "fork")}
	from := []string{"--fork-from", parent.storage() + "#half"}
	f := child.start(t, 4, from...)
	require.NoError(t, f.cmd.Process.Kill()) // the same words go on from where it is
	f.ended(t)
	f = child.start(t, 2, from...)
	child.caughtUp(t)
	require.Equal(t, "job gatewaymeter finished", child.command(t, weir.ExitOK, "stop", "--drain"))
	child.end(t, f, weir.ExitOK, "finished")
	after := b.ReadCommitted(t, child.out)
	require.NotEmpty(t, after)
	child.requireBillOf(t, before, after)
	parent.drain(t, p)

	again := startProcess(t, binary, append(child.args(parent.checkpoints, 1), from...)...)
	require.Equal(t, weir.ExitRefused, again.ended(t), "%s", again.text())
	require.Contains(t, again.text(), "a fork begins in an empty storage")
}

// A drained job is finished, and stays so whatever it is started with, until a new lineage goes on from its end by
// name. The bill of both is the true one; what comes from before the event time that was named is late, and is
// counted.
func TestANewLineageGoesOnBehindTheEnd(t *testing.T) {
	binary := build(t)
	b := kafkatest.NewFake(t)
	l := newLife(t, binary, b)
	l.append(t, 5000)
	l.drain(t, l.start(t, 2))
	l.command(t, weir.ExitOK, "savepoint", "end")
	first := l.status(t).Lineage

	nextDay := time.Date(2026, 3, 3, 9, 0, 0, 0, time.UTC)
	l.generator = newGenerator(t, 12, nextDay)
	l.append(t, 5000)
	for _, flags := range [][]string{nil, {"--restore", "end"}} {
		l.end(t, l.startAnyhow(t, 1, flags...), weir.ExitOK, "finished")
	}
	p := l.startAnyhow(t, 1, "--restore", "end", "--new-lineage")
	require.Equal(t, weir.ExitRefused, p.ended(t), "%s", p.text())
	require.Contains(t, p.text(), "say where it goes on (--event-time")

	on := []string{"--restore", "end", "--new-lineage", "--event-time", nextDay.Add(-time.Hour).Format(time.RFC3339)}
	p = l.start(t, 4, on...)
	require.NoError(t, p.cmd.Process.Kill())
	p.ended(t)
	p = l.start(t, 1, on...)
	require.NotEqual(t, first, l.status(t).Lineage)
	l.drain(t, p)
}

// A topic of events that was deleted and made again stops the job by name. Accepted by the name that the error
// gives, all of the new topic is read, behind what was read of the old one; what was not is lost, and nothing else.
func TestATopicThatWasMadeAgainIsReadOnceItIsAccepted(t *testing.T) {
	binary := build(t)
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		l := newLife(t, binary, b)
		l.append(t, 3000)
		p := l.start(t, 2)
		l.caughtUp(t)
		l.stop(t, p)
		read := len(l.records)
		l.append(t, 500) // which nobody reads
		l.records = l.records[:read]
		b.DeleteTopic(t, l.name)
		b.CreateTopicNamed(t, l.name, 3, "retention.ms=-1")
		l.append(t, 3000)

		p = l.startAnyhow(t, 2)
		require.Equal(t, weir.ExitRefused, p.ended(t), "%s", p.text())
		found := regexp.MustCompile(`what was not read before is gone.*accept it by name: (--accept-recreated) (\S+@[0-9a-f]{32}) `).
			FindStringSubmatch(p.text())
		require.NotNil(t, found, "%s", p.text())
		p = l.startAnyhow(t, 2, found[1], l.name+"@00000000000000000000000000000000") // of another one
		require.Equal(t, weir.ExitRefused, p.ended(t), "%s", p.text())
		require.Contains(t, p.text(), "was deleted and made again")

		p = l.start(t, 4, found[1:]...)
		l.until(t, func(s *status.Status) bool { return sourceRows(s) == 3000 })
		require.Regexp(t, `level=WARN msg="kafka source: going on as accepted: the topic was made again; what was not read of the `+
			`old one, from offset \d+ on, is lost" `, p.text())
		l.stop(t, p)
		p = l.start(t, 1) // it is accepted once
		require.Equal(t, "job gatewaymeter finished", l.command(t, weir.ExitOK, "stop", "--drain"))
		l.end(t, p, weir.ExitOK, "finished")
		l.requireBillOf(t, b.ReadCommitted(t, l.out))
	})
}

// Records that were deleted before the job had read them stop it by name. Accepted by that name, they are counted in
// the log, and the bill is that of all others.
func TestRecordsThatAreGoneAreCountedOnceTheyAreAccepted(t *testing.T) {
	binary := build(t)
	b := kafkatest.NewFake(t)
	l := newLife(t, binary, b)
	l.append(t, 2000)
	p := l.start(t, 2)
	l.caughtUp(t)
	l.stop(t, p)
	read := l.next[0]
	l.append(t, 600)
	gone := l.next[0] - read
	require.Positive(t, gone)
	b.DeleteRecords(t, l.name, 0, l.next[0])
	l.records = slices.DeleteFunc(l.records, func(r truebill.Record) bool { return r.Partition == 0 && r.Offset >= read })

	p = l.startAnyhow(t, 2)
	require.Equal(t, weir.ExitRefused, p.ended(t), "%s", p.text())
	name := fmt.Sprintf("%s/0@%d", l.name, read)
	require.Contains(t, p.text(), fmt.Sprintf("up to %d records are gone", gone))
	require.Contains(t, p.text(), "accept the loss by name: --accept-loss "+name)
	p = l.start(t, 4, "--accept-loss", name)
	l.until(t, func(s *status.Status) bool { return sourceRows(s) == 600-gone })
	require.Contains(t, p.text(), fmt.Sprintf("up to %d records are lost, from offset %d up to %d", gone, read, read+gone))
	require.Equal(t, "job gatewaymeter finished", l.command(t, weir.ExitOK, "stop", "--drain"))
	l.end(t, p, weir.ExitOK, "finished")
	l.requireBillOf(t, b.ReadCommitted(t, l.out))
}

// A copy of a checkpoint directory is not run beside the original, nor in its place before somebody says so. The job that
// owns the original is not disturbed; put in its place for good, the copy bills the same.
func TestACopiedDirectoryIsRunOnlyInPlaceOfTheOther(t *testing.T) {
	binary := build(t)
	l := newLife(t, binary, kafkatest.NewFake(t))
	l.append(t, 3000)
	l.stop(t, l.start(t, 2))
	second := *l
	second.checkpoints = filepath.Join(t.TempDir(), "copy")
	require.NoError(t, os.CopyFS(second.checkpoints, os.DirFS(l.checkpoints)))
	p := l.start(t, 2)
	beside := second.startAnyhow(t, 2)
	require.Equal(t, weir.ExitRefused, beside.ended(t), "%s", beside.text())
	require.Contains(t, beside.text(), "is a copy of a checkpoint directory")
	require.Contains(t, second.command(t, weir.ExitOK, "checkpoints", "verify"), "every file is what was written")
	l.append(t, 2000)
	l.caughtUp(t)
	l.stop(t, p)

	second.checkpoints = filepath.Join(t.TempDir(), "later")
	require.NoError(t, os.CopyFS(second.checkpoints, os.DirFS(l.checkpoints)))
	require.NoError(t, os.RemoveAll(l.checkpoints))
	p = second.start(t, 1, "--accept-copied-directory")
	second.stop(t, p)
	second.drain(t, second.start(t, 4))
}
