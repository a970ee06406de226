package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/weir"
	"example.com/weir/apps/gatewaymeter/ledger"
	"example.com/weir/apps/gatewaymeter/replay"
	"example.com/weir/apps/gatewaymeter/truebill"
	"example.com/weir/internal/kafkatest"
)

const sample = "../../apps/gatewaymeter/sample/"

// The binary, killed with SIGKILL at moments that nobody chose and started again while the topic
// grows, bills what was in the topic when it first started; once it has finished, starting it
// again changes nothing.
func TestKilledBinaryBillsWhatWasInTheTopic(t *testing.T) {
	weirBinary := build(t)
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		for _, parallelism := range []int{1, 2, 4} {
			t.Run(strconv.Itoa(parallelism), func(t *testing.T) {
				random := rand.New(rand.NewPCG(uint64(parallelism), 5))
				w := newTopic(t, b)
				w.append(t, 20_000)
				bill, err := truebill.Compute(truebill.Config{}, w.prices, w.records)
				require.NoError(t, err)
				checkpoints := t.TempDir()
				args := w.args(checkpoints, parallelism)
				kills := 0
				for ; kills < 12; kills++ {
					after := time.Duration(random.IntN(25)) * time.Millisecond
					if !runAndKill(t, weirBinary, args, 1+random.IntN(2), after) {
						break
					}
					w.append(t, 40) // behind the ends that the first start has found
				}
				t.Logf("%d kills", kills)
				require.NotZero(t, kills, "every run finished before its kill")
				requireExit(t, weirBinary, args, weir.ExitOK)
				before := w.requireBill(t, bill)
				requireExit(t, weirBinary, args, weir.ExitOK)
				require.Equal(t, before, w.requireBill(t, bill), "a finished job wrote something")
			})
		}
	})
}

func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir")
	out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// runAndKill starts the binary and kills it a moment after it has completed some checkpoints, if it
// has not finished by then.
func runAndKill(t *testing.T, binary string, args []string, checkpoints int, after time.Duration) (killed bool) {
	t.Helper()
	cmd := exec.Command(binary, args...)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var log bytes.Buffer
	for lines := bufio.NewScanner(io.TeeReader(stderr, &log)); lines.Scan(); {
		if strings.Contains(lines.Text(), "checkpoint completed") {
			if checkpoints--; checkpoints == 0 {
				time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
			}
		}
	}
	_ = cmd.Wait()
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(t, ok)
	if status.Signaled() {
		require.Equal(t, syscall.SIGKILL, status.Signal())
		return true
	}
	require.Equal(t, weir.ExitOK, status.ExitStatus(), "%s", log.Bytes())
	return false
}

func requireExit(t *testing.T, binary string, args []string, code int) {
	t.Helper()
	cmd := exec.Command(binary, args...)
	var log bytes.Buffer
	cmd.Stderr = &log
	_ = cmd.Run()
	require.Equal(t, code, cmd.ProcessState.ExitCode(), "%s", log.Bytes())
}

// topic is a topic of events that grows, and the topics that the job writes.
type topic struct {
	b         *kafkatest.Broker
	name      string
	out       string
	prices    []byte
	generator *replay.Generator
	records   []truebill.Record
	next      map[int32]int64
}

func newTopic(t *testing.T, b *kafkatest.Broker) *topic {
	t.Helper()
	prices, err := os.ReadFile(sample + "prices.json")
	require.NoError(t, err)
	return &topic{
		b: b, prices: prices, next: map[int32]int64{},
		generator: newGenerator(t, 11, time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)),
		name:      b.CreateTopic(t, 3, "retention.ms=-1"), out: b.CreateTopic(t, 2),
	}
}

// newGenerator makes the events of a day.
func newGenerator(t *testing.T, seed uint64, start time.Time) *replay.Generator {
	t.Helper()
	f, err := os.Open(sample + "trace.csv")
	require.NoError(t, err)
	defer f.Close()
	rows, err := replay.ReadTrace(f)
	require.NoError(t, err)
	prices, err := os.ReadFile(sample + "prices.json")
	require.NoError(t, err)
	models, err := replay.ModelsOf(prices)
	require.NoError(t, err)
	generator, err := replay.New(replay.Config{
		Seed: seed, Trace: rows, Requests: 100_000, Rate: 20, Models: models, Partitions: 3, Shares: replay.Usual(),
		Start: start,
	})
	require.NoError(t, err)
	return generator
}

