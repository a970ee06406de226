package price

import (
	"math"
	"math/big"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/weir/apps/gatewaymeter/money"
)

// bookOf is a book with one provider p and one model m, with these prices.
func bookOf(t require.TestingT, prices string) *Model {
	b, err := Parse([]byte(`[{"id":"p","models":[{"id":"m","match":{"equals":"m"},"prices":` + prices + `}]}]`))
	require.NoError(t, err)
	m, err := b.Find("p", "m")
	require.NoError(t, err)
	return m
}

func usd(t require.TestingT, m *Model, at time.Time, u Usage) string {
	a, err := m.Price(at, u)
	require.NoError(t, err)
	return a.String()
}

func input(n int64) Usage { return Usage{Reported: true, Input: n} }

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

func TestExampleOfTheContract(t *testing.T) {
	data, err := os.ReadFile("../sample/prices.json")
	require.NoError(t, err)
	b, err := Parse(data)
	require.NoError(t, err)
	m, err := b.Find("openai", "gpt-4o")
	require.NoError(t, err)
	u := Usage{Reported: true, Input: 4808, Output: 10, CacheRead: 1024}
	require.Equal(t, "0.01084", usd(t, m, noon, u))
}

// Field report: a price written 4.0054321e-8 passed through a float.
func TestPriceComesFromTheDigitsOfItsLiteral(t *testing.T) {
	m := bookOf(t, `{"input_mtok": 4.0054321e-8, "output_mtok": 0.08333333333333334}`)
	require.Equal(t, "0.000000000000040054321", usd(t, m, noon, input(1)))
	u := Usage{Reported: true, Input: 1, Output: 1<<53 + 1}
	require.Equal(t, "750599937.89508281004803508592762", usd(t, m, noon, u))
	m = bookOf(t, `{"input_mtok": 1E3, "output_mtok": 600}`)
	require.Equal(t, "0.001", usd(t, m, noon, input(1)))
	require.Equal(t, "5404319552844.5952", usd(t, m, noon, Usage{Reported: true, Output: 1 << 53}))
}

// Field report: usage of 0 was taken for a missing one, and a missing price for 0.
func TestZeroIsNotMissingAndMissingIsNotZero(t *testing.T) {
	m := bookOf(t, `{"input_mtok": 1, "requests_kcount": 12}`)
	require.Equal(t, "0.012", usd(t, m, noon, Usage{Reported: true}))
	refused(t, m, Usage{}, "no_usage")
	refused(t, m, Usage{Input: 5}, "no_usage")
	refused(t, m, Usage{Reported: true, Input: 1, Output: 1}, "no_price:output_mtok")
	free := bookOf(t, `{"input_mtok": 0, "output_mtok": 0}`)
	require.Equal(t, "0", usd(t, free, noon, Usage{Reported: true, Input: 9, Output: 9}))
}

func refused(t *testing.T, m *Model, u Usage, want string) {
	t.Helper()
	a, err := m.Price(noon, u)
	require.Error(t, err)
	require.Equal(t, want, reasonOf(t, err))
	require.True(t, a.IsZero())
}

func TestUnpricedSaysWhy(t *testing.T) {
	for _, c := range []struct {
		prices string
		usage  Usage
		want   string
	}{
		{`{}`, input(0), "empty_price_set"},
		{`{"input_mtok": null}`, input(1), "empty_price_set"},
		{`[]`, input(1), "empty_price_set"},
		{
			`[{"prices":{}},{"constraint":{"start_date":"2026-03-03"},"prices":{"input_mtok":1}}]`,
			input(1), "empty_price_set",
		},
		{`{}`, Usage{Reported: true, Input: 1, CacheRead: 2}, "empty_price_set"},
		{`{"input_audio_mtok": 1}`, input(1), "no_price:input_mtok"},
		{`{"output_mtok": 1}`, input(1), "no_price:input_mtok"},
		{`{"input_mtok": 1}`, Usage{Reported: true, Input: 2, CacheRead: 3}, "cached_exceeds_input"},
		{`{"input_mtok": 1}`, Usage{Reported: true, Input: 2, CacheRead: 1, CacheWrite: 2}, "cached_exceeds_input"},
		{`{"input_mtok": 1, "cache_write_mtok": 1}`, Usage{Reported: true, CacheWrite: 1}, "cached_exceeds_input"},
		{
			`{"input_mtok": 1}`,
			Usage{Reported: true, Input: math.MaxInt64, CacheRead: math.MaxInt64, CacheWrite: math.MaxInt64},
			"cached_exceeds_input",
		},
		{`{"cache_read_mtok": 1}`, Usage{Reported: true, Input: 2, CacheRead: 1}, "no_price:input_mtok"},
		{`{"cache_read_mtok": 1}`, Usage{Reported: true, Input: 2, CacheRead: 1, CacheWrite: 1}, "no_price:input_mtok"},
	} {
		t.Run(c.want, func(t *testing.T) { refused(t, bookOf(t, c.prices), c.usage, c.want) })
	}
	_, err := bookOf(t, `{"input_mtok": 1}`).Price(noon, Usage{Reported: true, Output: 1})
	require.EqualError(t, err, `price: unpriced: no_price for output_mtok (provider "p", model "m")`)
	_, err = bookOf(t, `{}`).Price(noon, input(1))
	require.EqualError(t, err, `price: unpriced: empty_price_set (provider "p", model "m")`)
}

