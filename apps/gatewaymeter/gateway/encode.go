package gateway

import (
	"encoding/base64"
	"math/big"
	"strconv"
	"time"
	"unicode/utf8"

	"example.com/weir/connector"
)

// Every encoder appends one JSON object to dst and returns the extended slice; it keeps nothing
// of what it is given. Strings are escaped only where JSON asks for it: a quote, a backslash
// and control characters. Times are RFC 3339 in UTC, with as many digits of a second as the
// time has, and none for a whole second.

// AppendEvent appends the value of an event as a gateway writes it.
func AppendEvent(dst []byte, e *Event) []byte {
	dst = appendTextField(dst, `{"event_id":`, e.EventID)
	dst = appendTextField(dst, `,"type":`, e.Kind.String())
	dst = appendTimeField(dst, `,"event_time":`, e.Time)
	dst = appendTextField(dst, `,"tenant_id":`, e.TenantID)
	dst = appendTextField(dst, `,"request_id":`, e.RequestID)
	if e.Provider != "" || e.Kind == Started {
		dst = appendTextField(dst, `,"provider":`, e.Provider)
	}
	if e.Model != "" || e.Kind == Started {
		dst = appendTextField(dst, `,"model":`, e.Model)
	}
	if e.Kind == Completed {
		dst = appendTextField(dst, `,"status":`, e.Status.String())
		dst = appendUsageField(dst, &e.Usage)
	}
	return append(dst, '}')
}

// appendUsageField appends what was given of a usage, and nothing where none was reported.
func appendUsageField(dst []byte, u *Usage) []byte {
	if !u.Reported() {
		return dst
	}
	dst = append(dst, `,"usage":{`...)
	empty := len(dst)
	for i, n := range [...]int64{u.InputTokens, u.OutputTokens, u.CacheReadTokens, u.CacheWriteTokens} {
		if u.Given&(GivenInput<<i) == 0 {
			continue
		}
		if len(dst) > empty {
			dst = append(dst, ',')
		}
		dst = append(dst, [...]string{
			`"input_tokens":`, `"output_tokens":`, `"cache_read_tokens":`, `"cache_write_tokens":`,
		}[i]...)
		dst = strconv.AppendInt(dst, n, 10)
	}
	return append(dst, '}')
}

// TenantCostMinute is what a tenant's requests of one minute cost.
type TenantCostMinute struct {
	TenantID    string
	WindowStart int64  // microseconds since 1970-01-01T00:00:00Z
	WindowEnd   int64  // not part of the minute
	USD         []byte // a plain decimal number: no exponent, no zeros at the end of a fraction

	// Of the billed requests.
	Requests     int64
	InputTokens  int64
	OutputTokens int64

	Revision int64 // 1 for the first value of the minute, and one more for each correction
}

// AppendTenantCostKey appends the key of a minute's record on tenant-cost:
// tenant_id|window_end. The last bar divides it, since a time has none.
func AppendTenantCostKey(dst []byte, tenantID string, windowEnd int64) []byte {
	dst = append(dst, tenantID...)
	dst = append(dst, '|')
	return appendTime(dst, windowEnd)
}

// AppendTenantCostMinute appends the value of a minute's record on tenant-cost.
func AppendTenantCostMinute(dst []byte, m *TenantCostMinute) []byte {
	dst = appendTextField(dst, `{"tenant_id":`, m.TenantID)
	dst = appendTimeField(dst, `,"window_start":`, m.WindowStart)
	dst = appendTimeField(dst, `,"window_end":`, m.WindowEnd)
	dst = append(dst, `,"usd":"`...)
	dst = append(dst, m.USD...)
	dst = append(dst, `","currency":"USD"`...)
	dst = appendIntField(dst, `,"requests":`, m.Requests)
	dst = appendIntField(dst, `,"input_tokens":`, m.InputTokens)
	dst = appendIntField(dst, `,"output_tokens":`, m.OutputTokens)
	dst = appendIntField(dst, `,"revision":`, m.Revision)
	return append(dst, '}')
}

// AppendErrorRate appends the alert about a tenant's minute in which failed of requests (all of
// them: ok, cancelled, failed and unpriced) failed.
//
// The rate is exact where it has an end: "0.25", "0.203125". Where it has none it is rounded
// half up to four places and loses its zeros: "0.3333", "0.6667". It is "0" without requests.
func AppendErrorRate(dst []byte, tenantID string, windowEnd, requests, failed int64) []byte {
	dst = appendTextField(dst, `{"kind":"error_rate","tenant_id":`, tenantID)
	dst = appendTimeField(dst, `,"window_end":`, windowEnd)
	dst = appendIntField(dst, `,"requests":`, requests)
	dst = appendIntField(dst, `,"failed":`, failed)
	dst = appendTextField(dst, `,"rate":`, rate(failed, requests))
	return append(dst, '}')
}

// rate returns part ÷ whole, which is not negative, as a decimal number.
func rate(part, whole int64) string {
	if whole == 0 {
		return "0"
	}
	const places = 4 // of a rate without end
	r := big.NewRat(part, whole)
	if digits, exact := r.FloatPrec(); exact {
		return r.FloatString(digits)
	}
	s := r.FloatString(places)
	for s[len(s)-1] == '0' {
		s = s[:len(s)-1]
	}
	if s[len(s)-1] == '.' {
		s = s[:len(s)-1]
	}
	return s
}

