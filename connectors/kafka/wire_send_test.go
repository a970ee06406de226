package kafka

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/weir/connector"
	"example.com/weir/internal/kafkatest"
)

// The brokers refuse a record for good after Write has returned. Whatever comes next says so, and no checkpoint
// names what the record was written with; a Close that comes first ends without waiting for anybody.
func TestARecordThatBrokersRefuseBehindWritesBackIsNeverCommitted(t *testing.T) {
	for next, says := range map[string]func(t *testing.T, w connector.TwoPhaseWriter[testRow]) error{
		"write": func(t *testing.T, w connector.TwoPhaseWriter[testRow]) (err error) {
			require.Eventually(t, func() bool {
				err = w.Write(t.Context(), nil)
				return err != nil
			}, 30*time.Second, time.Millisecond)
			return err
		},
		"flush": func(t *testing.T, w connector.TwoPhaseWriter[testRow]) error { return w.Flush(t.Context(), false) },
		"close": func(*testing.T, connector.TwoPhaseWriter[testRow]) error { return kerr.TopicAuthorizationFailed },
	} {
		t.Run(next, func(t *testing.T) {
			kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
				r := newWireJob(t, b)
				r.generation(t)
				refused := r.proxy.Inject(t, kafkatest.Fault{
					Key: kmsg.Produce, Do: kafkatest.Answer, Code: kerr.TopicAuthorizationFailed.Code, Times: -1,
				})
				require.NoError(t, r.w.Write(t.Context(), rowsOf("a1", "a2", "a3")))
				<-refused.Hit()
				require.ErrorIs(t, says(t, r.w), kerr.TopicAuthorizationFailed)
				if next != "close" {
					_, err := r.w.PrepareCommit(t.Context(), 1)
					require.ErrorIs(t, err, kerr.TopicAuthorizationFailed)
				}
				r.crash(t)
				r.proxy.Stop(refused)
				r.write(t, "a1", "a2", "a3")
				r.commit(t)
				require.Equal(t, []string{"a1", "a2", "a3"}, r.visible(t))
			})
		})
	}
}

// So it is without transactions, where a barrier is acknowledged by Flush alone.
func TestAtLeastOnceNeverAcknowledgesARecordThatBrokersRefused(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		r := newWireJob(t, b)
		open := func() connector.Writer[testRow] {
			s := Sink(SinkConfig{
				Config: r.cfg.Config, Topic: r.cfg.Topic, Guarantee: AtLeastOnce, Linger: -1,
				clientOptions: []kgo.Opt{kgo.RequestRetries(1)},
			}, encodeTestRow)
			w, err := s.Writer(t.Context(), connector.WriterContext{Operator: "out"})
			require.NoError(t, err)
			return w
		}
		w := open()
		refused := r.proxy.Inject(t, kafkatest.Fault{
			Key: kmsg.Produce, Do: kafkatest.Answer, Code: kerr.TopicAuthorizationFailed.Code, Times: -1,
		})
		write(t, w, "a1", "a2", "a3")
		require.ErrorIs(t, w.Flush(t.Context(), false), kerr.TopicAuthorizationFailed)
		r.proxy.Stop(refused)
		require.ErrorIs(t, w.Flush(t.Context(), true), kerr.TopicAuthorizationFailed, "the error is forgotten")
		require.NoError(t, w.Close())

		w = open()
		write(t, w, "a1", "a2", "a3")
		require.NoError(t, w.Flush(t.Context(), true))
		require.NoError(t, w.Close())
		require.Equal(t, []string{"a1", "a2", "a3"}, r.visible(t))
	})
}
