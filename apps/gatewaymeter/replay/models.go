package replay

import (
	"encoding/json"
	"fmt"
)

// Model is a model that requests are drawn from.
type Model struct {
	Provider string
	Model    string
	Weight   int64 // how often it is drawn, beside the others' weights; 0 is 1
	// CacheRead and CacheWrite tell whether requests to it may report cached tokens.
	CacheRead  bool
	CacheWrite bool
}

// ModelsOf returns the models of a price book, in its order, under the IDs that the book gives
// them. A model is left out where one of its price sets lacks a price for input or output: its
// requests could not be billed.
func ModelsOf(priceBook []byte) ([]Model, error) {
	var providers []struct {
		ID     string `json:"id"`
		Models []struct {
			ID     string          `json:"id"`
			Prices json.RawMessage `json:"prices"`
		} `json:"models"`
	}
	if err := json.Unmarshal(priceBook, &providers); err != nil {
		return nil, fmt.Errorf("models of the price book: %w", err)
	}
	var models []Model
	for _, p := range providers {
		for _, m := range p.Models {
			sets, err := priceSets(m.Prices)
			if err != nil {
				return nil, fmt.Errorf("models of the price book: provider %q: model %q: %w", p.ID, m.ID, err)
			}
			if priced(sets, "input_mtok") && priced(sets, "output_mtok") {
				models = append(models, Model{
					Provider: p.ID, Model: m.ID,
					CacheRead: priced(sets, "cache_read_mtok"), CacheWrite: priced(sets, "cache_write_mtok"),
				})
			}
		}
	}
	return models, nil
}

// priceSets returns the prices of a model, which are one object, or a list of conditional ones.
func priceSets(raw json.RawMessage) ([]map[string]json.RawMessage, error) {
	var one map[string]json.RawMessage
	if json.Unmarshal(raw, &one) == nil {
		return []map[string]json.RawMessage{one}, nil
	}
	var several []struct {
		Prices map[string]json.RawMessage `json:"prices"`
	}
	if err := json.Unmarshal(raw, &several); err != nil {
		return nil, fmt.Errorf("prices: %w", err)
	}
	var sets []map[string]json.RawMessage
	for _, s := range several {
		sets = append(sets, s.Prices)
	}
	return sets, nil
}

// priced reports whether every set has a price of the kind.
func priced(sets []map[string]json.RawMessage, kind string) bool {
	for _, s := range sets {
		if price, ok := s[kind]; !ok || string(price) == "null" {
			return false
		}
	}
	return len(sets) > 0
}