// append writes the next n events of the replay.
func (w *topic) append(t *testing.T, n int) {
	t.Helper()
	var records []*kgo.Record
	for range n {
		r, ok := w.generator.Next()
		require.True(t, ok)
		records = append(records, &kgo.Record{
			Topic: w.name, Partition: r.Partition, Key: r.Key, Value: r.Value, Timestamp: r.At,
		})
		w.records = append(w.records, truebill.Record{
			Partition: r.Partition, Offset: w.next[r.Partition], Timestamp: r.At, Key: r.Key, Value: r.Value,
		})
		w.next[r.Partition]++
	}
	w.b.ProduceRecords(t, records...)
}

func (w *topic) args(checkpoints string, parallelism int) []string {
	return []string{
		"run", "gatewaymeter", "--until-end", "--brokers", w.b.Brokers[0], "--gateway-events-topic", w.name,
		"--tenant-cost-topic", w.out, "--alerts-topic", "", "--prices", sample + "prices.json",
		"--checkpoints", "file://" + checkpoints, "--checkpoint-interval", "20ms",
		"--parallelism", strconv.Itoa(parallelism),
	}
}

// requireBill compares what a read_committed consumer finds with the true bill, and returns how
// many records it found.
func (w *topic) requireBill(t *testing.T, bill *truebill.Bill) int {
	t.Helper()
	var l ledger.Ledger
	for _, r := range w.b.ReadCommitted(t, w.out) {
		require.NoError(t, l.Add(r.Key, r.Value))
	}
	report := l.Compare(bill)
	require.True(t, report.OK(), "%s", report)
	return l.Records()
}

func TestExitCodesSayWhatHappened(t *testing.T) {
	weirBinary := build(t)
	broken := filepath.Join(t.TempDir(), "weir.yaml")
	require.NoError(t, os.WriteFile(broken, []byte("brokers: [a:1]\nprises: x\n"), 0o600))
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{"run", "gatewaymeter", "--config", broken}, weir.ExitUsage},
		{[]string{"run", "gatewaymeter", "--nonsense"}, weir.ExitUsage},
		{[]string{"run", "gatewaymeter"}, weir.ExitUsage},
		{[]string{"run"}, weir.ExitUsage},
		{[]string{"run", "gatewaymetre", "--brokers", "a:1"}, weir.ExitUsage},
		{[]string{"run", "gatewaymeter", "--brokers", "a:1", "--prices", sample + "prices.json", "--checkpoints", "s4://x"}, weir.ExitUsage},
		{[]string{"run", "--help"}, weir.ExitOK},
		{[]string{"--help"}, weir.ExitOK},
	} {
		t.Run(fmt.Sprint(c.args), func(t *testing.T) { requireExit(t, weirBinary, c.args, c.want) })
	}
}

// A topic that was named has to be there: the job stops at its start and names it. The topic of
// alerts that nobody named may be missing.
func TestMissingTopicsAreNamedAtTheStart(t *testing.T) {
	weirBinary := build(t)
	b := kafkatest.NewFake(t)
	w := newTopic(t, b)
	w.append(t, 500)
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"default alerts": {[]string{"--alerts-topic", "alerts"}, weir.ExitOK, "the topic alerts does not exist"},
		"named alerts":   {[]string{"--alerts-topic", "pager"}, weir.ExitRefused, "topic pager does not exist"},
		"the bill":       {[]string{"--tenant-cost-topic", "bill"}, weir.ExitRefused, "topic bill does not exist"},
		"the events":     {[]string{"--gateway-events-topic", "none"}, weir.ExitRefused, "none"},
	} {
		args := append(w.args(t.TempDir(), 1), c.args...)
		args = append(args, "--prefix", strings.ReplaceAll(name, " ", "-"))
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(weirBinary, args...)
			log, _ := cmd.CombinedOutput()
			require.Equal(t, c.code, cmd.ProcessState.ExitCode(), "%s", log)
			require.Contains(t, string(log), c.want)
		})
	}
}
