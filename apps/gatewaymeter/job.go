package gatewaymeter

import (
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"

	"example.com/weir"
	"example.com/weir/apps/gatewaymeter/gateway"
	"example.com/weir/apps/gatewaymeter/price"
	"example.com/weir/connector"
	"example.com/weir/connectors/kafka"
)

// JobName is the name under which the job keeps its checkpoints.
const JobName = "gatewaymeter"

// New builds the job that a configuration describes.
func New(cfg Config, logger *slog.Logger, observer weir.Observer) (*weir.Job, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	ours := logger.With("job", JobName) // the job's own logger says so by itself
	book, err := loadBook(cfg.Prices, ours)
	if err != nil {
		return nil, err
	}
	counted, known := &counts{}, newNames()
	j := weir.NewJob(JobName, weir.Config{
		Parallelism: cfg.Parallelism,
		Checkpoint: weir.Checkpoint{
			Storage: cfg.Checkpoints, Interval: cfg.CheckpointInterval,
			Timeout: cfg.checkpointTimeout(), TolerableFailures: cfg.TolerableFailures, AcceptLineages: cfg.AcceptLineages,
		},
		Restart: cfg.restart(), Restore: cfg.Restore, HTTP: weir.HTTP{Address: cfg.HTTP, Remote: cfg.HTTPRemote}, StopGrace: cfg.StopGrace,
		StartTimeout: cfg.StartTimeout,
		Logger:       logger, Observer: counted.logged(observer, ours),
	})
	start, _ := kafka.ParseStart(cfg.Start) // Validate has looked at it
	source := kafka.Source(kafka.SourceConfig{
		Config: cfg.Cluster(), Topic: cfg.Topics.Events, Start: start, UntilEnd: cfg.UntilEnd, Group: cfg.Group,
		AcceptLoss: cfg.AcceptLoss, AcceptTruncation: cfg.AcceptTruncation, AcceptRecreated: cfg.AcceptRecreated,
	}, (&decoder{names: known}).decode)
	events, dead := weir.FromWithDeadLetters(j, "gateway-events", source, weir.TimeConfig[arrival]{
		EventTime: (*arrival).EventTime, OutOfOrderness: cfg.OutOfOrderness,
		MaxAhead: cfg.MaxAhead, IdleAfter: cfg.IdleTimeout,
	})
	sideTo(dead, "dead-letter", cfg.Topics.DeadLetter, &cfg, encodeDeadLetter)
	requests := assemble(events, &cfg, book, known, counted)
	meter(requests, &cfg)
	return j, nil
}

// assemble adds rules 1 to 5, and the side outputs that belong to them.
func assemble(
	events weir.Stream[arrival], cfg *Config, book *price.Book, known *names, counted *counts,
) weir.Stream[Priced] {
	side := sides{
		conflicts: weir.NewSideOutput[SideEvent]("conflicts"),
		abandoned: weir.NewSideOutput[SideEvent]("abandoned"),
		unmatched: weir.NewSideOutput[SideEvent]("unmatched"),
		unpriced:  weir.NewSideOutput[Priced]("unpriced"),
	}
	requests := weir.Process(weir.KeyByBytes(events, appendRequestKey), "assemble",
		func() weir.Processor[string, arrival, Priced] {
			return &assembler{
				timeout: cfg.CompletionTimeout, deduplication: cfg.Deduplication,
				lateness: cfg.AllowedLateness, prices: book.NewCache(), sides: side, counts: counted,
				requests: requests{names: known},
			}
		})
	sideTo(weir.Side(requests, side.conflicts), "conflicts", cfg.Topics.Conflicts, cfg,
		encodeSideEvent(gateway.Conflicts))
	sideTo(weir.Side(requests, side.abandoned), "abandoned", cfg.Topics.Abandoned, cfg,
		encodeSideEvent(gateway.Abandoned))
	sideTo(weir.Side(requests, side.unmatched), "unmatched", cfg.Topics.Unmatched, cfg,
		encodeSideEvent(gateway.Unmatched))
	unpriced := weir.Side(requests, side.unpriced)
	sideTo(unpriced, "unpriced", cfg.Topics.Unpriced, cfg, encodeUnpriced)
	alerts := weir.Process(weir.KeyBy(unpriced, modelMinuteOf), "alert-unpriced",
		func() weir.Processor[modelMinute, Priced, UnpricedAlert] {
			return &unpricedAlerts{remember: cfg.AllowedLateness + cfg.Deduplication}
		})
	sideTo(alerts, "alerts-unpriced", cfg.Topics.Alerts, cfg, encodeUnpricedAlert)
	return requests
}

// meter adds rule 6, its alerts and its sink.
func meter(requests weir.Stream[Priced], cfg *Config) {
	late := weir.NewSideOutput[Priced]("late")
	errorRates := weir.NewSideOutput[ErrorRate]("error-rate")
	minutes := weir.Aggregate(
		weir.Window(weir.KeyBy(requests, (*Priced).tenantID), weir.Tumbling(oneMinute),
			weir.AllowedLateness(cfg.AllowedLateness), weir.LateTo(late)),
		"tenant-cost", sum{alerts: cfg.Alerts, errorRates: errorRates})
	sideTo(weir.Side(minutes, late), "late", cfg.Topics.Late, cfg, encodeLate)
	sideTo(weir.Side(minutes, errorRates), "alerts-error-rate", cfg.Topics.Alerts, cfg, encodeErrorRate)

	guarantee, _ := cfg.guarantee()  // Validate has looked at it,
	lost, _ := cfg.lostTransaction() // and at this
	sink := kafka.SinkConfig{
		Config: cfg.Cluster(), Topic: cfg.Topics.TenantCost, Guarantee: guarantee,
		LostTransaction: lost, DoNotKeepRecords: cfg.DoNotKeepRecords,
	}
	if guarantee == connector.ExactlyOnce {
		sink.TransactionalIDPrefix, sink.TransactionTimeout = cfg.prefix(), cfg.TransactionTimeout
		sink.AcceptCompaction = cfg.AcceptCompaction
	}
	weir.SinkTo(minutes, "sink-tenant-cost", kafka.Sink(sink, encodeMinute))
}

// loadBook reads the price book. Its digest is logged, so that a bill can be traced to its prices.
func loadBook(path string, logger *slog.Logger) (*price.Book, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("price book: %w", err)
	}
	book, err := price.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("price book %s: %w", path, err)
	}
	digest := book.Digest()
	logger.Info("price book", "path", path, "sha256", hex.EncodeToString(digest[:]),
		"kinds_never_billed", book.UnusedKinds())
	return book, nil
}
