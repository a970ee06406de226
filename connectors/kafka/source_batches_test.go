package kafka

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// taken is what a chunk hands out, and then says.
type taken struct {
	records []string
	next    int64
	err     error
}

func show(r *Record, epoch int32) string {
	return fmt.Sprintf("%d %d %d %q %q %v %q", r.Offset, r.Timestamp.UnixMilli(), epoch, r.Key, r.Value, r.Key == nil,
		r.Headers)
}

// ours takes an answer apart as the source does. (The library counts times in nanoseconds, which end in 2262.)
func ours(rp *kmsg.FetchResponseTopicPartition, from int64, isolation Isolation) (taken, bool) {
	runs, next, ok := newSplitter(isolation).split(from, rp)
	if !ok {
		return taken{}, false
	}
	c, t := chunk{runs: runs, from: from, next: next}, taken{records: []string{}, next: next}
	for {
		var r rawRecord
		if ok, err := c.take(&r); !ok {
			t.err = err
			return t, true
		}
		t.records = append(t.records, show(&Record{
			Offset: r.offset, Timestamp: time.Unix(0, r.millis*1e6), Key: r.key, Value: r.value, Headers: r.appendHeaders(nil),
		}, r.epoch))
	}
}

// library takes an answer apart as the client library does.
func library(rp *kmsg.FetchResponseTopicPartition, from int64, isolation Isolation) taken {
	level := kgo.ReadUncommitted()
	if isolation == ReadCommitted {
		level = kgo.ReadCommitted()
	}
	fetched, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: from, IsolationLevel: level, Topic: "t",
	}, rp, kgo.DefaultDecompressor(), nil)
	t := taken{records: []string{}, next: next, err: fetched.Err}
	for _, kr := range fetched.Records {
		var r rawRecord
		r.setWhole(kr)
		t.records = append(t.records, show(&Record{
			Offset: kr.Offset, Timestamp: kr.Timestamp, Key: kr.Key, Value: kr.Value, Headers: r.appendHeaders(nil),
		}, kr.LeaderEpoch))
	}
	return t
}

// log writes record batches as a broker holds them.
type log struct {
	t       *rapid.T
	bytes   []byte
	next    int64
	aborted []kmsg.FetchResponseTopicPartitionAbortedTransaction
	open    map[int64]int64 // first offset of each producer's transaction
}

// batch appends a batch of records, of which compaction may have taken some.
func (l *log) batch() {
	producer, attributes := int64(-1), int16(0)
	if rapid.Bool().Draw(l.t, "transactional") {
		producer, attributes = rapid.Int64Range(1, 3).Draw(l.t, "producer"), attrTransactional
		if _, ok := l.open[producer]; !ok {
			l.open[producer] = l.next
		}
	}
	if rapid.Bool().Draw(l.t, "append time") {
		attributes |= 0x08
	}
	records := []kmsg.Record{}
	size := rapid.Int32Range(1, 5).Draw(l.t, "offsets")
	for delta := range size {
		if rapid.IntRange(0, 9).Draw(l.t, "compacted") > 0 {
			records = append(records, l.record(delta))
		}
	}
	l.append(kmsg.RecordBatch{
		Attributes: attributes, LastOffsetDelta: size - 1, ProducerID: producer,
		FirstTimestamp: rapid.Int64Range(-5, 1<<41).Draw(l.t, "first"), MaxTimestamp: rapid.Int64Range(0, 1<<41).Draw(l.t, "max"),
		PartitionLeaderEpoch: rapid.Int32Range(0, 9).Draw(l.t, "epoch"),
	}, records)
}