func TestNegativeUsageIsAFaultOfTheCaller(t *testing.T) {
	m := bookOf(t, `{"input_mtok": 1, "output_mtok": 1}`)
	for _, u := range []Usage{{true, -1, 0, 0, 0}, {true, 0, -1, 0, 0}, {true, 0, 0, -1, 0}, {true, 0, 0, 0, -1}} {
		_, err := m.Price(noon, u)
		require.ErrorIs(t, err, ErrNegativeUsage)
	}
}

func TestCachedTokensWithoutAPriceOfTheirOwnAreInput(t *testing.T) {
	u := Usage{Reported: true, Input: 1_000_000, CacheRead: 300_000, CacheWrite: 200_000}
	for prices, want := range map[string]string{
		`{"input_mtok": 10}`:                                                "10",
		`{"input_mtok": 10, "cache_read_mtok": 1}`:                          "7.3",
		`{"input_mtok": 10, "cache_write_mtok": 20}`:                        "12",
		`{"input_mtok": 10, "cache_read_mtok": 1, "cache_write_mtok": 20}`:  "9.3",
		`{"input_mtok": 10, "cache_read_mtok": 0, "cache_write_mtok": 0}`:   "5",
		`{"input_mtok": 10, "cache_read_mtok": null, "requests_kcount": 1}`: "10.001",
	} {
		require.Equal(t, want, usd(t, bookOf(t, prices), noon, u), prices)
	}
	all := Usage{Reported: true, Input: 5, CacheRead: 5}
	require.Equal(t, "0.000005", usd(t, bookOf(t, `{"cache_read_mtok": 1}`), noon, all), "no input is left to price")
}

func TestTierAppliesOnceTheWholeInputExceedsItsStart(t *testing.T) {
	// Out of order on purpose: tiers count by their start.
	m := bookOf(t, `{
		"input_mtok": {"base": 1, "tiers": [{"start": 200, "price": 3}, {"start": 100, "price": 2}]},
		"cache_read_mtok": {"base": 10, "tiers": [{"start": 150, "price": 20}]},
		"output_mtok": {"base": 100, "tiers": [ {"start": 0 , "price": 200 } ]}
	}`)
	for _, c := range []struct {
		usage Usage
		want  string
	}{
		{input(99), "0.000099"},
		{input(100), "0.0001"},
		{input(101), "0.000202"},
		{input(200), "0.0004"},
		{input(201), "0.000603"},
		{Usage{Reported: true, Input: 150, CacheRead: 150}, "0.0015"},
		{Usage{Reported: true, Input: 151, CacheRead: 150}, "0.003002"}, // cached tokens count towards the tier
		{Usage{Reported: true, Output: 1}, "0.0001"},
		{Usage{Reported: true, Input: 1, Output: 1}, "0.000201"}, // the input chooses the tier of the output
	} {
		require.Equal(t, c.want, usd(t, m, noon, c.usage), "%+v", c.usage)
	}
}

