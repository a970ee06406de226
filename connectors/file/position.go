package file

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"
)

// Position is where a source goes on in one file: what the positions of its splits encode.
type Position struct {
	// Next is the byte offset of the first line that has not been read.
	Next int64
	// End is the byte offset at which a bounded read ends; -1 is a read without end.
	End int64
	// Head and Tail are checksums of the first and of the last bytes before Next, at most 1024 each: what
	// was read from this file and from no other.
	Head, Tail uint64
}

const (
	positionVersion = 1
	positionSize    = 1 + 4*8
	// traceSize is how many bytes a checksum is of, at most.
	traceSize = 1024
)

// AppendTo appends the encoding of p to dst and returns the extended slice.
func (p Position) AppendTo(dst []byte) []byte {
	dst = append(dst, positionVersion)
	dst = binary.BigEndian.AppendUint64(dst, uint64(p.Next))
	dst = binary.BigEndian.AppendUint64(dst, uint64(p.End))
	dst = binary.BigEndian.AppendUint64(dst, p.Head)
	return binary.BigEndian.AppendUint64(dst, p.Tail)
}

// ParsePosition reads the position of a split. It refuses one that a later release wrote.
func ParsePosition(src []byte) (Position, error) {
	switch {
	case len(src) == 0:
		return Position{}, errors.New("position: empty")
	case src[0] != positionVersion:
		return Position{}, fmt.Errorf("position: version %d; this release reads %d", src[0], positionVersion)
	case len(src) != positionSize:
		return Position{}, fmt.Errorf("position: %d bytes, want %d", len(src), positionSize)
	}
	p := Position{
		Next: int64(binary.BigEndian.Uint64(src[1:])), End: int64(binary.BigEndian.Uint64(src[9:])),
		Head: binary.BigEndian.Uint64(src[17:]), Tail: binary.BigEndian.Uint64(src[25:]),
	}
	if p.Next < 0 || p.End < -1 {
		return Position{}, fmt.Errorf("position: impossible: byte %d to %d", p.Next, p.End)
	}
	return p, nil
}

// Ended reports whether a bounded read has nothing more to read.
func (p Position) Ended() bool { return p.End >= 0 && p.Next >= p.End }

// trace holds the bytes that the checksums of a position are of.
type trace struct{ head, tail []byte }

// readTrace reads the trace of what lies before an offset.
func readTrace(f io.ReaderAt, next int64) (trace, error) {
	n := min(next, traceSize)
	t := trace{head: make([]byte, n), tail: make([]byte, n)}
	if _, err := f.ReadAt(t.head, 0); err != nil && n > 0 {
		return t, err
	}
	if _, err := f.ReadAt(t.tail, next-n); err != nil && n > 0 {
		return t, err
	}
	return t, nil
}

// passed takes in bytes that were read.
func (t *trace) passed(b []byte) {
	if missing := traceSize - len(t.head); missing > 0 {
		t.head = append(t.head, b[:min(missing, len(b))]...)
	}
	if len(b) >= traceSize {
		t.tail = append(t.tail[:0], b[len(b)-traceSize:]...)
		return
	}
	t.tail = append(t.tail, b...)
	if over := len(t.tail) - traceSize; over > 0 {
		t.tail = t.tail[:copy(t.tail, t.tail[over:])]
	}
}

func (t *trace) sums() (head, tail uint64) { return xxhash.Sum64(t.head), xxhash.Sum64(t.tail) }
