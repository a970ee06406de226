package price

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"example.com/weir/apps/gatewaymeter/money"
)

// MaxPrice is the largest price in a book, in dollars for a million tokens or a thousand requests. With
// it no request overflows an amount, nor does a sum of fewer than 10^8 of the dearest requests.
const MaxPrice = 1_000_000_000

// Parse reads a price book. An error names the provider, the model and the field at fault.
func Parse(data []byte) (*Book, error) {
	b, err := parseBook(data)
	if err != nil {
		return nil, fmt.Errorf("price: book: %w", err)
	}
	return b, nil
}

func parseBook(data []byte) (*Book, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("not UTF-8")
	}
	entries, err := asArray(data)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return nil, fmt.Errorf("not JSON: byte %d: %w", syntax.Offset, err)
	}
	if err != nil {
		return nil, err
	}
	b := &Book{digest: sha256.Sum256(data), byID: make(map[string]*provider, len(entries))}
	unused := make(map[string]struct{})
	for i, raw := range entries {
		p, err := parseProvider(raw, unused)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", label("provider", raw, i), err)
		}
		id := normalize(strings.TrimSpace(p.id))
		if b.byID[id] != nil {
			return nil, fmt.Errorf("provider %q: the id is there twice", p.id)
		}
		b.byID[id] = p
		b.providers = append(b.providers, p)
	}
	for _, p := range b.providers {
		p.fallbacks = b.resolve(p.fallbackIDs)
	}
	b.unused = slices.Sorted(maps.Keys(unused))
	return b, nil
}

// resolve looks providers up. One that the book does not have offers no model, which is no error: a
// book may be an extract.
func (b *Book) resolve(ids []string) []*provider {
	var found []*provider
	for _, id := range ids {
		if p := b.byID[normalize(strings.TrimSpace(id))]; p != nil {
			found = append(found, p)
		}
	}
	return found
}

// label names an entry by its id where it has one, else by its place.
func label(what string, raw json.RawMessage, i int) string {
	if fields, err := asObject(raw); err == nil {
		if id, err := asString(fields["id"]); err == nil {
			return fmt.Sprintf("%s %q", what, id)
		}
	}
	return fmt.Sprintf("%s at index %d", what, i)
}

func parseProvider(raw json.RawMessage, unused map[string]struct{}) (*provider, error) {
	fields, err := asObject(raw)
	if err != nil {
		return nil, err
	}
	p := &provider{}
	if p.id, err = parseID(fields["id"]); err != nil {
		return nil, err
	}
	if match := fields["provider_match"]; !isNull(match) {
		c, err := parseClause(match)
		if err != nil {
			return nil, fmt.Errorf("provider_match: %w", err)
		}
		p.match = &c
	}
	if p.fallbackIDs, err = parseFallbacks(fields["fallback_model_providers"]); err != nil {
		return nil, fmt.Errorf("fallback_model_providers: %w", err)
	}
	entries, err := asArray(fields["models"])
	if err != nil {
		return nil, fmt.Errorf("models: %w", err)
	}
	for i, raw := range entries {
		m, err := parseModel(p.id, raw, unused)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", label("model", raw, i), err)
		}
		p.models = append(p.models, m)
	}
	return p, nil
}

func parseID(raw json.RawMessage) (string, error) {
	id, err := asString(raw)
	if err != nil {
		return "", fmt.Errorf("id: %w", err)
	}
	if strings.TrimSpace(id) == "" {
		return "", errors.New("id: empty")
	}
	return id, nil
}