func (l *log) record(delta int32) kmsg.Record {
	optional := func(name string) []byte {
		if rapid.IntRange(0, 4).Draw(l.t, name+" is null") == 0 {
			return nil
		}
		return rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(l.t, name)
	}
	r := kmsg.Record{
		TimestampDelta64: rapid.Int64Range(-10, 1<<40).Draw(l.t, "time"), OffsetDelta: delta,
		Key: optional("key"), Value: optional("value"),
	}
	for range rapid.SampledFrom([]int{0, 0, 0, 1, 3}).Draw(l.t, "headers") {
		r.Headers = append(r.Headers, kmsg.Header{Key: rapid.String().Draw(l.t, "name"), Value: optional("header")})
	}
	return r
}

// end appends the marker of one of the open transactions.
func (l *log) end() {
	for producer := int64(1); producer <= 3; producer++ {
		first, ok := l.open[producer]
		if !ok {
			continue
		}
		commit := rapid.Bool().Draw(l.t, "commit")
		key := []byte{0, 0, 0, 0}
		if commit {
			key[3] = 1
		} else {
			l.aborted = append(l.aborted, kmsg.FetchResponseTopicPartitionAbortedTransaction{
				ProducerID: producer, FirstOffset: first,
			})
		}
		delete(l.open, producer)
		l.append(kmsg.RecordBatch{Attributes: attrTransactional | attrControl, ProducerID: producer},
			[]kmsg.Record{{Key: key, Value: []byte{0, 0, 0, 0, 0, 0}}})
		return
	}
}

func (l *log) append(b kmsg.RecordBatch, records []kmsg.Record) {
	raw := encodeRecords(records)
	codecs := []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
	}
	if n := rapid.SampledFrom([]int{0, 0, 0, 0, 1, 2, 3, 4}).Draw(l.t, "codec"); n > 0 && len(raw) > 0 {
		compressor, err := kgo.DefaultCompressor(codecs[n])
		require.NoError(l.t, err)
		var codec kgo.CompressionCodecType
		raw, codec = compressor.Compress(new(bytes.Buffer), raw)
		b.Attributes |= int16(codec)
	}
	b.FirstOffset, b.NumRecords, b.Records = l.next, int32(len(records)), raw
	l.next += int64(b.LastOffsetDelta) + 1 + rapid.Int64Range(0, 1).Draw(l.t, "gap")
	l.bytes = append(l.bytes, sealed(b)...)
}

func encodeRecords(records []kmsg.Record) (raw []byte) {
	for _, r := range records {
		r.Length = 0
		body := r.AppendTo(nil)[1:] // a length of 0 is one byte
		raw = append(binary.AppendVarint(raw, int64(len(body))), body...)
	}
	return raw
}

// sealed is a batch with its length and its checksum.
func sealed(b kmsg.RecordBatch) []byte {
	b.Magic = 2
	encoded := b.AppendTo(nil)
	binary.BigEndian.PutUint32(encoded[batchSize:], uint32(len(encoded)-batchEpoch))
	reseal(encoded)
	return encoded
}

func reseal(b []byte) {
	binary.BigEndian.PutUint32(b[batchChecksum:], crc32.Checksum(b[batchAttributes:], crc32.MakeTable(crc32.Castagnoli)))
}

func drawLog(t *rapid.T) *log {
	l := &log{t: t, next: rapid.Int64Range(0, 100).Draw(t, "start"), open: map[int64]int64{}}
	for range rapid.IntRange(0, 8).Draw(t, "batches") {
		if rapid.IntRange(0, 2).Draw(t, "end") == 0 {
			l.end()
		} else {
			l.batch()
		}
	}
	return l
}

// Whatever a broker answers, the source reads of it what the client library reads: the same records, and the same
// place to go on at, from the middle of a batch, over gaps, markers and aborted transactions, up to a batch that is
// cut off.
func TestAnAnswerIsTakenApartAsTheClientLibraryDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLog(t)
		rp := &kmsg.FetchResponseTopicPartition{RecordBatches: l.bytes, AbortedTransactions: l.aborted}
		if rapid.Bool().Draw(t, "cut off") {
			rp.RecordBatches = l.bytes[:rapid.IntRange(0, len(l.bytes)).Draw(t, "size")]
		}
		from := rapid.Int64Range(0, l.next).Draw(t, "from")
		isolation := rapid.SampledFrom([]Isolation{ReadCommitted, ReadUncommitted}).Draw(t, "isolation")
		got, ok := ours(rp, from, isolation)
		require.True(t, ok)
		require.NoError(t, got.err)
		require.Equal(t, library(rp, from, isolation), got)
	})
}

