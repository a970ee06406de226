package kafka

import (
	"encoding/binary"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"
)

// rawRecord is a record as it lies in its batch. Its key, value and headers are parts of that.
type rawRecord struct {
	offset  int64
	millis  int64 // its own time
	epoch   int32
	key     []byte             // nil is no key
	value   []byte             // nil is no value
	headers []byte             // encoded
	count   int                // of headers
	whole   []kgo.RecordHeader // in place of them, where the client library has taken the record apart
}

// setWhole sets r from a record of the client library.
func (r *rawRecord) setWhole(kr *kgo.Record) {
	*r = rawRecord{
		offset: kr.Offset, millis: kr.Timestamp.UnixMilli(), epoch: kr.LeaderEpoch, key: kr.Key, value: kr.Value,
		whole: kr.Headers,
	}
}

// take takes the next record out of the run. It reports false where none can be read: the batch is damaged, for
// it says that there is one more.
func (b *batchRun) take(r *rawRecord) bool {
	whole := cursor{buf: b.records}
	size := whole.int()
	if whole.bad || size < 0 || size > int64(len(b.records)-whole.at) {
		return false
	}
	end := whole.at + int(size)
	c := cursor{buf: b.records[:end], at: whole.at}
	c.skip(1) // attributes, of which there are none
	timeDelta, offsetDelta := c.long(), c.int()
	r.key, r.value = c.bytes(), c.bytes()
	r.count, r.headers = c.headers()
	r.offset, r.epoch = b.first+offsetDelta, b.epoch
	if c.bad || r.offset > b.last {
		return false
	}
	r.millis = b.firstTime + timeDelta
	if b.sameTime {
		r.millis = b.time
	}
	b.records = b.records[end:]
	b.left--
	return true
}

// appendHeaders appends the record's headers, which are parts of its batch too.
func (r *rawRecord) appendHeaders(dst []Header) []Header {
	c := cursor{buf: r.headers}
	for range r.count {
		key := c.bytes()
		dst = append(dst, Header{Key: unsafe.String(unsafe.SliceData(key), len(key)), Value: c.bytes()})
	}
	for _, h := range r.whole {
		dst = append(dst, Header(h))
	}
	return dst
}

// cursor reads what a record consists of; once something cannot be read, the rest cannot either.
type cursor struct {
	buf []byte
	at  int
	bad bool
}

func (c *cursor) fail() int64 {
	c.bad, c.at = true, len(c.buf)
	return 0
}

// int reads a number of 32 bits in zigzag form, of a variable length that mostly is one byte.
func (c *cursor) int() int64 {
	if c.at < len(c.buf) {
		if b := c.buf[c.at]; b < 0x80 {
			c.at++
			return int64(b>>1) ^ -int64(b&1)
		}
	}
	from := c.at
	if v := c.long(); c.at-from <= 5 && v == int64(int32(v)) {
		return v
	}
	return c.fail()
}

// long is int for 64 bits.
func (c *cursor) long() int64 {
	v, n := binary.Varint(c.buf[c.at:])
	if n <= 0 {
		return c.fail()
	}
	c.at += n
	return v
}

func (c *cursor) skip(n int64) {
	if n > int64(len(c.buf)-c.at) {
		c.fail()
		return
	}
	c.at += int(n)
}

// bytes reads a number and as many bytes; below zero it stands for nil.
func (c *cursor) bytes() []byte {
	n := c.int()
	if n < 0 || c.bad {
		return nil
	}
	from := c.at
	if c.skip(n); c.bad {
		return nil
	}
	return c.buf[from:c.at:c.at]
}

// headers reads over headers: a number, and as many names and values.
func (c *cursor) headers() (count int, encoded []byte) {
	n := c.int()
	if n <= 0 || c.bad {
		return 0, nil
	}
	from := c.at
	for range n {
		c.bytes()
		c.bytes()
		if c.bad {
			return 0, nil
		}
	}
	return int(n), c.buf[from:c.at]
}
