package kafka

import (
	"slices"
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
	txn := newTransaction(nil, new(producer), nil)
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

// The digest is the same for the same records, and no other ones.
func TestADigestTellsRecordsApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := drawRecords(t, "records")
		before := digestOf(records)
		require.Equal(t, before, digestOf(slices.Clone(records)))
		if len(records) > 0 {
			changeOne(t, &records[rapid.IntRange(0, len(records)-1).Draw(t, "at")])
			require.NotEqual(t, before, digestOf(records))
		}
		require.NotEqual(t, digestOf(records), digestOf(append(records, Record{})))
	})
}

// changeOne changes one thing about a record, so that what is moved over a border is noticed.
func changeOne(t *rapid.T, r *Record) {
	switch rapid.IntRange(0, 7).Draw(t, "change") {
	case 0:
		r.Partition++
	case 1:
		r.Timestamp = time.UnixMilli(99)
	case 2: // nil to empty, and empty to something
		if r.Value == nil {
			r.Value = []byte{}
		} else {
			r.Value = append(slices.Clone(r.Value), 0)
		}
	case 3:
		if r.Key == nil {
			r.Key = []byte{}
		} else {
			r.Key = nil
		}
	case 4: // a byte moves from the key to the value
		r.Key = append(slices.Clone(r.Key), 'x')
		if len(r.Key) > 1 {
			r.Key, r.Value = r.Key[:len(r.Key)-2], append([]byte{r.Key[len(r.Key)-2]}, r.Value...)
		}
	case 5:
		r.Headers = append(slices.Clone(r.Headers), Header{})
	case 6: // the value becomes a header's
		r.Headers = append([]Header{{Value: r.Value}}, r.Headers...)
		r.Value = nil
	case 7:
		if len(r.Headers) == 0 {
			r.Headers = []Header{{Key: "k"}}
		} else {
			r.Headers = slices.Clone(r.Headers)
			r.Headers[0].Key += "k"
		}
	}
}

// The client re-initialises its producer ID in the middle of a transaction: what it wrote before is
// aborted, and must not be committed as if it were there.
func TestARecordOfAnotherEpochBreaksTheTransaction(t *testing.T) {
	txn := newTransaction(nil, &producer{txnID: "p-0123456789abcdef-0-0", producerID: 7, epoch: 3}, nil)
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