// A damaged answer is never read in another way than the library reads it: either it is left to the library, or its
// records are the same, up to one that cannot be read, which the library would pass over in silence.
func requireNoOtherReading(t require.TestingT, rp *kmsg.FetchResponseTopicPartition, from int64, isolation Isolation) {
	want := library(rp, from, isolation)
	switch got, ok := ours(rp, from, isolation); {
	case !ok:
	case got.err != nil:
		require.LessOrEqual(t, len(got.records), len(want.records))
		require.Equal(t, want.records[:len(got.records)], got.records)
	default:
		require.Equal(t, want, got)
	}
}

func TestADamagedAnswerIsReadInNoOtherWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLog(t)
		damaged := slices.Clone(l.bytes)
		for at := 0; at < len(damaged); {
			b := damaged[at:]
			b = b[:batchEpoch+int(binary.BigEndian.Uint32(b[batchSize:]))]
			at += len(b)
			if rapid.Bool().Draw(t, "damaged") {
				i := rapid.IntRange(batchEpoch, len(b)-1).Draw(t, "byte")
				b[i] ^= byte(rapid.IntRange(1, 255).Draw(t, "bits"))
				if rapid.Bool().Draw(t, "sealed again") {
					reseal(b)
				}
			}
		}
		rp := &kmsg.FetchResponseTopicPartition{RecordBatches: damaged, AbortedTransactions: l.aborted}
		requireNoOtherReading(t, rp, rapid.Int64Range(0, l.next).Draw(t, "from"),
			rapid.SampledFrom([]Isolation{ReadCommitted, ReadUncommitted}).Draw(t, "isolation"))
	})
}

// What the library would pass over in silence stops the reader.
func TestARecordThatCannotBeReadIsNotPassedOver(t *testing.T) {
	raw := encodeRecords([]kmsg.Record{{Value: []byte("a")}, {OffsetDelta: 1, Value: []byte("b")}})
	for name, b := range map[string]kmsg.RecordBatch{
		"it is cut off":                        {LastOffsetDelta: 1, NumRecords: 2, Records: raw[:len(raw)-1]},
		"there are fewer than the batch says":  {LastOffsetDelta: 2, NumRecords: 3, Records: raw},
		"it has an offset behind its batch's":  {LastOffsetDelta: 0, NumRecords: 2, Records: raw},
		"a size is below zero":                 {LastOffsetDelta: 1, NumRecords: 2, Records: append(raw[:len(raw)/2:len(raw)/2], 1, 0, 0)},
		"a name of a header is not there":      {NumRecords: 1, Records: []byte{12, 0, 0, 0, 1, 1, 2}},
		"a number goes on beyond the last bit": {NumRecords: 1, Records: []byte{20, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0}},
	} {
		got, ok := ours(&kmsg.FetchResponseTopicPartition{RecordBatches: sealed(b)}, 0, ReadCommitted)
		require.True(t, ok, name)
		require.ErrorContains(t, got.err, "cannot be read", name)
	}
}

