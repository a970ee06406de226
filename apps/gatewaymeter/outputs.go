package gatewaymeter

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"example.com/weir"
	"example.com/weir/apps/gatewaymeter/gateway"
	"example.com/weir/connector"
	"example.com/weir/connectors/kafka"
)

// counts are events that leave no other trace. They count from the start of the process.
type counts struct {
	repeated atomic.Int64 // sent again, and dropped
	overdue  atomic.Int64 // a Started whose request was over
}

// logged returns an observer that also logs the counts after each checkpoint that changed them.
func (c *counts) logged(o weir.Observer, logger *slog.Logger) weir.Observer {
	tell, repeated, overdue := o.CheckpointCompleted, int64(0), int64(0)
	o.CheckpointCompleted = func(cur weir.Current, took time.Duration, stats []*weir.SubtaskStats) {
		if r, v := c.repeated.Load(), c.overdue.Load(); r != repeated || v != overdue {
			repeated, overdue = r, v
			logger.Info("events dropped", "operator", "assemble", "repeated_since_start", r, "overdue_since_start", v)
		}
		if tell != nil {
			tell(cur, took, stats)
		}
	}
	return o
}

func encodeMinute(m *Minute, r *kafka.Record) error {
	var room [96]byte // an amount has at most 77 characters
	usd, err := m.USD.AppendText(room[:0])
	if err != nil {
		return err
	}
	r.Key = gateway.AppendTenantCostKey(r.Key, m.TenantID, m.End)
	r.Value = gateway.AppendTenantCostMinute(r.Value, &gateway.TenantCostMinute{
		TenantID: m.TenantID, WindowStart: m.Start, WindowEnd: m.End, USD: usd,
		Requests: m.Requests, InputTokens: m.Input, OutputTokens: m.Output, Revision: m.Revision,
	})
	return nil
}

func encodeErrorRate(e *ErrorRate, r *kafka.Record) error {
	r.Key = append(r.Key, e.TenantID...)
	r.Value = gateway.AppendErrorRate(r.Value, e.TenantID, e.End, e.Requests, e.Failed)
	return nil
}

func encodeUnpricedAlert(u *UnpricedAlert, r *kafka.Record) error {
	r.Key = append(append(append(r.Key, u.Provider...), '/'), u.Model...)
	r.Value = gateway.AppendUnpricedAlert(r.Value, u.Provider, u.Model, u.End, u.Reason)
	return nil
}

func encodeSideEvent(output gateway.SideOutput) func(*SideEvent, *kafka.Record) error {
	return func(s *SideEvent, r *kafka.Record) error {
		r.Key = append(r.Key, s.Event.RequestID...)
		r.Value = gateway.AppendSideEvent(r.Value, output, s.Reason, &s.Event)
		return nil
	}
}

func encodeUnpriced(p *Priced, r *kafka.Record) error {
	record := p.record()
	r.Key = append(r.Key, record.RequestID...)
	r.Value = gateway.AppendSideRequest(r.Value, gateway.Unpriced, p.unpriced.Error(), &record)
	return nil
}

func encodeLate(p *Priced, r *kafka.Record) error {
	record := p.record()
	r.Key = append(r.Key, record.RequestID...)
	r.Value = gateway.AppendSideRequest(r.Value, gateway.Late, "its minute was closed for good", &record)
	return nil
}

func encodeDeadLetter(d *connector.DeadLetter, r *kafka.Record) error {
	r.Key = append(r.Key, d.Key...)
	r.Value = gateway.AppendDeadLetter(r.Value, d)
	return nil
}

// sideTo writes a side output to its topic, at least once where the job takes checkpoints; or
// counts and logs it.
func sideTo[T any](
	s weir.Stream[T], name, topic string, cfg *Config, encode func(*T, *kafka.Record) error,
) {
	uid := "sink-" + name
	if topic == "" {
		weir.SinkTo(s, uid, countingSink[T]{name: name})
		return
	}
	guarantee := kafka.AtLeastOnce
	if cfg.Checkpoints == "" {
		guarantee = kafka.None
	}
	weir.SinkTo(s, uid, kafka.Sink(kafka.SinkConfig{
		Config: cfg.Cluster(), Topic: topic, Guarantee: guarantee,
	}, encode))
}

// countingSink counts and logs what has no topic.
type countingSink[T any] struct{ name string }

// Guarantee implements connector.Sink.
func (countingSink[T]) Guarantee() connector.Guarantee { return connector.None }

// Validate implements connector.Sink.
func (countingSink[T]) Validate(bool) error { return nil }

// Writer implements connector.Sink.
func (s countingSink[T]) Writer(
	_ context.Context, wc connector.WriterContext,
) (connector.Writer[T], error) {
	return &countingWriter[T]{logger: wc.Logger, name: s.name}, nil
}

type countingWriter[T any] struct {
	logger        *slog.Logger
	name          string
	count, logged int64
}

// Write implements connector.Writer.
func (w *countingWriter[T]) Write(_ context.Context, rows []T) error {
	w.count += int64(len(rows))
	return nil
}

// Flush implements connector.Writer: it logs at each checkpoint what has come since the last.
func (w *countingWriter[T]) Flush(context.Context, bool) error {
	if w.count > w.logged {
		w.logger.Warn("records without a topic", "output", w.name,
			"new", w.count-w.logged, "since_start", w.count)
		w.logged = w.count
	}
	return nil
}

// Close implements connector.Writer.
func (w *countingWriter[T]) Close() error { return nil }
