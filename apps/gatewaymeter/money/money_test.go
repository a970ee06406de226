package money

import (
	"bytes"
	"encoding/json"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var (
	unit      = new(big.Int).Exp(big.NewInt(10), big.NewInt(Scale), nil)
	maxAmount = Amount{math.MaxUint64, math.MaxUint64, math.MaxUint64}
)

// units is the amount as a whole number of 10^-30 dollars.
func units(a Amount) *big.Int {
	n := new(big.Int).SetUint64(a.hi)
	n.Lsh(n, 64).Or(n, new(big.Int).SetUint64(a.mid))
	return n.Lsh(n, 64).Or(n, new(big.Int).SetUint64(a.lo))
}

func rat(a Amount) *big.Rat { return new(big.Rat).SetFrac(units(a), unit) }

// word draws words with many bits set or clear at the ends, where carries go wrong.
func word() *rapid.Generator[uint64] {
	return rapid.OneOf(
		rapid.Uint64(),
		rapid.SampledFrom([]uint64{0, 1, 9, 10, math.MaxUint64, math.MaxUint64 - 1, 1 << 63, chunk, chunk - 1}),
	)
}

func amounts() *rapid.Generator[Amount] {
	return rapid.Custom(func(t *rapid.T) Amount {
		a := Amount{lo: word().Draw(t, "lo")}
		if rapid.Bool().Draw(t, "has mid") {
			a.mid = word().Draw(t, "mid")
			if rapid.Bool().Draw(t, "has hi") {
				a.hi = word().Draw(t, "hi")
			}
		}
		return a
	})
}

// literals draws JSON numbers, most of them in range.
func literals() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringMatching(`(0|[1-9][0-9]{0,9})(\.[0-9]{1,30})?`),
		rapid.StringMatching(`(0|[1-9][0-9]{0,3})(\.[0-9]{1,16})?[eE][-+]?[0-2]?[0-9]`),
		rapid.StringMatching(`-?(0|[1-9][0-9]{0,60})(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,2})?`),
	)
}

func TestTextIsPlainDecimal(t *testing.T) {
	for in, want := range map[string]string{
		"0": "0", "-0": "0", "0.000": "0", "-0.0e7": "0", "0e999999999999": "0",
		"12": "12", "1E3": "1000", "1e+3": "1000", "100": "100", "1200e-2": "12", "0.010": "0.01",
		"0.01084":                "0.01084",
		"4.0054321e-8":           "0.000000040054321",
		"0.08333333333333334e-6": "0.00000008333333333333334",
		"1e-30":                  "0.000000000000000000000000000001",
		"18446744073709551616":   "18446744073709551616",
		"6277101735386680763835789423.207666416102355444464034512895": maxAmount.String(),
	} {
		a, err := Parse(in)
		require.NoError(t, err, in)
		require.Equal(t, want, a.String(), in)
	}
	require.Equal(t, "0", Amount{}.String())
	require.Equal(t, "x0", string(Amount{}.appendText([]byte("x"))))
}

func TestUnfitLiteralIsRefusedNotRounded(t *testing.T) {
	for in, want := range map[string]error{
		"": ErrSyntax, "-": ErrSyntax, "+1": ErrSyntax, ".5": ErrSyntax, "5.": ErrSyntax, "01": ErrSyntax,
		"1e":  ErrSyntax,
		"1e+": ErrSyntax, "1e1.5": ErrSyntax, "NaN": ErrSyntax, "Infinity": ErrSyntax, "0x10": ErrSyntax,
		"1_000": ErrSyntax,
		" 1":    ErrSyntax, "1 ": ErrSyntax, "1,5": ErrSyntax, "--1": ErrSyntax, "١": ErrSyntax,
		"-1": ErrNegative, "-1e-99": ErrNegative, "-0.0000001": ErrNegative,
		"1e-31": ErrPrecision, "0.1234567890123456789012345678901": ErrPrecision,
		"1e-99999999999999999999": ErrPrecision,
		"1e28":                    ErrRange, "1e18446744073709551616": ErrRange, "1e-18446744073709551616": ErrPrecision,
		"1e9999999999": ErrRange, "1" + strings.Repeat("0", 30): ErrRange,
		"6277101735386680763835789423.207666416102355444464034512896": ErrRange,
		"0." + strings.Repeat("0", maxLiteral) + "e99999":             ErrRange,
	} {
		a, err := Parse(in)
		require.ErrorIs(t, err, want, in)
		require.Zero(t, a, in)
		require.Less(t, len(err.Error()), 300)
	}
}

