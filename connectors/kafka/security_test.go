package kafka_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka"
	"example.com/weir/internal/kafkatest"
)

func writeFile(t *testing.T, path, text string) string {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// works reads and writes a topic as a job does: source, sink with transactions, committed offsets.
func works(t *testing.T, n *kafkatest.Broker, cfg kafka.Config) {
	t.Helper()
	topic := n.CreateTopic(t, 1)
	sink := kafka.Sink(kafka.SinkConfig{
		Config: cfg, Topic: topic, Guarantee: kafka.ExactlyOnce, TransactionalIDPrefix: n.TopicName(t),
	}, func(row *string, r *kafka.Record) error {
		r.Value = append(r.Value, *row...)
		return nil
	}).(connector.TwoPhaseSink[string])
	owner := func() connector.WriterContext {
		return connector.WriterContext{
			Lineage: "0123456789abcdef", Operator: "out", Parallelism: 1, StillOwner: stillOwner,
		}
	}
	require.NoError(t, sink.Validate(true))
	require.NoError(t, sink.Restore(t.Context(), connector.RestoreContext{
		Lineage: "0123456789abcdef", Operator: "out", Parallelism: 1, StillOwner: stillOwner,
	}))
	writer, err := sink.Writer(t.Context(), owner())
	require.NoError(t, err)
	w := writer.(connector.TwoPhaseWriter[string])
	defer func() { require.NoError(t, w.Close()) }()
	require.NoError(t, w.Write(t.Context(), []string{"a", "b"}))
	require.NoError(t, w.Flush(t.Context(), false))
	c, err := w.PrepareCommit(t.Context(), 1)
	require.NoError(t, err)
	require.NoError(t, w.Commit(t.Context(), *c))

	source := sourceConfig(n, topic)
	source.Config, source.Group = cfg, n.TopicName(t)
	s := discover(t, source)
	require.NoError(t, s.start())
	require.NoError(t, s.until(s.has(0, 2)))
	require.Equal(t, []string{"a", "b"}, s.rowsOf(0))
	told, err := s.reader.(connector.PositionReleaser).ReleasePositions(t.Context(), s.splits)
	require.NoError(t, err)
	require.True(t, told)
}

// refused is the error of a source and of a sink that do not get in.
func refused(t *testing.T, cfg kafka.Config) error {
	t.Helper()
	cfg.DialTimeout = 2 * time.Second
	_, err := stringSource(kafka.SourceConfig{Config: cfg, Topic: "t", TopicWait: 100 * time.Millisecond}).Discover(t.Context())
	require.Error(t, err)
	_, other := kafka.TopicExists(t.Context(), cfg, "t")
	require.Error(t, other)
	require.NotContains(t, err.Error()+other.Error(), "secret")
	return err
}

func TestJobsReachAClusterByTLSAndEveryLoginAndSayWhyIfTheyDoNot(t *testing.T) {
	n := kafkatest.NewSecureNode(t, "plain-secret")
	for _, m := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} {
		_, err := n.Admin(t).AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{{
			User: "billing", Mechanism: m, Iterations: 4096, Password: "scram-secret",
		}})
		require.NoError(t, err)
	}
	dir := t.TempDir()
	password := writeFile(t, filepath.Join(dir, "password"), "scram-secret\n")
	t.Setenv("WEIR_TEST_PASSWORD", "plain-secret")
	login := func(mechanism string) kafka.Config {
		cfg := kafka.Config{Brokers: []string{n.Login}}
		cfg.Security.TLS.CAFile = n.CAFile
		cfg.Security.SASL = kafka.SASL{Mechanism: mechanism, Username: "billing", PasswordFile: password}
		return cfg
	}
	plain := login("plain")
	plain.Security.SASL = kafka.SASL{Mechanism: "PLAIN", Username: "weir", PasswordEnv: "WEIR_TEST_PASSWORD"}
	t.Run("scram-sha-256", func(t *testing.T) { works(t, &n.Broker, login("scram-sha-256")) })
	t.Run("scram-sha-512", func(t *testing.T) { works(t, &n.Broker, login("scram-sha-512")) })
	t.Run("plain", func(t *testing.T) { works(t, &n.Broker, plain) })

	key, cert := n.Authority.Sign(t, "client")
	mutual := kafka.Config{Brokers: []string{n.Mutual}}
	mutual.Security.TLS = kafka.TLS{
		CAFile: n.CAFile, CertFile: writeFile(t, filepath.Join(dir, "cert.pem"), string(cert)),
		KeyFile: writeFile(t, filepath.Join(dir, "key.pem"), string(key)),
	}
	t.Run("mTLS", func(t *testing.T) { works(t, &n.Broker, mutual) })

	token := writeFile(t, filepath.Join(dir, "token"), kafkatest.Token("billing", time.Now().Add(time.Hour))+"\n")
	byToken := login("oauthbearer")
	byToken.Security.SASL = kafka.SASL{Mechanism: "oauthbearer", OAuth: kafka.OAuth{TokenFile: token}}
	t.Run("oauthbearer", func(t *testing.T) { works(t, &n.Broker, byToken) })
	t.Run("oauthbearer, from a command", func(t *testing.T) {
		cfg := byToken
		cfg.Security.SASL.OAuth = kafka.OAuth{TokenCommand: "cat " + token}
		_, err := kafka.TopicExists(t.Context(), cfg, "t")
		require.NoError(t, err)
	})
	t.Run("a token that is over, or none at all", func(t *testing.T) {
		over := kafkatest.Token("billing", time.Now().Add(-time.Minute))
		for _, text := range []string{over, "secret"} {
			cfg := byToken
			cfg.Security.SASL.OAuth.TokenFile = writeFile(t, filepath.Join(dir, "no-token"), text)
			err := refused(t, cfg)
			require.ErrorContains(t, err, "refused the token from token_file "+cfg.Security.SASL.OAuth.TokenFile)
			require.NotContains(t, err.Error(), over)
		}
	})

	t.Run("unknown authority", func(t *testing.T) {
		cfg := login("scram-sha-256")
		cfg.Security.TLS.CAFile = kafkatest.NewAuthority(t).WriteCA(t, filepath.Join(dir, "other.pem"))
		require.ErrorContains(t, refused(t, cfg), "the certificate of broker "+n.Login+
			" is not signed by any of the authorities in ca_file "+cfg.Security.TLS.CAFile)
		cfg.Security.TLS = kafka.TLS{Enabled: true}
		require.ErrorContains(t, refused(t, cfg), "is not signed by any of the system's certificate authorities")
	})
	t.Run("another name", func(t *testing.T) {
		cfg := login("scram-sha-256")
		cfg.Security.TLS.ServerName = "elsewhere.example"
		require.ErrorContains(t, refused(t, cfg), "is for another name")
	})
	t.Run("wrong password", func(t *testing.T) {
		for _, cfg := range []kafka.Config{login("scram-sha-256"), plain} {
			cfg.Security.SASL.PasswordEnv = ""
			cfg.Security.SASL.PasswordFile = writeFile(t, filepath.Join(dir, "wrong"), "other-secret")
			require.ErrorContains(t, refused(t, cfg), "wrong username or password")
		}
	})
	t.Run("no certificate", func(t *testing.T) {
		cfg := kafka.Config{Brokers: []string{n.Mutual}}
		cfg.Security.TLS.CAFile = n.CAFile
		require.ErrorContains(t, refused(t, cfg),
			"refused the connection, saying \"bad certificate\": it may want a certificate of the client: cert_file and key_file are not set")
	})
	t.Run("a certificate that has expired, or that a stranger has signed", func(t *testing.T) {
		cfg := mutual
		over := time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
		key, cert := n.Authority.SignUntil(t, "client", over)
		cfg.Security.TLS.CertFile = writeFile(t, filepath.Join(dir, "old.pem"), string(cert))
		cfg.Security.TLS.KeyFile = writeFile(t, filepath.Join(dir, "old-key.pem"), string(key))
		require.ErrorContains(t, refused(t, cfg), "the client's certificate in cert_file "+cfg.Security.TLS.CertFile+
			" expired at "+over.Format(time.RFC3339)+": renew it")
		key, cert = kafkatest.NewAuthority(t).Sign(t, "client")
		writeFile(t, cfg.Security.TLS.CertFile, string(cert))
		writeFile(t, cfg.Security.TLS.KeyFile, string(key))
		require.ErrorContains(t, refused(t, cfg), "see that the brokers trust who has signed the client's certificate in cert_file")
	})
	t.Run("TLS where there is none, and the reverse", func(t *testing.T) {
		cfg := kafka.Config{Brokers: n.Brokers}
		cfg.Security.TLS.CAFile = n.CAFile
		require.ErrorContains(t, refused(t, cfg), "its listener wants something else than TLS without a certificate of the client")
		require.ErrorContains(t, refused(t, kafka.Config{Brokers: []string{n.Login}}),
			"the broker's listener speaks TLS, and the client plain text (no tls) without a login (no sasl): switch TLS on")
	})
	t.Run("no login where one is wanted", func(t *testing.T) {
		cfg := kafka.Config{Brokers: []string{n.Login}}
		cfg.Security.TLS.CAFile = n.CAFile
		require.ErrorContains(t, refused(t, cfg), "without a login (no sasl)")
	})
	t.Run("files are read again for each connection", func(t *testing.T) {
		cfg := login("scram-sha-256")
		cfg.Security.TLS.CAFile = kafkatest.NewAuthority(t).WriteCA(t, filepath.Join(dir, "renewed.pem"))
		cfg.Security.SASL.PasswordFile = writeFile(t, filepath.Join(dir, "renewed"), "old-secret")
		opts, err := cfg.ClientOptions()
		require.NoError(t, err)
		client, err := kgo.NewClient(append(opts, kgo.RetryTimeout(time.Second), kgo.RequestRetries(0))...)
		require.NoError(t, err)
		defer client.Close()
		require.ErrorContains(t, client.Ping(t.Context()), "not signed by any")
		n.Authority.WriteCA(t, cfg.Security.TLS.CAFile)
		require.ErrorContains(t, cfg.Explain(client.Ping(t.Context())), "wrong username or password")
		writeFile(t, cfg.Security.SASL.PasswordFile, "scram-secret")
		require.NoError(t, client.Ping(t.Context()))
	})
}

