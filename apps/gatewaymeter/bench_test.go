package gatewaymeter

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir"
	"example.com/weir/apps/gatewaymeter/gateway"
	"example.com/weir/apps/gatewaymeter/price"
	"example.com/weir/apps/gatewaymeter/replay"
	"example.com/weir/connector"
)

// memorySource hands out encoded events, n of them in all.
type memorySource struct{ values [][]byte }

func (s memorySource) Replayable() bool { return true }

func (s memorySource) Discover(context.Context) ([]connector.Split, error) {
	return []connector.Split{{ID: "memory/0", Position: make([]byte, 8)}}, nil
}

func (s memorySource) Reader(
	_ context.Context, rc connector.ReaderContext[gateway.Event], splits []connector.Split,
) (connector.Reader[gateway.Event], error) {
	return &memoryReader{values: s.values, admit: rc.Admit, idle: len(splits) == 0}, nil
}

type memoryReader struct {
	values [][]byte
	next   int
	admit  func(*gateway.Event, int64) (int64, error)
	idle   bool
}

func (r *memoryReader) Read(ctx context.Context, b *connector.Batch[gateway.Event]) error {
	if r.idle || r.next == len(r.values) {
		<-ctx.Done()
		return ctx.Err()
	}
	for ; r.next < len(r.values) && len(b.Rows) < 1024; r.next++ {
		b.Rows = append(b.Rows, gateway.Event{})
		e := &b.Rows[len(b.Rows)-1]
		if err := gateway.Decode(r.values[r.next], e); err != nil {
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
			cfg := Default()
			cfg.Topics = Topics{}
			w := weir.Config{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
			if checkpoints {
				w.Checkpoint = weir.Checkpoint{Storage: "file://" + b.TempDir(), Interval: time.Second}
			}
			j := weir.NewJob("bench", w)
			events := weir.From(j, "events", memorySource{values: benchmarkEvents(b, prices, b.N)},
				weir.TimeConfig[gateway.Event]{EventTime: (*gateway.Event).EventTime, OutOfOrderness: 5 * time.Second})
			requests := assemble(events, &cfg, book, &counts{})
			minutes := weir.Aggregate(weir.Window(weir.KeyBy(requests, (*Priced).tenantID), weir.Tumbling(oneMinute),
				weir.AllowedLateness(time.Hour)), "tenant-cost", sum{alerts: cfg.Alerts})
			weir.SinkTo(minutes, "sink", countingSink[Minute]{name: "minutes"})
			b.ReportAllocs()
			b.ResetTimer()
			_, err := j.Run(b.Context())
			require.NoError(b, err)
		})
	}
}

func benchmarkEvents(b *testing.B, prices []byte, n int) [][]byte {
	f, err := os.Open("sample/trace.csv")
	require.NoError(b, err)
	defer f.Close()
	rows, err := replay.ReadTrace(f)
	require.NoError(b, err)
	models, err := replay.ModelsOf(prices)
	require.NoError(b, err)
	g, err := replay.New(replay.Config{
		Trace: rows, Requests: n, Rate: 100, Models: models, Shares: replay.Usual(),
		Start: time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC),
	})
	require.NoError(b, err)
	values := make([][]byte, 0, n)
	for len(values) < n {
		r, ok := g.Next()
		if !ok {
			break
		}
		values = append(values, r.Value)
	}
	return values
}
