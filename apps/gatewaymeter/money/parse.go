package money

import "fmt"

// Parse reads a JSON number ("12", "0.010", "4.0054321e-8") as dollars, exactly. The error wraps
// [ErrSyntax], [ErrNegative], [ErrPrecision] (a decimal below 10^-30) or [ErrRange].
func Parse(s string) (Amount, error) {
	d, err := parseDecimal(s)
	if err != nil {
		return Amount{}, err
	}
	return d.scaled(s, Scale)
}

// decimal is digits × 10^exp, not negative. digits have no zero at either end; no digits are 0.
type decimal struct {
	digits []byte
	exp    int
}

// An exponent stops counting at maxExponent. It is then out of range whatever digits stand before it,
// because no literal is long enough to bring it back.
const (
	maxExponent = 1 << 26
	maxLiteral  = 1 << 16
)

// parseDecimal reads the grammar of a JSON number. A minus before nothing but zeros is let pass: -0 is 0.
func parseDecimal(s string) (decimal, error) {
	if len(s) > maxLiteral {
		return decimal{}, fmt.Errorf("%w: %s", ErrRange, quote(s))
	}
	rest, negative := s, false
	if rest != "" && rest[0] == '-' {
		rest, negative = rest[1:], true
	}
	whole, rest := takeDigits(rest)
	if whole == "" || len(whole) > 1 && whole[0] == '0' {
		return decimal{}, fmt.Errorf("%w: %s", ErrSyntax, quote(s))
	}
	fraction := ""
	if rest != "" && rest[0] == '.' {
		if fraction, rest = takeDigits(rest[1:]); fraction == "" {
			return decimal{}, fmt.Errorf("%w: %s", ErrSyntax, quote(s))
		}
	}
	exp, ok := parseExponent(rest)
	if !ok {
		return decimal{}, fmt.Errorf("%w: %s", ErrSyntax, quote(s))
	}
	d := normalize(whole, fraction, exp)
	if negative && len(d.digits) > 0 {
		return decimal{}, fmt.Errorf("%w: %s", ErrNegative, quote(s))
	}
	return d, nil
}

func takeDigits(s string) (digits, rest string) {
	n := 0
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	return s[:n], s[n:]
}

// parseExponent reads what is left after the digits: nothing, or e and a whole number.
func parseExponent(s string) (exp int, ok bool) {
	if s == "" {
		return 0, true
	}
	if s[0] != 'e' && s[0] != 'E' {
		return 0, false
	}
	s = s[1:]
	sign := 1
	if s != "" && (s[0] == '+' || s[0] == '-') {
		if s[0] == '-' {
			sign = -1
		}
		s = s[1:]
	}
	digits, rest := takeDigits(s)
	if digits == "" || rest != "" {
		return 0, false
	}
	for i := range len(digits) {
		exp = min(exp*10+int(digits[i]-'0'), maxExponent)
	}
	return sign * exp, true
}

// normalize joins the digits and cuts zeros off both ends.
func normalize(whole, fraction string, exp int) decimal {
	digits := make([]byte, 0, len(whole)+len(fraction))
	digits = append(append(digits, whole...), fraction...)
	exp -= len(fraction)
	first, last := 0, len(digits)
	for first < last && digits[first] == '0' {
		first++
	}
	for last > first && digits[last-1] == '0' {
		last--
		exp++
	}
	if first == last {
		exp = 0
	}
	return decimal{digits[first:last], exp}
}

// scaled returns d × 10^scale as a whole number of units; s is the literal, for the error.
func (d decimal) scaled(s string, scale int) (Amount, error) {
	shift := d.exp + scale
	switch {
	case len(d.digits) == 0:
		return Amount{}, nil
	case shift < 0:
		return Amount{}, fmt.Errorf("%w: %s has %d, at most %d can be held", ErrPrecision, quote(s), -d.exp, scale)
	case len(d.digits)+shift > maxDigits:
		return Amount{}, fmt.Errorf("%w: %s", ErrRange, quote(s))
	}
	a, ok := Amount{}, true
	for _, c := range d.digits {
		if a, ok = a.mulAdd(10, uint64(c-'0')); !ok {
			return Amount{}, fmt.Errorf("%w: %s", ErrRange, quote(s))
		}
	}
	for range shift {
		if a, ok = a.mulAdd(10, 0); !ok {
			return Amount{}, fmt.Errorf("%w: %s", ErrRange, quote(s))
		}
	}
	return a, nil
}

// quote keeps a hostile literal from filling the log.
func quote(s string) string {
	const most = 80
	if len(s) <= most {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%q… (%d bytes)", s[:most], len(s))
}
