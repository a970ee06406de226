package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"example.com/weir"
	"example.com/weir/apps/gatewaymeter/lab"
	"example.com/weir/internal/command"
)

func labCommand() *cobra.Command {
	var all []*cobra.Command
	for _, l := range lab.Labs() {
		all = append(all, oneLabCommand(l))
	}
	return command.Group("lab", "Show a failure live: what it does to a bill, and why", all...)
}

func oneLabCommand(l lab.Lab) *cobra.Command {
	var cfg lab.Config
	c := &cobra.Command{
		Use: l.Number, Short: l.Title, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return runLab(l, cfg) },
	}
	f := c.Flags()
	f.StringSliceVar(&cfg.Brokers, "brokers", nil, "a Kafka cluster, host:port[,host:port] (default a broker in this process)")
	f.BoolVar(&cfg.Fast, "fast", false, "shorten the waits: what happens is the same")
	f.Uint64Var(&cfg.Seed, "seed", 1, "what the requests are drawn from")
	f.StringVar(&cfg.Guarantee, "sink-guarantee", "", "of the bill, in place of the lab's own: then it has nothing to show, and says so")
	f.BoolVar(&cfg.Keep, "keep", false, "keep the folder with the checkpoints and the job's log")
	return c
}

func runLab(l lab.Lab, cfg lab.Config) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if cfg.Binary, err = os.Executable(); err != nil {
		return &command.Error{Code: weir.ExitFailed, Cause: err}
	}
	err = l.Run(ctx, cfg, os.Stdout)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, lab.ErrInvalid):
		return &command.Error{Code: weir.ExitUsage, Cause: err}
	case ctx.Err() != nil && !errors.Is(err, lab.ErrNotShown):
		return &command.Error{Code: weir.ExitInterrupted}
	}
	return &command.Error{Code: weir.ExitFailed} // it has been printed
}