func TestParseRateIsThePriceOfOne(t *testing.T) {
	r, err := ParseRate("4.0054321e-8", 6)
	require.NoError(t, err)
	require.Equal(t, "0.000000000000040054321", r.Times(1).String())
	require.Equal(t, "0.000000040054321", r.Times(1_000_000).String())

	r, err = ParseRate("600", 6)
	require.NoError(t, err)
	require.Equal(t, "5404319552844.5952", r.Times(1<<53).String())

	_, err = ParseRate("1e-24", 6)
	require.NoError(t, err)
	_, err = ParseRate("1e-25", 6)
	require.ErrorIs(t, err, ErrPrecision)
	_, err = ParseRate("340282366.9209384634633746074317682114560e6", 6)
	require.ErrorIs(t, err, ErrRange)
	r, err = ParseRate("340282366.920938463463374607431768211455e6", 6)
	require.NoError(t, err)
	require.Equal(t, Rate{math.MaxUint64, math.MaxUint64}, r)
	_, err = ParseRate("-1", 6)
	require.ErrorIs(t, err, ErrNegative)
}

func TestParseAgreesWithBigRat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkParse(t, literals().Draw(t, "literal")) })
}

// checkParse holds Parse against big.Rat for a literal in the grammar of a JSON number.
func checkParse(t require.TestingT, literal string) {
	got, err := Parse(literal)
	want, ok := new(big.Rat).SetString(literal)
	require.True(t, ok, literal)
	want.Mul(want, new(big.Rat).SetInt(unit))
	fits := want.Sign() >= 0 && want.IsInt() && want.Num().Cmp(units(maxAmount)) <= 0
	if !fits {
		require.Error(t, err, literal)
		return
	}
	require.NoError(t, err, literal)
	require.Zero(t, want.Num().Cmp(units(got)), "%s: %v units, want %v", literal, units(got), want)
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"0", "-0", "4.0054321e-8", "1E3", "0.08333333333333334", "1e-31", "1e28", "-1", "01", "1.", "1e", "6e27",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var n json.Number
		wellFormed := json.Unmarshal([]byte(s), &n) == nil && n.String() == s && s != ""
		_, err := Parse(s)
		if !wellFormed {
			require.ErrorIs(t, err, ErrSyntax)
			return
		}
		require.NotErrorIs(t, err, ErrSyntax)
		if _, exponent, _ := strings.Cut(strings.ToLower(s), "e"); len(exponent) > 4 {
			return // big.Rat would write out the power
		}
		checkParse(t, s)
	})
}

func TestTextAndBinaryRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := amounts().Draw(t, "a")
		text := a.String()
		require.Equal(t, exactText(a), text)
		back, err := Parse(text)
		require.NoError(t, err)
		require.Equal(t, a, back)

		raw, err := a.AppendBinary([]byte("x"))
		require.NoError(t, err)
		require.Len(t, raw, 1+BinarySize)
		var fromBinary Amount
		require.NoError(t, fromBinary.UnmarshalBinary(raw[1:]))
		require.Equal(t, a, fromBinary)
	})
}

// exactText is the text of an amount by way of big.Rat.
func exactText(a Amount) string {
	s := rat(a).FloatString(Scale)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

func TestOrderIsThatOfTheNumbersAndOfTheBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := amounts().Draw(t, "a"), amounts().Draw(t, "b")
		want := units(a).Cmp(units(b))
		require.Equal(t, want, a.Cmp(b))
		require.Equal(t, want == 0, a == b)
		rawA, _ := a.MarshalBinary()
		rawB, _ := b.MarshalBinary()
		require.Equal(t, want, bytes.Compare(rawA, rawB))
	})
}

