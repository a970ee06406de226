package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"example.com/weir/apps/gatewaymeter"
	"example.com/weir/connectors/kafka"
)

func TestTLSAndTheLoginComeFromTheJobsFileOrFromOneOfTheirOwn(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	read := func(args ...string) (gatewaymeter.Config, error) {
		f := pflag.NewFlagSet("test", pflag.ContinueOnError)
		cfg := gatewaymeter.Default()
		gatewayMeterFlags(f, &cfg)
		if err := f.Parse(args[1:]); err != nil {
			return cfg, err
		}
		return configure(f, args[0], &cfg)
	}
	job := write("job.yaml", `
brokers: [localhost:9093]
prices: prices.json
checkpoints: file:///tmp/x
start: group:billing:earliest
accept_loss: [gateway-events/0@5]
kafka:
  tls: {ca_file: ca.pem}
  sasl: {mechanism: scram-sha-512, username: billing, password_env: KAFKA_PASSWORD}
`)
	want := kafka.Security{
		TLS:  kafka.TLS{CAFile: "ca.pem"},
		SASL: kafka.SASL{Mechanism: "scram-sha-512", Username: "billing", PasswordEnv: "KAFKA_PASSWORD"},
	}
	cfg, err := read(job)
	require.NoError(t, err)
	require.Equal(t, want, cfg.Cluster().Security)

	own := write("kafka.yaml", "tls: {enabled: true}\n")
	cfg, err = read(job, "--kafka-config", own, "--accept-loss", "gateway-events/1@7")
	require.NoError(t, err)
	require.Equal(t, kafka.Security{TLS: kafka.TLS{Enabled: true}}, cfg.Kafka)
	require.Equal(t, []string{"gateway-events/1@7"}, cfg.AcceptLoss)

	_, err = read(write("inline.yaml", "kafka:\n  sasl: {mechanism: plain, username: u, password: hunter2}\n"))
	require.ErrorContains(t, err, "a secret is not written into a configuration")
	require.NotContains(t, err.Error(), "hunter2")
	_, err = read(job, "--start", "sometime")
	require.ErrorContains(t, err, `start "sometime"`)
	_, err = read(job, "--kafka-config", write("bad.yaml", "sasl: {mechanism: gssapi}\n"))
	require.ErrorContains(t, err, `mechanism "gssapi"`)
}
