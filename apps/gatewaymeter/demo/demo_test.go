package demo_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/weir/apps/gatewaymeter/demo"
)

// buildWeir builds the program that the job runs in.
func buildWeir(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "weir")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "example.com/weir/cmd/weir").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return binary
}

// short is a demonstration of a few seconds: a minute is billed, and a checkpoint taken, four times a second.
func short(binary string) demo.Config {
	return demo.Config{
		Binary: binary, Seed: 1, Kills: 2, Rate: 400, Duration: 4 * time.Second, Speedup: 240, Tenants: 5,
		Interval: 250 * time.Millisecond,
	}
}

// run runs a demonstration, and sees that nothing is left of it: no goroutine, no folder.
func run(t *testing.T, ctx context.Context, cfg demo.Config, out *bytes.Buffer) error {
	t.Helper()
	return runTo(t, ctx, cfg, out, out)
}

func runTo(t *testing.T, ctx context.Context, cfg demo.Config, to io.Writer, out *bytes.Buffer) error {
	t.Helper()
	before := goleak.IgnoreCurrent()
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	err := demo.Run(ctx, cfg, to)
	t.Log("\n" + out.String())
	left, readErr := os.ReadDir(folder)
	require.NoError(t, readErr)
	require.Empty(t, left)
	goleak.VerifyNone(t, before)
	return err
}

func TestABillIsRightThroughKillsAndDoubledWithoutTransactions(t *testing.T) {
	binary := buildWeir(t)
	t.Run("exactly-once", func(t *testing.T) {
		var out bytes.Buffer
		require.NoError(t, run(t, t.Context(), short(binary), &out))
		require.Contains(t, out.String(), "KILL 1 of 2")
		require.Contains(t, out.String(), "KILL 2 of 2")
		require.Regexp(t, `\(after a window fired, before the next barrier\): .* [1-9]\d* records uncommitted`, out.String())
		require.Regexp(t, `\nVERDICT: right: \d+ minutes, USD [\d.]+, none missing, doubled or different; 2 kills, `+
			`3 generations, at least [1-9]`, out.String())
	})
	t.Run("at-least-once", func(t *testing.T) {
		var out bytes.Buffer
		cfg := short(binary)
		cfg.Guarantee = "at-least-once"
		require.ErrorIs(t, run(t, t.Context(), cfg, &out), demo.ErrWrong)
		require.Regexp(t, `\n  doubled tenant-\d{3}\|\S+Z: revision \d+ read 2 times, USD `, out.String())
		require.Regexp(t, `\nVERDICT: WRONG: of \d+ minutes 0 missing, 0 unexpected, 0 different, [1-9]`, out.String())
	})
	t.Run("a kill that cannot happen", func(t *testing.T) {
		var out bytes.Buffer
		cfg := short(binary)
		cfg.Kills, cfg.Speedup, cfg.Duration = 1, 1, time.Second // no minute ends
		err := run(t, t.Context(), cfg, &out)
		require.ErrorContains(t, err, "a planned kill did not happen: number 1 (after a window fired, before the next barrier)")
		require.Contains(t, out.String(), "VERDICT: failed: ")
	})
	t.Run("an interrupt", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var out bytes.Buffer
		to := &onLine{to: &out, part: "checkpoint 2", call: cancel}
		require.ErrorIs(t, runTo(t, ctx, short(binary), to, &out), context.Canceled)
		require.Contains(t, out.String(), "NO VERDICT: it was ended before there was one: ")
		require.NotContains(t, out.String(), "\nVERDICT", "nothing has failed")
	})
}

// onLine calls a function when something is written.
type onLine struct {
	to   *bytes.Buffer
	part string
	call func()
}

func (o *onLine) Write(p []byte) (int, error) {
	if strings.Contains(string(p), o.part) {
		o.call()
	}
	return o.to.Write(p)
}

func TestAJobThatEndsByItselfFailsTheDemonstration(t *testing.T) {
	for name, script := range map[string]string{
		"at once":           "exit 3",
		"well":              "exit 0",
		"after its start":   `echo '{"msg":"generation started","generation":1}' >&2; exit 3`,
		"killed by another": `echo '{"msg":"generation started","generation":1}' >&2; kill -9 $$`,
	} {
		t.Run(name, func(t *testing.T) {
			binary := filepath.Join(t.TempDir(), "weir")
			require.NoError(t, os.WriteFile(binary, []byte("#!/bin/sh\n"+script+"\n"), 0o700))
			var out bytes.Buffer
			require.ErrorContains(t, run(t, t.Context(), short(binary), &out), "the job ended by itself")
			require.Contains(t, out.String(), "VERDICT: failed: ")
		})
	}
}

func TestConfigurationsThatMakeNoDemonstrationAreRefused(t *testing.T) {
	for name, change := range map[string]func(*demo.Config){
		"kills too close": func(c *demo.Config) { c.Kills = 100 },
		"negative":        func(c *demo.Config) { c.Kills = -1 },
		"guarantee":       func(c *demo.Config) { c.Guarantee = "none" },
		"no such trace":   func(c *demo.Config) { c.Trace = "nowhere.csv" },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := short("weir")
			change(&cfg)
			var out bytes.Buffer
			require.ErrorIs(t, run(t, t.Context(), cfg, &out), demo.ErrInvalid)
		})
	}
}
