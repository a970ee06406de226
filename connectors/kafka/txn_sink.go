package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/settle"
	"example.com/weir/connectors/kafka/txn"
)

// txnSink is a sink with transactions: exactly-once.
type txnSink[T any] struct{ description[T] }

// ExclusiveName implements connector.Exclusive: two sinks with one prefix would fence each other.
func (s *txnSink[T]) ExclusiveName() string {
	return fmt.Sprintf("transactional-ID prefix %q", s.cfg.TransactionalIDPrefix)
}

// TransactionTimeout implements connector.Transactional.
func (s *txnSink[T]) TransactionTimeout() time.Duration {
	return s.cfg.withDefaults(nil).TransactionTimeout
}

// TransactionName implements connector.Transactional: it is the transactional ID.
func (s *txnSink[T]) TransactionName(c connector.Committable) string {
	h, err := settle.DecodeHandle(c.Payload)
	if err != nil { // whoever settles it says so
		return ""
	}
	return h.TransactionalID
}

// Writer opens the writer of one subtask.
func (s *txnSink[T]) Writer(ctx context.Context, wc connector.WriterContext) (connector.Writer[T], error) {
	return openTxnWriter(ctx, s.cfg.withDefaults(wc.Logger), s.encode, wc)
}

// Restore settles what CURRENT names, ends whatever else the lineage left open, and writes again what was lost.
func (s *txnSink[T]) Restore(ctx context.Context, rc connector.RestoreContext) error {
	if err := s.restore(ctx, rc); err != nil {
		return fmt.Errorf("restore of topic %s: %w", s.cfg.Topic, s.cfg.explain(err))
	}
	return nil
}

func (s *txnSink[T]) restore(ctx context.Context, rc connector.RestoreContext) error {
	cfg := s.cfg.withDefaults(rc.Logger)
	adm, err := newAdmin(cfg)
	if err != nil {
		return err
	}
	defer adm.close()
	if err := checkStart(ctx, cfg, adm, rc); err != nil {
		return err
	}
	return txn.Restore(ctx, cfg.transactions(adm, rc.Logger), rc)
}

// transactions says what the course of the sink's transactions depends on.
func (c *SinkConfig) transactions(adm *admin, logger *slog.Logger) txn.Config {
	return txn.Config{
		Topic: c.Topic, Prefix: c.TransactionalIDPrefix, TransactionTimeout: c.TransactionTimeout,
		CommitDeadline: c.CommitDeadline, Grace: c.grace, LostTransaction: c.LostTransaction,
		Logger: logger, Cluster: adm, Clock: wallClock{},
	}
}
