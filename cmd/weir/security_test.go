package main

import (
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"example.com/weir"
	"example.com/weir/apps/gatewaymeter"
	"example.com/weir/connectors/kafka"
	"example.com/weir/internal/control"
	"example.com/weir/internal/kafkatest"
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

// Everything that the program shows and writes while it is logged in, and while it is not let in: its log, its command
// line, what it answers over HTTP, what other commands print, and all files beside its checkpoints.
func TestASecretShowsNowhere(t *testing.T) {
	const secret, wrong = "hunter2-right", "hunter2-wrong"
	b := kafkatest.NewFakeWithLogin(t, "weir", secret)
	l := newLife(t, build(t), b)
	t.Setenv("WEIR_TEST_PASSWORD", secret)
	login := filepath.Join(t.TempDir(), "kafka.yaml")
	require.NoError(t, os.WriteFile(login, []byte("sasl: {mechanism: plain, username: weir, password_env: WEIR_TEST_PASSWORD}\n"), 0o600))
	l.append(t, 200)
	p := l.start(t, 1, "--kafka-config", login, "--log-level", "debug")
	l.caughtUp(t)

	var shown strings.Builder
	client, err := control.Find(l.checkpoints)
	require.NoError(t, err)
	for _, path := range []string{"metrics", "healthz", "readyz", "debug/pprof/", "debug/pprof/cmdline", "debug/pprof/goroutine?debug=2"} {
		resp, err := http.Get("http://" + client.Info().Address + "/" + path)
		require.NoError(t, err)
		_, err = io.Copy(&shown, resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	require.Contains(t, shown.String(), "weir_numRecordsIn")
	shown.WriteString(strings.Join(p.cmd.Args, " ") + l.command(t, weir.ExitOK, "status", "--format", "json") +
		l.command(t, weir.ExitOK, "savepoint", "kept") + l.command(t, weir.ExitOK, "checkpoints", "show", "kept") +
		l.command(t, weir.ExitOK, "explain", "gatewaymeter", "--brokers", b.Brokers[0], "--kafka-config", login, "--prices", sample+"prices.json"))
	require.Contains(t, shown.String(), "chain gateway-events")
	require.NoError(t, filepath.WalkDir(l.checkpoints, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		shown.Write(text)
		if os.IsNotExist(err) { // retention let go of it just now
			return nil
		}
		return err
	}))
	require.Contains(t, shown.String(), `"committables"`)
	shown.WriteString(p.text())

	t.Setenv("WEIR_TEST_PASSWORD", wrong) // for a job that begins with it
	args := slices.DeleteFunc(l.args(t.TempDir(), 1), func(a string) bool { return a == "--until-end" })
	refused := startProcess(t, l.binary, append(args, "--kafka-config", login, "--log-level", "debug", "--start-timeout", "100ms")...)
	require.Equal(t, weir.ExitFailed, refused.ended(t))
	require.Regexp(t, `outcome=failed exit_code=1 error="the first start was tried for too long, 100ms \(--start-timeout\): .*`+
		`closed the connection and gave no reason.*with a login by PLAIN`, refused.text()) // so kfake does, and proxies do
	shown.WriteString(refused.text())

	require.NotContains(t, shown.String(), secret)
	require.NotContains(t, shown.String(), wrong)
}
