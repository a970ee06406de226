package kafka

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"example.com/weir/connectors/kafka/settle"
)

func settlePart(partition int32) settle.Part {
	return settle.Part{Partition: partition, LeaderEpoch: -1}
}

func digestOf(records []Record) [32]byte {
	e := newEncoder("t", func(row *Record, r *Record) error {
		*r = *row
		return nil
	})
	txn := newTransaction(new(slot))
	for i := range records {
		out, err := e.record(&records[i], time.Now())
		if err != nil {
			panic(err)
		}
		txn.add(out, records[i].Partition)
		out.home.Put(out)
	}
	return txn.digest()
}

func drawBytes(t *rapid.T, label string) []byte {
	return rapid.SampledFrom([][]byte{nil, {}, {0}, {0, 0}, []byte("a"), []byte("ab"), []byte("b")}).Draw(t, label)
}

func drawRecords(t *rapid.T, label string) []Record {
	records := make([]Record, rapid.IntRange(0, 3).Draw(t, label))
	for i := range records {
		records[i] = Record{
			Partition: rapid.Int32Range(-1, 1).Draw(t, "partition"),
			Key:       drawBytes(t, "key"), Value: drawBytes(t, "value"),
		}
		if rapid.Bool().Draw(t, "timestamp") {
			records[i].Timestamp = time.UnixMilli(rapid.Int64Range(1, 3).Draw(t, "ms"))
		}
		for range rapid.IntRange(0, 2).Draw(t, "headers") {
			records[i].Headers = append(records[i].Headers, Header{
				Key: rapid.SampledFrom([]string{"", "a", "ab"}).Draw(t, "header"), Value: drawBytes(t, "header value"),
			})
		}
	}
	return records
}

// The digest is the same for the same records, and for no others.
func TestADigestTellsRecordsApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawRecords(t, "a"), drawRecords(t, "b")
		require.Equal(t, digestOf(a), digestOf(a))
		require.Equal(t, equalRecords(a, b), digestOf(a) == digestOf(b), "%+v %+v", a, b)
	})
}

func equalRecords(a, b []Record) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if len(a[i].Headers) == 0 && len(b[i].Headers) == 0 {
			a[i].Headers, b[i].Headers = nil, nil
		}
		if !reflect.DeepEqual(a[i], b[i]) {
			return false
		}
	}
	return true
}

// The client re-initialises its producer ID in the middle of a transaction: what it wrote before is
// aborted, and must not be committed as if it were there.
func TestARecordOfAnotherEpochBreaksTheTransaction(t *testing.T) {
	txn := newTransaction(&slot{txnID: "p-0123456789abcdef-0-0", producerID: 7, epoch: 3})
	require.NoError(t, txn.answered(&kgo.Record{ProducerID: 7, ProducerEpoch: 3, Offset: 12}))
	require.NoError(t, txn.answered(&kgo.Record{ProducerID: 7, ProducerEpoch: 3, Offset: 11}))
	require.NoError(t, txn.answered(&kgo.Record{ProducerID: 7, ProducerEpoch: 3, Offset: 13, Partition: 2}))
	require.Equal(t, []settle.Part{
		{Partition: 0, First: 11, Last: 12, LeaderEpoch: -1, Records: 2},
		{Partition: 2, First: 13, Last: 13, LeaderEpoch: -1, Records: 1},
	}, txn.written())
	require.ErrorContains(t, txn.answered(&kgo.Record{ProducerID: 7, ProducerEpoch: 4}), "was ended while it was written")
	require.ErrorContains(t, txn.answered(&kgo.Record{ProducerID: 8, ProducerEpoch: 3}), "was ended while it was written")
	require.ErrorContains(t, txn.answered(&kgo.Record{ProducerID: 7, ProducerEpoch: 3, Offset: -1}), "without its offset")
}
