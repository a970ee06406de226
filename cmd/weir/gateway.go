package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/weir"
	"example.com/weir/apps/gatewaymeter/feed"
	"example.com/weir/apps/gatewaymeter/replay"
	"example.com/weir/connectors/kafka"
	"example.com/weir/internal/command"
)

func gatewayCommand() *cobra.Command {
	return command.Group("gateway", "Stand in for the API gateway that GatewayMeter bills", gatewayReplayCommand())
}

// gatewayReplay are the settings of weir gateway replay.
type gatewayReplay struct {
	config        replay.Config
	trace, prices string
	start         string
	brokers       []string
	kafka         kafka.Security
	topic         string
	speedup       float64
}

func gatewayReplayCommand() *cobra.Command {
	g := gatewayReplay{config: replay.Config{Shares: replay.Usual()}}
	c := &cobra.Command{
		Use:   "replay",
		Short: "Write the events of a trace of requests, to a topic or to standard output",
		Long: "Makes the events that gateways would have written for a trace of requests to language models, and\n" +
			"writes them to a topic, which it does not create, or as lines of JSON to standard output. The same\n" +
			"settings make the same events; each record's timestamp is the time at which the replay has it written.",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return g.run(ctx, os.Stdout, os.Stderr)
		},
	}
	g.flags(c.Flags())
	return c
}

func (g *gatewayReplay) flags(f *pflag.FlagSet) {
	c := &g.config
	f.StringSliceVar(&g.brokers, "brokers", nil, "Kafka brokers, host:port[,host:port]")
	f.Var(&kafkaFile{to: &g.kafka}, "kafka-config", "YAML file with TLS and the login: the sections tls and sasl")
	f.StringVar(&g.topic, "topic", "", "topic to write to; without one, standard output")
	f.Float64Var(&g.speedup, "speedup", 0, "how much faster than the events' own times; 0: as fast as possible")
	f.StringVar(&g.trace, "trace", "", "trace, CSV: TIMESTAMP,ContextTokens,GeneratedTokens (default the sample)")
	f.StringVar(&g.prices, "prices", "", "price book of the models, in the form of genai-prices (default the sample)")
	f.StringVar(&g.start, "start", "trace", "when the first request comes: trace (as in the trace), now, recent "+
		"(so that the last one comes about now), or a time like 2026-03-02T10:00:00Z")
	f.Uint64Var(&c.Seed, "seed", 1, "what everything is drawn from")
	f.IntVar(&c.Requests, "requests", 0, "end after so many requests (default one for each row, unless --duration)")
	f.DurationVar(&c.Duration, "duration", 0, "end so long, in the events' own time, after the first request")
	f.Float64Var(&c.Rate, "rate", 0, "requests in a second of the events' own time; 0: as in the trace")
	f.IntVar(&c.Tenants, "tenants", 20, "tenants: the n-th sends 1/n of what the first one sends")
	f.DurationVar(&c.LateMin, "late-min", time.Minute, "how long after its event a late record comes, at least")
	f.DurationVar(&c.LateMax, "late-max", 50*time.Minute, "how long after it a late or repeated record comes, at most")
	f.StringVar(&c.IDPrefix, "id-prefix", "",
		"begins every request ID; two replays into one topic need two (default from the seed)")
	for _, s := range shareFlags(&c.Shares) {
		f.Float64Var(s.share, s.flag, *s.share, "share, 0 to 1: "+s.what)
	}
}

type shareFlag struct {
	flag  string
	share *float64
	what  string
}

func shareFlags(s *replay.Shares) []shareFlag {
	return []shareFlag{
		{"cancelled", &s.Cancelled, "requests that are cancelled"},
		{"failed", &s.Failed, "requests that fail"},
		{"no-usage", &s.NoUsage, "requests that did not fail and report no usage"},
		{"cached", &s.Cached, "requests with cached tokens, where the model has a cache"},
		{"unknown-model", &s.UnknownModel, "requests to a model that the price book does not have"},
		{"fallback", &s.Fallback, "requests that another model answers"},
		{"started-alone", &s.StartedAlone, "requests that nothing completes"},
		{"completed-alone", &s.CompletedAlone, "requests without RequestStarted that can be billed"},
		{"unmatched", &s.Unmatched, "requests without RequestStarted that cannot be billed"},
		{"completed-first", &s.CompletedFirst, "requests whose RequestCompleted comes first"},
		{"spread", &s.Spread, "requests whose halves lie in different partitions"},
		{"late", &s.Late, "requests that come late as a whole"},
		{"late-completed", &s.LateCompleted, "requests whose RequestCompleted comes late"},
		{"too-late", &s.TooLate, "requests that come 2 to 3 hours late"},
		{"repeated", &s.Repeated, "events that are sent again"},
		{"conflicting", &s.Conflicting, "requests with a second, different event of a kind"},
		{"bad", &s.Bad, "requests followed by a record that is no event"},
	}
}

