package lab_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/weir/apps/gatewaymeter/lab"
	"example.com/weir/apps/gatewaymeter/ledger"
	"example.com/weir/apps/gatewaymeter/sample"
	"example.com/weir/apps/gatewaymeter/truebill"
	"example.com/weir/internal/kafkatest"
)

// buildWeir builds the program that the job runs in.
func buildWeir(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "weir")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "example.com/weir/cmd/weir").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return binary
}

// play runs a lab and returns what it printed.
func play(t *testing.T, number string, cfg lab.Config) (string, error) {
	t.Helper()
	cfg.Fast, cfg.Seed = true, 1
	for _, l := range lab.Labs() {
		if l.Number == number {
			var out bytes.Buffer
			err := l.Run(t.Context(), cfg, &out)
			t.Log("\n" + out.String())
			return out.String(), err
		}
	}
	require.Fail(t, "no lab "+number)
	return "", nil
}

// on plays a lab on the test's own brokers, which keep its topics.
func on(t *testing.T, b *kafkatest.Broker, number string, cfg lab.Config) (string, error) {
	t.Helper()
	cfg.Brokers, cfg.Keep = b.Brokers, true
	out, err := play(t, number, cfg)
	t.Cleanup(func() {
		for _, kept := range regexp.MustCompile(`(?m)^kept: (.+)$`).FindAllStringSubmatch(out, -1) {
			require.NoError(t, os.RemoveAll(kept[1]))
		}
	})
	return out, err
}

// topics are the topics of tenant-cost that a lab has used, in the order of its courses.
func topics(out string) []string {
	var all []string
	for _, m := range regexp.MustCompile(`(?m)^topics +\S+, (\S+)$`).FindAllStringSubmatch(out, -1) {
		all = append(all, m[1])
	}
	return all
}

// rows are the lines of a table that begin with one of the given words, split at two or more spaces.
func rows(t *testing.T, out, heading string, first string) [][]string {
	t.Helper()
	_, below, ok := strings.Cut(out, "\n"+heading)
	require.True(t, ok, "no table %q", heading)
	var all [][]string
	for _, l := range strings.Split(below, "\n")[2:] {
		cells := regexp.MustCompile(` {2,}`).Split(strings.TrimSpace(l), -1)
		if !regexp.MustCompile(first).MatchString(cells[0]) {
			break
		}
		all = append(all, cells)
	}
	return all
}

// record is a record of tenant-cost, by where it lies.
type record struct {
	TenantID  string `json:"tenant_id"`
	WindowEnd string `json:"window_end"`
	USD       string `json:"usd"`
	Requests  int64  `json:"requests"`
}

// read reads a topic by itself, at an isolation level.
func read(t *testing.T, b *kafkatest.Broker, topic string, level kgo.IsolationLevel) map[string]record {
	t.Helper()
	ends, err := b.Admin(t).ListEndOffsets(t.Context(), topic)
	require.NoError(t, err)
	end, ok := ends.Lookup(topic, 0)
	require.True(t, ok)
	require.NotZero(t, end.Offset)
	cl := b.Client(t, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(level), kgo.KeepControlRecords(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	all := map[string]record{}
	for next := int64(0); next < end.Offset; {
		fetches := cl.PollFetches(t.Context())
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			next = r.Offset + 1
			if !r.Attrs.IsControl() {
				var v record
				require.NoError(t, json.Unmarshal(r.Value, &v))
				all[fmt.Sprintf("%s/%d@%d", topic, r.Partition, r.Offset)] = v
			}
		})
	}
	return all
}

// copies groups records by tenant and minute: where they lie.
func copies(records map[string]record) map[string][]string {
	all := map[string][]string{}
	for at, r := range records {
		name := r.TenantID + " " + r.WindowEnd
		all[name] = append(all[name], at)
	}
	return all
}

const tenant = `^tenant-\d+$`

