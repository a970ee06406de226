package gateway_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"example.com/weir/apps/gatewaymeter/gateway"
)

// refusal is what the reference decoder says about a value it refuses.
type refusal struct {
	reason gateway.Reason
	field  string
}

// reference decodes an event slowly, with encoding/json, time and math/big, and says nothing
// that it has not from them or from the contract.
func reference(value []byte) (gateway.Event, *refusal) {
	var e gateway.Event
	if !json.Valid(value) {
		return e, &refusal{reason: gateway.NotJSON}
	}
	if !utf8.Valid(value) {
		return e, &refusal{reason: gateway.InvalidUTF8}
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(value, &fields); err != nil || fields == nil {
		return e, &refusal{reason: gateway.NotObject}
	}
	r := referenceEvent{fields: fields}
	r.read(&e)
	if r.refused != nil {
		return gateway.Event{}, r.refused
	}
	return e, nil
}

type referenceEvent struct {
	fields  map[string]json.RawMessage
	refused *refusal
}

func (r *referenceEvent) read(e *gateway.Event) {
	switch kind := r.text("type", true); kind {
	case "RequestStarted":
		e.Kind = gateway.Started
	case "RequestCompleted":
		e.Kind = gateway.Completed
	default:
		r.refuse(gateway.UnknownType, "type")
	}
	e.EventID = r.text("event_id", true)
	e.Time = r.time(r.text("event_time", true))
	e.TenantID = r.nonEmpty("tenant_id")
	e.RequestID = r.nonEmpty("request_id")
	e.Provider = r.text("provider", e.Kind == gateway.Started)
	e.Model = r.text("model", e.Kind == gateway.Started)
	if e.Kind != gateway.Completed {
		return
	}
	switch r.text("status", true) {
	case "ok":
		e.Status = gateway.OK
	case "cancelled":
		e.Status = gateway.Cancelled
	case "failed":
		e.Status = gateway.Failed
	default:
		r.refuse(gateway.UnknownStatus, "status")
	}
	r.usage(&e.Usage)
}

// refuse keeps the first refusal.
func (r *referenceEvent) refuse(reason gateway.Reason, field string) {
	if r.refused == nil {
		r.refused = &refusal{reason: reason, field: field}
	}
}

func (r *referenceEvent) text(name string, required bool) string {
	raw, ok := r.fields[name]
	if !ok {
		if required {
			r.refuse(gateway.MissingField, name)
		}
		return ""
	}
	if string(raw) == "null" && !required {
		return ""
	}
	var s *string
	if err := json.Unmarshal(raw, &s); err != nil || s == nil {
		r.refuse(gateway.WrongField, name)
		return ""
	}
	return *s
}

func (r *referenceEvent) nonEmpty(name string) string {
	s := r.text(name, true)
	if s == "" {
		r.refuse(gateway.EmptyField, name)
	}
	return s
}

func (r *referenceEvent) time(s string) int64 {
	shape := regexp.MustCompile(
		`^(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(\.\d+)?(|[Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)$`).FindStringSubmatch(s)
	const plain = "2006-01-02T15:04:05"
	var at time.Time
	var err error
	if len(s) >= len(plain) {
		_, err = time.Parse(plain, strings.ToUpper(s[:len(plain)]))
	}
	switch tooPrecise := regexp.MustCompile(`^.{19}\.\d{10}`).MatchString(s); {
	case len(s) < len(plain) || err != nil || s[10]|0x20 != 't':
		r.refuse(gateway.BadTime, "event_time")
		return 0
	case tooPrecise:
		r.refuse(gateway.TooPrecise, "event_time")
		return 0
	case shape == nil:
		r.refuse(gateway.BadTime, "event_time")
		return 0
	case shape[4] == "":
		r.refuse(gateway.NoZone, "event_time")
		return 0
	}
	at, err = time.Parse(time.RFC3339Nano, strings.ToUpper(s))
	if err != nil || at.UTC().Year() < 0 || at.UTC().Year() > 9999 {
		r.refuse(gateway.BadTime, "event_time")
		return 0
	}
	return at.Unix()*1_000_000 + int64(at.Nanosecond())/1000
}

func (r *referenceEvent) usage(u *gateway.Usage) {
	raw, ok := r.fields["usage"]
	if !ok || string(raw) == "null" {
		return
	}
	var numbers map[string]json.RawMessage
	if err := json.Unmarshal(raw, &numbers); err != nil {
		r.refuse(gateway.WrongField, "usage")
		return
	}
	u.Given = gateway.GivenUsage
	for _, n := range []struct {
		name  string
		to    *int64
		given gateway.Given
	}{
		{"input_tokens", &u.InputTokens, gateway.GivenInput},
		{"output_tokens", &u.OutputTokens, gateway.GivenOutput},
		{"cache_read_tokens", &u.CacheReadTokens, gateway.GivenCacheRead},
		{"cache_write_tokens", &u.CacheWriteTokens, gateway.GivenCacheWrite},
	} {
		raw, ok := numbers[n.name]
		if !ok || string(raw) == "null" {
			continue
		}
		u.Given |= n.given
		var number json.Number
		if raw[0] == '"' || json.Unmarshal(raw, &number) != nil {
			r.refuse(gateway.WrongField, "usage."+n.name)
			continue
		}
		var reason gateway.Reason
		if *n.to, reason = tokens(number); reason != 0 {
			r.refuse(reason, "usage."+n.name)
		}
	}
}

func tokens(number json.Number) (int64, gateway.Reason) {
	n, ok := new(big.Rat).SetString(number.String())
	switch {
	case !ok: // math/big knows exponents of 64 bits at most; the tests' own ones are far smaller
		return 0, gateway.TooLarge
	case n.Sign() < 0:
		return 0, gateway.Negative
	case !n.IsInt():
		return 0, gateway.Fractional
	case n.Num().Cmp(big.NewInt(gateway.MaxTokens)) > 0:
		return 0, gateway.TooLarge
	}
	return n.Num().Int64(), 0
}

// compare returns what differs between Decode and the reference for a value, or between it and
// Shapes that know those of the examples and, the second time, that of the value; or "".
func compare(value []byte) string {
	given := string(value)
	var got gateway.Event
	err := gateway.Decode(value, &got)
	d := learnt(startedExample, completedExample)
	for range 2 {
		if diff := compareLearner(d, value, got, err); diff != "" {
			return diff
		}
	}
	want, refused := reference(value)
	if string(value) != given {
		return "Decode wrote to the value"
	}
	if refused == nil {
		switch {
		case err != nil:
			return "refused: " + err.Error()
		case got != want:
			return "another event"
		}
		return ""
	}
	var de *gateway.DecodeError
	switch {
	case err == nil:
		return "accepted, where the reference says: " + refused.field + " " + refused.reason.String()
	case !errors.As(err, &de):
		return "not a DecodeError: " + err.Error()
	case de.Reason == refused.reason && de.Field == refused.field:
		return ""
	case refused.reason == gateway.NotJSON && de.Reason == gateway.InvalidUTF8 && !utf8.Valid(value):
		return "" // two faults, of which the reference looks for this one later
	}
	return "refused as " + err.Error() + ", where the reference says: " + refused.field + " " + refused.reason.String()
}

// learner learns from every right value whose shape it does not know.
type learner struct {
	shapes *gateway.Shapes
	misses int
}

func (l *learner) Decode(value []byte, e *gateway.Event) error {
	if l.shapes.Decode(value, e) {
		return nil
	}
	err := gateway.Decode(value, e)
	if err == nil {
		l.misses++
		l.shapes = l.shapes.Learn(value, e)
	}
	return err
}

// learnt returns a learner that knows the shapes of some values.
func learnt(values ...string) *learner {
	l := &learner{}
	var e gateway.Event
	for _, v := range values {
		_ = l.Decode([]byte(v), &e)
	}
	return l
}

// compareLearner returns what differs between a learner and what Decode has made of a value, or "".
func compareLearner(l *learner, value []byte, want gateway.Event, refused error) string {
	got := gateway.Event{Provider: "left from before", Usage: gateway.Usage{InputTokens: 7}}
	err := l.Decode(value, &got)
	switch {
	case (err == nil) != (refused == nil) || err != nil && err.Error() != refused.Error():
		return fmt.Sprintf("the learner says %v, Decode %v", err, refused)
	case err == nil && got != want:
		return "the learner makes another event"
	}
	return ""
}