func TestWhatIsNotOfFormat2IsLeftToTheLibrary(t *testing.T) {
	good := sealed(kmsg.RecordBatch{NumRecords: 1, Records: encodeRecords([]kmsg.Record{{}})})
	for name, change := range map[string]func(b []byte){
		"an older format":       func(b []byte) { b[batchMagic] = 1 },
		"another checksum":      func(b []byte) { b[batchChecksum]++ },
		"a count below zero":    func(b []byte) { b[batchCount] = 0xff; reseal(b) },
		"more records than fit": func(b []byte) { b[batchCount+2] = 1; reseal(b) },
		"an offset below zero":  func(b []byte) { b[0] = 0xff; b[batchLastDelta] = 0x7f; reseal(b) },
		"compressed and not so": func(b []byte) { b[batchAttributes+1] = byte(kgo.CodecZstd); reseal(b) },
		"a size that is none":   func(b []byte) { copy(b[batchSize:], []byte{0, 0, 0, 3}) },
	} {
		b := slices.Clone(good)
		change(b)
		_, ok := ours(&kmsg.FetchResponseTopicPartition{RecordBatches: b}, -1<<63, ReadCommitted)
		require.False(t, ok, name)
	}
}

// FuzzAnswer holds any bytes against the client library. Those that look like batches get the checksum that they
// need to be looked into.
func FuzzAnswer(f *testing.F) {
	records := encodeRecords([]kmsg.Record{
		{Key: []byte("k"), Value: []byte("v"), TimestampDelta64: 1 << 20},
		{OffsetDelta: 1, Value: []byte("w"), Headers: []kmsg.Header{{Key: "h", Value: []byte("1")}}},
	})
	two := sealed(kmsg.RecordBatch{FirstOffset: 3, LastOffsetDelta: 1, NumRecords: 2, Records: records, Attributes: attrTransactional, ProducerID: 1})
	marker := sealed(kmsg.RecordBatch{
		FirstOffset: 5, NumRecords: 1, Attributes: attrTransactional | attrControl, ProducerID: 1,
		Records: encodeRecords([]kmsg.Record{{Key: []byte{0, 0, 0, 0}}}),
	})
	f.Add(slices.Concat(two, marker, two), int64(0), int64(3), true)
	f.Add(slices.Concat(two, two[:70]), int64(4), int64(9), false)
	f.Fuzz(func(t *testing.T, data []byte, from, aborted int64, committed bool) {
		for at := 0; len(data)-at > batchRecords; {
			size := batchEpoch + int(int32(binary.BigEndian.Uint32(data[at+batchSize:])))
			if size < batchRecords || size > len(data)-at {
				break
			}
			data[at+batchMagic] = 2
			reseal(data[at : at+size])
			at += size
		}
		isolation := ReadUncommitted
		if committed {
			isolation = ReadCommitted
		}
		requireNoOtherReading(t, &kmsg.FetchResponseTopicPartition{
			RecordBatches: data,
			AbortedTransactions: []kmsg.FetchResponseTopicPartitionAbortedTransaction{
				{ProducerID: 1, FirstOffset: aborted},
			},
		}, from, isolation)
	})
}

// A chunk is at its end once nothing counts that is left of it, also where what lies before the end of a bounded
// partition is gone by compaction: Read would else never come to the next chunk.
func TestAChunkIsOverWhereWhatIsLeftLiesBehindTheEnd(t *testing.T) {
	empty := []byte{0, 0, 0, 0, 1, 1, 0} // size, attributes, time, offset, neither key nor value, no headers
	at := func(delta byte) []byte {
		r := slices.Clone(empty)
		r[0], r[3] = 2*(byte(len(r))-1), 2*delta
		return r
	}
	for name, c := range map[string]chunk{
		"taken apart here":           {runs: []batchRun{{records: slices.Concat(at(5), at(12)), left: 2, last: 12}}},
		"taken apart by the library": {whole: []*kgo.Record{{Offset: 5}, {Offset: 12}}},
	} {
		t.Run(name, func(t *testing.T) {
			c.from, c.next = 5, 10
			var r rawRecord
			ok, err := c.take(&r)
			require.NoError(t, err)
			require.True(t, ok)
			require.EqualValues(t, 5, r.offset)
			ok, err = c.take(&r)
			require.NoError(t, err)
			require.False(t, ok)
			require.True(t, c.empty())
		})
	}
}