// The labs wait for most of their time, so they wait together.
func TestLabsShowWhatTheyAreToShow(t *testing.T) {
	weir := buildWeir(t)
	for name, f := range map[string]func(*testing.T, string){
		"8.1 the minute billed twice, and counted once":                  billedTwice,
		"8.2 one record at read_committed, and the aborted copy":         oneRecord,
		"8.2 nothing to show without transactions":                       nothingToShow,
		"8.4 missing under skip, refused under fail, whole under reemit": lost,
		"8.4 a job that skips is told from one that writes again":        skipsInsteadOfReemit,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, weir)
		})
	}
}

func billedTwice(t *testing.T, weir string) {
	t.Helper()
	b := kafkatest.NewFake(t) // the sink asks nothing of a broker but to be written to
	out, err := on(t, b, "8.1", lab.Config{Binary: weir})
	require.NoError(t, err)
	require.Regexp(t, `(?m)^VERDICT: shown: the kill \d\.\d\ds after checkpoint \d+ billed \d+ minutes? twice, USD \d+\.\d+ too much`, out)
	records := read(t, b, topics(out)[0], kgo.ReadCommitted())
	found := rows(t, out, "THE LEDGER", tenant)
	require.NotEmpty(t, found)
	readTwice := int64(0)
	for _, row := range found {
		first, second := records[row[4]], records[row[5]]
		require.Equal(t, []string{row[0], row[1], row[2]}, []string{first.TenantID, first.WindowEnd, first.USD})
		require.Equal(t, first, second)
		require.NotEqual(t, row[4], row[5])
		require.Equal(t, strconv.FormatInt(second.Requests, 10), row[8], "what state counted")
		require.Equal(t, row[6], row[8])
		n, err := strconv.ParseInt(row[7], 10, 64)
		require.NoError(t, err)
		readTwice += n
	}
	require.NotZero(t, readTwice)
	doubled := 0
	for _, at := range copies(records) {
		if len(at) > 1 {
			doubled++
		}
	}
	require.Len(t, found, doubled, "the table has all of them")
}

func oneRecord(t *testing.T, weir string) {
	t.Helper()
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		out, err := on(t, b, "8.2", lab.Config{Binary: weir})
		require.NoError(t, err)
		require.Regexp(t, `(?m)^VERDICT: shown: the kill \d\.\d\ds after checkpoint \d+ left \d+ minutes? in a transaction that was aborted`, out)
		committed := read(t, b, topics(out)[0], kgo.ReadCommitted())
		all := read(t, b, topics(out)[0], kgo.ReadUncommitted())
		found := rows(t, out, "THE MINUTES", tenant)
		require.NotEmpty(t, found)
		for _, row := range found {
			require.NotContains(t, committed, row[3])
			require.Contains(t, all, row[3])
			require.Equal(t, all[row[3]], committed[row[4]])
			require.Equal(t, []string{row[0], row[1], row[2]}, []string{all[row[3]].TenantID, all[row[3]].WindowEnd, all[row[3]].USD})
			require.Equal(t, []string{"1", "2"}, row[5:7])
		}
		for minute, at := range copies(committed) {
			require.Len(t, at, 1, minute)
		}
		require.Len(t, found, len(all)-len(committed), "the table has all that was aborted")
		require.Regexp(t, `(?m)^read_uncommitted +`+strconv.Itoa(len(all))+` `, out)
	})
}

// compare computes a bill from a topic of events by itself, and holds against it what a consumer finds.
func compare(t *testing.T, b *kafkatest.Broker, events, tenantCost string) *ledger.Report {
	t.Helper()
	var records []truebill.Record
	for _, r := range b.ReadCommitted(t, events) {
		records = append(records, truebill.Record{
			Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp, Key: r.Key, Value: r.Value,
		})
	}
	bill, err := truebill.Compute(truebill.Config{}, sample.Prices(), records)
	require.NoError(t, err)
	var l ledger.Ledger
	for _, r := range b.ReadCommitted(t, tenantCost) {
		require.NoError(t, l.Add(r.Key, r.Value))
	}
	return l.Compare(bill)
}

