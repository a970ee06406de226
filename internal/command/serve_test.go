package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/engine"
	"example.com/weir/internal/protocol"
	"example.com/weir/internal/status"
)

// fakeJob ends as its functions say.
type fakeJob struct {
	settings Settings
	stopped  chan struct{}
	drain    bool
	run      func(ctx context.Context, stopped <-chan struct{}) (protocol.Outcome, error)
}

func newFakeJob(run func(ctx context.Context, stopped <-chan struct{}) (protocol.Outcome, error)) *fakeJob {
	return &fakeJob{
		settings: Settings{Parallelism: 1, Interval: time.Second, Logger: slog.New(slog.DiscardHandler)},
		stopped:  make(chan struct{}), run: run,
	}
}

func (j *fakeJob) Name() string          { return "fake" }
func (j *fakeJob) Settings() Settings    { return j.settings }
func (j *fakeJob) Apply(s Settings)      { j.settings = s }
func (j *fakeJob) Status() status.Status { return status.Status{Job: "fake", State: status.Running} }

func (j *fakeJob) Answer(context.Context) error { return nil }

func (j *fakeJob) Stop(drain bool) {
	j.drain = drain
	close(j.stopped)
}

func (j *fakeJob) Savepoint(context.Context, string) (checkpoint.Savepoint, error) {
	return checkpoint.Savepoint{}, errors.New("none")
}

func (j *fakeJob) Outside() (Outside, error) { return Outside{Job: "fake"}, nil }

func (j *fakeJob) Graph() (engine.Graph, error) {
	if j.run == nil {
		return engine.Graph{}, fmt.Errorf("%w: it has no source", engine.ErrInvalid)
	}
	return engine.Graph{Job: "fake", MaxParallelism: 128}, nil
}

func (j *fakeJob) Run(ctx context.Context, owned Owned) (protocol.Outcome, error) {
	giveUp, err := owned(nil)
	if err != nil {
		return protocol.None, err
	}
	defer giveUp()
	return j.run(ctx, j.stopped)
}

// stopsAfter is a run that takes a while to stop.
func stopsAfter(d time.Duration) func(context.Context, <-chan struct{}) (protocol.Outcome, error) {
	return func(ctx context.Context, stopped <-chan struct{}) (protocol.Outcome, error) {
		select {
		case <-stopped:
		case <-ctx.Done():
			return protocol.None, context.Cause(ctx)
		}
		select {
		case <-time.After(d):
			return protocol.Stopped, nil
		case <-ctx.Done():
			return protocol.None, context.Cause(ctx)
		}
	}
}

// neverEnds is a run in which somebody's function does not look at its context.
func neverEnds(release <-chan struct{}) func(context.Context, <-chan struct{}) (protocol.Outcome, error) {
	return func(context.Context, <-chan struct{}) (protocol.Outcome, error) {
		<-release
		return protocol.Stopped, nil
	}
}

func TestSignalsEndAJob(t *testing.T) {
	for name, c := range map[string]struct {
		stopTakes time.Duration
		grace     time.Duration
		second    time.Duration // after the first; 0: none
		code      int
		takes     time.Duration
	}{
		"it stops":                            {time.Second, 0, 0, ExitOK, time.Second},
		"it stops within the usual grace":     {29 * time.Second, 0, 0, ExitOK, 29 * time.Second},
		"it takes longer":                     {31 * time.Second, 0, 0, ExitInterrupted, 30 * time.Second},
		"it is given longer":                  {31 * time.Second, time.Minute, 0, ExitOK, 31 * time.Second},
		"a second signal":                     {time.Hour, 2 * time.Hour, time.Second, ExitInterrupted, time.Second},
		"a second signal, and it has stopped": {time.Second, 0, 2 * time.Second, ExitOK, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newFakeJob(stopsAfter(c.stopTakes))
				j.settings.StopGrace = c.grace
				signals, began := make(chan os.Signal, 2), time.Now()
				signals <- syscall.SIGTERM
				if c.second > 0 {
					time.AfterFunc(c.second, func() { signals <- os.Interrupt })
				}
				require.Equal(t, c.code, serve(j, signals))
				require.Equal(t, c.takes, time.Since(began))
				require.False(t, j.drain)
			})
		})
	}
}

