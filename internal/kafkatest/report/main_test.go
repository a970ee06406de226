package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheTableShowsTheWorstOutcomeOfEachTestAndTheReasons(t *testing.T) {
	var out strings.Builder
	require.NoError(t, printTable(&out, strings.Join([]string{
		"TestB\tkfake\tpass\t",
		"TestB\tapache\tleft out\tit has one node",
		"TestA\tkfake\tpass\t",
		"TestA\tkfake\tFAIL\t",
		"TestA\tkfake\tpass\t",
	}, "\n")+"\n"))
	require.Equal(t, strings.Join([]string{
		"test   apache    kfake",
		"TestA  -         FAIL",
		"TestB  left out  pass",
		"",
		"left out:",
		"  TestB, not on apache: it has one node",
		"",
	}, "\n"), out.String())
}

func TestALineThatIsNoLineOfAReportIsAnError(t *testing.T) {
	require.ErrorContains(t, printTable(&strings.Builder{}, "nonsense\n"), `line "nonsense\n"`)
}