func TestSumIsExactOrOverflows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := amounts().Draw(t, "a"), amounts().Draw(t, "b")
		want := new(big.Int).Add(units(a), units(b))
		got, err := a.Add(b)
		if want.Cmp(units(maxAmount)) > 0 {
			require.ErrorIs(t, err, ErrOverflow)
			require.True(t, got.IsZero())
			return
		}
		require.NoError(t, err)
		require.Zero(t, want.Cmp(units(got)))
	})
	_, err := maxAmount.Add(Amount{lo: 1})
	require.ErrorIs(t, err, ErrOverflow)
}

func TestTimesIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Rate{word().Draw(t, "hi"), word().Draw(t, "lo")}
		n := word().Draw(t, "n")
		want := new(big.Int).Mul(units(r.Times(1)), new(big.Int).SetUint64(n))
		require.Zero(t, want.Cmp(units(r.Times(n))))
		require.Equal(t, Amount{0, r.hi, r.lo}, r.Times(1))
	})
}

func TestMulAddAndDivModAgreeWithBig(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, m, n := amounts().Draw(t, "a"), word().Draw(t, "m"), word().Draw(t, "n")
		want := new(big.Int).Mul(units(a), new(big.Int).SetUint64(m))
		want.Add(want, new(big.Int).SetUint64(n))
		got, ok := a.mulAdd(m, n)
		require.Equal(t, want.Cmp(units(maxAmount)) <= 0, ok)
		if ok {
			require.Zero(t, want.Cmp(units(got)))
		}
		if m != 0 {
			q, r := a.divMod(m)
			wantQ, wantR := new(big.Int).DivMod(units(a), new(big.Int).SetUint64(m), new(big.Int))
			require.Zero(t, wantQ.Cmp(units(q)))
			require.Equal(t, wantR.Uint64(), r)
		}
	})
}

func TestAmountInJSONAndCBOR(t *testing.T) {
	type bill struct {
		USD Amount `json:"usd"`
	}
	in := bill{}
	require.NoError(t, in.USD.UnmarshalText([]byte("0.01084")))
	text, err := json.Marshal(in)
	require.NoError(t, err)
	require.JSONEq(t, `{"usd":"0.01084"}`, string(text))
	var out bill
	require.NoError(t, json.Unmarshal(text, &out))
	require.Equal(t, in, out)

	raw, err := cbor.Marshal(in)
	require.NoError(t, err)
	out = bill{}
	require.NoError(t, cbor.Unmarshal(raw, &out))
	require.Equal(t, in, out)

	require.ErrorIs(t, out.USD.UnmarshalBinary(make([]byte, 16)), ErrBinary)
	require.ErrorIs(t, out.USD.UnmarshalText([]byte("a lot")), ErrSyntax)
	require.Equal(t, in, out)
}

func TestNothingIsAllocated(t *testing.T) {
	r, err := ParseRate("0.08333333333333334", 6)
	require.NoError(t, err)
	var sum Amount
	buf := make([]byte, 0, 128)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		sum, _ = sum.Add(r.Times(4808))
		buf, _ = sum.AppendText(buf[:0])
		buf, _ = sum.AppendBinary(buf)
	}))
}

func BenchmarkTimesAndAdd(b *testing.B) {
	r, err := ParseRate("0.08333333333333334", 6)
	require.NoError(b, err)
	var sum Amount
	n := uint64(0)
	for b.Loop() {
		n++
		if sum, err = sum.Add(r.Times(n & 0xffff)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendText(b *testing.B) {
	a, err := Parse("0.01084")
	require.NoError(b, err)
	buf := make([]byte, 0, 64)
	for b.Loop() {
		buf, _ = a.AppendText(buf[:0])
	}
}
