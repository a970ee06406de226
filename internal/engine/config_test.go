package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir/internal/engine"
	"example.com/weir/internal/protocol"
)

// A pause between checkpoints slows those of the interval down, and neither the first one nor a savepoint.
func TestCheckpointsOfTheIntervalKeepThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers()
		n.cfg.MinPause = 4 * time.Second
		var ended []time.Duration
		began := time.Now()
		n.cfg.Observer = engine.Observer{
			CheckpointCompleted: func(protocol.Current, time.Duration, []*engine.SubtaskStats) {
				ended = append(ended, time.Since(began))
			},
		}
		n.source.Add(0, 1)
		control, wait := n.beside(t)
		time.Sleep(10 * time.Second)
		_, err := control.Savepoint(t.Context(), "now")
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		control.Stop(false)
		require.NoError(t, wait())
		require.Equal(t, []time.Duration{0, 4 * time.Second, 8 * time.Second, 10 * time.Second, 14 * time.Second, 15 * time.Second}, ended)
	})
}

// A sink is told how long a restart may take, to hold it against how long a transaction may stay open.
func TestASinkKnowsTheLongestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers()
		n.cfg.Restart, n.cfg.Timeout = protocol.FixedDelay{Delay: 7 * time.Minute}, 3*time.Minute
		_, err := n.run(t.Context(), stopped())
		require.NoError(t, err)
		require.Equal(t, 7*time.Minute, n.sink.restores[0].RestartBudget)
		require.Equal(t, 3*time.Minute, n.sink.restores[0].CheckpointTimeout)
	})
}