func TestLastSetInForceWinsElseTheFirst(t *testing.T) {
	m := bookOf(t, `[
		{"constraint": {"start_date": "2026-03-01"}, "prices": {"input_mtok": 1}},
		{"constraint": {"start_date": "2026-03-05"}, "prices": {"input_mtok": 2}},
		{"constraint": {"start_date": "2026-03-03"}, "prices": {"input_mtok": 3}},
		{"constraint": {"start_time": "10:00", "end_time": "11:00"}, "prices": {"input_mtok": 4}}
	]`)
	for at, want := range map[string]string{
		"2020-01-01T00:00:00Z":           "1", // none is in force: the first
		"2026-03-02T23:59:59.999999999Z": "1",
		"2026-03-03T00:00:00Z":           "3",
		"2026-03-05T00:00:00Z":           "3", // the second is in force too, but the third comes later
		"2026-03-05T09:59:59.999999999Z": "3",
		"2026-03-05T10:00:00Z":           "4",
		"2026-03-05T10:59:59.999999999Z": "4",
		"2026-03-05T11:00:00Z":           "3",
		"2026-03-02T23:30:00-02:00":      "3", // 01:30 of the third, in UTC
		"2026-03-03T01:00:00+02:00":      "1",
		"1969-12-31T10:30:00Z":           "4",
		"1969-12-31T11:30:00Z":           "1",
	} {
		when, err := time.Parse(time.RFC3339, at)
		require.NoError(t, err)
		require.Equal(t, want, usd(t, m, when, input(1_000_000)), at)
	}
	m = bookOf(t, `[{"prices":{"input_mtok":1}},{"constraint":null,"prices":{"input_mtok":2}}]`)
	require.Equal(t, "2", usd(t, m, noon, input(1_000_000)), "a set without a constraint is always in force")
}

func TestTimeOfDay(t *testing.T) {
	for _, c := range []struct{ start, end, in, out string }{
		{"00:30:00Z", "16:30:00Z", "00:30:00", "00:29:59.999999999"},
		{"00:30:00Z", "16:30:00Z", "16:29:59.999999999", "16:30:00"},
		{"08:30:00+08:00", "00:30:00+08:00", "00:30:00", "00:29:59.999999999"}, // the same interval
		{"08:30:00+08:00", "00:30:00+08:00", "16:29:59.999999999", "16:30:00"},
		{"22:00", "06:00", "22:00:00", "21:59:59.999999999"}, // over midnight
		{"22:00", "06:00", "00:00:00", "06:00:00"},
		{"22:00", "06:00", "23:59:59.999999999", "12:00:00"},
		{"22:00", "00:00", "23:59:59.999999999", "00:00:00"},
		{"00:00", "23:59:59.999999999", "00:00:00", "23:59:59.999999999"},
		{"20:00-05:00", "21:00-05:00", "01:30:00", "00:59:59"},
		{"10:00:00.25", "10:00:00.5Z", "10:00:00.25", "10:00:00.249999999"},
	} {
		m := bookOf(t, `[{"prices":{"input_mtok":1}},{"constraint":{"start_time":"`+c.start+`","end_time":"`+c.end+
			`"},"prices":{"input_mtok":2}}]`)
		for clock, want := range map[string]string{c.in: "2", c.out: "1"} {
			for _, day := range []string{"2026-02-28", "1969-07-20", "2027-01-01"} {
				at, err := time.Parse(time.RFC3339, day+"T"+clock+"Z")
				require.NoError(t, err)
				require.Equal(t, want, usd(t, m, at, input(1_000_000)), "%v at %v", c, at)
			}
		}
	}
	never := bookOf(t, `[{"prices":{"input_mtok":1}},{"constraint":{"start_time":"12:00","end_time":"12:00"},
		"prices":{"input_mtok":2}}]`)
	require.Equal(t, "1", usd(t, never, noon, input(1_000_000)), "an empty interval holds no time")
}

// slowPrice is rule 5 again for one set of prices, over big.Rat, from the text of the literals.
type slowPrice struct {
	base  string
	tiers map[int64]string
}

func (p slowPrice) of(n, whole int64) *big.Rat {
	literal, best := p.base, int64(-1)
	for start, price := range p.tiers {
		if whole > start && start > best {
			literal, best = price, start
		}
	}
	r, ok := new(big.Rat).SetString(literal)
	if !ok {
		panic(literal)
	}
	r.Mul(r, new(big.Rat).SetInt64(n))
	return r.Quo(r, new(big.Rat).SetInt64(1_000_000))
}

