package keygroup

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestEveryGroupHasOneSubtaskAndRangesAreContiguous(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		maxParallelism := rapid.IntRange(1, 512).Draw(t, "max")
		parallelism := rapid.IntRange(1, maxParallelism).Draw(t, "parallelism")
		next := 0
		for s := range parallelism {
			first, end := Range(s, maxParallelism, parallelism)
			require.Equal(t, next, first)
			require.Greater(t, end, first, "subtask %d owns nothing", s)
			for g := first; g < end; g++ {
				require.Equal(t, s, Subtask(g, maxParallelism, parallelism))
			}
			next = end
		}
		require.Equal(t, maxParallelism, next)
	})
}

// The hash is part of the checkpoint format: these answers must never change.
func TestHashIsFixed(t *testing.T) {
	require.Equal(t, uint64(0xef46db3751d8e999), Hash(nil))
	require.Equal(t, uint64(0x44bc2cf5ad770999), Hash([]byte("abc")))
	require.Equal(t, 25, Of(Hash([]byte("abc")), DefaultMax))
}
