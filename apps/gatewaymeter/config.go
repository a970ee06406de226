package gatewaymeter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"example.com/weir"
	"example.com/weir/connector"
	"example.com/weir/connectors/kafka"
)

// Config configures the job. Its YAML form has the same names; durations are written like 10s,
// 15m or 1h.
type Config struct {
	Brokers []string `yaml:"brokers"` // host:port of at least one Kafka broker
	// Kafka is TLS and the login, as in the file of LoadKafka.
	Kafka  kafka.Security `yaml:"kafka"`
	Topics Topics         `yaml:"topics"`
	Prices string         `yaml:"prices"` // path of the price book

	// Checkpoints is the address of the checkpoint storage: file:///absolute/path.
	Checkpoints        string        `yaml:"checkpoints"`
	CheckpointInterval time.Duration `yaml:"checkpoint_interval"`
	// CheckpointTimeout gives a checkpoint up. 0: 10 min, or two thirds of the transaction timeout
	// if that is less, since a transaction must outlive its checkpoint.
	CheckpointTimeout time.Duration `yaml:"checkpoint_timeout"`
	// TolerableFailures is how many checkpoints in a row may fail.
	TolerableFailures int `yaml:"tolerable_checkpoint_failures"`
	Parallelism       int `yaml:"parallelism"`

	// Guarantee of tenant-cost: exactly-once, at-least-once or none.
	Guarantee string `yaml:"sink_guarantee"`
	// Prefix begins the transactional IDs; default gatewaymeter- and the topic tenant-cost's name.
	Prefix             string        `yaml:"prefix"`
	TransactionTimeout time.Duration `yaml:"transaction_timeout"`
	// LostTransaction is what is done about a transaction that was aborted after its checkpoint was completed:
	// reemit, fail or skip. DoNotKeepRecords keeps no records in checkpoints, which reemit needs.
	LostTransaction  string `yaml:"lost_transaction"`
	DoNotKeepRecords bool   `yaml:"do_not_keep_records"`
	// AcceptLineages names earlier lineages that a fresh start may replace.
	AcceptLineages []string `yaml:"accept_lineages"`

	// Restore says what the job goes on from, if not from where it was. It is asked for once, and so not
	// in a file.
	Restore weir.Restore `yaml:"-"`

	// HTTP is where metrics, health, profiles and the control endpoint are, host:port; off is nowhere.
	// Default: a free port of 127.0.0.1. HTTPRemote lets it be an address that other machines reach.
	HTTP       string `yaml:"http"`
	HTTPRemote bool   `yaml:"http_remote"`
	// StartTimeout is how long a first start is tried before the job fails; negative: for ever.
	StartTimeout time.Duration `yaml:"start_timeout"`
	// StopGrace is how long the last checkpoint may take after SIGTERM.
	StopGrace time.Duration `yaml:"stop_grace"`

	// Start says where to begin at a fresh start, as kafka.ParseStart reads it; default earliest.
	Start string `yaml:"start"`
	// Group is told the positions of completed checkpoints, for monitoring; empty: none is.
	Group string `yaml:"group"`
	// AcceptLoss, AcceptTruncation and AcceptRecreated name losses as the errors do that stopped the job.
	AcceptLoss       []string `yaml:"accept_loss"`
	AcceptTruncation []string `yaml:"accept_truncation"`
	AcceptRecreated  []string `yaml:"accept_recreated"`
	// AcceptCompaction lets the topic of the bill be compacted sooner than a commit is proved by it.
	AcceptCompaction bool `yaml:"accept_compaction"`
	// UntilEnd reads to the ends that are found at the first start, and finishes.
	UntilEnd bool `yaml:"until_end"`

	OutOfOrderness    time.Duration `yaml:"out_of_orderness"`   // rule 6
	CompletionTimeout time.Duration `yaml:"completion_timeout"` // rule 3
	AllowedLateness   time.Duration `yaml:"allowed_lateness"`   // rule 6
	Deduplication     time.Duration `yaml:"deduplication_window"`
	MaxAhead          time.Duration `yaml:"max_event_time_ahead"`
	// IdleTimeout leaves a partition that has been read up to its end out of the watermark once
	// it has been quiet for this long. 0 is never: a quiet partition holds the bill back.
	IdleTimeout time.Duration `yaml:"idle_timeout"`

	Alerts Alerts `yaml:"alerts"`
}

// Topics names the topics. Side outputs without a topic are counted and logged.
type Topics struct {
	Events     string `yaml:"gateway_events"`
	TenantCost string `yaml:"tenant_cost"`
	Alerts     string `yaml:"alerts"`
	DeadLetter string `yaml:"dead_letter"`
	Conflicts  string `yaml:"conflicts"`
	Abandoned  string `yaml:"abandoned"`
	Unmatched  string `yaml:"unmatched"`
	Unpriced   string `yaml:"unpriced"`
	Late       string `yaml:"late"`
}

