package replay

import (
	"container/heap"
	"fmt"
	"iter"
	"time"

	"github.com/cespare/xxhash/v2"

	"example.com/weir/apps/gatewaymeter/gateway"
)

// Record is a record for gateway-events.
type Record struct {
	At        time.Time // when it is written: the record's timestamp
	Partition int32     // -1 where Config.Partitions is 0
	Key       []byte    // the request ID
	Value     []byte
}

// Generator makes the records of a replay, one after the other. One goroutine uses it.
type Generator struct {
	cfg     Config
	dice    dice
	tenants weighted
	models  weighted
	span    time.Duration // from the first row of the trace to where it begins again

	next    int       // the request to be drawn next
	arrival time.Time // when it comes
	done    bool      // there is none
	pending pending   // records that were drawn and come later
	drawn   int64     // how many were drawn
}

// New returns the generator of a replay. It fails where the Config makes no sense.
func New(cfg Config) (*Generator, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	g := &Generator{
		cfg:     cfg,
		dice:    newDice(cfg.Seed),
		tenants: newWeighted(cfg.Tenants, func(i int) int64 { return 1_000_000_000/int64(i+1) + 1 }),
		models:  newWeighted(len(cfg.Models), func(i int) int64 { return max(cfg.Models[i].Weight, 1) }),
		span:    time.Second,
	}
	first, last := cfg.Trace[0].At, cfg.Trace[len(cfg.Trace)-1].At
	if length := last.Sub(first); length > 0 {
		g.span = length + length/time.Duration(len(cfg.Trace)-1)
	}
	g.schedule()
	return g, nil
}

// Next returns the next record, and false after the last one.
func (g *Generator) Next() (Record, bool) {
	// A request's records come no earlier than it does: once the next request comes later than
	// the earliest record that waits, no record can come before that one.
	for !g.done && (len(g.pending) == 0 || !g.arrival.After(g.pending[0].At)) {
		g.request()
		g.next++
		g.schedule()
	}
	if len(g.pending) == 0 {
		return Record{}, false
	}
	return heap.Pop(&g.pending).(waiting).Record, true
}

// All returns the records that are left.
func (g *Generator) All() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		for {
			r, ok := g.Next()
			if !ok || !yield(r) {
				return
			}
		}
	}
}

// schedule says when the next request comes, and whether there is one.
func (g *Generator) schedule() {
	rows := len(g.cfg.Trace)
	offset := g.cfg.Trace[g.next%rows].At.Sub(g.cfg.Trace[0].At) + time.Duration(g.next/rows)*g.span
	if g.cfg.Rate > 0 {
		own := float64(rows) / g.span.Seconds()
		offset = time.Duration(float64(offset) * (own / g.cfg.Rate))
	}
	g.arrival = g.cfg.Start.Add(offset).UTC().Truncate(time.Microsecond)
	g.done = g.cfg.Requests > 0 && g.next >= g.cfg.Requests || g.cfg.Duration > 0 && offset >= g.cfg.Duration
}

// write lets a record wait for its time.
func (g *Generator) write(at time.Time, partition int32, requestID string, value []byte) {
	g.drawn++
	heap.Push(&g.pending, waiting{
		Record: Record{At: at, Partition: partition, Key: []byte(requestID), Value: value},
		order:  g.drawn,
	})
}

func (g *Generator) writeEvent(at time.Time, partition int32, e *gateway.Event) {
	g.write(at, partition, e.RequestID, gateway.AppendEvent(make([]byte, 0, 320), e))
}

// partition returns the partition of a request's key.
func (g *Generator) partition(requestID string) int32 {
	if g.cfg.Partitions == 0 {
		return -1
	}
	return int32(xxhash.Sum64String(requestID) % uint64(g.cfg.Partitions))
}

// otherPartition draws another one than the given, where there is another one.
func (g *Generator) otherPartition(p int32) int32 {
	if g.cfg.Partitions < 2 {
		return p
	}
	return (p + 1 + int32(g.dice.upTo(int64(g.cfg.Partitions)-2))) % int32(g.cfg.Partitions)
}

// requestID returns the ID of the request to be drawn.
func (g *Generator) requestID() string { return fmt.Sprintf("%s-%d", g.cfg.IDPrefix, g.next) }

// waiting is a record that comes later; of two that come at one time, the one drawn first.
type waiting struct {
	Record
	order int64
}

type pending []waiting

func (p pending) Len() int      { return len(p) }
func (p pending) Swap(i, j int) { p[i], p[j] = p[j], p[i] }
func (p pending) Less(i, j int) bool {
	if !p[i].At.Equal(p[j].At) {
		return p[i].At.Before(p[j].At)
	}
	return p[i].order < p[j].order
}

// Push is for package heap.
func (p *pending) Push(x any) { *p = append(*p, x.(waiting)) }

// Pop is for package heap.
func (p *pending) Pop() any {
	last := len(*p) - 1
	w := (*p)[last]
	(*p)[last] = waiting{}
	*p = (*p)[:last]
	return w
}
