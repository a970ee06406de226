package main

import (
	"log/slog"
	"os"
	"runtime/pprof"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.com/weir"
	"example.com/weir/apps/gatewaymeter"
	"example.com/weir/connectors/kafka"
	"example.com/weir/internal/command"
)

func runCommand() *cobra.Command {
	return command.Group("run", "Run a job", runGatewayMeterCommand())
}

func explainCommand() *cobra.Command {
	return command.Group("explain", "Print the graph of a job", explainGatewayMeterCommand())
}

// meterFlags are the flags of a command about the job gatewaymeter.
type meterFlags struct {
	file string
	over gatewaymeter.Config
}

func newMeterFlags(c *cobra.Command) *meterFlags {
	m := &meterFlags{over: gatewaymeter.Default()}
	c.Flags().StringVar(&m.file, "config", "", "YAML file with the configuration")
	gatewayMeterFlags(c.Flags(), &m.over)
	c.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "storage" { // as it is called everywhere else
			name = "checkpoints"
		}
		return pflag.NormalizedName(name)
	})
	return m
}

func (m *meterFlags) config(c *cobra.Command) (gatewaymeter.Config, error) {
	cfg, err := configure(c.Flags(), m.file, &m.over)
	if err != nil {
		return cfg, &command.Error{Code: weir.ExitUsage, Cause: err}
	}
	return cfg, nil
}

func runGatewayMeterCommand() *cobra.Command {
	var logs command.Logs
	var restore weir.Restore
	var profile string
	var every time.Duration
	c := &cobra.Command{
		Use:   "gatewaymeter",
		Short: "Bill the usage of an API gateway per tenant and minute",
		Long: "Reads usage events from a Kafka topic and writes a bill per tenant and minute to another.\n" +
			"Nearly every setting can be given in a YAML file (--config) and overridden by its flag.",
		Args: cobra.NoArgs,
	}
	meter := newMeterFlags(c)
	command.RestoreFlags(c.Flags(), &restore)
	logs.Flags(c.Flags())
	c.Flags().DurationVar(&every, "progress-interval", 0,
		"log this often how far the job has read, and where barriers cut; 0: at checkpoints only")
	c.Flags().StringVar(&profile, "cpuprofile", "", "write a CPU profile to this file")
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := meter.config(c)
		if err != nil {
			return err
		}
		cfg.Restore = restore
		logger, err := logs.Logger(os.Stderr)
		if err != nil {
			return err
		}
		stop, err := startProfile(profile)
		if err != nil {
			return err
		}
		defer stop()
		return runGatewayMeter(cfg, logger, every)
	}
	return c
}

func explainGatewayMeterCommand() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: "gatewaymeter", Short: "Print the graph of the billing job: operators, chains, exchanges, guarantees",
		Args: cobra.NoArgs,
	}
	meter := newMeterFlags(c)
	c.Flags().StringVar(&format, "format", "text", "text, dot (Graphviz) or mermaid")
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := meter.config(c)
		if err != nil {
			return err
		}
		job, err := gatewaymeter.New(cfg, slog.New(slog.DiscardHandler), weir.Observer{})
		if err == nil {
			err = job.Explain(c.OutOrStdout(), format)
		}
		if err != nil {
			return &command.Error{Code: weir.ExitUsage, Cause: err}
		}
		return nil
	}
	return c
}

func runGatewayMeter(cfg gatewaymeter.Config, logger *slog.Logger, every time.Duration) error {
	ours := logger.With("job", gatewaymeter.JobName) // the job's own logger says so by itself
	cfg.CountMissingAlerts(ours)
	p := &progress{logger: ours, every: every}
	done := make(chan struct{})
	defer close(done)
	go p.tick(done)
	stood := &pauses{}
	job, err := gatewaymeter.New(cfg, logger, stood.observe(p.observer()))
	if err != nil {
		return &command.Error{Code: weir.ExitUsage, Cause: err}
	}
	code := weir.Serve(job)
	stood.log(ours)
	if code != weir.ExitOK {
		return &command.Error{Code: code}
	}
	return nil
}

