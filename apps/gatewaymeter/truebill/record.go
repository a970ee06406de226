package truebill

import (
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// Record is a record of gateway-events as a consumer reads it.
type Record struct {
	Partition int32
	Offset    int64
	Timestamp time.Time // the record's own
	Key       []byte    // not used: events are known by what is in them
	Value     []byte
}

// event is what a record says.
type event struct {
	kind     string // RequestStarted or RequestCompleted
	id       string
	tenant   string
	request  string
	provider string
	model    string
	at       time.Time
	status   string
	usage    *usage // nil where none was reported
}

type usage struct{ input, output, cacheRead, cacheWrite int64 }

// reader reads events.
type reader struct {
	maxAhead time.Duration
	rfc3339  *regexp.Regexp
}

func newReader(maxAhead time.Duration) *reader {
	return &reader{
		maxAhead: maxAhead,
		rfc3339: regexp.MustCompile(
			`^(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(\.\d{1,9})?([Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)$`),
	}
}

// read returns the event of a record, or an error that says why it is a dead letter.
func (r *reader) read(rec Record) (*event, error) {
	if !utf8.Valid(rec.Value) {
		return nil, fmt.Errorf("invalid UTF-8")
	}
	if !json.Valid(rec.Value) {
		return nil, fmt.Errorf("not JSON")
	}
	fields, err := object(rec.Value)
	if err != nil {
		return nil, err
	}
	e := &event{}
	for _, f := range []struct {
		name     string
		to       *string
		nonEmpty bool
	}{
		{"type", &e.kind, true},
		{"event_id", &e.id, false},
		{"tenant_id", &e.tenant, true},
		{"request_id", &e.request, true},
	} {
		if *f.to, err = text(fields, f.name); err != nil {
			return nil, err
		}
		if f.nonEmpty && *f.to == "" {
			return nil, fmt.Errorf("%s is empty", f.name)
		}
	}
	if e.at, err = r.eventTime(fields); err != nil {
		return nil, err
	}
	if ahead := e.at.Sub(rec.Timestamp); ahead > r.maxAhead {
		return nil, fmt.Errorf("event_time is %s ahead of the record's timestamp", ahead)
	}
	switch e.kind {
	case "RequestStarted":
		return e, e.readStarted(fields)
	case "RequestCompleted":
		return e, e.readCompleted(fields)
	}
	return nil, fmt.Errorf("another type: %q", e.kind)
}

func (e *event) readStarted(fields map[string]json.RawMessage) (err error) {
	if e.provider, err = text(fields, "provider"); err != nil {
		return err
	}
	e.model, err = text(fields, "model")
	return err
}

func (e *event) readCompleted(fields map[string]json.RawMessage) (err error) {
	if given(fields, "provider") {
		if e.provider, err = text(fields, "provider"); err != nil {
			return err
		}
	}
	if given(fields, "model") {
		if e.model, err = text(fields, "model"); err != nil {
			return err
		}
	}
	if e.status, err = text(fields, "status"); err != nil {
		return err
	}
	if e.status != "ok" && e.status != "cancelled" && e.status != "failed" {
		return fmt.Errorf("another status: %q", e.status)
	}
	if !given(fields, "usage") {
		return nil
	}
	numbers, err := object(fields["usage"])
	if err != nil {
		return fmt.Errorf("usage: %w", err)
	}
	e.usage = &usage{}
	for name, to := range map[string]*int64{
		"input_tokens": &e.usage.input, "output_tokens": &e.usage.output,
		"cache_read_tokens": &e.usage.cacheRead, "cache_write_tokens": &e.usage.cacheWrite,
	} {
		if !given(numbers, name) {
			continue
		}
		if *to, err = tokens(numbers[name]); err != nil {
			return fmt.Errorf("usage: %s: %w", name, err)
		}
	}
	return nil
}

// object reads a JSON object. Its names keep their case, and of a name given twice the last
// value is there: encoding/json does so for maps.
func object(raw json.RawMessage) (map[string]json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil || fields == nil {
		return nil, fmt.Errorf("not an object")
	}
	return fields, nil
}

// given tells whether a name has a value other than null.
func given(fields map[string]json.RawMessage, name string) bool {
	raw, ok := fields[name]
	return ok && string(raw) != "null"
}

func text(fields map[string]json.RawMessage, name string) (string, error) {
	if !given(fields, name) {
		return "", fmt.Errorf("%s is missing", name)
	}
	var s string
	if err := json.Unmarshal(fields[name], &s); err != nil {
		return "", fmt.Errorf("%s is not a string", name)
	}
	return s, nil
}

func (r *reader) eventTime(fields map[string]json.RawMessage) (time.Time, error) {
	s, err := text(fields, "event_time")
	if err != nil {
		return time.Time{}, err
	}
	if !r.rfc3339.MatchString(s) {
		return time.Time{}, fmt.Errorf("event_time is not RFC 3339 with a zone and at most 9 digits: %q", s)
	}
	at, err := time.Parse(time.RFC3339Nano, strings.ToUpper(s))
	if err != nil {
		return time.Time{}, fmt.Errorf("event_time: %w", err)
	}
	at = at.UTC()
	if at.Year() < 0 || at.Year() > 9999 {
		return time.Time{}, fmt.Errorf("event_time lies outside the years 0000 to 9999 in UTC")
	}
	// Cut off what is below a microsecond: Truncate would count from the year 1.
	return at.Add(-time.Duration(at.Nanosecond() % 1000)), nil
}

// tokens reads an integer from 0 to 2^53, however it is written.
func tokens(raw json.RawMessage) (int64, error) {
	if c := raw[0]; c != '-' && (c < '0' || c > '9') {
		return 0, fmt.Errorf("not a number")
	}
	n, err := number(string(raw))
	switch {
	case err != nil:
		return 0, err
	case n.Sign() < 0:
		return 0, fmt.Errorf("negative")
	case !n.IsInt():
		return 0, fmt.Errorf("fractional")
	case n.Num().Cmp(new(big.Int).Lsh(big.NewInt(1), 53)) > 0:
		return 0, fmt.Errorf("above 2^53")
	}
	return n.Num().Int64(), nil
}

// number reads a JSON number exactly. A number other than zero whose exponent is so large that
// it cannot be a price or a number of tokens is an error, instead of a million digits.
func number(s string) (*big.Rat, error) {
	if s == "" {
		return nil, fmt.Errorf("not a number: missing")
	}
	mantissa, exponent := s, ""
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		mantissa, exponent = s[:i], strings.TrimPrefix(s[i+1:], "+")
	}
	if strings.Trim(mantissa, "-0.") == "" {
		return new(big.Rat), nil
	}
	if exponent != "" {
		// The digits of s shift the point by at most its length.
		limit := big.NewInt(int64(len(s)) + 100)
		e, ok := new(big.Int).SetString(exponent, 10)
		if !ok || e.CmpAbs(limit) > 0 {
			return nil, fmt.Errorf("out of range: %s", s)
		}
	}
	n, ok := new(big.Rat).SetString(s)
	if !ok {
		return nil, fmt.Errorf("not a number: %s", s)
	}
	return n, nil
}
