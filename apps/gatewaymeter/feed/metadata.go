package feed

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// partitions asks the brokers themselves: a client's own knowledge of a fresh topic can be old.
func partitions(ctx context.Context, client *kgo.Client, topic string) (int, error) {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = &topic
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return 0, err
	}
	if len(resp.Topics) != 1 {
		return 0, errors.New("the brokers answered about something else")
	}
	if err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); err != nil {
		return 0, err
	}
	return len(resp.Topics[0].Partitions), nil
}
