package gatewaymeter

import (
	"encoding/binary"
	"slices"
	"strings"

	"example.com/weir/apps/gatewaymeter/gateway"
	"example.com/weir/apps/gatewaymeter/price"
)

// RequestKey is what a request is known by.
type RequestKey struct{ Tenant, Request string }

func requestKey(e *gateway.Event) RequestKey {
	return RequestKey{Tenant: e.TenantID, Request: e.RequestID}
}

// AppendKey is the key's canonical encoding: the length of the tenant, the tenant, the request.
func (k RequestKey) AppendKey(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(k.Tenant)))
	dst = append(dst, k.Tenant...)
	return append(dst, k.Request...)
}

// DecodeKey sets k from its encoding.
func (k *RequestKey) DecodeKey(src []byte) error {
	n, size := binary.Uvarint(src)
	if size <= 0 || n > uint64(len(src)-size) {
		return errFormat
	}
	both := string(src[size:])
	k.Tenant, k.Request = both[:n], both[n:]
	return nil
}

// phase is how far a request has come; see assembler.
type phase uint8

const (
	waiting phase = iota
	abandoned
	over
)

// request is what is known of a request. There are many, so what only a few of them need lies
// behind a pointer.
type request struct {
	phase     phase
	started   half
	completed half
	// deadline is the time of the timer that counts, in event time (microseconds).
	deadline int64
	// names are those that Started gave, while they are needed.
	names *namePair
	// alone is what Completed gave, while Started is missing.
	alone *completed
	// conflicts are events that came after the first of their kind.
	conflicts *[]string
}

// half is what is known of each of a request's two events.
type half struct {
	present bool
	at      int64 // event time
	eventID string
}

// completed is what an event Completed says beside that.
type completed struct {
	names  *namePair
	usage  gateway.Usage
	status gateway.Status
}

func (r *request) half(k gateway.Kind) *half {
	if k == gateway.Started {
		return &r.started
	}
	return &r.completed
}

// take keeps an event, whose strings may lie in memory that is shared with a whole fetch.
func (h *half) take(e *gateway.Event) {
	*h = half{present: true, at: e.Time, eventID: strings.Clone(e.EventID)}
}

// conflicted reports whether an event came before as a conflict.
func (r *request) conflicted(e *gateway.Event) bool {
	return r.conflicts != nil && slices.Contains(*r.conflicts, conflictID(e))
}

func (r *request) addConflict(id string) {
	if r.conflicts == nil {
		r.conflicts = new([]string)
	}
	*r.conflicts = append(*r.conflicts, id)
}

// conflictID names an event of a request.
func conflictID(e *gateway.Event) string {
	if e.Kind == gateway.Started {
		return "s" + e.EventID
	}
	return "c" + e.EventID
}

// settle drops what only an unfinished request needs.
func (r *request) settle(until int64) {
	r.phase, r.deadline, r.names, r.alone = over, until, nil, nil
}

// record is rule 1: the request that both halves make, under the names that count.
func (r *request) record(k RequestKey, c *completed, n *namePair) gateway.RequestRecord {
	return gateway.RequestRecord{
		TenantID: k.Tenant, RequestID: k.Request, Provider: n.provider, Model: n.model,
		StartedAt: r.started.at, CompletedAt: r.completed.at, HasStarted: r.started.present,
		Usage: c.usage, Status: c.status,
	}
}

// namesOf returns the names that count: each one that Completed gives wins.
func (r *request) namesOf(c *completed, n *names) *namePair {
	switch {
	case r.names == nil, c.names.provider != "" && c.names.model != "":
		return c.names
	case c.names.provider == "" && c.names.model == "":
		return r.names
	case c.names.provider == "":
		return n.own(r.names.provider, c.names.model)
	}
	return n.own(c.names.provider, r.names.model)
}

// event gives an event of the request back.
func (r *request) event(k RequestKey, kind gateway.Kind) gateway.Event {
	h := r.half(kind)
	e := gateway.Event{
		EventID: h.eventID, TenantID: k.Tenant, RequestID: k.Request, Time: h.at, Kind: kind,
	}
	if kind == gateway.Completed {
		e.Provider, e.Model = r.alone.names.provider, r.alone.names.model
		e.Usage, e.Status = r.alone.usage, r.alone.status
	} else {
		e.Provider, e.Model = r.names.provider, r.names.model
	}
	return e
}

// namePair is a provider and a model as an event names them, and what the price book has for them
// once that has been asked.
type namePair struct {
	provider, model string

	asked bool
	found *price.Model
	err   error
}

// look asks the price book once.
func (p *namePair) look(prices *price.Cache) (*price.Model, error) {
	if !p.asked {
		p.found, p.err = prices.Find(p.provider, p.model)
		p.asked = true
	}
	return p.found, p.err
}

// names keeps one copy of each pair of names. Names come from outside, so it is bounded: what is full
// is begun anew.
type names struct {
	known map[[2]string]*namePair
	none  namePair // of events that name nothing
}

const maxNames = 4096

func (n *names) own(provider, model string) *namePair {
	if provider == "" && model == "" {
		return &n.none
	}
	if own, ok := n.known[[2]string{provider, model}]; ok {
		return own
	}
	if n.known == nil || len(n.known) == maxNames {
		n.known = make(map[[2]string]*namePair)
	}
	own := &namePair{provider: strings.Clone(provider), model: strings.Clone(model)}
	n.known[[2]string{own.provider, own.model}] = own
	return own
}
