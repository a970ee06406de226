// Package sample holds a small trace and a small price book that were written for this project, so
// that whatever needs some runs without fetching any. They show the form of both: the book is
// nobody's price list, and the trace is of nobody's requests.
package sample

import _ "embed" // for the files below

//weir:fixed go:embed writes it, and nobody else does
//go:embed prices.json
var prices []byte

//weir:fixed go:embed writes it, and nobody else does
//go:embed trace.csv
var trace []byte

// Prices returns the price book, in the form of genai-prices. Nobody may change it.
func Prices() []byte { return prices }

// Trace returns the trace, in the form of the Azure LLM inference traces. Nobody may change it.
func Trace() []byte { return trace }