// Alerts says when a tenant's minute is an alert: at least Requests requests (of any status), of
// which at least Percent percent failed.
type Alerts struct {
	Percent  int64 `yaml:"error_rate_percent"`
	Requests int64 `yaml:"error_rate_min_requests"`
}

// Default returns the configuration that the contract describes.
func Default() Config {
	return Config{
		Topics:             Topics{Events: "gateway-events", TenantCost: "tenant-cost", Alerts: DefaultAlerts},
		CheckpointInterval: 10 * time.Second,
		Parallelism:        1,
		Guarantee:          connector.ExactlyOnce.String(),
		TransactionTimeout: 15 * time.Minute,
		LostTransaction:    kafka.Reemit.String(),
		StartTimeout:       time.Minute,
		StopGrace:          30 * time.Second,
		OutOfOrderness:     5 * time.Second,
		CompletionTimeout:  10 * time.Minute,
		AllowedLateness:    time.Hour,
		Deduplication:      time.Hour,
		MaxAhead:           time.Hour,
		Alerts:             Alerts{Percent: 20, Requests: 10},
	}
}

// Load reads a YAML file over the defaults. An unknown key, a key given twice or a value of the
// wrong type is an error that shows its line.
func Load(path string) (Config, error) {
	cfg := Default()
	data, err := os.ReadFile(path)
	if err != nil {
		return cfg, fmt.Errorf("configuration: %w", err)
	}
	if len(strings.TrimSpace(string(data))) == 0 {
		return cfg, nil
	}
	d := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict())
	if err := d.Decode(&cfg); err != nil {
		return cfg, fmt.Errorf("configuration %s: %s", path, explain(err))
	}
	if err := d.Decode(&Config{}); !errors.Is(err, io.EOF) {
		return cfg, fmt.Errorf("configuration %s: it holds more than one document", path)
	}
	return cfg, nil
}

// LoadKafka reads TLS and the login from a YAML file: the sections tls and sasl.
func LoadKafka(path string) (kafka.Security, error) {
	var s kafka.Security
	data, err := os.ReadFile(path)
	if err != nil {
		return s, fmt.Errorf("kafka configuration: %w", err)
	}
	if err := yaml.UnmarshalWithOptions(data, &s, yaml.Strict()); err != nil && !errors.Is(err, io.EOF) {
		return s, fmt.Errorf("kafka configuration %s: %s", path, explain(err))
	}
	return s, nil
}

// explain says what is wrong with a file, with the line, in the words of who wrote it: a value of the wrong type is
// told by what is wanted, not by how a program holds it.
func explain(err error) string {
	var value *yaml.TypeError
	var node *yaml.UnexpectedNodeTypeError
	switch {
	case errors.As(err, &value):
		err = &yaml.SyntaxError{Message: "want " + wanted(value.DstType), Token: value.Token}
	case errors.As(err, &node) && node.Expected == ast.SequenceType:
		err = &yaml.SyntaxError{Message: "want " + aList, Token: node.Token}
	case errors.As(err, &node) && node.Expected == ast.MappingType:
		err = &yaml.SyntaxError{Message: "want " + keys, Token: node.Token}
	}
	return yaml.FormatError(err, false, true)
}

const (
	aList = "a list, like [a, b]"
	keys  = "keys of its own, indented under it"
)

// wanted names a type of the configuration.
func wanted(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "a duration, like 500ms, 10s, 15m or 1h"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.String:
		return "a text"
	case t.Kind() == reflect.Slice:
		return aList
	case t.Kind() == reflect.Struct:
		return keys
	}
	return "a whole number"
}

// Cluster says how to reach the brokers.
func (c *Config) Cluster() kafka.Config { return kafka.Config{Brokers: c.Brokers, Security: c.Kafka} }