func parseFallbacks(raw json.RawMessage) ([]string, error) {
	if isNull(raw) {
		return nil, nil
	}
	entries, err := asArray(raw)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(entries))
	for i, raw := range entries {
		if ids[i], err = asString(raw); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

func parseModel(providerID string, raw json.RawMessage, unused map[string]struct{}) (*Model, error) {
	fields, err := asObject(raw)
	if err != nil {
		return nil, err
	}
	m := &Model{provider: providerID}
	if m.id, err = parseID(fields["id"]); err != nil {
		return nil, err
	}
	m.refusals = newRefusals(m.provider, m.id)
	if m.match, err = parseClause(fields["match"]); err != nil {
		return nil, fmt.Errorf("match: %w", err)
	}
	if m.sets, err = parseSets(fields["prices"], unused); err != nil {
		return nil, fmt.Errorf("prices: %w", err)
	}
	return m, nil
}

// parseClause reads an object with one key, the operator.
func parseClause(raw json.RawMessage) (clause, error) {
	fields, err := asObject(raw)
	if err != nil {
		return clause{}, err
	}
	if len(fields) != 1 {
		return clause{}, fmt.Errorf("want a clause with one operator, have %d: %s", len(fields), keys(fields))
	}
	for name, value := range fields {
		c, err := parseOperator(name, value)
		if err != nil {
			return clause{}, fmt.Errorf("%s: %w", name, err)
		}
		return c, nil
	}
	panic("unreachable")
}

func parseOperator(name string, value json.RawMessage) (clause, error) {
	switch name {
	case "or":
		return parseParts(opOr, value)
	case "and":
		return parseParts(opAnd, value)
	}
	text, err := asString(value)
	if err != nil {
		return clause{}, err
	}
	switch name {
	case "equals":
		return clause{op: opEquals, text: normalize(text)}, nil
	case "starts_with":
		return clause{op: opStartsWith, text: normalize(text)}, nil
	case "ends_with":
		return clause{op: opEndsWith, text: normalize(text)}, nil
	case "contains":
		return clause{op: opContains, text: normalize(text)}, nil
	case "regex":
		// The pattern cannot be normalized like other texts: \D is not \d.
		re, err := regexp.Compile("(?i)" + text)
		if err != nil {
			return clause{}, fmt.Errorf("not a regular expression of Go (RE2): %w", err)
		}
		return clause{op: opRegex, regex: re}, nil
	default:
		return clause{}, errors.New("unknown operator; want equals, starts_with, ends_with, contains, regex, or, and")
	}
}

func parseParts(op operator, raw json.RawMessage) (clause, error) {
	entries, err := asArray(raw)
	if err != nil {
		return clause{}, err
	}
	if len(entries) == 0 {
		return clause{}, errors.New("no clauses")
	}
	c := clause{op: op, parts: make([]clause, len(entries))}
	for i, raw := range entries {
		if c.parts[i], err = parseClause(raw); err != nil {
			return clause{}, err
		}
	}
	return c, nil
}

// parseSets reads one set of prices, or a list of them with constraints.
func parseSets(raw json.RawMessage, unused map[string]struct{}) ([]set, error) {
	if kindOf(raw) != "an array" {
		s, err := parseSet(raw, unused)
		if err != nil {
			return nil, err
		}
		return []set{s}, nil
	}
	entries, err := asArray(raw)
	if err != nil {
		return nil, err
	}
	sets := make([]set, len(entries))
	for i, raw := range entries {
		if sets[i], err = parseConditional(raw, unused); err != nil {
			return nil, fmt.Errorf("set %d: %w", i, err)
		}
	}
	return sets, nil
}

func parseConditional(raw json.RawMessage, unused map[string]struct{}) (set, error) {
	fields, err := asObject(raw)
	if err != nil {
		return set{}, err
	}
	if k := keys(fields); k != "prices" && k != "constraint, prices" {
		return set{}, fmt.Errorf("want prices, or constraint and prices, have: %s", k)
	}
	s, err := parseSet(fields["prices"], unused)
	if err != nil {
		return set{}, fmt.Errorf("prices: %w", err)
	}
	if s.constraint, err = parseConstraint(fields["constraint"]); err != nil {
		return set{}, fmt.Errorf("constraint: %w", err)
	}
	return s, nil
}

// parseConstraint refuses keys that it does not know: they could say that a price is not in force.
func parseConstraint(raw json.RawMessage) (constraint, error) {
	if isNull(raw) {
		return constraint{}, nil
	}
	fields, err := asObject(raw)
	if err != nil {
		return constraint{}, err
	}
	switch keys(fields) {
	case "start_date":
		c := constraint{kind: sinceDay}
		c.day, err = parseWith(parseDay, fields, "start_date")
		return c, err
	case "end_time, start_time":
		c := constraint{kind: daily}
		if c.from, err = parseWith(parseClock, fields, "start_time"); err != nil {
			return constraint{}, err
		}
		c.to, err = parseWith(parseClock, fields, "end_time")
		return c, err
	default:
		return constraint{}, fmt.Errorf("want start_date, or start_time and end_time, have: %s", keys(fields))
	}
}

func parseWith[T any](
	parse func(string) (T, error), fields map[string]json.RawMessage, name string,
) (T, error) {
	text, err := asString(fields[name])
	if err == nil {
		var v T
		if v, err = parse(text); err == nil {
			return v, nil
		}
	}
	var zero T
	return zero, fmt.Errorf("%s: %w", name, err)
}

func parseSet(raw json.RawMessage, unused map[string]struct{}) (set, error) {
	fields, err := asObject(raw)
	if err != nil {
		return set{}, err
	}
	s := set{empty: true}
	for _, kind := range slices.Sorted(maps.Keys(fields)) {
		if isNull(fields[kind]) {
			continue
		}
		s.empty = false
		if err := s.parseKind(kind, fields[kind], unused); err != nil {
			return set{}, fmt.Errorf("%s: %w", kind, err)
		}
	}
	return s, nil
}

func (s *set) parseKind(kind string, raw json.RawMessage, unused map[string]struct{}) (err error) {
	switch kind {
	case kindInput:
		s.input, err = parseTariff(raw, perMillion)
	case kindOutput:
		s.output, err = parseTariff(raw, perMillion)
	case kindCacheRead:
		s.cacheRead, err = parseTariff(raw, perMillion)
	case kindCacheWrite:
		s.cacheWrite, err = parseTariff(raw, perMillion)
	case kindRequests:
		s.requests, err = parseTariff(raw, perThousand)
	default:
		unused[kind] = struct{}{}
	}
	return err
}

// parseTariff reads a price for 10^per things, or a base price and tiers.
func parseTariff(raw json.RawMessage, per int) (tariff, error) {
	if kindOf(raw) != "an object" {
		base, err := parseRate(raw, per)
		return tariff{priced: err == nil, base: base}, err
	}
	fields, err := asObject(raw)
	if err != nil {
		return tariff{}, err
	}
	if keys(fields) != "base, tiers" {
		return tariff{}, fmt.Errorf("want a number, or base and tiers, have: %s", keys(fields))
	}
	t := tariff{priced: true}
	if t.base, err = parseRate(fields["base"], per); err != nil {
		return tariff{}, fmt.Errorf("base: %w", err)
	}
	if t.tiers, err = parseTiers(fields["tiers"], per); err != nil {
		return tariff{}, fmt.Errorf("tiers: %w", err)
	}
	return t, nil
}

func parseTiers(raw json.RawMessage, per int) ([]tier, error) {
	entries, err := asArray(raw)
	if err != nil {
		return nil, err
	}
	tiers := make([]tier, len(entries))
	for i, raw := range entries {
		if tiers[i], err = parseTier(raw, per); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(tiers, func(a, b tier) int { return cmp.Compare(a.start, b.start) })
	for i := 1; i < len(tiers); i++ {
		if tiers[i].start == tiers[i-1].start {
			return nil, fmt.Errorf("two tiers start at %d", tiers[i].start)
		}
	}
	return tiers, nil
}

func parseTier(raw json.RawMessage, per int) (tier, error) {
	fields, err := asObject(raw)
	if err != nil {
		return tier{}, err
	}
	if keys(fields) != "price, start" {
		return tier{}, fmt.Errorf("want start and price, have: %s", keys(fields))
	}
	start, err := strconv.ParseInt(string(fields["start"]), 10, 64)
	if err != nil || start < 0 {
		return tier{}, fmt.Errorf("start: want a whole number of tokens, have %.40s", fields["start"])
	}
	rate, err := parseRate(fields["price"], per)
	if err != nil {
		return tier{}, fmt.Errorf("price: %w", err)
	}
	return tier{start, rate}, nil
}

// How many things a price is for, as a power of ten.
const (
	perMillion  = 6
	perThousand = 3
)

func parseRate(raw json.RawMessage, per int) (money.Rate, error) {
	if kindOf(raw) != "a number" {
		return money.Rate{}, fmt.Errorf("want a number, have %s", kindOf(raw))
	}
	rate, err := money.ParseRate(string(raw), per)
	if err != nil {
		return money.Rate{}, err
	}
	limit, err := money.ParseRate(strconv.Itoa(MaxPrice), per)
	if err != nil {
		return money.Rate{}, err
	}
	if rate.Cmp(limit) > 0 {
		return money.Rate{}, fmt.Errorf("%.40s is above %d", raw, MaxPrice)
	}
	return rate, nil
}