func (p slowPrice) json() string {
	if p.tiers == nil {
		return p.base
	}
	s := `{"base":` + p.base + `,"tiers":[`
	for start, price := range p.tiers {
		s += `{"start":` + big.NewInt(start).String() + `,"price":` + price + `},`
	}
	return s[:len(s)-1] + `]}`
}

func literals() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringMatching(`(0|[1-9][0-9]{0,2})(\.[0-9]{1,17})?`),
		rapid.StringMatching(`[1-9]\.[0-9]{1,7}[eE]-[0-9]`),
		rapid.SampledFrom([]string{"0", "600", "1000000000", "4.0054321e-8", "0.08333333333333334", "1e-24", "1E3"}),
	)
}

// tokens draws counts with the edges of the tiers among them.
func tokens(limit int64) *rapid.Generator[int64] {
	edges := rapid.SampledFrom([]int64{0, 1, 99, 100, 101, 199, 200, 201, 300})
	return rapid.OneOf(
		rapid.Int64Range(0, limit),
		rapid.Map(edges, func(n int64) int64 { return min(n, limit) }),
	)
}

func TestPriceAgreesWithASlowReadingOfTheRules(t *testing.T) {
	kinds := []string{kindInput, kindOutput, kindCacheRead, kindCacheWrite}
	rapid.Check(t, func(t *rapid.T) {
		prices, doc := map[string]slowPrice{}, ""
		for _, kind := range kinds {
			if !rapid.SampledFrom([]bool{true, true, true, false}).Draw(t, "has "+kind) {
				continue
			}
			p := slowPrice{base: literals().Draw(t, kind)}
			if rapid.Bool().Draw(t, "has tiers") {
				starts := rapid.SampledFrom([]int64{0, 100, 200, 300})
				p.tiers = rapid.MapOfN(starts, literals(), 1, 3).Draw(t, "tiers")
			}
			prices[kind] = p
			doc += `"` + kind + `":` + p.json() + `,`
		}
		request := slowPrice{base: literals().Draw(t, kindRequests)}
		if rapid.Bool().Draw(t, "tiered requests") {
			request.tiers = map[int64]string{100: literals().Draw(t, "tier")}
		}
		m := bookOf(t, `{`+doc+`"requests_kcount":`+request.json()+`}`)
		u := Usage{Reported: true, Input: tokens(1<<53).Draw(t, "input"), Output: tokens(1<<53).Draw(t, "output")}
		u.CacheRead = tokens(u.Input).Draw(t, "read")
		u.CacheWrite = tokens(u.Input-u.CacheRead).Draw(t, "write")
		want, missing := slow(prices, request, u)
		got, err := m.Price(noon, u)
		if missing != "" {
			require.Equal(t, "no_price:"+missing, reasonOf(t, err))
			return
		}
		require.NoError(t, err)
		exact, ok := new(big.Rat).SetString(got.String())
		require.True(t, ok)
		require.Zero(t, want.Cmp(exact), "%v, want %v", got, want.FloatString(40))
	})
}

// slow sums a bill line by line.
func slow(prices map[string]slowPrice, request slowPrice, u Usage) (sum *big.Rat, missing string) {
	counts := map[string]int64{
		kindInput: u.Input, kindOutput: u.Output, kindCacheRead: u.CacheRead, kindCacheWrite: u.CacheWrite,
	}
	for _, kind := range []string{kindCacheRead, kindCacheWrite} {
		if _, own := prices[kind]; own {
			counts[kindInput] -= counts[kind]
		} else {
			counts[kind] = 0
		}
	}
	sum = request.of(1000, u.Input) // a price for a thousand, and of reckons a million
	for _, kind := range []string{kindInput, kindCacheRead, kindCacheWrite, kindOutput} {
		if p, ok := prices[kind]; ok {
			sum.Add(sum, p.of(counts[kind], u.Input))
		} else if counts[kind] > 0 {
			return nil, kind
		}
	}
	return sum, ""
}

