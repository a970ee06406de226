package engine_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/engine"
)

func TestTheGraphSaysWhatSharesAGoroutineAndWhatEveryEndPromises(t *testing.T) {
	g := newMeters(1, checkpoint.NewMemory("faults")).plan(3).Graph()
	require.Equal(t, "faults", g.Job)
	heads := map[string]bool{}
	for _, n := range g.Nodes {
		require.Equal(t, 3, n.Parallelism)
		require.Equal(t, len(n.Inputs) == 0, n.Kind == "source")
		if n.Kind == "source" {
			require.True(t, n.Replayable)
		}
		require.Equal(t, n.Kind == "sink", n.Guarantee != connector.Unstated, n.UID)
		if n.Stateful {
			require.Equal(t, n.UID, n.Chain)
			heads[n.UID] = true
		} else {
			require.True(t, heads[n.Chain], "%s is chained to %q", n.UID, n.Chain)
		}
		for _, in := range n.Inputs {
			require.Equal(t, n.Stateful, in.Exchange == engine.Hash, n.UID)
		}
	}
}
