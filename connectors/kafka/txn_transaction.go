package kafka

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/settle"
	"example.com/weir/connectors/kafka/txn"
)

// digestVersion is part of every digest: another way of computing it gives another digest.
const digestVersion = 1

// transaction is the open transaction of a slot: who writes it, what it was sent and what the
// brokers answered.
type transaction struct {
	slot *txn.Slot
	by   *producer

	// By the writer's goroutine.
	records int64
	content *xxhash.Digest
	frame   []byte

	// By the client's goroutine until the flush, which orders it before the writer's.
	parts []settle.Part // by partition; Records is 0 where nothing was written

	keep *keeping // nil: the records are not kept
}

func newTransaction(s *txn.Slot, by *producer, keeper connector.Keeper) *transaction {
	return &transaction{slot: s, by: by, content: xxhash.New(), keep: newKeeping(keeper)}
}

// add counts a record, and takes it into the digest: what encode made of it (the partition and the
// timestamp if it named them, key, value and headers), in the order of writing. Where and when the
// record is written is not content: the same rows have the same digest.
func (t *transaction) add(o *outgoing, partition int32) {
	t.records++
	f := binary.AppendVarint(t.frame[:0], int64(partition))
	if o.named {
		f = binary.AppendVarint(append(f, 1), o.rec.Timestamp.UnixMilli())
	} else {
		f = append(f, 0)
	}
	f = appendLength(f, o.rec.Key)
	f = appendLength(f, o.rec.Value)
	f = binary.AppendUvarint(f, uint64(len(o.rec.Headers)))
	for i := range o.rec.Headers {
		h := &o.rec.Headers[i]
		f = binary.AppendUvarint(f, uint64(len(h.Key)))
		f = append(f, h.Key...)
		f = appendLength(f, h.Value)
	}
	t.frame = f
	_, _ = t.content.Write(f)
	_, _ = t.content.Write(o.buf)
}

// appendLength tells nil from empty.
func appendLength(f []byte, b []byte) []byte {
	if b == nil {
		return append(f, 0)
	}
	return binary.AppendUvarint(f, uint64(len(b))+1)
}

// digest returns the digest of the records. xxhash (64 bits) keeps the cost of a record small; it
// tells apart what differs by accident, which is what a digest is compared for.
func (t *transaction) digest() [32]byte {
	b := binary.AppendUvarint([]byte{digestVersion}, uint64(t.records))
	b = binary.BigEndian.AppendUint64(b, t.content.Sum64())
	return sha256.Sum256(b)
}

// answered notes where the broker put a record. It runs on the client's goroutine.
func (t *transaction) answered(r *kgo.Record) error {
	if r.ProducerID != t.by.producerID || r.ProducerEpoch != t.by.epoch {
		// The client has re-initialised its producer ID in the middle: what was written before
		// is aborted. (That InitProducerID names the client's own epoch, so the brokers refuse
		// it once anybody has taken the ID: it harms no newer generation, K2.)
		return fmt.Errorf("transaction %s was ended while it was written: the record went out as producer %d, "+
			"epoch %d, and the transaction is producer %d, epoch %d",
			t.by.txnID, r.ProducerID, r.ProducerEpoch, t.by.producerID, t.by.epoch)
	}
	if r.Offset < 0 {
		return fmt.Errorf("transaction %s: the broker acknowledged a record without its offset", t.by.txnID)
	}
	for int(r.Partition) >= len(t.parts) {
		t.parts = append(t.parts, settle.Part{Partition: int32(len(t.parts)), LeaderEpoch: -1})
	}
	p := &t.parts[r.Partition]
	if p.Records == 0 || r.Offset < p.First {
		p.First = r.Offset
	}
	p.Last = max(p.Last, r.Offset)
	p.Records++
	t.keep.add(r)
	return nil
}

// written returns the partitions that have records.
func (t *transaction) written() []settle.Part {
	var parts []settle.Part
	for _, p := range t.parts {
		if p.Records > 0 {
			parts = append(parts, p)
		}
	}
	return parts
}
