package metrics

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"example.com/weir/internal/status"
)

func at(second int) time.Time { return time.Date(2026, 3, 1, 12, 0, second, 0, time.UTC) }

// example is a job with everything that a status can hold.
func example() status.Status {
	watermark := at(-5)
	return status.Status{
		Job: "bill", Lineage: "00ff", Generation: 3, State: status.Running, At: at(0), Started: at(-60), Restarts: 2,
		Parallelism: 1, OwnsCurrent: true, Settled: true, Committed: 4,
		Checkpoints: status.Checkpoints{
			Last: 7, LastAt: at(-2), LastDuration: 150 * time.Millisecond, LastSize: 1000, LastFullSize: 5000,
			InProgress: 8, Completed: 6, Aborted: 1,
		},
		Operators: []status.Operator{
			{UID: "events", Kind: "source", Chain: "events", Subtasks: []status.Subtask{{
				RecordsIn: 100, RecordsOut: 98, DeadLetters: 2, Watermark: &watermark, Idle: time.Second,
				Backpressured: 2 * time.Second, Busy: 3 * time.Second, Paused: 30,
				Splits: []status.Split{
					{ID: "events/0", Position: "41", Released: "40", Behind: 9, Idle: true},
					{ID: "file", Position: "byte 7", Behind: -1},
				},
			}}},
			{UID: "sum", Kind: "window", Chain: "sum", Subtasks: []status.Subtask{{
				RecordsIn: 98, RecordsOut: 10, Late: 3, Aligned: 20, StateKeys: 11, Timers: 12, EventTimeDone: true,
			}}},
			{UID: "out", Kind: "sink", Chain: "sum", Subtasks: []status.Subtask{{RecordsIn: 10, RecordsOut: 10}}},
		},
		Transactions: []status.Transaction{
			{ID: "out[0]@7", Sink: "out", Checkpoint: 7, Age: 6 * time.Second, Timeout: 10 * time.Second, Kept: 3000},
			{ID: "out[0]", Sink: "out", Age: time.Second, Timeout: 10 * time.Second, Kept: 200},
		},
	}
}

// scrape returns what Prometheus would read, without the lines about Go and the process.
func scrape(t *testing.T, s status.Status) (samples []string, types map[string]string) {
	t.Helper()
	w := httptest.NewRecorder()
	Handler(func() status.Status { return s }).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Body.String(), "\ngo_goroutines ")
	types = map[string]string{}
	for line := range strings.Lines(w.Body.String()) {
		line = strings.TrimSpace(line)
		if f := strings.Fields(line); len(f) == 4 && f[1] == "TYPE" && strings.HasPrefix(f[2], Prefix) {
			types[f[2]] = f[3]
		}
		if strings.HasPrefix(line, Prefix) {
			samples = append(samples, line)
		}
	}
	return samples, types
}

func TestAStatusBecomesTheMetricsThatItHolds(t *testing.T) {
	samples, types := scrape(t, example())
	datadriven.RunTest(t, "testdata/example", func(t *testing.T, d *datadriven.TestData) string {
		require.Equal(t, "scrape", d.Cmd)
		return strings.Join(samples, "\n") + "\n"
	})
	for _, m := range table() {
		require.Equal(t, string(m.kind), types[Prefix+m.name], "%s is documented, and the example does not show it", m.name)
	}
}

// Zero would say that event time has come to 1970, and that the last checkpoint is fresh.
func TestWhatIsUnknownIsLeftOut(t *testing.T) {
	samples, _ := scrape(t, status.Status{Job: "bill", State: status.Starting, Operators: []status.Operator{{
		UID: "events", Chain: "events", Subtasks: []status.Subtask{{Splits: []status.Split{{ID: "e/0", Behind: -1}}}},
	}}})
	for _, line := range samples {
		for _, name := range []string{
			"lastC", "currentInputWatermark", "watermarkLag", "currentOffset", "committedOffset", "pendingRecords",
			"openTransaction",
		} {
			require.False(t, strings.HasPrefix(line, Prefix+name), line)
		}
	}
}