func lost(t *testing.T, weir string) {
	t.Helper()
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		out, err := on(t, b, "8.4", lab.Config{Binary: weir})
		require.NoError(t, err)
		require.Regexp(t, `(?m)^VERDICT: shown: skip went on without \d+ minutes? and said so; fail refused`, out)
		require.Regexp(t, `(?m)^fail +refuses, exit code 4 +\d+ +not billed yet `, out)
		used := topics(out)
		require.Len(t, used, 2)
		minutes := map[string][]string{}
		for i, policies := range []string{"^skip$", "^(fail|reemit)$"} {
			committed, all := read(t, b, used[i], kgo.ReadCommitted()), read(t, b, used[i], kgo.ReadUncommitted())
			for _, row := range rows(t, out, "THE MINUTES IN IT", "^(skip|fail|reemit)$") {
				if !regexp.MustCompile(policies).MatchString(row[0]) {
					continue
				}
				minutes[row[0]] = append(minutes[row[0]], row[1]+" "+row[2])
				require.NotContains(t, committed, row[4])
				aborted := all[row[4]]
				require.Equal(t, row[1:4], []string{aborted.TenantID, aborted.WindowEnd, aborted.USD})
				switch row[0] {
				case "skip":
					require.Equal(t, "missing", row[5])
					require.NotContains(t, copies(committed), row[1]+" "+row[2])
				case "fail":
					require.Equal(t, "missing", row[5])
				case "reemit":
					require.Equal(t, aborted, committed[row[5]])
				}
			}
		}
		require.NotEmpty(t, minutes["reemit"])
		require.Equal(t, minutes["fail"], minutes["reemit"])
		skipped := compare(t, b, strings.Replace(used[0], "tenant-cost", "gateway-events", 1), used[0])
		require.Len(t, skipped.Missing, len(minutes["skip"]), "%s", skipped)
		for _, m := range skipped.Missing {
			require.Contains(t, minutes["skip"], m.Key.Tenant+" "+m.Key.WindowEnd)
		}
		require.Empty(t, skipped.Doubled)
		whole := compare(t, b, strings.Replace(used[1], "tenant-cost", "gateway-events", 1), used[1])
		require.True(t, whole.OK(), "%s", whole)
	})
}

// A job that skips where it is told to write again is no job that the lab calls right.
func skipsInsteadOfReemit(t *testing.T, weir string) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "weir")
	require.NoError(t, os.WriteFile(binary, []byte("#!/bin/sh\n"+
		`for a; do shift; [ "$a" = reemit ] && a=skip; set -- "$@" "$a"; done; exec `+weir+` "$@"`+"\n"), 0o700))
	out, err := play(t, "8.4", lab.Config{Binary: binary})
	require.ErrorIs(t, err, lab.ErrNotShown)
	require.Contains(t, out, "VERDICT: not shown: reemit: the ledger is not the true bill: ")
}

func nothingToShow(t *testing.T, weir string) {
	t.Helper()
	out, err := play(t, "8.2", lab.Config{Binary: weir, Guarantee: "at-least-once"})
	require.ErrorIs(t, err, lab.ErrNotShown)
	require.Contains(t, out, "VERDICT: not shown: the ledger is not the true bill: ")
	require.Contains(t, out, "; no minute has an aborted copy on the topic")
}

func TestAJobThatEndsByItselfFailsALab(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "weir")
	require.NoError(t, os.WriteFile(binary, []byte("#!/bin/sh\nexit 3\n"), 0o700))
	for _, l := range lab.Labs() {
		out, err := play(t, l.Number, lab.Config{Binary: binary})
		require.ErrorContains(t, err, "the job ended by itself")
		require.Contains(t, out, "VERDICT: failed: ")
	}
}

func TestConfigurationsThatMakeNoLabAreRefused(t *testing.T) {
	for _, l := range lab.Labs() {
		require.ErrorIs(t, l.Run(t.Context(), lab.Config{Guarantee: "none"}, &bytes.Buffer{}), lab.ErrInvalid)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, l := range lab.Labs() {
		require.ErrorIs(t, l.Run(ctx, lab.Config{Binary: "weir"}, &bytes.Buffer{}), context.Canceled)
	}
}
