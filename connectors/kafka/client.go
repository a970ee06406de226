package kafka

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Config says how to reach a cluster. Sources, sinks and every other client share it.
type Config struct {
	// Brokers are the bootstrap addresses, host:port. At least one is needed.
	Brokers []string `yaml:"brokers" json:"brokers"`
	// ClientID names the client to the brokers, for their logs and quotas; the default is "weir".
	ClientID string `yaml:"client_id" json:"client_id,omitempty"`
	// Security is TLS and the login; the default is neither.
	Security Security `yaml:",inline"`
	// DialTimeout bounds one try to connect; the default is 10 s.
	DialTimeout time.Duration `yaml:"dial_timeout" json:"dial_timeout,omitempty"`
}

// Validate reports what makes the configuration impossible, without asking the cluster and without
// reading a file.
func (c *Config) Validate() error { return c.validate() }

func (c *Config) validate() error {
	if len(c.Brokers) == 0 {
		return errors.New("no brokers: want at least one address, host:port")
	}
	if slices.Contains(c.Brokers, "") {
		return fmt.Errorf("brokers %q: one address is empty; want host:port", c.Brokers)
	}
	return c.Security.check()
}

// ClientOptions returns what a program's own client needs to reach the cluster in the same way.
func (c *Config) ClientOptions() ([]kgo.Opt, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	return c.options(), nil
}

// Explain says in a sentence what an error of a client means where it is about the login, and leaves other
// errors as they are.
func (c *Config) Explain(err error) error { return c.explain(err) }

// options are the options of every client, before those of its use.
func (c *Config) options() []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(orDefault(c.ClientID, "weir")),
		// Metadata that is asked for again is new: the default of 5 s makes a fresh topic take that long.
		kgo.MetadataMinAge(100 * time.Millisecond),
		// The client pushes no metrics about the job to the brokers.
		kgo.DisableClientMetrics(),
	}
	return append(opts, c.Security.options(orDefault(c.DialTimeout, 10*time.Second))...)
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
