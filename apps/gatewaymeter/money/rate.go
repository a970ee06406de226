package money

import (
	"fmt"
	"math/bits"
)

// Rate is the exact price of one thing, made from a price for a power of ten of them. The zero value
// is free of charge.
type Rate struct {
	hi, lo uint64 // units of 10^-30 dollars
}

// ParseRate reads a JSON number as the price in dollars of 10^per things (6: a price for a million)
// and returns the price of one. The error wraps [ErrSyntax], [ErrNegative], [ErrPrecision] (more than
// 30-per decimals) or [ErrRange] (above 3.4×10^8 dollars for one thing).
func ParseRate(s string, per int) (Rate, error) {
	d, err := parseDecimal(s)
	if err != nil {
		return Rate{}, err
	}
	a, err := d.scaled(s, Scale-per)
	if err != nil {
		return Rate{}, err
	}
	if a.hi != 0 {
		return Rate{}, fmt.Errorf("%w: %s", ErrRange, quote(s))
	}
	return Rate{a.mid, a.lo}, nil
}

// Times returns the price of n things. It cannot overflow.
func (r Rate) Times(n uint64) Amount {
	c0, lo := bits.Mul64(r.lo, n)
	hi, mid := bits.Mul64(r.hi, n)
	mid, c := bits.Add64(mid, c0, 0)
	return Amount{hi + c, mid, lo} // r*n < 2^192
}

// Cmp returns -1, 0 or +1 as r is less than, equal to or greater than s.
func (r Rate) Cmp(s Rate) int { return r.Times(1).Cmp(s.Times(1)) }