// startProfile writes a CPU profile until stop is called; an empty path writes none.
func startProfile(path string) (stop func(), err error) {
	if path == "" {
		return func() {}, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		f.Close()
	}, nil
}

// gatewayMeterFlags declares a flag for each setting of c, with its present value for the default.
func gatewayMeterFlags(f *pflag.FlagSet, c *gatewaymeter.Config) {
	f.StringSliceVar(&c.Brokers, "brokers", c.Brokers, "Kafka brokers, host:port[,host:port]")
	f.Var(&kafkaFile{to: &c.Kafka}, "kafka-config", "YAML file with TLS and the login: the sections tls and sasl")
	f.StringVar(&c.Start, "start", c.Start, "where a fresh start begins: earliest, latest, a time, "+
		"group:NAME:earliest|latest|fail or offsets:0=120,1=0")
	f.StringVar(&c.Group, "group", c.Group, "consumer group that is told the positions of checkpoints, for monitoring")
	f.StringSliceVar(&c.AcceptLoss, "accept-loss", c.AcceptLoss,
		"go on without the records that the error names, topic/partition@offset")
	f.StringSliceVar(&c.AcceptTruncation, "accept-truncation", c.AcceptTruncation,
		"go on where the log was cut, topic/partition@offset:epoch")
	f.StringSliceVar(&c.AcceptRecreated, "accept-recreated", c.AcceptRecreated,
		"read the topic that was made again, topic@ID")
	f.BoolVar(&c.AcceptCompaction, "accept-compaction", c.AcceptCompaction,
		"write to a topic of the bill that is compacted sooner than a commit is proved")
	f.StringVar(&c.Topics.Events, "gateway-events-topic", c.Topics.Events, "topic to read")
	f.StringVar(&c.Topics.TenantCost, "tenant-cost-topic", c.Topics.TenantCost, "topic of the bill")
	f.StringVar(&c.Topics.Alerts, "alerts-topic", c.Topics.Alerts, "topic of alerts; empty: counted and logged")
	for _, s := range sideTopics(c) {
		f.StringVar(s.topic, s.flag, *s.topic, "topic of this side output; empty: counted and logged")
	}
	f.StringVar(&c.Prices, "prices", c.Prices, "price book, in the form of genai-prices")
	f.StringVar(&c.Checkpoints, "checkpoints", c.Checkpoints, "address of the checkpoint storage, file:///path")
	f.DurationVar(&c.CheckpointInterval, "checkpoint-interval", c.CheckpointInterval, "between checkpoints")
	f.DurationVar(&c.CheckpointTimeout, "checkpoint-timeout", c.CheckpointTimeout,
		"give a checkpoint up; 0: 10m, or two thirds of the transaction timeout if that is less")
	f.IntVar(&c.TolerableFailures, "tolerable-checkpoint-failures", c.TolerableFailures, "checkpoints in a row that may fail")
	f.IntVar(&c.Parallelism, "parallelism", c.Parallelism, "subtasks of each operator")
	f.StringVar(&c.Guarantee, "sink-guarantee", c.Guarantee, "of the bill: exactly-once, at-least-once or none")
	f.StringVar(&c.Prefix, "prefix", c.Prefix, "prefix of transactional IDs (default gatewaymeter-TOPIC)")
	f.DurationVar(&c.TransactionTimeout, "transaction-timeout", c.TransactionTimeout,
		"how long the brokers leave a transaction open")
	f.StringVar(&c.LostTransaction, "lost-transaction", c.LostTransaction, "of a transaction that was aborted after its "+
		"checkpoint: reemit writes its records again, fail stops the job, skip goes on without them")
	f.BoolVar(&c.DoNotKeepRecords, "do-not-keep-records", c.DoNotKeepRecords,
		"keep no records of open transactions in checkpoints, which reemit needs")
	f.StringVar(&c.HTTP, "http", c.HTTP, "address of metrics, health, profiles and control, host:port; off: none "+
		"(default a free port of 127.0.0.1)")
	f.BoolVar(&c.HTTPRemote, "http-remote", c.HTTPRemote, "let --http be an address that other machines reach: "+
		"for metrics and health; control and profiles stay on this one")
	f.DurationVar(&c.StartTimeout, "start-timeout", c.StartTimeout, "how long a first start is tried before the job fails; "+
		"negative: for ever")
	f.DurationVar(&c.StopGrace, "stop-grace", c.StopGrace, "after SIGTERM, how long the last checkpoint may take")
	f.StringSliceVar(&c.AcceptLineages, "accept-lineage", c.AcceptLineages, "earlier lineages that a fresh start may replace")
	f.BoolVar(&c.UntilEnd, "until-end", c.UntilEnd, "read to the ends found at the first start, then finish")
	f.DurationVar(&c.OutOfOrderness, "out-of-orderness", c.OutOfOrderness, "how late an event may come in its partition")
	f.DurationVar(&c.CompletionTimeout, "completion-timeout", c.CompletionTimeout, "wait for a request's other half")
	f.DurationVar(&c.AllowedLateness, "allowed-lateness", c.AllowedLateness, "how long a closed minute takes corrections")
	f.DurationVar(&c.Deduplication, "deduplication-window", c.Deduplication, "how long a request is remembered")
	f.DurationVar(&c.MaxAhead, "max-event-time-ahead", c.MaxAhead, "bound of event times ahead of the record's own")
	f.DurationVar(&c.IdleTimeout, "idle-timeout", c.IdleTimeout, "leave a quiet partition out after this long; 0: never")
	f.Int64Var(&c.Alerts.Percent, "error-rate-percent", c.Alerts.Percent, "failed requests that make an alert")
	f.Int64Var(&c.Alerts.Requests, "error-rate-min-requests", c.Alerts.Requests, "requests a minute needs for it")
}

