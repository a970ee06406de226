package txn

import (
	"context"
	"fmt"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/settle"
)

// Written is a flushed transaction: who wrote it, and where its records lie.
type Written struct {
	TransactionalID string
	ProducerID      int64
	Epoch           int16
	EndTxnVersion   int16
	Parts           []settle.Part // ascending; leader epochs are filled in
}

// Handle makes the handle of a flushed transaction, in the topic that was there when its writer opened.
func (c *Config) Handle(ctx context.Context, home *Place, w Written) (*settle.Handle, error) {
	at, err := Find(ctx, c.Cluster, c.Topic)
	if err != nil {
		return nil, err
	}
	if at.TopicID != home.TopicID || at.ClusterID != home.ClusterID {
		return nil, connector.Stop(fmt.Errorf("topic %s was deleted and made again while it was written "+
			"(topic ID %x, now %x)", c.Topic, home.TopicID, at.TopicID))
	}
	epochs, err := c.Cluster.LeaderEpochs(ctx, c.Topic)
	if err != nil {
		return nil, err
	}
	h := &settle.Handle{
		ClusterID: at.ClusterID, Topic: c.Topic, TopicID: at.TopicID, TransactionalID: w.TransactionalID,
		ProducerID: w.ProducerID, Epoch: w.Epoch, EndTxnVersion: w.EndTxnVersion, Parts: w.Parts,
	}
	for i := range h.Parts {
		if e, ok := epochs[h.Parts[i].Partition]; ok {
			h.Parts[i].LeaderEpoch = e
		}
	}
	return h, nil
}
