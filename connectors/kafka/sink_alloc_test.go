//go:build !race

// Under the race detector a sync.Pool drops what it is given now and then.

package kafka

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
)

func TestNothingIsAllocatedForARecord(t *testing.T) {
	e := newEncoder("t", func(row *testRow, r *Record) error {
		r.Key = append(r.Key, row.value...)
		r.Value = append(r.Value, row.value...)
		r.Headers = append(r.Headers, Header{Key: "h", Value: r.Key})
		return nil
	})
	d, txn := newDelivery(), newTransaction(nil, new(producer), discardKeeper{})
	txn.parts = append(txn.parts, settlePart(0))
	row, now := &testRow{value: "some value"}, time.Now()
	allocs := testing.AllocsPerRun(100, func() {
		out, err := e.record(row, now)
		if err != nil {
			t.Fatal(err)
		}
		txn.add(out, 0)
		out.delivery, out.txn = d, txn
		out.rec.Partition = 0
		out.promise(&out.rec, nil)
	})
	require.NoError(t, d.failure())
	require.Zero(t, allocs)
}

type discardKeeper struct{}

func (discardKeeper) Write([]byte)         {}
func (discardKeeper) Seal() connector.Kept { return connector.Kept{} }
func (discardKeeper) Discard()             {}
