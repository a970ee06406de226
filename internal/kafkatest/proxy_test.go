package kafkatest_test

import (
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/weir/internal/kafkatest"
)

func TestClientsOfAProxyStayWithIt(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		topic := b.CreateTopic(t, 3)
		p := kafkatest.NewProxy(t, b)
		through := kafkatest.Broker{Brokers: p.Brokers()}
		through.ProduceTransaction(t, kgo.TryCommit, topic, 1, "a", "b")
		require.Len(t, through.ReadCommitted(t, topic), 2)
		require.Positive(t, p.Seen(kmsg.Produce))
		require.Positive(t, p.Seen(kmsg.Fetch))
		require.Positive(t, p.Seen(kmsg.EndTxn))
		brokers, err := through.Admin(t).ListBrokers(t.Context())
		require.NoError(t, err)
		require.NotEmpty(t, brokers)
		for _, known := range brokers {
			address := net.JoinHostPort(known.Host, strconv.Itoa(int(known.Port)))
			require.Contains(t, p.Brokers(), address)
			require.NotContains(t, b.Brokers, address)
		}
		p.Cut()
		cl := through.Client(t, kgo.RequestRetries(0), kgo.RetryTimeout(time.Second))
		require.Error(t, cl.Ping(t.Context()))
		p.Mend()
		require.NoError(t, cl.Ping(t.Context()))
	})
}

// What the node has done after each fault is seen by the epoch, which every InitProducerID raises by one.
func TestEachFaultDoesWhatItSaysToTheRequestItIsFor(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		for action, want := range map[kafkatest.Action]struct {
			answered bool
			done     int16
		}{
			kafkatest.Delay:        {answered: true, done: 1},
			kafkatest.CutBefore:    {done: 0},
			kafkatest.CutAfter:     {done: 1},
			kafkatest.DropRequest:  {done: 0},
			kafkatest.DropResponse: {done: 1},
			kafkatest.Answer:       {done: 0},
		} {
			t.Run(action.String(), func(t *testing.T) {
				p := kafkatest.NewProxy(t, b)
				cl := b.Client(t, kgo.SeedBrokers(p.Brokers()...), kgo.RequestRetries(0),
					kgo.RequestTimeoutOverhead(time.Second))
				id := b.TopicName(t)
				initialise(t, cl, id)
				initialise(t, cl, id)
				before, err := initialise(t, cl, id)
				require.NoError(t, err)
				f := p.Inject(t, kafkatest.Fault{
					Key: kmsg.InitProducerID, Do: action, Nth: 2, By: 50 * time.Millisecond,
					Code: kerr.ClusterAuthorizationFailed.Code,
					Match: func(req kmsg.Request) bool {
						named := req.(*kmsg.InitProducerIDRequest).TransactionalID
						return named != nil && *named == id
					},
				})
				_, err = initialise(t, cl, b.TopicName(t)) // not matched
				require.NoError(t, err)
				first, err := initialise(t, cl, id)
				require.NoError(t, err)
				require.Equal(t, before+1, first)
				require.Zero(t, f.Hits())
				_, err = initialise(t, cl, id)
				require.Equal(t, want.answered, err == nil, "%v", err)
				if action == kafkatest.Answer {
					require.ErrorIs(t, err, kerr.ClusterAuthorizationFailed)
				}
				<-f.Hit()
				require.Equal(t, 1, f.Hits())
				// What was cut off while the node worked on it is done a moment later.
				require.Eventually(t, func() bool {
					after, err := initialise(t, b.Client(t), id)
					first++ // by this look
					return err == nil && after == first+want.done
				}, 5*time.Second, 5*time.Millisecond)
			})
		}
	})
}

func initialise(t *testing.T, cl *kgo.Client, id string) (epoch int16, err error) {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &id, 60_000
	resp, err := req.RequestWith(t.Context(), cl)
	if err != nil {
		return 0, err
	}
	return resp.ProducerEpoch, kerr.ErrorForCode(resp.ErrorCode)
}

func TestWhatIsMissingAndWhatIsThereTooOftenIsCounted(t *testing.T) {
	missing, doubled := kafkatest.Difference([]string{"a", "b", "b", "c"}, []string{"b", "a", "a", "x"})
	require.Equal(t, 2, missing)
	require.Equal(t, 2, doubled)
}
