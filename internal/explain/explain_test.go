package explain

import (
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
	"example.com/weir/internal/engine"
)

func billing() engine.Graph {
	return engine.Graph{Job: "billing", MaxParallelism: 128, Nodes: []engine.Node{
		{UID: "calls", Kind: "source", Parallelism: 2, Stateful: true, Chain: "calls", Replayable: true},
		{UID: "wire", Kind: "source", Parallelism: 2, Stateful: true, Chain: "wire"},
		{
			UID: "rejected", Kind: "sink", Parallelism: 2, Chain: "calls", Guarantee: connector.AtLeastOnce,
			Inputs: []engine.Edge{{From: "calls", Side: "dead-letters", Exchange: engine.Chained}},
		},
		{
			UID: "bill", Kind: "window", Parallelism: 2, Stateful: true, Chain: "bill",
			Inputs: []engine.Edge{{From: "calls", Exchange: engine.Hash}, {From: "wire", Exchange: engine.Hash}},
		},
		{
			UID: `lines "A"`, Kind: "sink", Parallelism: 2, Chain: "bill", Guarantee: connector.ExactlyOnce, TwoPhase: true,
			Inputs: []engine.Edge{{From: "bill", Exchange: engine.Chained}},
		},
	}}
}

func TestDrawings(t *testing.T) {
	datadriven.RunTest(t, "testdata/drawings", func(t *testing.T, d *datadriven.TestData) string {
		got, err := Draw(billing(), d.Cmd)
		require.NoError(t, err)
		return got
	})
}

func TestAnUnknownFormatIsNamed(t *testing.T) {
	_, err := Draw(billing(), "svg")
	require.EqualError(t, err, `format "svg": want text, dot or mermaid`)
}
