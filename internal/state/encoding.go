package state

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrCorrupt marks bytes that are not what this package wrote.
var ErrCorrupt = errors.New("state: corrupt encoding")

// AppendBytes appends b with its length before it.
func AppendBytes(dst, b []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}

// AppendString appends s with its length before it.
func AppendString(dst []byte, s string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

// AppendInt appends v in eight bytes.
func AppendInt(dst []byte, v int64) []byte {
	return binary.LittleEndian.AppendUint64(dst, uint64(v))
}

// AppendSized appends what fill appends, with its length (in four bytes) before it.
func AppendSized(dst []byte, fill func([]byte) ([]byte, error)) ([]byte, error) {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst, err := fill(dst)
	if err != nil {
		return nil, err
	}
	return dst, setSize(dst, at)
}

// setSize sets the four bytes at a place to the number of bytes behind them.
func setSize(b []byte, at int) error {
	size := len(b) - at - 4
	if uint64(size) > 1<<32-1 {
		return fmt.Errorf("state: a value of %d bytes is too large for a snapshot", size)
	}
	binary.LittleEndian.PutUint32(b[at:], uint32(size))
	return nil
}

// Decoder reads what the Append functions wrote. The first error sticks: read everything, then
// look at Err.
type Decoder struct {
	rest []byte
	err  error
}

// NewDecoder returns a decoder of b. What it returns points into b.
func NewDecoder(b []byte) *Decoder { return &Decoder{rest: b} }

// Err returns ErrCorrupt if anything could not be read.
func (d *Decoder) Err() error { return d.err }

// Empty reports whether everything has been read, or nothing more can be.
func (d *Decoder) Empty() bool { return d.err != nil || len(d.rest) == 0 }

// Uvarint reads a number.
func (d *Decoder) Uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if d.err != nil || n <= 0 {
		d.err = ErrCorrupt
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// Int reads what AppendInt wrote.
func (d *Decoder) Int() int64 { return int64(binary.LittleEndian.Uint64(d.take(8, 8))) }

func (d *Decoder) byte() byte { return d.take(1, 1)[0] }

// Bytes reads what AppendBytes wrote.
func (d *Decoder) Bytes() []byte { return d.take(d.Uvarint(), 0) }

// String reads what AppendString wrote.
func (d *Decoder) String() string { return string(d.Bytes()) }

// Sized reads what AppendSized wrote.
func (d *Decoder) Sized() []byte {
	return d.take(uint64(binary.LittleEndian.Uint32(d.take(4, 4))), 0)
}

// take returns the next n bytes, or least zero bytes after an error.
func (d *Decoder) take(n uint64, least int) []byte {
	if d.err != nil || n > uint64(len(d.rest)) {
		d.err = ErrCorrupt
		return make([]byte, least)
	}
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b
}
