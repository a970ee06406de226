package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"example.com/weir/apps/gatewaymeter"
)

func parse(t *testing.T, yaml string, args ...string) (gatewaymeter.Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "weir.yaml")
	require.NoError(t, os.WriteFile(file, []byte(yaml), 0o600))
	over := gatewaymeter.Default()
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	gatewayMeterFlags(f, &over)
	require.NoError(t, f.Parse(args))
	return configure(f, file, &over)
}

const complete = `
brokers: [a:1, b:2]
prices: prices.json
checkpoints: file:///var/lib/weir
checkpoint_interval: 3s
topics: {tenant_cost: bill, late: late-requests}
alerts: {error_rate_percent: 30}
`

func TestFlagsThatWereSetOverrideTheFileAndNothingElseDoes(t *testing.T) {
	cfg, err := parse(t, complete, "--brokers", "c:3", "--checkpoint-interval", "1s", "--late-topic", "")
	require.NoError(t, err)
	want := gatewaymeter.Default()
	want.Brokers, want.Prices, want.Checkpoints = []string{"c:3"}, "prices.json", "file:///var/lib/weir"
	want.CheckpointInterval = time.Second
	want.Topics.TenantCost, want.Alerts.Percent = "bill", 30
	require.Equal(t, want, cfg)

	cfg, err = parse(t, complete)
	require.NoError(t, err)
	require.Equal(t, []string{"a:1", "b:2"}, cfg.Brokers)
	require.Equal(t, "late-requests", cfg.Topics.Late)
	require.Equal(t, 3*time.Second, cfg.CheckpointInterval)
}

func TestConfigurationIsStrictAndShowsTheLine(t *testing.T) {
	for _, c := range []struct{ yaml, want string }{
		{complete + "paralelism: 2\n", `unknown field "paralelism"`},
		{complete + "topics: {nope: x}\n", `already defined`},
		{complete + "parallelism: two\n", "parallelism: two"},
		{"brokers: [a:1]\n---\nnonsense: 1\n", "more than one document"},
		{"brokers: [a:1]\ntopics:\n  gateway_event: x\n", `unknown field "gateway_event"`},
	} {
		_, err := parse(t, c.yaml)
		require.ErrorContains(t, err, c.want)
		if c.want != "more than one document" {
			require.Regexp(t, `>? +\d+ \|`, err.Error(), "the line is shown")
		}
	}
}

func TestConfigurationsThatCannotBeRightAreRefused(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--completion-timeout", "1h"}, "completion_timeout: 1h0m0s is not below allowed_lateness"},
		{[]string{"--sink-guarantee", "exactly"}, `guarantee "exactly"`},
		{[]string{"--tenant-cost-topic", "gateway-events"}, "both name \"gateway-events\""},
		{[]string{"--parallelism", "0"}, "parallelism: 0 is below 1"},
		{[]string{"--brokers", ""}, "brokers: name at least one"},
	} {
		_, err := parse(t, complete, c.args...)
		require.ErrorContains(t, err, c.want)
	}
}
