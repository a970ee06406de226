package simulation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"example.com/weir/connectors/kafka/settle"
	"example.com/weir/connectors/kafka/txn"
)

const (
	topic   = "topic"
	prefix  = "sim"
	cluster = "cluster"
)

var (
	topicID     = [16]byte{1}
	errNoAnswer = errors.New("no answer")
	errFenced   = errors.New("PRODUCER_FENCED")
)

// client is the way of one process to the broker. It implements txn.Cluster as the connector does for
// brokers: a method that takes several requests there takes several here, and anything can happen between
// two of them.
type client struct {
	w *world
	p *process
}

var _ txn.Cluster = client{}

// Place implements txn.Cluster.
func (c client) Place(context.Context, string) (at txn.Place, err error) {
	err = c.w.plain(func() string {
		at = txn.Place{ClusterID: cluster, TopicID: topicID, Leaders: make([]int32, len(c.w.broker.logs))}
		return "ok"
	})
	return at, err
}

// LeaderEpochs implements txn.Cluster.
func (c client) LeaderEpochs(context.Context, string) (epochs map[int32]int32, err error) {
	err = c.w.plain(func() string {
		epochs = map[int32]int32{}
		for i := range c.w.broker.logs {
			epochs[int32(i)] = 0
		}
		return "ok"
	})
	return epochs, err
}

// Describe implements txn.Cluster.
func (c client) Describe(_ context.Context, id string) (got settle.Coordinator, err error) {
	err = c.w.read("DescribeTransactions("+short(id)+")", func() string {
		got = settle.Coordinator{State: settle.NoHistory, ProducerID: -1, Epoch: -1}
		if t := c.w.broker.find(id); t != nil {
			got = settle.Coordinator{State: t.state, ProducerID: t.producerID, Epoch: t.epoch}
		}
		return fmt.Sprintf("%s, epoch %d", got.State, got.Epoch)
	})
	return got, err
}

// Look implements txn.Cluster.
func (c client) Look(ctx context.Context, h *settle.Handle, doubt bool) settle.Observation {
	o := settle.Observation{Parts: make([]settle.PartSeen, len(h.Parts))}
	at, err := c.Place(ctx, h.Topic)
	if err != nil {
		return o
	}
	o.ClusterID, o.TopicID = at.ClusterID, at.TopicID
	for i := range h.Parts {
		part := &h.Parts[i]
		_ = c.w.read(fmt.Sprintf("Fetch(partition %d, offset %d)", part.Partition, part.First), func() string {
			o.Parts[i] = c.w.broker.logs[part.Partition].look(h, part, doubt)
			return seen(&o.Parts[i], part)
		}) // unanswered: it is waited for
	}
	for i := range h.Parts {
		s, part := &o.Parts[i], &h.Parts[i]
		if !s.Answered || s.Stable > part.First || s.Marker != settle.NoMarker {
			continue
		}
		_ = c.w.read(fmt.Sprintf("DescribeProducers(partition %d)", part.Partition), func() string {
			s.OpenAt = c.w.broker.logs[part.Partition].producer(h.ProducerID).open
			return fmt.Sprintf("open at %d", s.OpenAt)
		})
	}
	return o
}

// seen says what a look found, for the trace.
func seen(s *settle.PartSeen, part *settle.Part) string {
	switch {
	case s.LogStart > part.First:
		return "below the start of the log"
	case s.First == settle.BatchGone:
		return "the batch is gone"
	case s.Stable > part.First && s.Aborted:
		return "aborted"
	case s.Stable > part.First:
		return "committed"
	}
	return fmt.Sprintf("behind the last stable offset, %s", s.Marker)
}

// List implements txn.Cluster.
func (c client) List(_ context.Context, prefix string) (all []txn.Listed, err error) {
	err = c.w.read("ListTransactions", func() string {
		for _, t := range c.w.broker.txns {
			if id, ok := settle.ParseID(t.id); ok && id.Prefix == prefix {
				all = append(all, txn.Listed{ID: id, State: t.state, ProducerID: t.producerID})
			}
		}
		return fmt.Sprintf("%d", len(all))
	})
	return all, err
}

// Open implements txn.Cluster.
func (c client) Open(_ context.Context, _ string, partitions []int32) ([]txn.Open, error) {
	var open []txn.Open
	for _, n := range partitions {
		err := c.w.read(fmt.Sprintf("DescribeProducers(partition %d)", n), func() string {
			var found []string
			for _, s := range c.w.broker.logs[n].producers {
				if s.open >= 0 {
					c.p.meet(s)
					open = append(open, txn.Open{
						Partition: n, ProducerID: s.id, Epoch: int32(s.epoch), Start: s.open,
					})
					found = append(found, fmt.Sprintf("producer %d, epoch %d, from %d", s.id, s.epoch, s.open))
				}
			}
			return "open: " + orNone(strings.Join(found, "; "))
		})
		if err != nil {
			return nil, err
		}
	}
	return open, nil
}

// Commit implements txn.Cluster.
func (c client) Commit(_ context.Context, h *settle.Handle) settle.Answer {
	answer := settle.NoAnswer
	commit := func() string {
		answer = c.w.broker.endTxn(h.TransactionalID, h.ProducerID, h.Epoch, h.EndTxnVersion)
		return answer.String()
	}
	c.w.counts.Commits++
	name := fmt.Sprintf("EndTxn(commit %s, epoch %d)", short(h.TransactionalID), h.Epoch)
	if c.w.ask(name, commit, commit) != answered {
		return settle.NoAnswer
	}
	return answer
}

