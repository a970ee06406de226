package kafka

import (
	"encoding/binary"
	"hash/crc32"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The fields of a record batch of format 2, by where they begin. The checksum is over all that follows it.
const (
	batchFirstOffset = 0
	batchSize        = 8 // in bytes, of what follows
	batchEpoch       = 12
	batchMagic       = 16
	batchChecksum    = 17
	batchAttributes  = 21
	batchLastDelta   = 23
	batchFirstTime   = 27
	batchMaxTime     = 35
	batchProducer    = 43
	batchCount       = 57
	batchRecords     = 61
)

// The attributes of a batch.
const (
	attrCompression   = 0x07
	attrAppendTime    = 0x88 // its records have the time at which the broker got them; or an unknown one
	attrTransactional = 0x10
	attrControl       = 0x20
)

// batchRun are the records of one batch, still encoded. Records that the partition has been read beyond are
// among them: whoever takes them out knows from where on they count.
type batchRun struct {
	records   []byte // those not yet taken
	left      int32  // how many these are
	first     int64  // offset that the records count from
	last      int64  // the highest that one of them can have
	firstTime int64  // milliseconds; what their times count from
	time      int64  // milliseconds; of each record, where it is the same for all
	sameTime  bool
	epoch     int32
}

// splitter takes answers apart. What it does not know, it leaves to the client library: message sets of before
// Kafka 0.11, and whatever is damaged, of which the library then says what is wrong.
type splitter struct {
	committed    bool // records of aborted transactions are left out
	crc          *crc32.Table
	decompressor kgo.Decompressor
}

func newSplitter(isolation Isolation) splitter {
	return splitter{
		committed: isolation == ReadCommitted, crc: crc32.MakeTable(crc32.Castagnoli),
		decompressor: kgo.DefaultDecompressor(),
	}
}

// split returns the runs of an answer to a request that began at an offset, and where to fetch next. Batches that
// hold nothing to read are left out: those below that offset, markers, and what was aborted. It reports false where
// it leaves the answer to the library. The last batch may be cut off: brokers fill an answer up to its size.
func (s splitter) split(
	from int64, rp *kmsg.FetchResponseTopicPartition,
) (runs []batchRun, next int64, ok bool) {
	next = from
	aborted := abortedOf(rp, s.committed)
	for in := rp.RecordBatches; len(in) > batchMagic+1; {
		size := batchEpoch + int(int32(binary.BigEndian.Uint32(in[batchSize:])))
		if size < 0 || size > len(in) {
			break
		}
		b := in[:size]
		in = in[size:]
		if !s.sound(b) {
			return nil, from, false
		}
		last := int64(binary.BigEndian.Uint64(b)) + int64(int32(binary.BigEndian.Uint32(b[batchLastDelta:])))
		if last < next {
			continue
		}
		run, ok := s.run(b, last, aborted)
		if overlaps := next > from && run.first < next; !ok || overlaps {
			return nil, from, false
		}
		if run.left > 0 {
			runs = append(runs, run)
		}
		next = max(next, last+1) // the last records may be gone by compaction, and their offsets with them
	}
	return runs, next, true
}

// sound reports whether a batch is of format 2, and as it was sent.
func (s splitter) sound(b []byte) bool {
	return len(b) >= batchRecords && b[batchMagic] == 2 &&
		crc32.Checksum(b[batchAttributes:], s.crc) == binary.BigEndian.Uint32(b[batchChecksum:])
}

// run returns the records of a batch that are to be read.
func (s splitter) run(b []byte, last int64, aborted aborts) (run batchRun, ok bool) {
	attributes := binary.BigEndian.Uint16(b[batchAttributes:])
	run = batchRun{
		records: b[batchRecords:], left: int32(binary.BigEndian.Uint32(b[batchCount:])),
		first: int64(binary.BigEndian.Uint64(b[batchFirstOffset:])), last: last,
		firstTime: int64(binary.BigEndian.Uint64(b[batchFirstTime:])),
		time:      int64(binary.BigEndian.Uint64(b[batchMaxTime:])), sameTime: attributes&attrAppendTime != 0,
		epoch: int32(binary.BigEndian.Uint32(b[batchEpoch:])),
	}
	if codec := kgo.CompressionCodecType(attributes & attrCompression); codec != kgo.CodecNone {
		var err error
		if run.records, err = s.decompressor.Decompress(run.records, codec); err != nil {
			return run, false
		}
	}
	if run.left < 0 || int(run.left) > len(run.records) || run.first < 0 {
		return run, false
	}
	control := attributes&attrControl != 0
	producer := int64(binary.BigEndian.Uint64(b[batchProducer:]))
	skip := attributes&attrTransactional != 0 && aborted.covers(producer, run.first)
	if !control && !skip {
		return run, true
	}
	marksAbort, ok := run.drain()
	if control && skip && marksAbort {
		aborted.ended(producer)
	}
	return run, ok
}

// drain takes out all records, and reports whether that could be done, and whether one of them, in a control batch,
// says that a transaction was aborted: its key is a version and a type, of two bytes each, and the type is 0.
func (b *batchRun) drain() (marksAbort, ok bool) {
	var r rawRecord
	for b.left > 0 {
		if !b.take(&r) {
			return false, false
		}
		marksAbort = marksAbort || len(r.key) >= 4 && r.key[2] == 0 && r.key[3] == 0
	}
	return marksAbort, true
}

// aborts are the first offsets of the aborted transactions that an answer names, of each producer, lowest first.
type aborts map[int64][]int64

func abortedOf(rp *kmsg.FetchResponseTopicPartition, committed bool) aborts {
	if !committed || len(rp.AbortedTransactions) == 0 {
		return nil
	}
	a := aborts{}
	for _, t := range rp.AbortedTransactions {
		a[t.ProducerID] = append(a[t.ProducerID], t.FirstOffset)
	}
	for _, offsets := range a {
		slices.Sort(offsets)
	}
	return a
}

// covers reports whether a transactional batch belongs to an aborted transaction.
func (a aborts) covers(producer, first int64) bool {
	offsets := a[producer]
	return len(offsets) > 0 && first >= offsets[0]
}

// ended goes on to the producer's next aborted transaction.
func (a aborts) ended(producer int64) { a[producer] = a[producer][1:] }