func TestASecondSignalEndsWhatDoesNotLookAtItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		signals, began := make(chan os.Signal, 2), time.Now()
		signals <- syscall.SIGTERM
		signals <- syscall.SIGTERM
		require.Equal(t, ExitInterrupted, serve(newFakeJob(neverEnds(release)), signals))
		require.Equal(t, lastMoments, time.Since(began))
		close(release)
	})
}

func TestAnExitCodeSaysOneThing(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		code int
		word string
	}{
		"finished":         {nil, ExitOK, "finished"},
		"failed":           {fmt.Errorf("%w: %w", engine.ErrNotRestarted, errors.New("x")), ExitFailed, "failed"},
		"invalid":          {engine.ErrInvalid, ExitUsage, "invalid"},
		"no such storage":  {connector.Stop(checkpoint.ErrAddress), ExitUsage, "invalid"},
		"locked":           {&checkpoint.LockedError{}, ExitSuperseded, "superseded"},
		"superseded":       {connector.Stop(connector.ErrSuperseded), ExitSuperseded, "superseded"},
		"refused":          {connector.Stop(errors.New("it would be lost")), ExitRefused, "refused"},
		"signalled":        {errInterrupted, ExitInterrupted, "interrupted"},
		"grace has passed": {errGrace, ExitInterrupted, "interrupted"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			j := newFakeJob(func(context.Context, <-chan struct{}) (protocol.Outcome, error) {
				return protocol.Finished, c.err
			})
			j.settings.Logger = slog.New(slog.NewTextHandler(&log, nil))
			require.Equal(t, c.code, serve(j, nil))
			require.Regexp(t, fmt.Sprintf(`msg="job ended" job=fake outcome=%s exit_code=%d`, c.word, c.code), log.String())
		})
	}
}

func TestACommandLineReachesTheJob(t *testing.T) {
	run := func(code int, args ...string) *fakeJob {
		t.Helper()
		j := newFakeJob(func(context.Context, <-chan struct{}) (protocol.Outcome, error) { return protocol.Finished, nil })
		require.Equal(t, code, Main(j, args), "%v", args)
		return j
	}
	for _, first := range [][]string{nil, {"run"}} {
		j := run(ExitOK, append(first, "--parallelism", "3", "--checkpoint-interval", "2s", "--stop-grace", "5s",
			"--http", "127.0.0.1:0", "--accept-lineage", "a,b", "--fork-from", "file:///elsewhere#there", "--accept-duplicates",
			"--accept-copied-directory",
			"--new-lineage", "--event-time", "2026-03-02T10:00:00Z", "--allow-new-state", "x", "--allow-dropped-state", "y/z", "--log-format", "json", "--log-level", "error")...)
		require.Equal(t, 3, j.settings.Parallelism)
		require.Equal(t, 2*time.Second, j.settings.Interval)
		require.Equal(t, 5*time.Second, j.settings.StopGrace)
		require.Equal(t, "127.0.0.1:0", j.settings.HTTP)
		require.Equal(t, []string{"a", "b"}, j.settings.AcceptLineages)
		require.Equal(t, engine.RestoreConfig{
			From: "there", Fork: "file:///elsewhere", AcceptDuplicates: true, AcceptCopiedDirectory: true, NewLineage: true,
			EventTime: time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC),
			AllowNew:  []string{"x"}, AllowDropped: []string{"y/z"},
		}, j.settings.Restore)
		require.False(t, j.settings.Logger.Enabled(t.Context(), slog.LevelWarn))
	}
	for _, args := range [][]string{
		{"--parallelism", "0"},
		{"--checkpoint-interval", "0s"},
		{"--stop-grace", "-1s"},
		{"--event-time", "yesterday"},
		{"--log-level", "loud"},
		{"--log-format", "xml"},
		{"--http", "0.0.0.0:80"},
		{"--http", "here"},
		{"--nonsense"},
		{"walk"},
		{"--fork-from", "s4://x"},
		{"checkpoints"},
		{"checkpoints", "list"},
		{"checkpoints", "gc"},
		{"explain", "--format", "svg"},
		{"stop"},
		{"status"},
		{"savepoint", "x"},
		{"savepoint"},
		{"stop", "--storage", "s4://x"},
	} {
		run(ExitUsage, args...)
	}
	run(ExitOK, "explain")
	require.Equal(t, ExitUsage, Main(newFakeJob(nil), []string{"explain"}))
	run(ExitFailed, "stop", "--storage", "file://"+t.TempDir()+"/nowhere")
}
