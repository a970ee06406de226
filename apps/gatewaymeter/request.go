package gatewaymeter

import (
	"encoding/binary"
	"strings"

	"example.com/weir/apps/gatewaymeter/gateway"
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

// request is what is known of a request.
type request struct {
	phase     phase
	status    gateway.Status
	started   half
	completed half
	usage     gateway.Usage
	// deadline is the time of the timer that counts, in event time (microseconds).
	deadline int64
	// conflicts are events that came after the first of their kind, which are rare.
	conflicts []string
}

// half is what is known of one of a request's two events.
type half struct {
	present  bool
	at       int64 // event time
	eventID  string
	provider string
	model    string
}

func (r *request) half(k gateway.Kind) *half {
	if k == gateway.Started {
		return &r.started
	}
	return &r.completed
}

// take keeps an event, whose strings may lie in memory that is shared with a whole fetch.
func (h *half) take(e *gateway.Event, n *names) {
	*h = half{
		present: true, at: e.Time, eventID: strings.Clone(e.EventID),
		provider: n.own(e.Provider), model: n.own(e.Model),
	}
}

// names keeps one copy of each name of a provider or model. Names come from outside, so it is
// bounded: what is full is begun anew.
type names struct{ known map[string]string }

const maxNames = 4096

func (n *names) own(s string) string {
	if s == "" {
		return ""
	}
	if own, ok := n.known[s]; ok {
		return own
	}
	if n.known == nil || len(n.known) == maxNames {
		n.known = make(map[string]string)
	}
	s = strings.Clone(s)
	n.known[s] = s
	return s
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
	r.phase, r.deadline, r.usage = over, until, gateway.Usage{}
	for _, h := range []*half{&r.started, &r.completed} {
		h.provider, h.model = "", ""
	}
}

// record is rule 1: the request that both halves make. Each name that Completed gives wins.
func (r *request) record(k RequestKey) gateway.RequestRecord {
	rec := gateway.RequestRecord{
		TenantID: k.Tenant, RequestID: k.Request, Provider: r.completed.provider, Model: r.completed.model,
		StartedAt: r.started.at, CompletedAt: r.completed.at, HasStarted: r.started.present,
		Usage: r.usage, Status: r.status,
	}
	if rec.Provider == "" {
		rec.Provider = r.started.provider
	}
	if rec.Model == "" {
		rec.Model = r.started.model
	}
	return rec
}

// event gives an event of the request back.
func (r *request) event(k RequestKey, kind gateway.Kind) gateway.Event {
	h := r.half(kind)
	e := gateway.Event{
		EventID: h.eventID, TenantID: k.Tenant, RequestID: k.Request,
		Provider: h.provider, Model: h.model, Time: h.at, Kind: kind,
	}
	if kind == gateway.Completed {
		e.Usage, e.Status = r.usage, r.status
	}
	return e
}
