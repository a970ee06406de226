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
const formatVersion = 2

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

// fixed reads eight bytes.
func (r *reader) fixed() int64 {
	b := r.bytes(8)
	if r.bad {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(b))
}

// bytes reads n bytes; they are a part of what is read.
func (r *reader) bytes(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.bad, r.rest = true, nil
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) eventID() (id eventID) {
	if id.kind = r.byte(); id.kind > idRoom && id.kind < idUUID {
		r.bad, r.rest = true, nil
		return eventID{}
	}
	copy(id.text[:], r.bytes(len(id.stored())))
	return id
}

func (r *reader) text() string { return string(r.bytes(int(r.int()))) }

func (r *reader) err() error {
	if r.bad || len(r.rest) > 0 {
		return errFormat
	}
	return nil
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendVarint(dst, int64(len(s))), s...)
}

// requestCodec encodes request. Numbers of names mean nothing outside of the process: the names are encoded.
type requestCodec struct{ names *names }

// requestVersion begins the encoding of a request.
const requestVersion = 3

// The parts of a request that an encoding may hold.
const (
	hasStarted = 1 << iota
	hasCompleted
	hasNames
	hasNamesInMore
	hasMore
)

// Append implements connector.Codec.
func (c requestCodec) Append(dst []byte, r *request) ([]byte, error) {
	parts := byte(0)
	for bit, present := range [...]bool{
		r.came.has(gateway.Started), r.came.has(gateway.Completed), r.names != noNames && r.names != unnumbered,
		r.names == unnumbered, r.hasMore,
	} {
		if present {
			parts |= 1 << bit
		}
	}
	dst = append(dst, requestVersion, byte(r.phase), parts)
	for bit, h := range [...]*half{&r.started, &r.completed} {
		if parts>>bit&1 == 0 {
			continue
		}
		if r.phase != over {
			dst = binary.LittleEndian.AppendUint64(dst, uint64(h.at))
		}
		dst = append(append(dst, h.eventID.kind), h.eventID.stored()...)
	}
	if parts&hasNames != 0 {
		pair := c.names.pair(r.names)
		dst = appendText(appendText(dst, pair.provider), pair.model)
	}
	return dst, nil
}

// Decode implements connector.Codec.
func (c requestCodec) Decode(src []byte, out *request) error {
	d := reader{rest: src}
	if d.byte() != requestVersion {
		return errFormat
	}
	r := request{phase: phase(d.byte())}
	parts := d.byte()
	for bit, kind := range [...]gateway.Kind{gateway.Started, gateway.Completed} {
		if parts>>bit&1 == 0 {
			continue
		}
		r.came = r.came.with(kind)
		h := r.half(kind)
		if r.phase != over {
			h.at = d.fixed()
		}
		h.eventID = d.eventID()
	}
	switch {
	case parts&hasNames != 0:
		r.names = c.names.numbered(d.text(), d.text()).number
	case parts&hasNamesInMore != 0:
		r.names = unnumbered
	}
	r.hasMore = parts&hasMore != 0
	*out = r
	return d.err()
}

// moreCodec encodes more. names gives decoded names an owner.
type moreCodec struct{ names *names }

// The parts of a more that an encoding may hold.
const (
	moreKey = 1 << iota
	moreNames
	moreAlone
)

// Append implements connector.Codec.
func (moreCodec) Append(dst []byte, m *more) ([]byte, error) {
	parts := byte(0)
	for bit, present := range [...]bool{m.key != nil, m.names != nil, m.alone != nil} {
		if present {
			parts |= 1 << bit
		}
	}
	dst = append(dst, formatVersion, parts)
	dst = appendText(appendText(dst, m.startedID), m.completedID)
	dst = binary.AppendVarint(dst, int64(len(m.conflicts)))
	for _, c := range m.conflicts {
		dst = appendText(dst, c)
	}
	if m.key != nil {
		dst = appendText(appendText(dst, m.key.tenant), m.key.request)
	}
	if m.names != nil {
		dst = appendText(appendText(dst, m.names.provider), m.names.model)
	}
	if c := m.alone; c != nil {
		dst = appendText(appendText(dst, c.names.provider), c.names.model)
		dst = append(dst, byte(c.status), byte(c.usage.Given))
		for _, v := range [...]int64{
			c.usage.InputTokens, c.usage.OutputTokens, c.usage.CacheReadTokens, c.usage.CacheWriteTokens,
		} {
			dst = binary.AppendVarint(dst, v)
		}
	}
	return dst, nil
}

// Decode implements connector.Codec.
func (c moreCodec) Decode(src []byte, out *more) error {
	d := reader{rest: src}
	if d.byte() != formatVersion {
		return errFormat
	}
	parts := d.byte()
	m := more{startedID: d.text(), completedID: d.text()}
	for n := d.int(); n > 0 && !d.bad; n-- {
		m.conflicts = append(m.conflicts, d.text())
	}
	if parts&moreKey != 0 {
		m.key = &longKey{tenant: d.text(), request: d.text()}
	}
	if parts&moreNames != 0 {
		m.names = c.names.own(d.text(), d.text())
	}
	if parts&moreAlone != 0 {
		m.alone = &completed{names: c.names.own(d.text(), d.text()), status: gateway.Status(d.byte())}
		m.alone.usage = gateway.Usage{
			Given: gateway.Given(d.byte()), InputTokens: d.int(), OutputTokens: d.int(),
			CacheReadTokens: d.int(), CacheWriteTokens: d.int(),
		}
	}
	*out = m
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