// Fence implements txn.Cluster.
func (c client) Fence(_ context.Context, id string, _ time.Duration) error {
	got := c.w.ask("InitProducerID("+short(id)+")", func() string {
		_, code := c.w.broker.initProducerID(id, c.p.owns())
		return code.String()
	}, c.lateInit(id))
	if got != answered {
		return errNoAnswer
	}
	return nil
}

// lateInit is an InitProducerID that nobody waits for any more.
func (c client) lateInit(id string) func() string {
	return func() string {
		_, code := c.w.broker.initProducerID(id, false)
		return code.String()
	}
}

// WriteMarker implements txn.Cluster.
func (c client) WriteMarker(_ context.Context, m txn.MarkerOrder) error {
	code := codeNone
	if !c.w.cfg.MarkerRight {
		c.w.counts.NoRight++
		return txn.ErrNoRight
	}
	switch {
	case m.Marker == settle.Commit:
		c.w.counts.CommitsWritten++
	case c.w.running.taking:
		c.w.counts.AbortsWrittenTaking++
	default:
		c.w.counts.AbortsWritten++
	}
	write := func(late bool) string {
		code = c.w.broker.writeMarker(int(m.Partition), m.ProducerID, m.Epoch, m.Marker, late)
		return code.String()
	}
	now := func() string { return write(false) }
	late := func() string { return write(true) }
	name := fmt.Sprintf("WriteTxnMarkers(%s, partition %d, producer %d, epoch %d)", m.Marker, m.Partition, m.ProducerID, m.Epoch)
	switch got := c.w.ask(name, now, late); {
	case got != answered:
		return errNoAnswer
	case code != codeNone:
		return fmt.Errorf("write marker: %s", code)
	}
	return nil
}

// Produce implements txn.Cluster.
func (c client) Produce(ctx context.Context, id string, _ time.Duration) (txn.Producer, error) {
	for {
		var t *transaction
		var code settle.Answer
		var epoch int16
		name := "InitProducerID(" + short(id) + ")"
		got := c.w.ask(name, func() string {
			t, code = c.w.broker.initProducerID(id, c.p.owns())
			epoch = t.epoch
			if code != codeNone {
				return code.String()
			}
			return fmt.Sprintf("epoch %d", epoch)
		}, c.lateInit(id))
		switch {
		case got != answered:
			return nil, errNoAnswer
		case code == codeNone:
			c.p.took = written{t.producerID, epoch}
			return &producer{client: c, id: id, producerID: t.producerID, epoch: epoch}, nil
		}
		if err := (clock{c.w}).Sleep(ctx, 20*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// producer writes one transaction. It implements txn.Producer.
type producer struct {
	client
	id         string
	producerID int64
	epoch      int16
	begun      bool // something was written
	failed     error
}

// ID implements txn.Producer.
func (p *producer) ID() (int64, int16) { return p.producerID, p.epoch }

// EndTxnVersion implements txn.Producer.
func (p *producer) EndTxnVersion() int16 { return p.w.cfg.endTxnVersion() }

// Close implements txn.Producer.
func (p *producer) Close() {}

// Write implements txn.Producer. Each record is a request of its own. An idempotent producer repeats a
// request that was not answered without writing twice, so a lost answer is a slow one; what it cannot
// repeat is an error for good, and the transaction is not gone on with.
func (p *producer) Write(ctx context.Context, _ string, records []txn.Record) ([]settle.Part, error) {
	var parts []settle.Part
	for i := range records {
		at, err := p.write(ctx, &records[i])
		if err != nil {
			return nil, err
		}
		parts = note(parts, records[i].Partition, at)
	}
	return parts, nil
}

func (p *producer) write(ctx context.Context, r *txn.Record) (int64, error) {
	id, ok := recordOf(r)
	if !ok {
		p.w.wrong("CONTENT: %q was written, which is no record of the job as it was", r.Value)
	}
	e := entry{record: id, by: p.p}
	name := fmt.Sprintf("write %s to partition %d under %s, epoch %d", id, r.Partition, short(p.id), p.epoch)
	for p.failed == nil {
		var at int64
		var code settle.Answer
		got := p.w.request(&request{name: name, first: !p.begun, do: func() string {
			at, code = p.w.broker.append(p.id, p.producerID, p.epoch, e, int(r.Partition))
			if code != codeNone {
				return code.String()
			}
			return fmt.Sprintf("offset %d", at)
		}, late: func() string {
			_, late := p.w.broker.append(p.id, p.producerID, p.epoch, e, int(r.Partition))
			return late.String()
		}})
		p.begun = true
		switch {
		case got != answered:
			p.failed = errNoAnswer
		case code == codeNone:
			return at, nil
		case code != codeConcurrent:
			p.failed = errFenced
		default:
			if err := (clock{p.w}).Sleep(ctx, 20*time.Millisecond); err != nil {
				p.failed = err
			}
		}
	}
	return 0, p.failed
}

// note adds an offset to what was written.
func note(parts []settle.Part, partition int32, at int64) []settle.Part {
	for i := range parts {
		if p := &parts[i]; p.Partition == partition {
			p.First, p.Last, p.Records = min(p.First, at), max(p.Last, at), p.Records+1
			return parts
		}
	}
	parts = append(parts, settle.Part{Partition: partition, First: at, Last: at, LeaderEpoch: -1, Records: 1})
	for i := len(parts) - 1; i > 0 && parts[i].Partition < parts[i-1].Partition; i-- {
		parts[i], parts[i-1] = parts[i-1], parts[i]
	}
	return parts
}

func orNone(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}
