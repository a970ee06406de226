// Package money holds exact amounts of US dollars and the prices of single things, as fixed-point
// decimals in a few machine words.
//
// It is not an arithmetic library: there is no division, no rounding mode, no currency and no
// negative value, because a bill here is made by multiplying prices with counts and adding. It does
// no I/O and allocates nothing except where a string or an error is asked for.
//
// # Why 10^-30 dollars, in 192 bits
//
// Prices are published for a million tokens, with up to 17 decimals ("0.08333333333333334"), so one
// token can cost a multiple of 10^-23 dollars. At that scale 128 bits end near 10^15 dollars, and a
// request may report 2^53 tokens at 600 dollars a million: a few dozen legal requests in one minute
// would overflow, and an overflow can only stop the job. With 192 bits the unit is 10^-30 dollars
// (prices for a million with up to 24 decimals) and the end is at 6×10^27 dollars. The third word
// costs about a nanosecond.
//
// # Invariants
//
//  1. Exact or refused: a literal whose digits do not fit is an error, an overflow is an error.
//     Nothing is rounded, nothing wraps, and no float is involved.
//  2. Equal amounts are equal as Go values (==), as bytes and as text: each value has one
//     representation in each form.
//  3. [Rate.Times] cannot overflow: a Rate has 128 bits, a count 64, an Amount 192.
//  4. Values hold no pointers, so that state full of them costs the garbage collector nothing.
//  5. The order of the bytes of two amounts ([Amount.AppendBinary]) is the order of the amounts.
package money
