package proof

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCountsOfOneFaultAreAddedUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "counts")
	t.Setenv(CountsVar, path)
	dropped := Count{Suite: Wire, Fault: "end-txn: answer dropped", Broker: "kfake", Injected: 2, Hit: 1, Records: 10}
	Note(t, dropped)
	t.Run("in a subtest", func(t *testing.T) { Note(t, dropped) })
	Note(t, Count{Suite: Wire, Fault: "produce: delayed", Broker: "kfake", Injected: 1, Hit: 1, Records: 5, Doubled: 1})

	text, err := os.ReadFile(path)
	require.NoError(t, err)
	counts, err := ReadCounts(text)
	require.NoError(t, err)
	const test = "TestCountsOfOneFaultAreAddedUp"
	require.Equal(t, []Count{
		{
			Suite: Wire, Fault: "end-txn: answer dropped", Broker: "kfake", Injected: 4, Hit: 2, Records: 20,
			Package: "example.com/weir/internal/proof", Test: test,
		},
		{
			Suite: Wire, Fault: "produce: delayed", Broker: "kfake", Injected: 1, Hit: 1, Records: 5, Doubled: 1,
			Package: "example.com/weir/internal/proof", Test: test,
		},
	}, counts)
}

func TestWithoutAFileNothingIsNoted(t *testing.T) {
	t.Setenv(CountsVar, "")
	Note(t, Count{Suite: "none", Fault: "not looked at"})
}

func TestCountsThatProveNothingAreRefused(t *testing.T) {
	for want, line := range map[string]string{
		"never hit":              `{"suite":"wire","fault":"f","injected":3,"records":1,"package":"p","test":"T"}`,
		"no record was looked":   `{"suite":"wire","fault":"f","hit":3,"package":"p","test":"T"}`,
		"is no suite":            `{"suite":"wires","fault":"f","hit":3,"records":1,"package":"p","test":"T"}`,
		"without fault, package": `{"suite":"wire","hit":3,"records":1,"package":"p","test":"T"}`,
		"count":                  `{"suite":`,
	} {
		_, err := ReadCounts([]byte(line + "\n"))
		require.ErrorContains(t, err, want)
	}
}

func TestTheFlagsThatDecideStandInTheCount(t *testing.T) {
	require.Equal(t, "-rapid.seed=1 -rapid.checks=5",
		seedFlags([]string{"-test.v", "-rapid.seed=1", "-rapid.nofailfile", "-rapid.checks=5"}))
}