func stillOwner(ctx context.Context) error { return ctx.Err() }

func TestALoginByTheDoubleToo(t *testing.T) {
	b := kafkatest.NewFake(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "weir", "scram-secret"))
	cfg := kafka.Config{Brokers: b.Brokers}
	cfg.Security.SASL = kafka.SASL{Mechanism: "SCRAM-SHA-256", Username: "weir", Password: kafka.NewSecret("scram-secret")}
	exists, err := kafka.TopicExists(t.Context(), cfg, "t")
	require.NoError(t, err)
	require.False(t, exists)
}

func TestAMechanismThatTheBrokersDoNotHaveIsNamed(t *testing.T) {
	b := kafkatest.NewFake(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "weir", "secret"))
	cfg := kafka.Config{Brokers: b.Brokers}
	cfg.Security.SASL = kafka.SASL{
		Mechanism: "oauthbearer", OAuth: kafka.OAuth{TokenFile: writeFile(t, filepath.Join(t.TempDir(), "token"), "x")},
	}
	require.ErrorContains(t, refused(t, cfg), "OAUTHBEARER is not enabled on the brokers' listener")
}

// What listens there cuts each connection: at once, at the first request, or after half of an answer. Or it says
// nothing, or is not there. Nothing of that is a reason to guess that a login is missing.
func TestAConnectionThatDoesNotWorkIsSaidAsItIs(t *testing.T) {
	serve := func(t *testing.T, f func(net.Conn)) kafka.Config {
		t.Helper()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, l.Close()) })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				f(c)
				_ = c.Close()
			}
		}()
		return kafka.Config{Brokers: []string{l.Addr().String()}}
	}
	request := func(c net.Conn) { _, _ = c.Read(make([]byte, 1024)) }
	for name, f := range map[string]func(net.Conn){
		"at once":                 func(net.Conn) {},
		"at the first request":    request,
		"after half of an answer": func(c net.Conn) { request(c); _, _ = c.Write([]byte{0, 0, 0, 9, 0}) },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := serve(t, f)
			for _, tls := range []bool{false, true} {
				cfg.Security.TLS.Enabled = tls
				opts, err := cfg.ClientOptions()
				require.NoError(t, err)
				client, err := kgo.NewClient(append(opts, kgo.RequestRetries(0), kgo.RetryTimeout(time.Millisecond))...)
				require.NoError(t, err)
				err = cfg.Explain(client.Ping(t.Context()))
				client.Close()
				require.Error(t, err)
				require.NotRegexp(t, `SASL (is )?(missing|required)|is (SASL|TLS)`, err.Error())
				require.NotRegexp(t, `^(\S+ ){0,3}EOF$`, err.Error(), "it says what happened, and not what to look at")
			}
		})
	}
	t.Run("nobody is there", func(t *testing.T) {
		cfg := kafka.Config{Brokers: []string{"127.0.0.1:1"}}
		require.ErrorContains(t, refused(t, cfg), "a broker cannot be reached: see that the address is right, which is one of brokers (127.0.0.1:1)")
	})
}

