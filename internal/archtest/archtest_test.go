package archtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheModuleIsWhatItsTableSays(t *testing.T) {
	tr, err := readTree(os.DirFS(moduleRoot(t)))
	require.NoError(t, err)
	require.Equal(t, "example.com/weir", tr.module)
	for _, violation := range check(tr, table(), laws(), testLibraries()) {
		t.Error(violation)
	}
}

// moduleRoot is the folder of the first go.mod above the test.
func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		require.NotEqual(t, dir, parent, "no go.mod above the test")
		dir = parent
	}
}
