package kafkatest

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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

// appendLine writes a line by one call, so that packages which are tested at the same time can share the file.
func appendLine(t *testing.T, path, line string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	_, err = f.WriteString(line + "\n")
	require.NoError(t, err)
	require.NoError(t, f.Close())
}
