package main

import (
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"example.com/weir"
	"example.com/weir/apps/gatewaymeter"
	"example.com/weir/internal/command"
)

// txnCommand has a command for each thing to do with transactions, and below it one for each job.
func txnCommand() *cobra.Command {
	meters := map[*cobra.Command]*meterFlags{}
	var verbs []*cobra.Command
	for _, c := range command.TransactionCommands(func(c *cobra.Command) (command.Outside, error) {
		return outsideOfGatewayMeter(c, meters[c])
	}) {
		meters[c] = newMeterFlags(c)
		verb := c.Name()
		c.Use = "gatewaymeter" + strings.TrimPrefix(c.Use, verb)
		verbs = append(verbs, command.Group(verb, c.Short, c))
	}
	return command.Group("txn", command.TransactionsShort, verbs...)
}

func outsideOfGatewayMeter(c *cobra.Command, meter *meterFlags) (command.Outside, error) {
	cfg, err := meter.config(c)
	if err != nil {
		return command.Outside{}, err
	}
	job, err := gatewaymeter.New(cfg, slog.New(slog.DiscardHandler), weir.Observer{})
	if err != nil {
		return command.Outside{}, &command.Error{Code: weir.ExitUsage, Cause: err}
	}
	return job.Outside()
}