// AppendUnpricedAlert appends the alert that requests of a model had no price in a minute.
func AppendUnpricedAlert(dst []byte, provider, model string, windowEnd int64, reason string) []byte {
	dst = appendTextField(dst, `{"kind":"unpriced","provider":`, provider)
	dst = appendTextField(dst, `,"model":`, model)
	dst = appendTimeField(dst, `,"window_end":`, windowEnd)
	dst = appendTextField(dst, `,"reason":`, reason)
	return append(dst, '}')
}

// SideOutput names an output beside tenant-cost and alerts.
type SideOutput string

// The side outputs. Conflicts and Abandoned hold events, Unmatched events too; Unpriced and
// Late hold assembled requests.
const (
	Conflicts SideOutput = "conflicts"
	Abandoned SideOutput = "abandoned"
	Unmatched SideOutput = "unmatched"
	Unpriced  SideOutput = "unpriced"
	Late      SideOutput = "late"
)

// AppendSideEvent appends a side output's value about an event: the output, the reason, and the
// event as AppendEvent writes it.
func AppendSideEvent(dst []byte, output SideOutput, reason string, e *Event) []byte {
	dst = appendTextField(dst, `{"output":`, string(output))
	dst = appendTextField(dst, `,"reason":`, reason)
	dst = append(dst, `,"event":`...)
	dst = AppendEvent(dst, e)
	return append(dst, '}')
}

// AppendSideRequest appends a side output's value about an assembled request: the output, the
// reason, and the request whole. started_at is null where Completed came alone.
func AppendSideRequest(dst []byte, output SideOutput, reason string, r *RequestRecord) []byte {
	dst = appendTextField(dst, `{"output":`, string(output))
	dst = appendTextField(dst, `,"reason":`, reason)
	dst = appendTextField(dst, `,"request":{"tenant_id":`, r.TenantID)
	dst = appendTextField(dst, `,"request_id":`, r.RequestID)
	dst = appendTextField(dst, `,"provider":`, r.Provider)
	dst = appendTextField(dst, `,"model":`, r.Model)
	dst = appendTextField(dst, `,"status":`, r.Status.String())
	if r.HasStarted {
		dst = appendTimeField(dst, `,"started_at":`, r.StartedAt)
	} else {
		dst = append(dst, `,"started_at":null`...)
	}
	dst = appendTimeField(dst, `,"completed_at":`, r.CompletedAt)
	dst = appendUsageField(dst, &r.Usage)
	return append(dst, "}}"...)
}

// AppendDeadLetter appends a rejected record whole, with where it lies and why it was rejected.
//
// Bytes that are UTF-8 are written as a string; others in base64 (RFC 4648, section 4, padded)
// under a name with _base64 at its end: "value":"…" or "value_base64":"…". A key or value that
// the record does not have is null. The timestamp is the record's own.
func AppendDeadLetter(dst []byte, d *connector.DeadLetter) []byte {
	dst = appendTextField(dst, `{"topic":`, d.Topic)
	dst = appendIntField(dst, `,"partition":`, int64(d.Partition))
	dst = appendIntField(dst, `,"offset":`, d.Offset)
	dst = appendTimeField(dst, `,"timestamp":`, d.Timestamp)
	dst = appendTextField(dst, `,"reason":`, d.Reason)
	dst = append(dst, ',')
	dst = appendBytesField(dst, "key", d.Key)
	dst = append(dst, ',')
	dst = appendBytesField(dst, "value", d.Value)
	dst = append(dst, `,"headers":[`...)
	for i, h := range d.Headers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '{')
		dst = appendTextField(dst, `"key":`, h.Key)
		dst = append(dst, ',')
		dst = appendBytesField(dst, "value", h.Value)
		dst = append(dst, '}')
	}
	return append(dst, "]}"...)
}

func appendBytesField(dst []byte, name string, value []byte) []byte {
	dst = append(dst, '"')
	dst = append(dst, name...)
	switch {
	case value == nil:
		return append(dst, `":null`...)
	case utf8.Valid(value):
		dst = append(dst, `":`...)
		return appendString(dst, string(value))
	}
	dst = append(dst, `_base64":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, value)
	return append(dst, '"')
}

func appendTextField(dst []byte, name, value string) []byte {
	return appendString(append(dst, name...), value)
}

func appendIntField(dst []byte, name string, value int64) []byte {
	return strconv.AppendInt(append(dst, name...), value, 10)
}

func appendTimeField(dst []byte, name string, micros int64) []byte {
	dst = append(dst, name...)
	dst = append(dst, '"')
	dst = appendTime(dst, micros)
	return append(dst, '"')
}

// appendTime appends a time in UTC as RFC 3339 writes it.
func appendTime(dst []byte, micros int64) []byte {
	return time.UnixMicro(micros).UTC().AppendFormat(dst, time.RFC3339Nano)
}

// appendString appends s as a JSON string. Bytes that are not UTF-8 become U+FFFD.
func appendString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	plain := 0 // s[plain:i] needs no escaping
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r != utf8.RuneError || n > 1 {
				i += n
				continue
			}
		}
		dst = append(dst, s[plain:i]...)
		switch {
		case c >= utf8.RuneSelf:
			dst = append(dst, "\ufffd"...)
		case c == '"', c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, `\n`...)
		case c == '\r':
			dst = append(dst, `\r`...)
		case c == '\t':
			dst = append(dst, `\t`...)
		default:
			dst = append(dst, `\u00`...)
			dst = append(dst, hex[c>>4], hex[c&15])
		}
		i++
		plain = i
	}
	dst = append(dst, s[plain:]...)
	return append(dst, '"')
}
