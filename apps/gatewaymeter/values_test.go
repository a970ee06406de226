package gatewaymeter_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/weir/apps/gatewaymeter"
)

// A value of the wrong type is told with its line and by what is wanted there. How the program holds it is nobody's
// business who writes the file.
func TestAValueOfTheWrongTypeIsToldByWhatIsWanted(t *testing.T) {
	for line, want := range map[string]string{
		"checkpoint_interval: 1":                   "[2:22] want a duration, like 500ms, 10s, 15m or 1h",
		"checkpoint_interval: soon":                "soon",
		"parallelism: two":                         "[2:14] want a whole number",
		"until_end: 3":                             "[2:12] want true or false",
		"brokers: localhost:9092":                  "[2:10] want a list, like [a, b]",
		"topics: [a]":                              "[2:9] want keys of its own, indented under it",
		"alerts: {error_rate_percent: many}":       "want a whole number",
		"prices: [a]":                              "[2:9] want a text",
		"checkpoint_intervall: 1s":                 `[2:1] unknown field "checkpoint_intervall"`,
		"checkpoints: a\ncheckpoints: b":           `[3:1] mapping key "checkpoints" already defined at [2:1]`,
		"kafka: {tls: {enabled: perhaps}}":         "want true or false",
		"topics: {gateway_events: {name: events}}": "want a text",
	} {
		path := filepath.Join(t.TempDir(), "weir.yaml")
		require.NoError(t, os.WriteFile(path, []byte("group: billing\n"+line+"\n"), 0o600))
		_, err := gatewaymeter.Load(path)
		require.ErrorContains(t, err, "configuration "+path+": ", line)
		require.ErrorContains(t, err, want, line)
		require.NotContains(t, err.Error(), "Go ", line)
		require.NotContains(t, err.Error(), "time.Duration", line)
		require.NotContains(t, err.Error(), "sequence", line)
	}
}