func TestALabelThatIsNoTextSpoilsTheScrapeAndNotTheProcess(t *testing.T) {
	s := example()
	s.Operators[0].UID = "\xff"
	w := httptest.NewRecorder()
	Handler(func() status.Status { return s }).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	require.Equal(t, http.StatusInternalServerError, w.Code)
}

func TestTheTableIsWhatAnyRegistryTakes(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	require.NoError(t, r.Register(newCollector(example)))
	_, err := r.Gather()
	require.NoError(t, err)
}

func ask(t *testing.T, h http.Handler) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	return w.Code, strings.TrimSpace(w.Body.String())
}

func TestReadinessSaysWhatItWaitsFor(t *testing.T) {
	for want, change := range map[string]func(s *status.Status){
		"ok": func(*status.Status) {},
		"CURRENT does not belong to this process yet": func(s *status.Status) {
			s.State, s.OwnsCurrent, s.Settled = status.Restoring, false, false
		},
		"the restore is not settled: what the last checkpoint names is not known to be committed yet": func(s *status.Status) {
			s.State, s.Settled = status.Restoring, false
		},
		"the job is restoring": func(s *status.Status) { s.State = status.Restoring },
		"the job waits for its restart; the last generation failed: disk full": func(s *status.Status) {
			s.State, s.OwnsCurrent, s.LastFailure = status.Restarting, false, "disk full"
		},
		"the job is stopping":           func(s *status.Status) { s.State = status.Stopping },
		"the job is ended":              func(s *status.Status) { s.State = status.Ended },
		"the job has ended: superseded": func(s *status.Status) { s.State, s.LastFailure = status.Ended, "superseded" },
	} {
		s := example()
		change(&s)
		code, text := ask(t, Ready(func() status.Status { return s }))
		require.Equal(t, want, text)
		require.Equal(t, want == "ok", code == http.StatusOK)
	}
}

func TestHealthIsThatTheJobAnswers(t *testing.T) {
	code, _ := ask(t, Health(func(context.Context) error { return nil }))
	require.Equal(t, http.StatusOK, code)
	code, text := ask(t, Health(func(ctx context.Context) error {
		_, limited := ctx.Deadline()
		require.True(t, limited)
		return errors.New("it hangs")
	}))
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "the job does not answer: it hangs", text)
}

const docs = "../../docs/METRICS.md"

// row is how the documentation lists a metric.
func (m *metric) row() string {
	flink, unit := "none", m.unit
	if m.flink != "" {
		flink = "`" + m.flink + "`"
	}
	if unit == "" {
		unit = "number"
	}
	labels := strings.Join(append([]string{"job"}, m.labels...), ", ")
	return "| `" + Prefix + m.name + "` | " + string(m.kind) + " | " + unit + " | " + labels + " | " + flink + " | " + m.help + " |"
}

func TestTheDocumentationListsEveryMetricAndNoOther(t *testing.T) {
	data, err := os.ReadFile(docs)
	require.NoError(t, err)
	var listed, want []string
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "| `"+Prefix) {
			listed = append(listed, strings.TrimSpace(line))
		}
	}
	for _, m := range table() {
		want = append(want, m.row())
	}
	require.Equal(t, want, listed, "docs/METRICS.md is to list, in this order:\n%s", strings.Join(want, "\n"))
}

func TestTheRulesUseMetricsThatThereAre(t *testing.T) {
	data, err := os.ReadFile(docs)
	require.NoError(t, err)
	known := map[string]bool{}
	for _, m := range table() {
		known[Prefix+m.name] = true
	}
	_, rules, found := strings.Cut(string(data), "```yaml")
	require.True(t, found)
	rules, _, _ = strings.Cut(rules, "```")
	require.Equal(t, 5, strings.Count(rules, "- alert:"))
	used := regexp.MustCompile(`\bweir_\w+`).FindAllString(rules, -1)
	require.NotEmpty(t, used)
	for _, name := range used {
		require.True(t, known[name], name)
	}
}
