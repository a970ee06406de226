package kafkatest

import (
	"os"
	"strings"
	"testing"
)

// report is what becomes of one test against one broker.
type report struct{ reason string }

func (r *report) except(reason string) { r.reason = reason }

// writeAtEnd appends a line to the file named by WEIR_KAFKA_REPORT when the test ends: test, broker,
// outcome and, where the test was left out, the reason, with tabs between them.
func (r *report) writeAtEnd(t *testing.T, broker string) {
	t.Helper()
	path := os.Getenv("WEIR_KAFKA_REPORT")
	if path == "" {
		return
	}
	t.Cleanup(func() {
		outcome := "pass"
		switch {
		case t.Failed():
			outcome = "FAIL"
		case t.Skipped():
			outcome = "left out"
		}
		test, _, _ := strings.Cut(t.Name(), "/"+broker)
		reason := strings.NewReplacer("\t", " ", "\n", " ").Replace(r.reason)
		appendLine(t, path, strings.Join([]string{test, broker, outcome, reason}, "\t"))
	})
}
