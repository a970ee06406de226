package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"example.com/weir/connector"
)

// topicOf returns where the topic lies, and an error if it is not there.
func topicOf(ctx context.Context, adm *admin, topic string) (place, error) {
	at, err := adm.where(ctx, topic)
	if err != nil {
		return place{}, err
	}
	if at.topicID == ([16]byte{}) {
		return place{}, fmt.Errorf("topic %s %w: create it with the partitions and retention that it "+
			"shall have", topic, errNoTopic)
	}
	return at, nil
}

var errNoTopic = errors.New("does not exist")

// awaitTopic stops the job if the topic is not there. One that was created a moment ago may not be
// known to every broker yet, so it is looked for as long as patience lasts.
func awaitTopic(ctx context.Context, adm *admin, topic string, patience time.Duration) error {
	since := time.Now()
	for try := 0; ; try++ {
		_, err := topicOf(ctx, adm, topic)
		if !errors.Is(err, errNoTopic) {
			return err
		}
		if time.Since(since) > patience {
			return connector.Stop(err)
		}
		if pause(ctx, try) != nil {
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
	_, err = topicOf(ctx, adm, topic)
	if errors.Is(err, errNoTopic) {
		return false, nil
	}
	return err == nil, cfg.explain(err)
}
