package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
	"example.com/weir/internal/engine"
	"example.com/weir/internal/protocol"
)

// A job starts, fails to commit, restarts and is stopped. Each thing is said once, at the level of who
// must act, under keys that are the same everywhere, and without a word of what is in records.
func TestTheLogTellsALifeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, log := newNumbers(), &logged{}
		n.cfg.Restart = protocol.FixedDelay{Delay: 2 * time.Second}
		n.cfg.Logger = slog.New(log).With("job", "numbers")
		n.source.Add(0, 4711)
		n.sink.commit = func(context.Context, connector.Committable) error {
			n.sink.commit = func(context.Context, connector.Committable) error {
				time.Sleep(100 * time.Millisecond)
				return nil
			}
			return errors.New("the outside is away")
		}
		control := engine.NewControl()
		time.AfterFunc(4200*time.Millisecond, func() { n.source.Add(0, 4712) })
		time.AfterFunc(4500*time.Millisecond, func() { control.Stop(false) })
		_, err := n.run(t.Context(), control)
		require.NoError(t, err)
		lineage, bytes := regexp.MustCompile(`lineage=\w{16}`), regexp.MustCompile(`bytes=\d+`)
		var got []string
		for _, line := range log.with("") {
			require.NotContains(t, line, "471")
			got = append(got, bytes.ReplaceAllString(lineage.ReplaceAllString(line, "lineage=L"), "bytes=N"))
		}
		require.Equal(t, []string{
			"INFO restored job=numbers lineage=L generation=1 checkpoint=0 settled=0 took=0s",
			"INFO generation started job=numbers lineage=L generation=1 checkpoint=0",
			"INFO checkpoint completed job=numbers lineage=L generation=1 checkpoint=1 took=0s bytes=N full_bytes=N",
			"INFO checkpoint completed job=numbers lineage=L generation=1 checkpoint=2 took=0s bytes=N full_bytes=N",
			"ERROR generation failed job=numbers error=commit sink[0]@2: the outside is away restart_in=2s",
			"INFO restored job=numbers lineage=L generation=2 checkpoint=2 settled=1 took=0s",
			"INFO generation started job=numbers lineage=L generation=2 checkpoint=2",
			"INFO checkpoint completed job=numbers lineage=L generation=2 checkpoint=3 took=0s bytes=N full_bytes=N",
			"INFO checkpoint completed job=numbers lineage=L generation=2 checkpoint=4 took=0s bytes=N full_bytes=N",
			"DEBUG committable committed job=numbers lineage=L generation=2 operator=sink subtask=0 checkpoint=4 took=100ms",
		}, got)
	})
}
