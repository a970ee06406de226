package engine

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/weir/connector"
)

func TestANewSplitGoesWhereARestoreWouldPutIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []connector.Split
		for i := range rapid.IntRange(1, 40).Draw(t, "splits") {
			all = append(all, connector.Split{ID: fmt.Sprintf("topic/%d", i)})
		}
		known := rapid.IntRange(0, len(all)).Draw(t, "known")
		parallelism := rapid.IntRange(1, 9).Draw(t, "parallelism")
		var was []assignedSplit
		for _, sp := range all {
			was = append(was, assignedSplit{split: sp})
		}
		g := &generation{
			plan: NewPlan("job", parallelism, 16), state: &restored{splits: map[string][]assignedSplit{"source": was}},
		}
		to := assign(all[:known], all[known:], parallelism)
		for subtask := range parallelism {
			var want []connector.Split
			for _, a := range g.splitsOf("source", subtask) {
				if slices.ContainsFunc(all[known:], func(sp connector.Split) bool { return sp.ID == a.split.ID }) {
					want = append(want, a.split)
				}
			}
			require.Equal(t, want, to[subtask])
		}
	})
}
