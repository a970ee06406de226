// Package price computes what a request to a language model costs, from a price book: which model an
// event means by its names of provider and model, which of the model's price sets is in force, and the
// exact sum.
//
// It is not a meter: it knows no events, tenants or windows, does no I/O and reads no clock. Times and
// the bytes of the book are arguments.
//
// A [Book] is parsed once and never changes; it may be used from many goroutines. A [Cache] belongs to
// one goroutine and makes a look-up one or two map accesses.
//
// # Invariants
//
//  1. Exact: prices are taken from the digits in the book, and a [money.Amount] is never rounded. A
//     price with more digits than can be held is refused when the book is parsed.
//  2. Nothing is 0 in silence: what cannot be priced is an [*UnpricedError] that says why.
//  3. An amount of one request cannot overflow: prices are at most [MaxPrice] (checked in Parse).
//  4. Pricing allocates nothing, its errors included.
//  5. A cache never grows past its bound, whatever names arrive.
//
// # The book
//
// The form is that of the public package genai-prices (data.json): a list of providers, each with its
// models. Fields that pricing does not use are ignored; fields that it uses are checked, and an error
// names provider and model. Regular expressions are Go's (RE2); a book with one that Go cannot compile
// is refused. Answers are those of genai-prices, with these differences:
//
//   - A used kind without a price, an empty price set and more cached tokens than input are errors. There
//     a missing price is 0, and cached tokens without a price of their own are not compared with the input.
//   - A compact date is written with dashes only where it ends the model's name, not before ":" or "-".
//   - The provider "litellm" is not taken apart into the provider in the model's prefix.
//   - A regular expression ignores case, like every other clause; there only the name is lowered.
package price
