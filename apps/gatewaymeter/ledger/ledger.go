// Package ledger is a consumer of tenant-cost that only appends: it keeps what it reads and
// compares it with the true bill, so that a lost, doubled or wrong minute has a name and a sum.
//
// It is not a reader of Kafka, and it decides nothing about transactions: whoever fills it reads
// the topic the way its consumers do (read_committed). It shares no code with the job.
//
// Invariants:
//
//	L1. Of a minute the highest revision counts, as the contract tells consumers.
//	L2. A record that is not what the contract says, in every field, is an error and not an entry.
//	L3. Sums are exact.
package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"example.com/weir/apps/gatewaymeter/truebill"
)

// Ledger keeps the records of tenant-cost. The zero value is empty.
type Ledger struct {
	minutes  map[truebill.Key]*minute
	records  int
	backward []Repeat
}

// minute is what was read of a tenant's minute.
type minute struct {
	revision int64 // the highest one, to which the amounts belong
	amounts  truebill.Amounts
	last     int64           // the revision read last
	times    map[int64]int64 // how often each revision was read
	usd      map[int64]string
}

// record is a value of tenant-cost. Pointers tell what is absent.
type record struct {
	TenantID     *string `json:"tenant_id"`
	WindowStart  *string `json:"window_start"`
	WindowEnd    *string `json:"window_end"`
	USD          *string `json:"usd"`
	Currency     *string `json:"currency"`
	Requests     *int64  `json:"requests"`
	InputTokens  *int64  `json:"input_tokens"`
	OutputTokens *int64  `json:"output_tokens"`
	Revision     *int64  `json:"revision"`
}

// Records returns how many records were added.
func (l *Ledger) Records() int { return l.records }

// Minutes returns how many minutes of event time have a record of any tenant.
func (l *Ledger) Minutes() int {
	ends := map[string]struct{}{}
	for key := range l.minutes {
		ends[key.WindowEnd] = struct{}{}
	}
	return len(ends)
}

// Add appends a record in the order in which it was read. It fails where the record is not what
// the contract says, and then adds nothing.
func (l *Ledger) Add(key, value []byte) error {
	r, err := parse(value)
	if err != nil {
		return fmt.Errorf("record %q of tenant-cost: %w", key, err)
	}
	id, amounts, revision, err := r.check()
	if err != nil {
		return fmt.Errorf("record %q of tenant-cost: %w", key, err)
	}
	if want := id.Tenant + "|" + id.WindowEnd; string(key) != want {
		return fmt.Errorf("record %q of tenant-cost: its key should be %q", key, want)
	}
	l.append(id, amounts, revision)
	return nil
}

func (l *Ledger) append(id truebill.Key, amounts truebill.Amounts, revision int64) {
	if l.minutes == nil {
		l.minutes = map[truebill.Key]*minute{}
	}
	m := l.minutes[id]
	if m == nil {
		m = &minute{times: map[int64]int64{}, usd: map[int64]string{}}
		l.minutes[id] = m
	}
	l.records++
	if revision < m.last {
		l.backward = append(l.backward, Repeat{Key: id, Revision: revision, USD: amounts.USD})
	}
	m.last = revision
	m.times[revision]++
	m.usd[revision] = amounts.USD
	if revision >= m.revision {
		m.revision, m.amounts = revision, amounts
	}
}

func parse(value []byte) (record, error) {
	var r record
	if !utf8.Valid(value) {
		return r, errors.New("invalid UTF-8")
	}
	var names map[string]json.RawMessage
	if err := json.Unmarshal(value, &names); err != nil {
		return r, err
	}
	for name := range names {
		if name != strings.ToLower(name) { // encoding/json would take it for the one in lower case
			return r, fmt.Errorf("unknown field %q", name)
		}
	}
	d := json.NewDecoder(bytes.NewReader(value))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, err
	}
	for _, name := range []struct {
		name   string
		absent bool
	}{
		{"tenant_id", r.TenantID == nil},
		{"window_start", r.WindowStart == nil},
		{"window_end", r.WindowEnd == nil},
		{"usd", r.USD == nil},
		{"currency", r.Currency == nil},
		{"requests", r.Requests == nil},
		{"input_tokens", r.InputTokens == nil},
		{"output_tokens", r.OutputTokens == nil},
		{"revision", r.Revision == nil},
	} {
		if name.absent {
			return r, fmt.Errorf("%s is missing", name.name)
		}
	}
	return r, nil
}

// check returns what a record says, if it is what the contract says it must be.
func (r *record) check() (id truebill.Key, amounts truebill.Amounts, revision int64, err error) {
	fail := func(format string, args ...any) (truebill.Key, truebill.Amounts, int64, error) {
		return truebill.Key{}, truebill.Amounts{}, 0, fmt.Errorf(format, args...)
	}
	start, err := time.Parse(time.RFC3339, *r.WindowStart)
	if err != nil {
		return fail("window_start: %w", err)
	}
	end, err := time.Parse(time.RFC3339, *r.WindowEnd)
	if err != nil {
		return fail("window_end: %w", err)
	}
	const layout = "2006-01-02T15:04:05Z"
	if end.Sub(start) != time.Minute || end.Second() != 0 ||
		*r.WindowStart != start.Format(layout) || *r.WindowEnd != end.Format(layout) {
		return fail("%s to %s is not a minute in UTC", *r.WindowStart, *r.WindowEnd)
	}
	if *r.TenantID == "" {
		return fail("tenant_id is empty")
	}
	if *r.Currency != "USD" {
		return fail("currency is %q", *r.Currency)
	}
	if !plainDecimal(*r.USD) {
		return fail("usd %q is not a plain decimal number without needless zeros", *r.USD)
	}
	for _, n := range []struct {
		name   string
		number *int64
		to     *int64
		least  int64
	}{
		{"requests", r.Requests, &amounts.Requests, 1},
		{"input_tokens", r.InputTokens, &amounts.InputTokens, 0},
		{"output_tokens", r.OutputTokens, &amounts.OutputTokens, 0},
		{"revision", r.Revision, &revision, 1},
	} {
		if *n.to = *n.number; *n.to < n.least {
			return fail("%s %d is below %d", n.name, *n.to, n.least)
		}
	}
	amounts.USD = *r.USD
	return truebill.Key{Tenant: *r.TenantID, WindowEnd: *r.WindowEnd}, amounts, revision, nil
}

// plainDecimal tells whether s is an amount as tenant-cost writes it.
func plainDecimal(s string) bool {
	return regexp.MustCompile(`^(0|[1-9]\d*)(\.\d*[1-9])?$`).MatchString(s)
}

// dollars reads an amount that plainDecimal or the true bill vouches for.
func dollars(s string) *big.Rat {
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		panic("ledger: an amount that is no number: " + s)
	}
	return r
}

// decimal writes an amount, which may be negative, exactly.
func decimal(r *big.Rat) string {
	digits, exact := r.FloatPrec()
	if !exact {
		panic("ledger: an amount that does not end: " + r.String())
	}
	return r.FloatString(digits)
}
