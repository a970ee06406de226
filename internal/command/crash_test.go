package command

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/weir/internal/fault"
)

// Nothing is armed unless the environment says so; then the log says it, and what cannot be read is no job.
func TestACrashIsArmedByTheEnvironmentAlone(t *testing.T) {
	var log bytes.Buffer
	j := &fakeJob{settings: Settings{Logger: slog.New(slog.NewTextHandler(&log, nil))}}
	require.NoError(t, armCrash(j, &log))
	require.Nil(t, j.settings.Reached)
	require.Empty(t, log.String())

	t.Setenv(fault.Variable, "hold:"+fault.AfterCurrent+":2")
	require.NoError(t, armCrash(j, &log))
	require.NotNil(t, j.settings.Reached)
	require.Contains(t, log.String(), "level=ERROR")
	require.Contains(t, log.String(), "TOLD TO CRASH")
	require.Contains(t, log.String(), "hold:after-current:2")
	j.settings.Reached(fault.AfterCurrent) // only the second time

	t.Setenv(fault.Variable, "nowhere")
	require.ErrorContains(t, armCrash(j, &log), fault.Variable)
	require.Equal(t, ExitUsage, Serve(j))
}
