package kafkatest

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Counts is what a case found that let something go wrong: how often, and what became of the records that it wrote.
type Counts struct {
	// Test and Broker are filled in by Broker.Count.
	Test   string `json:"test"`
	Broker string `json:"broker"`

	Fault    string `json:"fault"`    // what went wrong, in a few words
	Injected int    `json:"injected"` // how often it was asked for
	Hit      int    `json:"hit"`      // how often it was seen to happen
	Records  int    `json:"records"`  // how many records were looked for
	Missing  int    `json:"missing"`  // how many of them a reader of committed records does not see
	Doubled  int    `json:"doubled"`  // how often it sees one that it has seen, or one that nobody committed
	// Found counts what the case met on its way, by name, where there is more than one thing that it can meet.
	Found map[string]int `json:"found,omitempty"`
}

// Count appends counts to the file named by WEIR_PROOF_COUNTS, one JSON object a line, and fails the test where
// something is missing or doubled.
func (b *Broker) Count(t *testing.T, c Counts) {
	t.Helper()
	c.Broker = b.Name()
	c.Test, _, _ = strings.Cut(t.Name(), "/"+c.Broker)
	if path := os.Getenv("WEIR_PROOF_COUNTS"); path != "" {
		line, err := json.Marshal(c)
		require.NoError(t, err)
		appendLine(t, path, string(line))
	}
	require.Zero(t, c.Missing, "records missing: %+v", c)
	require.Zero(t, c.Doubled, "records doubled: %+v", c)
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

// Difference returns how many of the values wanted are missing among those that were read, and how many of those
// that were read are there too often, or are not wanted at all.
func Difference(want, got []string) (missing, doubled int) {
	left := map[string]int{}
	for _, v := range want {
		left[v]++
	}
	for _, v := range got {
		if left[v]--; left[v] < 0 {
			doubled++
		}
	}
	for _, n := range left {
		missing += max(n, 0)
	}
	return missing, doubled
}
