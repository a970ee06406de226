package kafka

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/txn"
)

// keepBytes is how much of a transaction's records is handed to the storage at a time.
const keepBytes = 64 << 10

// keeping hands the acknowledged records of a transaction to the storage of the checkpoints: each as it lies
// in the log and, within its partition, in the log's order. A nil one keeps nothing.
type keeping struct {
	// The client's goroutine adds. The writer's seals after a flush, and discards at any time: closing the client
	// does not wait for the promises that are being kept.
	mu     sync.Mutex
	keeper connector.Keeper // nil once it is sealed or discarded
	buf    []byte
}

func newKeeping(keeper connector.Keeper) *keeping {
	if keeper == nil {
		return nil
	}
	return &keeping{keeper: keeper, buf: txn.AppendKeptStart(make([]byte, 0, keepBytes+scratchSize))}
}

// add appends a record. Nothing is allocated for it, once buf has grown to the size of the largest.
func (k *keeping) add(r *kgo.Record) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keeper == nil {
		return
	}
	k.buf = txn.AppendKept(k.buf, r.Partition, r.Timestamp.UnixMilli(), r.Key, r.Value, len(r.Headers))
	for i := range r.Headers {
		k.buf = txn.AppendKeptHeader(k.buf, r.Headers[i].Key, r.Headers[i].Value)
	}
	if len(k.buf) >= keepBytes {
		k.keeper.Write(k.buf)
		k.buf = k.buf[:0]
	}
}

// seal ends the stream and returns where it lies.
func (k *keeping) seal() connector.Kept {
	if k == nil {
		return connector.Kept{}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	keeper := k.keeper
	k.keeper = nil
	keeper.Write(k.buf)
	return keeper.Seal()
}

// discard forgets the stream, if it is not sealed.
func (k *keeping) discard() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keeper != nil {
		k.keeper.Discard()
		k.keeper = nil
	}
}
