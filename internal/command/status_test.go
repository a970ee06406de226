package command

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir/internal/status"
)

// Whoever looks at a running job sees that checkpoints fail, and why, before the age of the last one tells.
func TestStatusSaysWhyCheckpointsFail(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	st := status.Status{
		Job: "bill", State: status.Running, At: at,
		Checkpoints: status.Checkpoints{
			Last: 30, LastAt: at.Add(-5 * time.Second), Completed: 30, Aborted: 4, LastAborted: "no space left on device",
		},
	}
	text := func() string {
		var b strings.Builder
		require.NoError(t, printStatus(&b, st))
		return b.String()
	}
	require.Contains(t, text(), "checkpoint 30   5s ago")
	require.Contains(t, text(), "4 aborted; the last aborted: no space left on device")
	st.State = status.Ended // CURRENT alone is known
	require.NotContains(t, text(), "aborted")
}
