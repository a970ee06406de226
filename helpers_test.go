package weir_test

import (
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

func newRandom(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// corruptOneSnapshot changes a byte in the middle of a snapshot that CURRENT's manifest names, and
// returns the file's name.
func corruptOneSnapshot(t *testing.T, dir string) string {
	t.Helper()
	name := regexp.MustCompile(`manifests/[^"]+`).Find(read(t, dir, "CURRENT"))
	file := string(regexp.MustCompile(`snapshots/[^"]+`).Find(read(t, dir, string(name))))
	b := read(t, dir, file)
	b[len(b)/2] ^= 1
	require.NoError(t, os.WriteFile(filepath.Join(dir, file), b, 0o600))
	return file
}

func read(t *testing.T, dir, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	return b
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// memoryDir is a directory for the test, in memory where there is such a file system: for tests of very many
// checkpoints, each of which is many files with an fsync.
func memoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "weir-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}
