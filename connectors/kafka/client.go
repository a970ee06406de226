package kafka

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
)

// Config says how to reach a cluster. The source and the sink share it.
type Config struct {
	// Brokers are the bootstrap addresses, host:port. At least one is needed.
	Brokers []string
	// ClientID names the client to the brokers, for their logs and quotas; the default is "weir".
	ClientID string
	// TLS is the configuration of TLS; nil is no TLS.
	TLS *tls.Config
	// SASL authenticates the client; nil is no authentication. See franz-go's packages below pkg/sasl.
	SASL sasl.Mechanism
	// DialTimeout bounds one try to connect; the default is 10 s.
	DialTimeout time.Duration
}

// validate reports what makes the configuration impossible, without asking the cluster.
func (c *Config) validate() error {
	if len(c.Brokers) == 0 {
		return errors.New("no brokers: want at least one address, host:port")
	}
	return nil
}

// options are the options of every client, before those of its use.
func (c *Config) options() []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(orDefault(c.ClientID, "weir")),
		kgo.DialTimeout(orDefault(c.DialTimeout, 10*time.Second)),
		// Metadata that is asked for again is new: the default of 5 s makes a fresh topic take that long.
		kgo.MetadataMinAge(100 * time.Millisecond),
		// The client pushes no metrics about the job to the brokers.
		kgo.DisableClientMetrics(),
	}
	if c.TLS != nil {
		opts = append(opts, kgo.DialTLSConfig(c.TLS))
	}
	if c.SASL != nil {
		opts = append(opts, kgo.SASL(c.SASL))
	}
	return opts
}

// logTo makes a client log through logger; with nil it is silent.
func logTo(logger *slog.Logger) kgo.Opt {
	if logger == nil {
		return kgo.WithLogger(nil)
	}
	return kgo.WithLogger(clientLog{logger})
}

func orDefault[V comparable](v, def V) V {
	var zero V
	if v == zero {
		return def
	}
	return v
}

// clientLog hands the client library's warnings and errors to the logger, one level lower: what matters to the job
// comes up as an error of the connector, and a library's "unable to dial, retrying" is a detail of it.
type clientLog struct{ logger *slog.Logger }

func (clientLog) Level() kgo.LogLevel { return kgo.LogLevelWarn }

func (l clientLog) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	to := l.logger.Debug
	if level == kgo.LogLevelError {
		to = l.logger.Warn
	}
	to("kafka client: "+msg, keyvals...)
}
