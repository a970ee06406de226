package kafka

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/weir/connector"
	"example.com/weir/internal/kafkatest"
)

// Brokers that acknowledge nothing hold Write back once so many bytes wait for them, however few records
// those are.
func TestBrokersThatAcknowledgeNothingBoundTheHeap(t *testing.T) {
	const size = 64 << 10
	for name, open := range map[string]func(t *testing.T, b *kafkatest.Broker) connector.Writer[testRow]{
		"at-least-once": func(t *testing.T, b *kafkatest.Broker) connector.Writer[testRow] {
			_, w := plainSinkFor(t, b)
			return w
		},
		"exactly-once": func(t *testing.T, b *kafkatest.Broker) connector.Writer[testRow] {
			j := newTestJob(t, b)
			return j.writer(t, j.restore(t), 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := kafkatest.NewFake(t)
			b.Fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
				b.Fake.KeepControl()
				return nil, errors.New("dropped"), true
			})
			w, before, taken := open(t, b), heapAlloc(), 0
			row := []testRow{{value: strings.Repeat("x", size)}}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			for taken < 2*maxBuffered/size && w.Write(ctx, row) == nil {
				taken++
			}
			require.Error(t, ctx.Err(), "%d records were taken", taken)
			require.Greater(t, taken, maxBuffered/size/2)
			// What waits to be sent is bounded so. A request that was on its way when the brokers fell silent
			// holds some more, and how many that are depends on the moment.
			require.Less(t, taken, maxBuffered/size*3/2)
			require.Less(t, heapAlloc()-before, int64(3*maxBuffered))
		})
	}
}

func heapAlloc() int64 {
	runtime.GC()
	runtime.GC() // what pools held for one more
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
