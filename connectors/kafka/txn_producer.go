package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/weir/connectors/kafka/settle"
	"example.com/weir/connectors/kafka/txn"
)

// producer is a client that writes one transaction: the txn.Producer of brokers.
type producer struct {
	client     *kgo.Client
	txnID      string
	producerID int64
	epoch      int16
	endTxn     int16
}

// Produce makes a client for the ID: one InitProducerID, now, under ctx. BeginTransaction would
// send it by itself, without end.
func (a *admin) Produce(ctx context.Context, id string, timeout time.Duration) (_ txn.Producer, err error) {
	p := &producer{txnID: id}
	if p.endTxn, err = a.endTxnVersion(ctx); err != nil {
		return nil, err
	}
	opts, err := a.cfg.producerOptions()
	if err != nil {
		return nil, err
	}
	opts = append(opts, kgo.TransactionalID(id), kgo.TransactionTimeout(timeout))
	if p.endTxn < 5 {
		opts = append(opts, kgo.MaxVersions(transactionVersion1Requests()))
	}
	if p.client, err = kgo.NewClient(opts...); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.client.Close()
		}
	}()
	p.producerID, p.epoch, err = p.client.ProducerID(ctx)
	if errors.Is(err, kerr.InvalidTransactionTimeout) {
		return nil, timeoutTooLong(timeout, 0)
	}
	if err != nil {
		return nil, err
	}
	// The client has a producer ID without an error, so this sends nothing.
	if err := p.client.BeginTransaction(); err != nil {
		return nil, err
	}
	return p, nil
}

// ID implements txn.Producer.
func (p *producer) ID() (producerID int64, epoch int16) { return p.producerID, p.epoch }

// EndTxnVersion implements txn.Producer.
func (p *producer) EndTxnVersion() int16 { return p.endTxn }

// Close implements txn.Producer.
func (p *producer) Close() { p.client.Close() }

// Write implements txn.Producer.
func (p *producer) Write(ctx context.Context, topic string, records []txn.Record) ([]settle.Part, error) {
	out := make([]*kgo.Record, len(records))
	for i := range records {
		r := &records[i]
		out[i] = &kgo.Record{
			Topic: topic, Partition: r.Partition, Timestamp: time.UnixMilli(r.Timestamp), Key: r.Key, Value: r.Value,
		}
		for _, h := range r.Headers {
			out[i].Headers = append(out[i].Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
	}
	t := newTransaction(nil, p, nil)
	for _, res := range p.client.ProduceSync(ctx, out...) {
		err := res.Err
		if err == nil {
			err = t.answered(res.Record)
		}
		if err != nil {
			return nil, fmt.Errorf("send to %s/%d: %w", topic, res.Record.Partition, err)
		}
	}
	return t.written(), nil
}