// What would print a configuration: fmt by every verb, also from within what is not exported, slog, JSON
// and YAML.
func TestNoSecretShows(t *testing.T) {
	cfg := kafka.SourceConfig{Topic: "t"}
	cfg.Security.SASL.Password = kafka.NewSecret("hunter2")
	cfg.Security.SASL.OAuth.ClientSecret = kafka.NewSecret("hunter2")
	src := kafka.Source(cfg, decodeString)
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb, cfg)
		fmt.Fprintf(&out, verb, &cfg)
		fmt.Fprintf(&out, verb, cfg.Security.SASL.Password)
		fmt.Fprintf(&out, verb, &cfg.Security.SASL.Password)
		fmt.Fprintf(&out, verb, src)
		fmt.Fprintf(&out, verb, struct{ hidden kafka.Config }{cfg.Config})
	}
	for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(h).Info("x", "cfg", cfg.Config, "password", cfg.Security.SASL.Password, "security", cfg.Security)
	}
	for _, marshal := range []func(any) ([]byte, error){json.Marshal, yaml.Marshal} {
		text, err := marshal(cfg.Config)
		require.NoError(t, err)
		out.Write(text)
		text, err = marshal(cfg.Security.SASL.Password)
		require.NoError(t, err)
		out.Write(text)
	}
	require.NotContains(t, out.String(), "hunter2")
	require.NotContains(t, out.String(), "68756e74657232")
	require.Contains(t, out.String(), "[redacted]")
}

