package money

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// Scale is the number of decimals of the unit: an [Amount] counts 10^-30 dollars.
const Scale = 30

// BinarySize is the number of bytes of an [Amount] in binary form.
const BinarySize = 24

var (
	// ErrOverflow says that a sum exceeds the largest [Amount], 2^192-1 units (about 6.28×10^27 dollars).
	ErrOverflow = errors.New("money: amount overflows")
	// ErrSyntax says that a text is not a JSON number.
	ErrSyntax = errors.New("money: not a decimal number")
	// ErrNegative says that a number is below zero.
	ErrNegative = errors.New("money: negative")
	// ErrPrecision says that a number has more decimals than can be held exactly.
	ErrPrecision = errors.New("money: too many decimals")
	// ErrRange says that a number is too large to be held.
	ErrRange = errors.New("money: too large")
	// ErrBinary says that bytes are not the binary form of an amount.
	ErrBinary = errors.New("money: wrong size of a binary amount")
)

// Amount is an exact, non-negative number of dollars. The zero value is 0. Compare with == or [Amount.Cmp].
//
// It implements the binary and text interfaces of package encoding: in JSON an Amount is a string
// ("0.01084"), in CBOR a byte string of [BinarySize] bytes.
type Amount struct {
	hi, mid, lo uint64 // units of 10^-30 dollars, big end first
}

// IsZero reports whether a is 0.
func (a Amount) IsZero() bool { return a == Amount{} }

// Add returns a+b, or [ErrOverflow].
func (a Amount) Add(b Amount) (Amount, error) {
	lo, c := bits.Add64(a.lo, b.lo, 0)
	mid, c := bits.Add64(a.mid, b.mid, c)
	hi, c := bits.Add64(a.hi, b.hi, c)
	if c != 0 {
		return Amount{}, ErrOverflow
	}
	return Amount{hi, mid, lo}, nil
}

// Cmp returns -1, 0 or +1 as a is less than, equal to or greater than b.
func (a Amount) Cmp(b Amount) int {
	return cmp.Or(cmp.Compare(a.hi, b.hi), cmp.Compare(a.mid, b.mid), cmp.Compare(a.lo, b.lo))
}

// mulAdd returns a*m+n and whether it fits.
func (a Amount) mulAdd(m, n uint64) (Amount, bool) {
	c0, lo := bits.Mul64(a.lo, m)
	c1, mid := bits.Mul64(a.mid, m)
	c2, hi := bits.Mul64(a.hi, m)
	lo, c := bits.Add64(lo, n, 0)
	mid, c = bits.Add64(mid, c0, c)
	hi, c = bits.Add64(hi, c1, c)
	return Amount{hi, mid, lo}, c2 == 0 && c == 0
}

// divMod returns a/d and a mod d.
func (a Amount) divMod(d uint64) (Amount, uint64) {
	hi, r := a.hi/d, a.hi%d
	mid, r := bits.Div64(r, a.mid, d)
	lo, r := bits.Div64(r, a.lo, d)
	return Amount{hi, mid, lo}, r
}

// Digits are cut off in the largest power of ten that fits a word; four such chunks hold 2^192.
const (
	chunkDigits = 19
	chunk       = 10_000_000_000_000_000_000
	maxDigits   = 4 * chunkDigits
)

// AppendText appends a as a plain decimal number of dollars: no exponent, no zero at the end of the
// decimals, no point without decimals, "0" for nothing. The error is always nil.
func (a Amount) AppendText(b []byte) ([]byte, error) { return a.appendText(b), nil }

func (a Amount) appendText(b []byte) []byte {
	var buf [maxDigits]byte
	for end := maxDigits; end > 0; end -= chunkDigits {
		var r uint64
		if a, r = a.divMod(chunk); r == 0 && a.IsZero() {
			fill(buf[:end], '0')
			break
		}
		for i := end - 1; i >= end-chunkDigits; i-- {
			buf[i] = byte('0' + r%10)
			r /= 10
		}
	}
	first, last := 0, maxDigits
	for first < maxDigits-Scale-1 && buf[first] == '0' {
		first++
	}
	for last > maxDigits-Scale && buf[last-1] == '0' {
		last--
	}
	b = append(b, buf[first:maxDigits-Scale]...)
	if last == maxDigits-Scale {
		return b
	}
	return append(append(b, '.'), buf[maxDigits-Scale:last]...)
}

func fill(b []byte, c byte) {
	for i := range b {
		b[i] = c
	}
}

// String returns what [Amount.AppendText] appends.
func (a Amount) String() string { return string(a.appendText(nil)) }

// MarshalText returns what [Amount.AppendText] appends. The error is always nil.
func (a Amount) MarshalText() ([]byte, error) { return a.AppendText(nil) }

// UnmarshalText is [Parse] into a.
func (a *Amount) UnmarshalText(text []byte) error {
	v, err := Parse(string(text))
	if err != nil {
		return err
	}
	*a = v
	return nil
}

// AppendBinary appends the [BinarySize] bytes of a, big end first. The error is always nil.
func (a Amount) AppendBinary(b []byte) ([]byte, error) {
	b = binary.BigEndian.AppendUint64(b, a.hi)
	b = binary.BigEndian.AppendUint64(b, a.mid)
	return binary.BigEndian.AppendUint64(b, a.lo), nil
}

// MarshalBinary returns what [Amount.AppendBinary] appends. The error is always nil.
func (a Amount) MarshalBinary() ([]byte, error) { return a.AppendBinary(make([]byte, 0, BinarySize)) }

// UnmarshalBinary sets a from the bytes that [Amount.AppendBinary] appended, which must be all of data;
// otherwise the error is an [ErrBinary] and a keeps its value.
func (a *Amount) UnmarshalBinary(data []byte) error {
	if len(data) != BinarySize {
		return fmt.Errorf("%w: %d bytes, want %d", ErrBinary, len(data), BinarySize)
	}
	a.hi = binary.BigEndian.Uint64(data)
	a.mid = binary.BigEndian.Uint64(data[8:])
	a.lo = binary.BigEndian.Uint64(data[16:])
	return nil
}
