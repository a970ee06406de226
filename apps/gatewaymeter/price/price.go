package price

import (
	"errors"
	"time"

	"example.com/weir/apps/gatewaymeter/money"
)

// The kinds of price that are billed, by their names in a book: dollars for a million tokens, or for a
// thousand requests.
const (
	kindInput      = "input_mtok"
	kindOutput     = "output_mtok"
	kindCacheRead  = "cache_read_mtok"
	kindCacheWrite = "cache_write_mtok"
	kindRequests   = "requests_kcount"
)

// ErrNegativeUsage says that a [Usage] has a negative number of tokens: a fault of the caller, whose
// decoder should not have let it pass.
var ErrNegativeUsage = errors.New("price: negative number of tokens")

// Usage is what a request reported, in tokens.
type Usage struct {
	// Reported is false for a request that said nothing about its usage, which cannot be priced. A kind
	// that is missing from a reported usage was not used, which is the same as 0.
	Reported bool
	// Input includes CacheRead and CacheWrite.
	Input, Output, CacheRead, CacheWrite int64
}

// set is one set of prices and when it is in force.
type set struct {
	constraint constraint
	empty      bool // no price of any kind, used or unused
	input      tariff
	output     tariff
	cacheRead  tariff
	cacheWrite tariff
	requests   tariff
}

// tariff is the price of one kind of thing: of tokens, or of requests. The zero value is no price, which
// is not a price of 0.
type tariff struct {
	priced bool
	base   money.Rate
	tiers  []tier // by ascending start, no two equal
}

type tier struct {
	start int64 // tokens of input that must be exceeded
	rate  money.Rate
}

// rate returns the price of each thing in a request with that many input tokens in all.
func (t *tariff) rate(input int64) money.Rate {
	for i := len(t.tiers) - 1; i >= 0; i-- {
		if input > t.tiers[i].start {
			return t.tiers[i].rate
		}
	}
	return t.base
}

// cost returns what n things cost in a request with that many input tokens in all, or missing if they
// have no price.
func (t *tariff) cost(n, input int64, missing *UnpricedError) (money.Amount, error) {
	if n == 0 {
		return money.Amount{}, nil
	}
	if !t.priced {
		return money.Amount{}, missing
	}
	return t.rate(input).Times(uint64(n)), nil
}

// Price returns what a request costs whose price is the one in force at the given time.
//
// The error is an [*UnpricedError], or [ErrNegativeUsage]. Errors are shared between calls: do not
// change them.
func (m *Model) Price(at time.Time, u Usage) (money.Amount, error) {
	if !u.Reported {
		return money.Amount{}, m.refusals.noUsage
	}
	if u.Input < 0 || u.Output < 0 || u.CacheRead < 0 || u.CacheWrite < 0 {
		return money.Amount{}, ErrNegativeUsage
	}
	s := m.setAt(at)
	if s == nil || s.empty {
		return money.Amount{}, m.refusals.emptySet
	}
	if u.CacheRead > u.Input || u.CacheWrite > u.Input-u.CacheRead {
		return money.Amount{}, m.refusals.cachedExceedsInput
	}
	return s.price(u, &m.refusals)
}

// price sums the lines of a bill. Cached tokens are a line of their own where they have a price of
// their own, and stay in the input's where they have none.
func (s *set) price(u Usage, refuse *refusals) (money.Amount, error) {
	input, read, write := u.Input, int64(0), int64(0)
	if s.cacheRead.priced {
		input, read = input-u.CacheRead, u.CacheRead
	}
	if s.cacheWrite.priced {
		input, write = input-u.CacheWrite, u.CacheWrite
	}
	lines := [...]struct {
		tariff  *tariff
		tokens  int64
		missing *UnpricedError
	}{
		{&s.input, input, refuse.noInputPrice},
		{&s.cacheRead, read, nil},
		{&s.cacheWrite, write, nil},
		{&s.output, u.Output, refuse.noOutputPrice},
	}
	sum := s.requests.rate(u.Input).Times(1)
	for i := range lines {
		cost, err := lines[i].tariff.cost(lines[i].tokens, u.Input, lines[i].missing)
		if err != nil {
			return money.Amount{}, err
		}
		if sum, err = sum.Add(cost); err != nil {
			return money.Amount{}, err
		}
	}
	return sum, nil
}

// setAt returns the last set that is in force at a time, or the first of all where none is; nil where
// the book has no set.
func (m *Model) setAt(at time.Time) *set {
	if len(m.sets) == 0 {
		return nil
	}
	if len(m.sets) > 1 {
		now := instantOf(at)
		for i := len(m.sets) - 1; i > 0; i-- {
			if m.sets[i].constraint.active(now) {
				return &m.sets[i]
			}
		}
	}
	return &m.sets[0]
}
