package settle

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fxamacker/cbor/v2"
)

// version is the format that Encode writes: one byte in front of the CBOR encoding.
const version = 1

// Handle is a flushed transaction: all that is needed to commit it from nothing, and to tell
// from the log whether that has happened.
type Handle struct {
	ClusterID       string   `cbor:"1,keyasint"`
	Topic           string   `cbor:"2,keyasint"`
	TopicID         [16]byte `cbor:"3,keyasint"`
	TransactionalID string   `cbor:"4,keyasint"`
	ProducerID      int64    `cbor:"5,keyasint"`
	Epoch           int16    `cbor:"6,keyasint"`
	// EndTxnVersion is the version of the one request that may end this transaction: the
	// answers to another version say nothing.
	EndTxnVersion int16 `cbor:"7,keyasint"`
	// Parts are the partitions written, in ascending order.
	Parts []Part `cbor:"8,keyasint"`
}

// Part is what a transaction wrote into one partition.
type Part struct {
	Partition   int32 `cbor:"1,keyasint"`
	First       int64 `cbor:"2,keyasint"` // the lowest offset that the broker answered
	Last        int64 `cbor:"3,keyasint"` // the highest
	LeaderEpoch int32 `cbor:"4,keyasint"` // at the barrier; -1 is unknown
	Records     int64 `cbor:"5,keyasint"`
}

// Encode returns the payload of a committable.
func (h *Handle) Encode() ([]byte, error) {
	if err := h.check(); err != nil {
		return nil, err
	}
	body, err := cbor.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("encode the handle of transaction %s: %w", h.TransactionalID, err)
	}
	return append([]byte{version}, body...), nil
}

// DecodeHandle reads what Encode wrote. A newer format is refused by its number.
func DecodeHandle(payload []byte) (*Handle, error) {
	if len(payload) == 0 {
		return nil, errors.New("handle of a transaction: empty payload")
	}
	if v := payload[0]; v != version {
		return nil, fmt.Errorf("handle of a transaction: format %d; this release reads %d", v, version)
	}
	var h Handle
	if err := cbor.Unmarshal(payload[1:], &h); err != nil {
		return nil, fmt.Errorf("handle of a transaction: %w", err)
	}
	if err := h.check(); err != nil {
		return nil, err
	}
	return &h, nil
}

func (h *Handle) check() error {
	if h.ClusterID == "" || h.Topic == "" || h.TransactionalID == "" || h.ProducerID < 0 || h.Epoch < 0 {
		return fmt.Errorf("handle of transaction %q: incomplete", h.TransactionalID)
	}
	if len(h.Parts) == 0 {
		return fmt.Errorf("handle of transaction %q: an empty transaction has no handle", h.TransactionalID)
	}
	before := int32(-1)
	for _, p := range h.Parts {
		if p.Partition <= before || p.First < 0 || p.Last < p.First || p.Records < 1 {
			return fmt.Errorf("handle of transaction %q: partition %d: offsets %d to %d, %d records",
				h.TransactionalID, p.Partition, p.First, p.Last, p.Records)
		}
		before = p.Partition
	}
	return nil
}

// Records returns the number of records of the transaction.
func (h *Handle) Records() int64 {
	var n int64
	for _, p := range h.Parts {
		n += p.Records
	}
	return n
}

// Describe names the transaction as errors do: ID, producer, partitions, offsets and records.
func (h *Handle) Describe() string {
	return fmt.Sprintf("transaction %s (producer %d, epoch %d), %d records: %s",
		h.TransactionalID, h.ProducerID, h.Epoch, h.Records(), h.Where())
}

// Where names the partitions, offsets and records of the transaction.
func (h *Handle) Where() string {
	var b strings.Builder
	for i, p := range h.Parts {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s/%d offsets %d to %d (%d records)", h.Topic, p.Partition, p.First, p.Last, p.Records)
	}
	return b.String()
}
