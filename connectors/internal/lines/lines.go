// Package lines turns lines of text into rows: what the connectors that read lines have in common.
//
// It is no reader: who uses it finds where a line ends, and knows what a position is.
//
// Invariants:
//
//	L1. A line becomes one row with its event time, or is rejected with a reason: never both, never neither.
//	L2. A line that is rejected leaves nothing in the batch.
package lines

import (
	"fmt"

	"example.com/weir/connector"
)

// Decoder makes rows of lines.
type Decoder[T any] struct {
	// MaxLine is the most bytes of a line.
	MaxLine int
	// Decode sets a row, which is the zero value at first. It may keep the bytes that it is given.
	Decode func(line []byte, row *T) error
	Admit  func(row *T, sourceTime int64) (eventTime int64, err error)
}

// Take adds the row of a line to a batch. The line comes without its LF, and a CR before that is no part of
// it; skipped is how many bytes of it were not kept, because it is too long. If the line is rejected, Take
// returns the reason, and the bytes to show with it.
func (d *Decoder[T]) Take(
	b *connector.Batch[T], line []byte, skipped, sourceTime int64,
) (shown []byte, rejected error) {
	if n := skipped + int64(len(line)); n > int64(d.MaxLine) {
		return line[:min(len(line), d.MaxLine)],
			fmt.Errorf("a line of %d bytes, above the limit of %d: this is its beginning", n, d.MaxLine)
	}
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	line = line[:len(line):len(line)] // whoever appends to it writes over no other line
	var zero T
	b.Rows = append(b.Rows, zero)
	row := &b.Rows[len(b.Rows)-1]
	err := d.Decode(line, row)
	if err == nil {
		var at int64
		if at, err = d.Admit(row, sourceTime); err == nil {
			b.Times = append(b.Times, at)
			return nil, nil
		}
	}
	*row = zero
	b.Rows = b.Rows[:len(b.Rows)-1]
	return line, err
}
