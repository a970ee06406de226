package gatewaymeter

import (
	"context"
	"encoding/binary"
	"log/slog"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir"
	"example.com/weir/apps/gatewaymeter/money"
	"example.com/weir/apps/gatewaymeter/price"
	"example.com/weir/apps/gatewaymeter/replay"
	"example.com/weir/connector"
	"example.com/weir/connectors/kafka"
)

// memorySource hands out encoded events, n of them in all.
type memorySource struct {
	values [][]byte
	before func(next int) // is told which value comes next, before each batch
	known  *names
}

func (s memorySource) Replayable() bool { return true }

func (s memorySource) Discover(context.Context) ([]connector.Split, error) {
	return []connector.Split{{ID: "memory/0", Position: make([]byte, 8)}}, nil
}

func (s memorySource) Reader(
	_ context.Context, rc connector.ReaderContext[arrival], splits []connector.Split,
) (connector.Reader[arrival], error) {
	return &memoryReader{memorySource: s, admit: rc.Admit, idle: len(splits) == 0, decoder: decoder{names: s.known}}, nil
}

type memoryReader struct {
	memorySource
	next  int
	admit func(*arrival, int64) (int64, error)
	idle  bool

	decoder decoder
	record  kafka.Record
}

func (r *memoryReader) Read(ctx context.Context, b *connector.Batch[arrival]) error {
	if r.idle || r.next == len(r.values) {
		<-ctx.Done()
		return ctx.Err()
	}
	if r.before != nil {
		r.before(r.next)
	}
	for ; r.next < len(r.values) && len(b.Rows) < 1024; r.next++ {
		b.Rows = append(b.Rows, arrival{})
		e := &b.Rows[len(b.Rows)-1]
		r.record.Value = r.values[r.next]
		if err := r.decoder.decode(&r.record, e); err != nil {
			return err
		}
		at, err := r.admit(e, 1<<60)
		if err != nil {
			return err
		}
		b.Times = append(b.Times, at)
	}
	b.Position = binary.BigEndian.AppendUint64(b.Position, uint64(r.next))
	b.Ended = r.next == len(r.values)
	return nil
}

func (r *memoryReader) Close() error { return nil }

// BenchmarkMeter measures the job without Kafka: decode, exchange, assemble, exchange, sum. One
// operation is one event.
func BenchmarkMeter(b *testing.B) {
	prices, err := os.ReadFile("sample/prices.json")
	require.NoError(b, err)
	book, err := price.Parse(prices)
	require.NoError(b, err)
	for name, checkpoints := range map[string]bool{"checkpoints": true, "none": false} {
		b.Run(name, func(b *testing.B) {
			w := weir.Config{Logger: slog.New(slog.DiscardHandler)}
			if checkpoints {
				w.Checkpoint = weir.Checkpoint{Storage: "file://" + b.TempDir(), Interval: time.Second}
			}
			j := meterOf(memorySource{values: replayed(b, prices, replay.Config{Requests: b.N, Rate: 100, Shares: replay.Usual()})[:b.N]}, book, w)
			b.ReportAllocs()
			b.ResetTimer()
			_, err := j.Run(b.Context())
			require.NoError(b, err)
		})
	}
}

// meterOf is the job between its source and its sink.
func meterOf(source memorySource, book *price.Book, w weir.Config) *weir.Job {
	cfg := Default()
	cfg.Topics = Topics{}
	source.known = newNames()
	j := weir.NewJob("bench", w)
	events := weir.From(j, "events", source,
		weir.TimeConfig[arrival]{EventTime: (*arrival).EventTime, OutOfOrderness: 5 * time.Second})
	requests := assemble(events, &cfg, book, source.known, &counts{})
	minutes := weir.Aggregate(weir.Window(weir.KeyBy(requests, (*Priced).tenantID), weir.Tumbling(oneMinute),
		weir.AllowedLateness(time.Hour)), "tenant-cost", sum{alerts: cfg.Alerts})
	weir.SinkTo(minutes, "sink", countingSink[Minute]{name: "minutes"})
	return j
}

// replayed returns the values of a replay of the sample trace.
func replayed(tb testing.TB, prices []byte, cfg replay.Config) [][]byte {
	f, err := os.Open("sample/trace.csv")
	require.NoError(tb, err)
	defer f.Close()
	cfg.Trace, err = replay.ReadTrace(f)
	require.NoError(tb, err)
	cfg.Models, err = replay.ModelsOf(prices)
	require.NoError(tb, err)
	cfg.Start = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	g, err := replay.New(cfg)
	require.NoError(tb, err)
	var values [][]byte
	for r := range g.All() {
		values = append(values, r.Value)
	}
	return values
}

// Once as many requests are forgotten as come, nothing is allocated for an event on its way from the source to
// its tenant's minute: what is still allocated is for a batch, for four seconds of timers or for a minute, about
// a tenth of an allocation an event here, where few events come in a second. One for each request would be half
// of one an event.
func TestNothingIsAllocatedForAnEvent(t *testing.T) {
	prices, err := os.ReadFile("sample/prices.json")
	require.NoError(t, err)
	book, err := price.Parse(prices)
	require.NoError(t, err)
	// 8 events a second: requests are remembered for 61 minutes, which is 30,000 events.
	values := replayed(t, prices, replay.Config{Requests: 50_000, Rate: 4})
	require.Len(t, values, 100_000)
	const steady = 60 * 1024
	var from, to runtime.MemStats
	source := memorySource{values: values, before: func(next int) {
		switch {
		case next == steady:
			runtime.ReadMemStats(&from)
		case next > len(values)-1024:
			runtime.ReadMemStats(&to)
		}
	}}
	j := meterOf(source, book, weir.Config{Logger: slog.New(slog.DiscardHandler)})
	_, err = j.Run(t.Context())
	require.NoError(t, err)
	allocs := float64(to.Mallocs-from.Mallocs) / float64(len(values)-1024-steady)
	require.Less(t, allocs, 0.3, "allocations an event")
}

// An output record is encoded into memory that is used again.
func TestNothingIsAllocatedForAMinute(t *testing.T) {
	usd, err := money.Parse("1234.5600000000001")
	require.NoError(t, err)
	m := Minute{TenantID: "acme", USD: usd, Requests: 7, Input: 1, Output: 2, Revision: 1}
	r := kafka.Record{Key: make([]byte, 0, 512), Value: make([]byte, 0, 512)}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		out := r
		require.NoError(t, encodeMinute(&m, &out))
	}))
}