// Validate reports every mistake that can be seen in the configuration alone.
func (c *Config) Validate() error {
	var errs []error
	want := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	want(len(c.Brokers) > 0, "brokers: name at least one, host:port")
	want(c.Topics.Events != "", "topics.gateway_events: name the topic to read")
	want(c.Topics.TenantCost != "", "topics.tenant_cost: name the topic to write")
	want(c.Prices != "", "prices: name the price book")
	want(c.Parallelism >= 1, "parallelism: %d is below 1", c.Parallelism)
	want(c.CheckpointInterval > 0, "checkpoint_interval: %s is not above 0", c.CheckpointInterval)
	want(c.CheckpointTimeout >= 0, "checkpoint_timeout: %s is below 0", c.CheckpointTimeout)
	want(c.TransactionTimeout >= time.Second, "transaction_timeout: %s is below 1s", c.TransactionTimeout)
	want(c.StartTimeout != 0, "start_timeout: 0 is no time to start in; negative: for ever")
	want(c.StopGrace > 0, "stop_grace: %s is not above 0", c.StopGrace)
	want(c.OutOfOrderness >= 0, "out_of_orderness: %s is below 0", c.OutOfOrderness)
	want(c.AllowedLateness >= 0, "allowed_lateness: %s is below 0", c.AllowedLateness)
	want(c.Deduplication >= 0, "deduplication_window: %s is below 0", c.Deduplication)
	want(c.MaxAhead > 0, "max_event_time_ahead: %s is not above 0", c.MaxAhead)
	want(c.IdleTimeout >= 0, "idle_timeout: %s is below 0", c.IdleTimeout)
	want(c.CompletionTimeout > 0, "completion_timeout: %s is not above 0", c.CompletionTimeout)
	want(c.CompletionTimeout < c.AllowedLateness,
		"completion_timeout: %s is not below allowed_lateness, which is %s: a request that is billed when "+
			"its timeout comes would find its minute closed", c.CompletionTimeout, c.AllowedLateness)
	want(c.Alerts.Percent > 0 && c.Alerts.Percent <= 100,
		"alerts.error_rate_percent: %d is not in 1 to 100", c.Alerts.Percent)
	if cluster := c.Cluster(); len(c.Brokers) > 0 {
		if err := cluster.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("kafka: %w", err))
		}
	}
	if _, err := kafka.ParseStart(c.Start); err != nil {
		errs = append(errs, err)
	}
	if _, err := c.guarantee(); err != nil {
		errs = append(errs, fmt.Errorf("sink_guarantee: %w", err))
	}
	if _, err := c.lostTransaction(); err != nil {
		errs = append(errs, fmt.Errorf("lost_transaction: %w", err))
	}
	seen := map[string]string{}
	for _, t := range c.topicNames() {
		if other, twice := seen[t.topic]; twice && t.topic != "" {
			errs = append(errs, fmt.Errorf("topics.%s and topics.%s both name %q", other, t.key, t.topic))
		}
		seen[t.topic] = t.key
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	return nil
}

type topicName struct{ key, topic string }

func (c *Config) topicNames() []topicName {
	t := &c.Topics
	return []topicName{
		{"gateway_events", t.Events},
		{"tenant_cost", t.TenantCost},
		{"alerts", t.Alerts},
		{"dead_letter", t.DeadLetter},
		{"conflicts", t.Conflicts},
		{"abandoned", t.Abandoned},
		{"unmatched", t.Unmatched},
		{"unpriced", t.Unpriced},
		{"late", t.Late},
	}
}

func (c *Config) guarantee() (connector.Guarantee, error) {
	return connector.ParseGuarantee(c.Guarantee)
}

func (c *Config) lostTransaction() (kafka.LostTransaction, error) {
	return kafka.ParseLostTransaction(c.LostTransaction)
}

// DefaultAlerts is the topic of alerts unless another one is named.
const DefaultAlerts = "alerts"

// CountMissingAlerts looks for the topic of alerts. Where it is the default one and is not there, alerts
// are counted and logged like the side outputs that have no topic, and a warning says so; a topic that
// was named has to be there.
func (c *Config) CountMissingAlerts(logger *slog.Logger) {
	if c.Topics.Alerts != DefaultAlerts {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	exists, err := kafka.TopicExists(ctx, c.Cluster(), DefaultAlerts)
	if err != nil || exists {
		return // brokers that are away are waited for by the job itself
	}
	logger.Warn("the topic alerts does not exist: alerts are counted and logged; create it and start again, " +
		"or name another one")
	c.Topics.Alerts = ""
}

// checkpointTimeout returns the timeout of a checkpoint.
func (c *Config) checkpointTimeout() time.Duration {
	if c.CheckpointTimeout > 0 {
		return c.CheckpointTimeout
	}
	return min(10*time.Minute, c.TransactionTimeout*2/3)
}

// restart returns the restart strategy: its longest delay and the checkpoint timeout fit into the
// transaction timeout, so that what was written before a failure can be committed after it.
func (c *Config) restart() weir.Restart {
	left := c.TransactionTimeout - c.checkpointTimeout()
	return weir.ExponentialDelay{MaxDelay: max(min(time.Minute, left), time.Millisecond)}
}

// prefix returns the transactional-ID prefix: by default one that two jobs with different output
// topics do not share.
func (c *Config) prefix() string {
	if c.Prefix != "" {
		return c.Prefix
	}
	return "gatewaymeter-" + c.Topics.TenantCost
}
