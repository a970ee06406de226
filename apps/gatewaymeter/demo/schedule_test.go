package demo

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestOneKillOfEveryScheduleLiesBetweenAFiringAndTheNextBarrier(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed, kills := rapid.Uint64().Draw(t, "seed"), rapid.IntRange(1, 20).Draw(t, "kills")
		duration := time.Duration(kills) * rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(int64(time.Second), int64(time.Hour)).Draw(t, "ns"))
		}).Draw(t, "part")
		plan := schedule(seed, kills, duration)
		require.Len(t, plan, kills)
		require.Equal(t, plan, schedule(seed, kills, duration), "the same seed draws the same kills")

		special, atSixty := 0, 0
		for i, k := range plan {
			require.Less(t, k.After, duration*9/10, "requests come for a while after it")
			if i > 0 {
				gap := k.After - plan[i-1].After
				require.Greater(t, gap, duration/time.Duration(kills)/2, "the job is back before the next one")
			}
			switch {
			case k.Moment == beforeBarrier:
				special++
			case k.Share == 0.6:
				atSixty++
			}
			require.True(t, k.Share >= 0 && k.Share < 0.9, "share %v", k.Share)
		}
		require.Equal(t, 1, special)
		require.Equal(t, kills > 1, atSixty > 0)
	})
}

func TestSeedsDrawDifferentSchedules(t *testing.T) {
	require.NotEqual(t, schedule(1, 5, time.Minute), schedule(2, 5, time.Minute))
	require.Empty(t, schedule(1, 0, time.Minute))
}

func TestAPlannedKillSaysWhereItIsPlanned(t *testing.T) {
	require.Equal(t, "60 % of an interval after a checkpoint", plannedKill{Share: 0.6}.String())
	require.Equal(t, "as a checkpoint completes", plannedKill{}.String())
	require.Equal(t, "after a window fired, before the next barrier", plannedKill{Moment: beforeBarrier}.String())
}
