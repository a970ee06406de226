package metrics

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"example.com/weir/internal/status"
)

// collector reads every metric off one status at each scrape.
type collector struct {
	status  func() status.Status
	metrics []described
}

type described struct {
	metric
	desc *prometheus.Desc
}

func newCollector(ask func() status.Status) *collector {
	c := &collector{status: ask}
	for _, m := range table() {
		labels := append([]string{"job"}, m.labels...)
		c.metrics = append(c.metrics, described{
			metric: m, desc: prometheus.NewDesc(Prefix+m.name, m.help, labels, nil),
		})
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for i := range c.metrics {
		to <- c.metrics[i].desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	s := c.status()
	for i := range c.metrics {
		m := &c.metrics[i]
		typ := prometheus.GaugeValue
		if m.kind == counter {
			typ = prometheus.CounterValue
		}
		m.each(&s, func(v float64, labels ...string) {
			value, err := prometheus.NewConstMetric(m.desc, typ, v, append([]string{s.Job}, labels...)...)
			if err != nil { // a label that is not UTF-8
				value = prometheus.NewInvalidMetric(m.desc, err)
			}
			to <- value
		})
	}
}

// Handler answers scrapes with the metrics of a job, and with those of the Go runtime and the process.
func Handler(ask func() status.Status) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(newCollector(ask), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	// OpenMetrics would append _total to counters, and the names would not be Flink's.
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{EnableOpenMetrics: false})
}

// answerWithin is how long the job may take to say that it lives. It waits for the disk at times.
const answerWithin = 20 * time.Second

// Health answers 200 while the process lives and whoever runs the job answers, and 503 otherwise. It
// says nothing of whether the job does well: a job that restarts lives.
func Health(answers func(context.Context) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), answerWithin)
		defer cancel()
		if err := answers(ctx); err != nil {
			say(w, http.StatusServiceUnavailable, fmt.Sprintf("the job does not answer: %v", err))
			return
		}
		say(w, http.StatusOK, "ok")
	})
}

// Ready answers 200 while the job reads and writes, and 503 with the reason otherwise.
func Ready(ask func() status.Status) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s := ask()
		if reason := NotReady(&s); reason != "" {
			say(w, http.StatusServiceUnavailable, reason)
			return
		}
		say(w, http.StatusOK, "ok")
	})
}

// NotReady says why a job is not ready; it is empty if it is.
func NotReady(s *status.Status) string {
	switch {
	case s.Ready():
		return ""
	case s.State == status.Restarting:
		return "the job waits for its restart; the last generation failed: " + s.LastFailure
	case s.State == status.Ended && s.LastFailure != "":
		return "the job has ended: " + s.LastFailure
	case s.State == status.Ended, s.State == status.Stopping:
		return "the job is " + string(s.State)
	case !s.OwnsCurrent:
		return "CURRENT does not belong to this process yet"
	case !s.Settled:
		return "the restore is not settled: what the last checkpoint names is not known to be committed yet"
	}
	return "the job is " + string(s.State)
}

func say(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	fmt.Fprintln(w, text)
}
