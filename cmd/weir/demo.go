package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.com/weir"
	"example.com/weir/apps/gatewaymeter/demo"
	"example.com/weir/apps/gatewaymeter/feed"
	"example.com/weir/internal/command"
)

func demoCommand() *cobra.Command {
	var cfg demo.Config
	c := &cobra.Command{
		Use:   "demo",
		Short: "Show that a bill is right, to the last digit, through kills of the job",
		Long: "Lets GatewayMeter bill a replay of requests while it is killed with SIGKILL again and again, at moments\n" +
			"drawn from a seed, and holds the bill that a consumer of tenant-cost read against the true one. It needs\n" +
			"nothing but this program: the broker runs in it. It fails if one minute is missing, doubled or different,\n" +
			"or if a kill was not where it was planned.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !c.Flags().Changed("trace") && !c.Flags().Changed("prices") {
				cfg.Trace, cfg.Prices = feed.Beside()
			}
			return runDemo(cfg)
		},
	}
	demoFlags(c.Flags(), &cfg)
	return c
}

func demoFlags(f *pflag.FlagSet, c *demo.Config) {
	f.Uint64Var(&c.Seed, "seed", 1, "what the replay and the moments of kills are drawn from")
	f.IntVar(&c.Kills, "kills", 5, "how often the job is killed")
	f.Float64Var(&c.Rate, "rate", 500, "requests in a second, in real time")
	f.DurationVar(&c.Duration, "duration", 30*time.Second, "how long requests come, in real time")
	f.Float64Var(&c.Speedup, "speedup", 60, "how much faster event time passes than real time")
	f.IntVar(&c.Tenants, "tenants", 20, "tenants that send requests")
	f.StringVar(&c.Trace, "trace", "", "trace of requests (default that in ../shared/data, else the sample)")
	f.StringVar(&c.Prices, "prices", "", "price book (default that in ../shared/data, else the sample)")
	f.StringSliceVar(&c.Brokers, "brokers", nil, "a Kafka cluster, host:port[,host:port] (default a broker in this process)")
	f.StringVar(&c.Guarantee, "sink-guarantee", "exactly-once", "of the bill: exactly-once or at-least-once")
	f.IntVar(&c.Parallelism, "parallelism", 2, "subtasks of each operator")
	f.DurationVar(&c.Interval, "checkpoint-interval", time.Second, "between checkpoints")
	f.BoolVar(&c.Keep, "keep", false, "keep the folder with the checkpoints")
}

func runDemo(cfg demo.Config) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if cfg.Binary, err = os.Executable(); err != nil {
		return &command.Error{Code: weir.ExitFailed, Cause: err}
	}
	err = demo.Run(ctx, cfg, os.Stdout)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, demo.ErrInvalid):
		return &command.Error{Code: weir.ExitUsage, Cause: err}
	case ctx.Err() != nil && !errors.Is(err, demo.ErrWrong):
		return &command.Error{Code: weir.ExitInterrupted}
	}
	return &command.Error{Code: weir.ExitFailed} // it has been printed
}
