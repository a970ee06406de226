package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/weir/internal/simulation"
)

func TestItSaysWhatItCounted(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run([]string{"-first", "7", "-seeds", "20"}, &out))
	require.Contains(t, out.String(), "a process crashes between two of its actions")
	require.Contains(t, out.String(), "seeds 7 to 26: 20 worlds")

	out.Reset()
	require.NoError(t, run([]string{"-first", "7", "-seeds", "20", "-json"}, &out))
	var r simulation.Report
	require.NoError(t, json.Unmarshal([]byte(out.String()), &r))
	require.Equal(t, 20, r.Finished+r.Stopped)
	require.Positive(t, r.Records)
}

func TestItTellsEverythingThatHappensInAWorld(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run([]string{"-first", "7", "-seeds", "1", "-v"}, &out))
	require.Contains(t, out.String(), "p1 owns CURRENT: generation 1")
	require.Contains(t, out.String(), "seed 7 (")
}
