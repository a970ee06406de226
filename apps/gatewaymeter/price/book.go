package price

import (
	"slices"
	"strings"
	"time"
)

// Book is a parsed price book. It does not change and may be used from many goroutines.
type Book struct {
	digest    [32]byte
	providers []*provider // in book order
	byID      map[string]*provider
	unused    []string
}

type provider struct {
	id          string // as in the book
	match       *clause
	fallbackIDs []string
	fallbacks   []*provider // one step: the fallbacks of these are not asked
	models      []*Model    // in book order
}

// Model is one model of a book. It does not change and may be used from many goroutines.
type Model struct {
	provider, id string
	match        clause
	sets         []set // in book order
	refusals     refusals
}

// Provider returns the id of the provider in the book that the prices come from. It is another one than
// was asked for where a provider offers another's models.
func (m *Model) Provider() string { return m.provider }

// ID returns the id of the model in the book. It names the entry; it need not be a name that an event can use.
func (m *Model) ID() string { return m.id }

// Digest returns the SHA-256 of the bytes that the book was parsed from.
func (b *Book) Digest() [32]byte { return b.digest }

// UnusedKinds returns the kinds of price in the book that no event reports (audio, for one) and that
// are therefore never billed, sorted. A caller should log them once: a misspelt kind is among them.
func (b *Book) UnusedKinds() []string { return slices.Clone(b.unused) }

// Find returns the model that an event means by its names of provider and model. Case is ignored, and
// so is white space around the provider. The error is an [*UnpricedError] with [UnknownProvider] or
// [UnknownModel].
//
// It walks the book (tens of microseconds in a book of 1,400 models); see [Cache].
func (b *Book) Find(providerName, modelName string) (*Model, error) {
	p := b.provider(normalize(strings.TrimSpace(providerName)))
	if p == nil {
		return nil, &UnpricedError{Reason: UnknownProvider, Provider: providerName, Model: modelName}
	}
	name := normalize(modelName)
	if m := p.find(name); m != nil {
		return m, nil
	}
	if dashed, ok := dashDate(name); ok {
		if m := p.find(dashed); m != nil {
			return m, nil
		}
	}
	return nil, &UnpricedError{Reason: UnknownModel, Provider: providerName, Model: modelName}
}

func (b *Book) provider(name string) *provider {
	if p := b.byID[name]; p != nil {
		return p
	}
	for _, p := range b.providers {
		if p.match != nil && p.match.holds(name) {
			return p
		}
	}
	return nil
}

// find returns the first model that name matches, of the provider's own or else of its fallbacks'.
func (p *provider) find(name string) *Model {
	if m := p.own(name); m != nil {
		return m
	}
	for _, f := range p.fallbacks {
		if m := f.own(name); m != nil {
			return m
		}
	}
	return nil
}

func (p *provider) own(name string) *Model {
	for _, m := range p.models {
		if m.match.holds(name) {
			return m
		}
	}
	return nil
}

// normalize makes names comparable: the book's and the events' go through it alike.
func normalize(name string) string { return strings.ToLower(name) }

// dashDate writes a compact date of this century at the end of a name ("-20251211") with dashes
// ("-2025-12-11"). What is not a day of the calendar is not a date.
func dashDate(name string) (string, bool) {
	const compact = "-20060102"
	cut := len(name) - len(compact)
	if cut < 0 || !strings.HasPrefix(name[cut:], "-20") {
		return "", false
	}
	day, err := time.Parse(compact, name[cut:])
	if err != nil {
		return "", false
	}
	return name[:cut] + day.Format("-2006-01-02"), true
}
