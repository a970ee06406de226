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

func (r *reader) byte() byte {
	if len(r.rest) == 0 {
		r.bad = true
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
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

// requestCodec encodes request. names gives decoded names an owner.
type requestCodec struct{ names *names }

// The parts of a request that an encoding may hold.
const (
	hasStarted = 1 << iota
	hasCompleted
	hasNames
	hasAlone
	hasConflicts
)

// Append implements connector.Codec.
func (requestCodec) Append(dst []byte, r *request) ([]byte, error) {
	parts := byte(0)
	for bit, present := range [...]bool{
		r.started.present, r.completed.present, r.names != nil, r.alone != nil, r.conflicts != nil,
	} {
		if present {
			parts |= 1 << bit
		}
	}
	dst = append(dst, formatVersion, byte(r.phase), parts)
	dst = binary.AppendVarint(dst, r.deadline)
	for _, h := range [...]*half{&r.started, &r.completed} {
		if h.present {
			dst = appendText(binary.AppendVarint(dst, h.at), h.eventID)
		}
	}
	if r.names != nil {
		dst = appendText(appendText(dst, r.names.provider), r.names.model)
	}
	if c := r.alone; c != nil {
		dst = appendText(appendText(dst, c.names.provider), c.names.model)
		dst = append(dst, byte(c.status), byte(c.usage.Given))
		for _, v := range [...]int64{
			c.usage.InputTokens, c.usage.OutputTokens, c.usage.CacheReadTokens, c.usage.CacheWriteTokens,
		} {
			dst = binary.AppendVarint(dst, v)
		}
	}
	if r.conflicts != nil {
		dst = binary.AppendVarint(dst, int64(len(*r.conflicts)))
		for _, c := range *r.conflicts {
			dst = appendText(dst, c)
		}
	}
	return dst, nil
}

// Decode implements connector.Codec.
func (c requestCodec) Decode(src []byte, out *request) error {
	d := reader{rest: src}
	if d.byte() != formatVersion {
		return errFormat
	}
	r := request{phase: phase(d.byte())}
	parts := d.byte()
	r.started.present, r.completed.present = parts&hasStarted != 0, parts&hasCompleted != 0
	r.deadline = d.int()
	for _, h := range [...]*half{&r.started, &r.completed} {
		if h.present {
			h.at, h.eventID = d.int(), d.text()
		}
	}
	if parts&hasNames != 0 {
		r.names = c.names.own(d.text(), d.text())
	}
	if parts&hasAlone != 0 {
		r.alone = &completed{names: c.names.own(d.text(), d.text()), status: gateway.Status(d.byte())}
		r.alone.usage = gateway.Usage{
			Given: gateway.Given(d.byte()), InputTokens: d.int(), OutputTokens: d.int(),
			CacheReadTokens: d.int(), CacheWriteTokens: d.int(),
		}
	}
	if parts&hasConflicts != 0 {
		for n := d.int(); n > 0 && !d.bad; n-- {
			r.addConflict(d.text())
		}
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
