package truebill

import (
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"time"
)

// book is the price book as this package reads it.
type book struct {
	providers   []*provider
	compactDate *regexp.Regexp
	found       map[[2]string]*model // look-ups that were made, nil for a model that is not there
}

type provider struct {
	id        string
	match     func(string) bool // nil: only by id
	fallbacks []string
	models    []*model
}

type model struct {
	match func(string) bool
	sets  []priceSet
}

// priceSet is one set of prices and the times at which it is active.
type priceSet struct {
	active func(time.Time) bool
	prices map[string]tariff
}

// tariff is a price for a million, or for a thousand requests, and what it becomes above the
// starts of its tiers, which ascend.
type tariff struct {
	base  *big.Rat
	tiers []tier
}

type tier struct{ start, price *big.Rat }

// at returns the price for a request with that many input tokens.
func (t tariff) at(input int64) *big.Rat {
	price := t.base
	for _, tier := range t.tiers {
		if new(big.Rat).SetInt64(input).Cmp(tier.start) > 0 {
			price = tier.price
		}
	}
	return price
}

func parseBook(data []byte) (*book, error) {
	var raw []struct {
		ID        string          `json:"id"`
		Match     json.RawMessage `json:"provider_match"`
		Fallbacks []string        `json:"fallback_model_providers"`
		Models    []struct {
			ID     string          `json:"id"`
			Match  json.RawMessage `json:"match"`
			Prices json.RawMessage `json:"prices"`
		} `json:"models"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, fmt.Errorf("price book: %w", err)
	}
	b := &book{
		compactDate: regexp.MustCompile(`-(20\d{2})(\d{2})(\d{2})$`),
		found:       map[[2]string]*model{},
	}
	for _, p := range raw {
		parsed := &provider{id: p.ID, fallbacks: p.Fallbacks}
		var err error
		if len(p.Match) > 0 && string(p.Match) != "null" {
			if parsed.match, err = parseMatch(p.Match); err != nil {
				return nil, fmt.Errorf("price book: provider %q: %w", p.ID, err)
			}
		}
		for _, m := range p.Models {
			parsedModel := &model{}
			if parsedModel.match, err = parseMatch(m.Match); err != nil {
				return nil, fmt.Errorf("price book: provider %q: model %q: %w", p.ID, m.ID, err)
			}
			if parsedModel.sets, err = parseSets(m.Prices); err != nil {
				return nil, fmt.Errorf("price book: provider %q: model %q: %w", p.ID, m.ID, err)
			}
			parsed.models = append(parsed.models, parsedModel)
		}
		b.providers = append(b.providers, parsed)
	}
	return b, nil
}

// parseMatch makes a function of a match clause.
func parseMatch(raw json.RawMessage) (func(string) bool, error) {
	clause, err := object(raw)
	if err != nil || len(clause) != 1 {
		return nil, fmt.Errorf("match: not an object of one name: %s", raw)
	}
	for op, argument := range clause {
		if op == "or" || op == "and" {
			return parseMatches(op, argument)
		}
		var s string
		if err := json.Unmarshal(argument, &s); err != nil {
			return nil, fmt.Errorf("match: %s: %w", op, err)
		}
		lower := strings.ToLower(s)
		switch op {
		case "equals":
			return func(name string) bool { return strings.ToLower(name) == lower }, nil
		case "starts_with":
			return func(name string) bool { return strings.HasPrefix(strings.ToLower(name), lower) }, nil
		case "ends_with":
			return func(name string) bool { return strings.HasSuffix(strings.ToLower(name), lower) }, nil
		case "contains":
			return func(name string) bool { return strings.Contains(strings.ToLower(name), lower) }, nil
		case "regex":
			re, err := regexp.Compile("(?i)" + s)
			if err != nil {
				return nil, fmt.Errorf("match: %w", err)
			}
			return re.MatchString, nil
		}
		return nil, fmt.Errorf("match: unknown clause %q", op)
	}
	return nil, nil
}

func parseMatches(op string, raw json.RawMessage) (func(string) bool, error) {
	var clauses []json.RawMessage
	if err := json.Unmarshal(raw, &clauses); err != nil {
		return nil, fmt.Errorf("match: %s: %w", op, err)
	}
	var all []func(string) bool
	for _, c := range clauses {
		f, err := parseMatch(c)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return func(name string) bool {
		for _, holds := range all {
			if holds(name) == (op == "or") {
				return op == "or"
			}
		}
		return op == "and"
	}, nil
}

// parseSets reads the prices of a model: one set, or several with constraints.
func parseSets(raw json.RawMessage) ([]priceSet, error) {
	if prices, err := object(raw); err == nil {
		set, err := parseSet(prices, nil)
		return []priceSet{set}, err
	}
	var several []struct {
		Constraint map[string]string          `json:"constraint"`
		Prices     map[string]json.RawMessage `json:"prices"`
	}
	if err := json.Unmarshal(raw, &several); err != nil {
		return nil, fmt.Errorf("prices: %w", err)
	}
	var sets []priceSet
	for _, s := range several {
		set, err := parseSet(s.Prices, s.Constraint)
		if err != nil {
			return nil, err
		}
		sets = append(sets, set)
	}
	return sets, nil
}

func parseSet(prices map[string]json.RawMessage, constraint map[string]string) (priceSet, error) {
	set := priceSet{prices: map[string]tariff{}}
	var err error
	if set.active, err = parseConstraint(constraint); err != nil {
		return set, err
	}
	for name, raw := range prices {
		if string(raw) == "null" {
			continue
		}
		if set.prices[name], err = parseTariff(raw); err != nil {
			return set, fmt.Errorf("prices: %s: %w", name, err)
		}
	}
	return set, nil
}

func parseTariff(raw json.RawMessage) (tariff, error) {
	var t tariff
	var err error
	if raw[0] != '{' {
		t.base, err = number(string(raw))
		return t, err
	}
	var tiered struct {
		Base  json.Number `json:"base"`
		Tiers []struct {
			Start json.Number `json:"start"`
			Price json.Number `json:"price"`
		} `json:"tiers"`
	}
	if err := json.Unmarshal(raw, &tiered); err != nil {
		return t, err
	}
	if t.base, err = number(tiered.Base.String()); err != nil {
		return t, err
	}
	for _, raw := range tiered.Tiers {
		var step tier
		if step.start, err = number(raw.Start.String()); err != nil {
			return t, err
		}
		if step.price, err = number(raw.Price.String()); err != nil {
			return t, err
		}
		t.tiers = append(t.tiers, step)
	}
	slices.SortStableFunc(t.tiers, func(a, b tier) int { return a.start.Cmp(b.start) })
	return t, nil
}

// parseConstraint makes a function that tells whether a set is active at a time in UTC.
func parseConstraint(c map[string]string) (func(time.Time) bool, error) {
	for name := range c {
		if name != "start_date" && name != "start_time" && name != "end_time" {
			return nil, fmt.Errorf("constraint: unknown name %q", name)
		}
	}
	var date string
	if c["start_date"] != "" {
		day, err := time.Parse("2006-01-02", c["start_date"])
		if err != nil {
			return nil, fmt.Errorf("constraint: %w", err)
		}
		date = day.Format("2006-01-02")
	}
	if c["start_time"] == "" && c["end_time"] == "" {
		return func(t time.Time) bool { return t.Format("2006-01-02") >= date }, nil
	}
	start, err := parseTimeOfDay(c["start_time"])
	if err != nil {
		return nil, err
	}
	end, err := parseTimeOfDay(c["end_time"])
	if err != nil {
		return nil, err
	}
	return func(t time.Time) bool {
		clock := t.Format("15:04:05.000000000")
		within := start <= clock && clock < end
		if end < start {
			within = start <= clock || clock < end
		}
		return within && t.Format("2006-01-02") >= date
	}, nil
}

// parseTimeOfDay reads a time of day as fixed digits in UTC, which order as the times do.
func parseTimeOfDay(s string) (string, error) {
	for _, layout := range []string{"15:04:05Z07:00", "15:04:05", "15:04Z07:00", "15:04"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC().Format("15:04:05.000000000"), nil
		}
	}
	return "", fmt.Errorf("constraint: not a time of day: %q", s)
}

// find returns the model that a provider's and a model's name mean, or an error that says which
// of them is unknown.
func (b *book) find(providerName, modelName string) (*model, error) {
	names := [2]string{providerName, modelName}
	if m, ok := b.found[names]; ok && m != nil {
		return m, nil
	}
	p := b.provider(providerName)
	if p == nil {
		return nil, fmt.Errorf("unknown provider %q", providerName)
	}
	m := b.search(p, modelName)
	if m == nil {
		if dashed, ok := b.dashed(modelName); ok {
			m = b.search(p, dashed)
		}
	}
	b.found[names] = m
	if m == nil {
		return nil, fmt.Errorf("unknown model %q of provider %q", modelName, providerName)
	}
	return m, nil
}

func (b *book) provider(name string) *provider {
	name = strings.TrimSpace(name)
	for _, p := range b.providers {
		if strings.EqualFold(p.id, name) {
			return p
		}
	}
	for _, p := range b.providers {
		if p.match != nil && p.match(name) {
			return p
		}
	}
	return nil
}

// search looks for a model among a provider's own, and then among those of its fallbacks.
func (b *book) search(p *provider, name string) *model {
	places := []*provider{p}
	for _, id := range p.fallbacks {
		for _, other := range b.providers {
			if strings.EqualFold(other.id, id) {
				places = append(places, other)
			}
		}
	}
	for _, place := range places {
		for _, m := range place.models {
			if m.match(name) {
				return m
			}
		}
	}
	return nil
}

// dashed writes a compact date at the end of a name with dashes.
func (b *book) dashed(name string) (string, bool) {
	parts := b.compactDate.FindStringSubmatch(name)
	if parts == nil {
		return "", false
	}
	date := strings.Join(parts[1:], "-")
	if _, err := time.Parse("2006-01-02", date); err != nil {
		return "", false
	}
	return strings.TrimSuffix(name, parts[0]) + "-" + date, true
}

// setAt returns the last set that is active at a time, or the first one where none is.
func (m *model) setAt(at time.Time) *priceSet {
	for i := len(m.sets) - 1; i >= 0; i-- {
		if m.sets[i].active(at) {
			return &m.sets[i]
		}
	}
	if len(m.sets) == 0 {
		return nil
	}
	return &m.sets[0]
}

// price returns what a request costs in dollars, or an error that says why it has no price.
func (b *book) price(providerName, modelName string, at time.Time, u *usage) (*big.Rat, error) {
	if u == nil {
		return nil, fmt.Errorf("no usage")
	}
	m, err := b.find(providerName, modelName)
	if err != nil {
		return nil, err
	}
	set := m.setAt(at)
	if set == nil || len(set.prices) == 0 {
		return nil, fmt.Errorf("empty price set")
	}
	if new(big.Int).Add(big.NewInt(u.cacheRead), big.NewInt(u.cacheWrite)).Cmp(big.NewInt(u.input)) > 0 {
		return nil, fmt.Errorf("more cached tokens than input")
	}
	counts := map[string]int64{"input_mtok": u.input, "output_mtok": u.output}
	for name, cached := range map[string]int64{"cache_read_mtok": u.cacheRead, "cache_write_mtok": u.cacheWrite} {
		if _, ok := set.prices[name]; ok {
			counts[name] = cached
			counts["input_mtok"] -= cached
		}
	}
	sum := new(big.Rat)
	for name, count := range counts {
		if count == 0 {
			continue
		}
		t, ok := set.prices[name]
		if !ok {
			return nil, fmt.Errorf("no price for %s", name)
		}
		cost := new(big.Rat).Mul(t.at(u.input), big.NewRat(count, 1_000_000))
		sum.Add(sum, cost)
	}
	if t, ok := set.prices["requests_kcount"]; ok {
		sum.Add(sum, new(big.Rat).Quo(t.at(u.input), big.NewRat(1000, 1)))
	}
	return sum, nil
}
