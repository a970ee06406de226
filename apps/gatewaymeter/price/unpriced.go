package price

import "fmt"

// Reason says why a request has no price. The texts are stable: they go into alerts and side outputs.
type Reason string

// The reasons, in the order in which they are looked for: one that comes earlier hides a later one.
const (
	// UnknownProvider: no provider of the book has the id or matches it.
	UnknownProvider Reason = "unknown_provider"
	// UnknownModel: the provider and its fallbacks have no model of the name.
	UnknownModel Reason = "unknown_model"
	// NoUsage: the request reported no usage at all. (A reported usage of zero tokens costs 0.)
	NoUsage Reason = "no_usage"
	// EmptyPriceSet: the set in force has no price of any kind.
	EmptyPriceSet Reason = "empty_price_set"
	// CachedExceedsInput: more cached tokens than input tokens, which should include them.
	CachedExceedsInput Reason = "cached_exceeds_input"
	// NoPrice: tokens were used for which the set in force has no price.
	NoPrice Reason = "no_price"
)

// UnpricedError says that the book gives no price for a request. The request must be shown to somebody,
// and never be billed as 0.
type UnpricedError struct {
	Reason Reason
	// Provider and Model are the event's names where the model is unknown, else the book's ids.
	Provider, Model string
	// Kind is the book's name of the kind without a price ("output_mtok"). Only with NoPrice.
	Kind string
}

func (e *UnpricedError) Error() string {
	what := string(e.Reason)
	if e.Kind != "" {
		what += " for " + e.Kind
	}
	return fmt.Sprintf("price: unpriced: %s (provider %q, model %q)", what, e.Provider, e.Model)
}

// refusals are a model's errors, made beforehand so that a stream of unpriced requests allocates nothing.
type refusals struct {
	noUsage, emptySet, cachedExceedsInput, noInputPrice, noOutputPrice *UnpricedError
}

func newRefusals(provider, model string) refusals {
	refuse := func(r Reason, kind string) *UnpricedError {
		return &UnpricedError{Reason: r, Provider: provider, Model: model, Kind: kind}
	}
	return refusals{
		noUsage:            refuse(NoUsage, ""),
		emptySet:           refuse(EmptyPriceSet, ""),
		cachedExceedsInput: refuse(CachedExceedsInput, ""),
		noInputPrice:       refuse(NoPrice, kindInput),
		noOutputPrice:      refuse(NoPrice, kindOutput),
	}
}