func TestDailyConstraintAgreesWithWalkingTheClock(t *testing.T) {
	const minutes = 24 * 60
	clock := func(m int) string { return time.Unix(int64(m)*60, 0).UTC().Format("15:04") }
	rapid.Check(t, func(t *rapid.T) {
		start, end := rapid.IntRange(0, minutes-1).Draw(t, "start"), rapid.IntRange(0, minutes-1).Draw(t, "end")
		now := rapid.OneOf(rapid.IntRange(0, minutes-1), rapid.SampledFrom([]int{start, end})).Draw(t, "now")
		inside := false
		for m := start; m != end; m = (m + 1) % minutes {
			inside = inside || m == now
		}
		from, err := parseClock(clock(start))
		require.NoError(t, err)
		to, err := parseClock(clock(end))
		require.NoError(t, err)
		day := rapid.Int64Range(-40_000, 40_000).Draw(t, "day")
		at := time.Unix(day*secondsOfDay+int64(now)*60, 0)
		require.Equal(t, inside, constraint{kind: daily, from: from, to: to}.active(instantOf(at)))
	})
}

func TestInstantIsTheUTCDateAndClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := time.Unix(rapid.Int64Range(-1<<36, 1<<36).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns"))
		got := instantOf(at.In(time.FixedZone("", 5*3600)))
		midnight := time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, int(got.day))
		y, m, d := at.UTC().Date()
		require.Equal(t, time.Date(y, m, d, 0, 0, 0, 0, time.UTC), midnight)
		require.Equal(t, at.Sub(midnight), got.clock)
	})
}

func TestNoRequestOverflowsAnAmount(t *testing.T) {
	m := bookOf(t, `{"input_mtok":1e9, "output_mtok":1e9, "cache_read_mtok":1e9, "cache_write_mtok":1e9,
		"requests_kcount":1e9}`)
	const most = math.MaxInt64
	a, err := m.Price(noon, Usage{true, most, most, most / 2, most / 2})
	require.NoError(t, err)
	sum := a
	for range 1000 {
		sum, err = sum.Add(a)
		require.NoError(t, err)
	}
	require.Positive(t, sum.Cmp(a))
}

func TestPricingAllocatesNothing(t *testing.T) {
	data, err := os.ReadFile("../sample/prices.json")
	require.NoError(t, err)
	b, err := Parse(data)
	require.NoError(t, err)
	c := b.NewCache()
	sum := money.Amount{}
	for _, model := range []string{"gpt-4o", "o3", "text-embedding-3-small", "nothing-like-it"} {
		price := func() {
			m, err := c.Find("openai", model)
			if err != nil {
				return
			}
			if a, err := m.Price(noon, Usage{true, 300_000, 10, 1024, 0}); err == nil {
				sum, _ = sum.Add(a)
			}
		}
		price()
		require.Zero(t, testing.AllocsPerRun(100, price), model)
	}
	require.False(t, sum.IsZero())
}

func BenchmarkPricing(b *testing.B) {
	data, err := os.ReadFile("../sample/prices.json")
	require.NoError(b, err)
	book, err := Parse(data)
	require.NoError(b, err)
	c := book.NewCache()
	u := Usage{true, 300_000, 10, 1024, 0}
	for _, name := range []names{
		{"openai", "gpt-4o"}, {"anthropic", "claude-sonnet-4-5"}, {"deepseek", "deepseek-chat"},
	} {
		m, err := c.Find(name.provider, name.model)
		require.NoError(b, err)
		b.Run("Find/"+name.model, func(b *testing.B) {
			for b.Loop() {
				if _, err := c.Find(name.provider, name.model); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("Price/"+name.model, func(b *testing.B) {
			for b.Loop() {
				if _, err := m.Price(noon, u); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestTiersAreMonotoneWhereTheirPricesAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps := rapid.SliceOfN(rapid.Int64Range(0, 1000), 4, 4).Draw(t, "prices")
		slices.Sort(steps)
		p := slowPrice{base: big.NewInt(steps[0]).String(), tiers: map[int64]string{}}
		for i, start := range []int64{100, 200, 300} {
			p.tiers[start] = big.NewInt(steps[i+1]).String()
		}
		m := bookOf(t, `{"input_mtok":`+p.json()+`}`)
		a, b := tokens(400).Draw(t, "a"), tokens(400).Draw(t, "b")
		costA, err := m.Price(noon, input(min(a, b)))
		require.NoError(t, err)
		costB, err := m.Price(noon, input(max(a, b)))
		require.NoError(t, err)
		require.LessOrEqual(t, costA.Cmp(costB), 0, "more tokens never cost less")
	})
}
