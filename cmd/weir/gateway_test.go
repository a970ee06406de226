package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"example.com/weir"
	"example.com/weir/apps/gatewaymeter/replay"
	"example.com/weir/internal/command"
)

func replayed(t *testing.T, args ...string) (string, error) {
	t.Helper()
	g := gatewayReplay{config: replay.Config{Shares: replay.Usual()}}
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	g.flags(f)
	require.NoError(t, f.Parse(args))
	var out, messages bytes.Buffer
	err := g.run(t.Context(), &out, &messages)
	return out.String(), err
}

func TestTheSameSettingsReplayTheSameLines(t *testing.T) {
	one, err := replayed(t, "--seed", "3", "--bad", "0.1")
	require.NoError(t, err)
	again, err := replayed(t, "--seed", "3", "--bad", "0.1")
	require.NoError(t, err)
	require.Equal(t, one, again)
	other, err := replayed(t, "--seed", "4", "--bad", "0.1")
	require.NoError(t, err)
	require.NotEqual(t, one, other)
}

func TestFlagsOfAReplayReachIt(t *testing.T) {
	out, err := replayed(t, "--requests", "50", "--failed", "1", "--cancelled", "0", "--tenants", "1", "--repeated", "0",
		"--started-alone", "0", "--completed-alone", "0", "--unmatched", "0", "--conflicting", "0", "--start",
		"2030-01-01T00:00:00Z", "--id-prefix", "x", "--rate", "10", "--late", "0")
	require.NoError(t, err)
	require.Equal(t, 100, strings.Count(out, "\n"))
	require.Equal(t, 50, strings.Count(out, `"status":"failed"`))
	require.Equal(t, 100, strings.Count(out, `"tenant_id":"tenant-001"`))
	require.Equal(t, 100, strings.Count(out, `"request_id":"x-`))
	require.Equal(t, 100, strings.Count(out, `"event_time":"2030-01-01T00:00:`))
}

func TestReplaysThatMakeNoSenseAreWrongUsage(t *testing.T) {
	for _, args := range [][]string{
		{"--topic", "t"},
		{"--brokers", "localhost:1"},
		{"--start", "yesterday"},
		{"--failed", "2"},
		{"--trace", "nowhere.csv"},
	} {
		_, err := replayed(t, args...)
		var exit *command.Error
		require.True(t, errors.As(err, &exit), "%v: %v", args, err)
		require.Equal(t, weir.ExitUsage, exit.Code, "%v", args)
	}
}

func TestARecentReplayEndsAboutNow(t *testing.T) {
	now := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	trace := []replay.Row{{At: now}, {At: now.Add(time.Minute)}, {At: now.Add(2 * time.Minute)}}
	for _, c := range []struct {
		start  string
		config replay.Config
		want   time.Time
	}{
		{"trace", replay.Config{}, time.Time{}},
		{"now", replay.Config{}, now},
		{"recent", replay.Config{}, now.Add(-3 * time.Minute)},
		{"recent", replay.Config{Requests: 60}, now.Add(-time.Hour)},
		{"recent", replay.Config{Requests: 60, Rate: 1}, now.Add(-time.Minute)},
		{"recent", replay.Config{LateMax: 50 * time.Minute, Shares: replay.Shares{Late: 0.1}}, now.Add(-3 * time.Minute)},
		{"recent", replay.Config{Shares: replay.Shares{TooLate: 0.1}}, now.Add(-3*time.Minute - 3*time.Hour)}, // brokers take it
		{"recent", replay.Config{Requests: 60, Duration: time.Second}, now.Add(-time.Second)},
	} {
		c.config.Trace = trace
		got, err := (&gatewayReplay{config: c.config, start: c.start}).startTime(now)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
}
