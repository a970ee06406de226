package gateway

import "bytes"

// parseTokens returns the number of tokens that a JSON number stands for, judged by its value,
// in whatever form JSON allows. It is exact, and takes no longer for 1e999999999 than for 1.
func parseTokens(raw []byte) (int64, Reason) {
	num := parseDecimal(raw)
	switch {
	case len(num.digits) == 0:
		return 0, present // zero, and minus zero
	case num.negative:
		return 0, Negative
	case num.exponent < 0:
		return 0, Fractional
	case int64(len(num.digits))+num.exponent > 16:
		return 0, TooLarge
	}
	var n int64
	for _, c := range num.digits {
		n = n*10 + int64(c-'0')
	}
	for range num.exponent {
		n *= 10
	}
	if n > MaxTokens {
		return 0, TooLarge
	}
	return n, present
}

// decimal is the number ±digits × 10^exponent. The digits neither begin nor end with a zero,
// so the exponent alone tells whether it is an integer.
type decimal struct {
	negative bool
	digits   []byte
	exponent int64
}

// parseDecimal reads the text of a JSON number.
func parseDecimal(raw []byte) decimal {
	var num decimal
	if raw[0] == '-' {
		num.negative, raw = true, raw[1:]
	}
	if e := bytes.IndexAny(raw, "eE"); e >= 0 {
		num.exponent = parseExponent(raw[e+1:])
		raw = raw[:e]
	}
	whole, fraction, _ := bytes.Cut(raw, []byte("."))
	num.exponent -= int64(len(fraction))
	num.digits = append(append(num.digits, whole...), fraction...)

	significant := bytes.TrimRight(num.digits, "0")
	num.exponent += int64(len(num.digits) - len(significant))
	num.digits = bytes.TrimLeft(significant, "0")
	return num
}

// maxExponent is where exponents are cut off: no value is so long that its digits make up for it.
const maxExponent = 1 << 40

func parseExponent(raw []byte) int64 {
	negative := raw[0] == '-'
	if negative || raw[0] == '+' {
		raw = raw[1:]
	}
	var n int64
	for _, c := range raw {
		n = min(n*10+int64(c-'0'), maxExponent)
	}
	if negative {
		return -n
	}
	return n
}