func (g *gatewayReplay) run(ctx context.Context, out, messages io.Writer) error {
	if (g.topic == "") != (len(g.brokers) == 0) {
		return &command.Error{Code: weir.ExitUsage, Cause: errors.New("--topic and --brokers belong together")}
	}
	in, err := feed.Load(g.trace, g.prices)
	if err != nil {
		return &command.Error{Code: weir.ExitUsage, Cause: err}
	}
	g.config.Trace, g.config.Models = in.Trace, in.Models
	if g.config.Start, err = g.startTime(time.Now()); err != nil {
		return &command.Error{Code: weir.ExitUsage, Cause: err}
	}
	if g.topic == "" {
		return g.toLines(ctx, out)
	}
	return g.toTopic(ctx, messages)
}

func (g *gatewayReplay) toLines(ctx context.Context, out io.Writer) error {
	generator, err := replay.New(g.config)
	if err != nil {
		return &command.Error{Code: weir.ExitUsage, Cause: err}
	}
	buffered := bufio.NewWriter(out)
	if g.speedup > 0 {
		buffered = bufio.NewWriterSize(out, 1) // a line is seen when it is due
	}
	_, err = feed.ToLines(ctx, buffered, feed.Paced(ctx, generator.All(), g.speedup))
	if err = errors.Join(err, buffered.Flush()); err != nil {
		return &command.Error{Code: weir.ExitFailed, Cause: err}
	}
	return nil
}

func (g *gatewayReplay) toTopic(ctx context.Context, messages io.Writer) error {
	cluster := kafka.Config{Brokers: g.brokers, ClientID: "weir-gateway", Security: g.kafka}
	opts, err := cluster.ClientOptions()
	if err != nil {
		return &command.Error{Code: weir.ExitUsage, Cause: err}
	}
	client, err := kgo.NewClient(append(opts, feed.Options()...)...)
	if err != nil {
		return &command.Error{Code: weir.ExitUsage, Cause: err}
	}
	defer client.Close()
	if g.config.Partitions, err = feed.Partitions(ctx, client, g.topic); err != nil {
		return &command.Error{Code: weir.ExitFailed, Cause: cluster.Explain(err)}
	}
	generator, err := replay.New(g.config)
	if err != nil {
		return &command.Error{Code: weir.ExitUsage, Cause: err}
	}
	written, err := feed.ToTopic(ctx, client, g.topic, feed.Paced(ctx, generator.All(), g.speedup), nil)
	fmt.Fprintf(messages, "%d records written to %s, in %d partitions\n", written, g.topic, g.config.Partitions)
	if err != nil {
		return &command.Error{Code: weir.ExitFailed, Cause: err}
	}
	return nil
}

// aheadOfBrokers is how far the timestamp of a record may lie ahead of a broker's clock
// (message.timestamp.after.max.ms).
const aheadOfBrokers = time.Hour

// startTime reads --start. The zero time is when the trace begins.
func (g *gatewayReplay) startTime(now time.Time) (time.Time, error) {
	switch g.start {
	case "trace":
		return time.Time{}, nil
	case "now":
		return now, nil
	case "recent":
		at := now.Add(-g.length())
		if late := g.config.MaxLate(); late > aheadOfBrokers { // its record would be refused
			at = at.Add(-late)
		}
		return at, nil
	}
	at, err := time.Parse(time.RFC3339, g.start)
	if err != nil {
		return at, fmt.Errorf("--start %q: want trace, now, recent or a time like 2026-03-02T10:00:00Z", g.start)
	}
	return at, nil
}

// length is about how long the requests come, in the events' own time.
func (g *gatewayReplay) length() time.Duration {
	c := &g.config
	if c.Duration > 0 {
		return c.Duration
	}
	rows := len(c.Trace)
	requests := c.Requests
	if requests == 0 {
		requests = rows
	}
	gap := c.Trace[rows-1].At.Sub(c.Trace[0].At).Seconds() / math.Max(float64(rows-1), 1)
	if c.Rate > 0 {
		gap = 1 / c.Rate
	}
	return time.Duration(gap * float64(requests) * float64(time.Second))
}