// kafkaFile is a flag that reads TLS and the login from a file.
type kafkaFile struct {
	to   *kafka.Security
	path string
}

func (k *kafkaFile) String() string { return k.path }
func (k *kafkaFile) Type() string   { return "file" }
func (k *kafkaFile) Set(path string) (err error) {
	k.path = path
	*k.to, err = gatewaymeter.LoadKafka(path)
	return err
}

type sideTopic struct {
	flag  string
	topic *string
}

func sideTopics(c *gatewaymeter.Config) []sideTopic {
	t := &c.Topics
	return []sideTopic{
		{"dead-letter-topic", &t.DeadLetter},
		{"conflicts-topic", &t.Conflicts},
		{"abandoned-topic", &t.Abandoned},
		{"unmatched-topic", &t.Unmatched},
		{"unpriced-topic", &t.Unpriced},
		{"late-topic", &t.Late},
	}
}

// configure returns the file's configuration with the flags that were set over it.
func configure(
	f *pflag.FlagSet, file string, over *gatewaymeter.Config,
) (gatewaymeter.Config, error) {
	if file == "" {
		return *over, over.Validate()
	}
	cfg, err := gatewaymeter.Load(file)
	if err != nil {
		return cfg, err
	}
	flags := pflag.NewFlagSet("file", pflag.ContinueOnError)
	gatewayMeterFlags(flags, &cfg)
	f.Visit(func(set *pflag.Flag) {
		target := flags.Lookup(set.Name)
		if target == nil || err != nil {
			return // --config and the like are not settings of the job
		}
		err = copyFlag(target.Value, set.Value)
	})
	if err != nil {
		return cfg, err
	}
	return cfg, cfg.Validate()
}

// copyFlag sets one flag's value to another's.
func copyFlag(to, from pflag.Value) error {
	if list, ok := from.(pflag.SliceValue); ok {
		return to.(pflag.SliceValue).Replace(list.GetSlice())
	}
	return to.Set(from.String())
}
