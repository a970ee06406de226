package txn

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"example.com/weir/connector"
)

// keptVersion is the format of kept records: one byte in front of them.
//
// A record is: partition, timestamp in milliseconds (varint), key, value, the number of headers, and for each
// of them its key and its value. Bytes have their length in front, plus one: zero is none (nil), which is not
// empty. Numbers are uvarints where nothing else is said. The stream ends with a record.
const keptVersion = 1

// ErrKeptDamaged reports kept records that are not what was written.
var ErrKeptDamaged = errors.New("the kept records are damaged")

// AppendKeptStart appends what kept records begin with.
func AppendKeptStart(b []byte) []byte { return append(b, keptVersion) }

// AppendKept appends a record, but for its headers, of which n follow by AppendKeptHeader.
func AppendKept(b []byte, partition int32, timestamp int64, key, value []byte, n int) []byte {
	b = binary.AppendUvarint(b, uint64(partition))
	b = binary.AppendVarint(b, timestamp)
	b = appendBytes(b, key)
	b = appendBytes(b, value)
	return binary.AppendUvarint(b, uint64(n))
}

// AppendKeptHeader appends a header of the record before.
func AppendKeptHeader(b []byte, key string, value []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(key))+1)
	b = append(b, key...)
	return appendBytes(b, value)
}

func appendBytes(b, p []byte) []byte {
	if p == nil {
		return append(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(len(p))+1)
	return append(b, p...)
}

// KeptReader reads kept records, one at a time.
type KeptReader struct {
	r    *bufio.Reader
	from failing
}

// failing remembers what the storage failed with: that can be tried again, and is no damage.
type failing struct {
	r   io.Reader
	err error
}

func (f *failing) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		f.err = err
	}
	return n, err
}

// NewKeptReader reads what kept records begin with. A newer format is refused by its number.
func NewKeptReader(r io.Reader) (*KeptReader, error) {
	k := &KeptReader{from: failing{r: r}}
	k.r = bufio.NewReaderSize(&k.from, 64<<10)
	v, err := k.r.ReadByte()
	if err != nil {
		return nil, k.failed(err)
	}
	if v != keptVersion {
		return nil, connector.Stop(fmt.Errorf("format %d; this release reads %d", v, keptVersion))
	}
	return k, nil
}

// Next returns the next record, whose bytes are its own, and io.EOF after the last one.
func (k *KeptReader) Next() (Record, error) {
	if _, err := k.r.Peek(1); err != nil {
		return Record{}, err
	}
	r, err := k.record()
	if err != nil {
		return Record{}, k.failed(err)
	}
	return r, nil
}

func (k *KeptReader) record() (r Record, err error) {
	partition, err := k.number(1 << 31)
	if err != nil {
		return r, err
	}
	r.Partition = int32(partition)
	if r.Timestamp, err = binary.ReadVarint(k.r); err != nil {
		return r, err
	}
	if r.Key, err = k.bytes(); err != nil {
		return r, err
	}
	if r.Value, err = k.bytes(); err != nil {
		return r, err
	}
	n, err := k.number(1 << 31)
	for ; err == nil && n > 0; n-- {
		var h Header
		var key []byte
		if key, err = k.bytes(); err != nil {
			break
		}
		h.Key = string(key)
		if h.Value, err = k.bytes(); err == nil {
			r.Headers = append(r.Headers, h)
		}
	}
	return r, err
}

func (k *KeptReader) number(limit uint64) (uint64, error) {
	n, err := binary.ReadUvarint(k.r)
	if err == nil && n >= limit {
		err = fmt.Errorf("the number %d", n)
	}
	return n, err
}

// bytes takes memory as it reads, and not as a damaged length says.
func (k *KeptReader) bytes() ([]byte, error) {
	n, err := k.number(1 << 31)
	if err != nil || n == 0 {
		return nil, err
	}
	b := make([]byte, 0, min(n-1, 64<<10))
	for left := int(n - 1); left > 0; {
		part := min(left, 64<<10)
		at := len(b)
		b = append(b, make([]byte, part)...)
		if _, err := io.ReadFull(k.r, b[at:]); err != nil {
			return nil, err
		}
		left -= part
	}
	return b, nil
}

// failed tells damage from a storage that failed.
func (k *KeptReader) failed(err error) error {
	switch {
	case k.from.err != nil:
		return k.from.err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: they end in the middle", ErrKeptDamaged)
	}
	return fmt.Errorf("%w: %w", ErrKeptDamaged, err)
}
