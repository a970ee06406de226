package kafka

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/txn"
)

// awaitTopic stops the job if the topic is not there. One that was created a moment ago may not be
// known to every broker yet, so it is looked for as long as patience lasts.
func awaitTopic(ctx context.Context, adm *admin, topic string, patience time.Duration) error {
	since := time.Now()
	for try := 0; ; try++ {
		_, err := txn.Find(ctx, adm, topic)
		if !errors.Is(err, txn.ErrNoTopic) {
			return err
		}
		if time.Since(since) > patience {
			return connector.Stop(err)
		}
		if txn.Pause(ctx, wallClock{}, try) != nil {
			return err
		}
	}
}

// TopicExists asks the brokers once whether a topic is there.
func TopicExists(ctx context.Context, cfg Config, topic string) (bool, error) {
	if err := cfg.validate(); err != nil {
		return false, err
	}
	adm, err := newAdmin(SinkConfig{Config: cfg}.withDefaults(slog.New(slog.DiscardHandler)))
	if err != nil {
		return false, err
	}
	defer adm.close()
	_, err = txn.Find(ctx, adm, topic)
	if errors.Is(err, txn.ErrNoTopic) {
		return false, nil
	}
	return err == nil, cfg.explain(err)
}
