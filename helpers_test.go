package weir_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func newRandom(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// corruptOneSnapshot changes a byte in the middle of the newest snapshot and returns its name.
func corruptOneSnapshot(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "snapshots", "*"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	slices.SortFunc(files, func(a, b string) int {
		x, err := os.Stat(a)
		require.NoError(t, err)
		y, err := os.Stat(b)
		require.NoError(t, err)
		return y.ModTime().Compare(x.ModTime())
	})
	b, err := os.ReadFile(files[0])
	require.NoError(t, err)
	b[len(b)/2] ^= 1
	require.NoError(t, os.WriteFile(files[0], b, 0o600))
	return filepath.Base(files[0])
}
