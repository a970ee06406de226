package gatewaymeter

import (
	"encoding/binary"
	"errors"
	"math"

	"example.com/weir/apps/gatewaymeter/gateway"
	"example.com/weir/apps/gatewaymeter/money"
)

var errFormat = errors.New("gatewaymeter: encoding is damaged")

// formatVersion begins every encoding here; a later release reads the ones before it.
const formatVersion = 1

// reader reads what the append functions wrote; the first error sticks.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) int() int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		r.bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) text() string {
	n := r.int()
	if n < 0 || n > int64(len(r.rest)) {
		r.bad, r.rest = true, nil
		return ""
	}
	s := string(r.rest[:n])
	r.rest = r.rest[n:]
	return s
}

func (r *reader) err() error {
	if r.bad || len(r.rest) > 0 {
		return errFormat
	}
	return nil
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendVarint(dst, int64(len(s))), s...)
}

// requestCodec encodes request.
type requestCodec struct{}

// Append implements connector.Codec.
func (requestCodec) Append(dst []byte, r *request) ([]byte, error) {
	present := int64(0)
	if r.started.present {
		present |= 1
	}
	if r.completed.present {
		present |= 2
	}
	for _, v := range []int64{formatVersion, int64(r.phase), int64(r.status), present, r.deadline} {
		dst = binary.AppendVarint(dst, v)
	}
	for _, h := range []*half{&r.started, &r.completed} {
		if h.present {
			dst = binary.AppendVarint(dst, h.at)
			dst = appendText(appendText(appendText(dst, h.eventID), h.provider), h.model)
		}
	}
	u := &r.usage
	for _, v := range []int64{
		int64(u.Given), u.InputTokens, u.OutputTokens, u.CacheReadTokens, u.CacheWriteTokens,
		int64(len(r.conflicts)),
	} {
		dst = binary.AppendVarint(dst, v)
	}
	for _, c := range r.conflicts {
		dst = appendText(dst, c)
	}
	return dst, nil
}

// Decode implements connector.Codec.
func (requestCodec) Decode(src []byte, out *request) error {
	d := reader{rest: src}
	if d.int() != formatVersion {
		return errFormat
	}
	r := request{phase: phase(d.int()), status: gateway.Status(d.int())}
	present := d.int()
	r.started.present, r.completed.present = present&1 != 0, present&2 != 0
	r.deadline = d.int()
	for _, h := range []*half{&r.started, &r.completed} {
		if h.present {
			h.at, h.eventID, h.provider, h.model = d.int(), d.text(), d.text(), d.text()
		}
	}
	r.usage = gateway.Usage{
		Given: gateway.Given(d.int()), InputTokens: d.int(), OutputTokens: d.int(),
		CacheReadTokens: d.int(), CacheWriteTokens: d.int(),
	}
	for n := d.int(); n > 0 && !d.bad; n-- {
		r.conflicts = append(r.conflicts, d.text())
	}
	*out = r
	return d.err()
}

// totalsCodec encodes totals.
type totalsCodec struct{}

// Append implements connector.Codec.
func (totalsCodec) Append(dst []byte, t *totals) ([]byte, error) {
	dst = binary.AppendVarint(dst, formatVersion)
	for _, v := range []int64{t.all, t.failed, t.requests, t.input, t.output} {
		dst = binary.AppendVarint(dst, v)
	}
	return t.usd.AppendBinary(dst)
}

// Decode implements connector.Codec.
func (totalsCodec) Decode(src []byte, t *totals) error {
	d := reader{rest: src}
	if d.int() != formatVersion {
		return errFormat
	}
	*t = totals{all: d.int(), failed: d.int(), requests: d.int(), input: d.int(), output: d.int()}
	if d.bad || len(d.rest) != money.BinarySize {
		return errFormat
	}
	return t.usd.UnmarshalBinary(d.rest)
}

// add adds two counts, and reports whether the sum can be held.
func add(a, b int64) (int64, bool) {
	if a > math.MaxInt64-b {
		return 0, false
	}
	return a + b, true
}
