package kafka

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/settle"
)

func TestATransactionIsShownByItsIDAndItsTimeout(t *testing.T) {
	var sink connector.Transactional = &txnSink[string]{}
	require.Equal(t, 15*time.Minute, sink.TransactionTimeout(), "the default")
	sink = &txnSink[string]{description[string]{cfg: SinkConfig{TransactionTimeout: time.Minute}}}
	require.Equal(t, time.Minute, sink.TransactionTimeout())

	h := settle.Handle{
		ClusterID: "c", Topic: "t", TransactionalID: "orders-1-0", EndTxnVersion: 5,
		Parts: []settle.Part{{Records: 1}},
	}
	payload, err := h.Encode()
	require.NoError(t, err)
	require.Equal(t, "orders-1-0", sink.TransactionName(connector.Committable{Payload: payload}))
	require.Empty(t, sink.TransactionName(connector.Committable{}), "it is being written")
}
