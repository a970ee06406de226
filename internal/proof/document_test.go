package proof

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/PROOF.md instead of comparing with it")

func TestTheDocumentIsThatOfTheGoldenFile(t *testing.T) {
	kept := "example.com/weir/connectors/kafka"
	got, err := Render(&Document{
		Seeded: []Count{
			{
				Suite: Protocol, Fault: "a process dies", Injected: 12, Hit: 12, Records: 3400,
				Package: "example.com/weir/internal/protocol", Test: "TestX", Args: "-rapid.seed=1",
			},
			{Suite: Simulator, Fault: "EndTxn: answer lost", Injected: 70, Hit: 63, Records: 900, Package: "example.com/weir/internal/simulation", Test: "TestY"},
			{Suite: Simulator, Fault: "a | in it", Injected: 1, Hit: 1, Records: 1, Doubled: 1, Package: "example.com/weir/internal/simulation", Test: "TestY"},
		},
		Live:    []Count{{Suite: Outage, Fault: "killed", Broker: "Apache Kafka 4.2.2", Injected: 1, Hit: 1, Records: 7, Missing: 2, Package: kept, Test: "TestZ"}},
		Mutants: []Mutant{{Name: "n", Harm: "loses records", How: "so", Command: "go test ./a -run 'A|B'", Tests: []string{"A", "B"}}},
	})
	require.NoError(t, err)
	if *rewrite {
		require.NoError(t, os.WriteFile("testdata/PROOF.md", []byte(got), 0o600))
	}
	want, err := os.ReadFile("testdata/PROOF.md")
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func TestLiveCountsDoNotStandAmongSeededOnes(t *testing.T) {
	live := []Count{{Suite: Wire, Test: "TestX"}}
	_, err := Render(&Document{Seeded: live})
	require.ErrorContains(t, err, "the other part of the document")
	_, err = Render(&Document{Live: []Count{{Suite: Simulator, Test: "TestX"}}})
	require.ErrorContains(t, err, "the other part of the document")
	got, err := Render(&Document{})
	require.NoError(t, err)
	require.True(t, strings.Contains(got, "No run is written down."))
}

func TestTheFirstDifferenceIsNamed(t *testing.T) {
	_, same := FirstDifference("a\nb\n", "a\nb\n")
	require.True(t, same)
	for want, texts := range map[string][2]string{
		"line 2\n  says  b\n  now   c":         {"a\nb\n", "a\nc\n"},
		"line 3\n  says  \n  now   c":          {"a\nb\n", "a\nb\nc"},
		"line 3\n  says  (nothing)\n  now   c": {"a\nb", "a\nb\nc"},
		"line 2\n  says  b\n  now   ":          {"a\nb\n", "a\n"},
	} {
		difference, same := FirstDifference(texts[0], texts[1])
		require.False(t, same)
		require.Equal(t, want, difference)
	}
}