func TestASecretInAConfigurationIsRefusedWithoutBeingShown(t *testing.T) {
	for _, text := range []string{
		"brokers: [a:1]\nsasl:\n  mechanism: plain\n  username: weir\n  password: hunter2\n",
		"brokers: [a:1]\nsasl:\n  oauth:\n    client_secret: hunter2\n",
	} {
		var cfg kafka.Config
		err := yaml.UnmarshalWithOptions([]byte(text), &cfg, yaml.Strict())
		require.ErrorContains(t, err, "a secret is not written into a configuration")
		require.NotContains(t, yaml.FormatError(err, false, true), "hunter2")
	}
}

func TestAConfigurationIsReadFromYAML(t *testing.T) {
	var cfg kafka.Config
	require.NoError(t, yaml.UnmarshalWithOptions([]byte(`
brokers: [a:1, b:2]
tls: {ca_file: ca.pem, cert_file: c.pem, key_file: k.pem, server_name: kafka}
sasl:
  mechanism: oauthbearer
  oauth: {token_url: https://idp/token, client_id: weir, client_secret_env: SECRET, scope: kafka}
`), &cfg, yaml.Strict()))
	require.NoError(t, cfg.Validate())
	require.Equal(t, kafka.Config{
		Brokers: []string{"a:1", "b:2"},
		Security: kafka.Security{
			TLS: kafka.TLS{CAFile: "ca.pem", CertFile: "c.pem", KeyFile: "k.pem", ServerName: "kafka"},
			SASL: kafka.SASL{Mechanism: "oauthbearer", OAuth: kafka.OAuth{
				TokenURL: "https://idp/token", ClientID: "weir", ClientSecretEnv: "SECRET", Scope: "kafka",
			}},
		},
	}, cfg)
}

func TestAnImpossibleSecurityIsRefused(t *testing.T) {
	for want, s := range map[string]kafka.Security{
		"cert_file and key_file belong together": {TLS: kafka.TLS{CertFile: "c"}},
		"a login without a mechanism":            {SASL: kafka.SASL{Username: "u"}},
		"plain needs a username":                 {SASL: kafka.SASL{Mechanism: "plain", PasswordFile: "f"}},
		"one of password_file and password_env": {
			SASL: kafka.SASL{Mechanism: "scram-sha-256", Username: "u", PasswordFile: "f", PasswordEnv: "E"},
		},
		`mechanism "gssapi"`:          {SASL: kafka.SASL{Mechanism: "gssapi"}},
		"one of token_file":           {SASL: kafka.SASL{Mechanism: "oauthbearer"}},
		"token_url needs a client_id": {SASL: kafka.SASL{Mechanism: "oauthbearer", OAuth: kafka.OAuth{TokenURL: "u"}}},
		"oauth is of oauthbearer": {SASL: kafka.SASL{
			Mechanism: "plain", Username: "u", PasswordEnv: "E", OAuth: kafka.OAuth{TokenFile: "f"},
		}},
	} {
		cfg := kafka.Config{Brokers: []string{"a:1"}, Security: s}
		require.ErrorContains(t, cfg.Validate(), want)
		_, err := cfg.ClientOptions()
		require.ErrorContains(t, err, want)
	}
}
