package kafka

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
)

// Whether a read has an end is fixed when a job first starts: a configuration that says otherwise is
// refused by name, and not ignored.
func TestABoundedReadDoesNotBecomeEndlessNorTheReverse(t *testing.T) {
	for _, c := range []struct {
		untilEnd bool
		end      int64
		want     string
	}{
		{true, 7, ""},
		{true, 0, ""}, // of a partition that was empty
		{false, -1, ""},
		{true, -1, "split t/3 has no end"},
		{false, 7, "split t/3 ends at offset 7"},
		{false, 0, "split t/3 ends at offset 0"},
	} {
		err := judgeBounds(&SourceConfig{UntilEnd: c.untilEnd}, "t/3", Position{End: c.end})
		if c.want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, c.want)
		require.True(t, connector.IsStop(err))
	}
}
