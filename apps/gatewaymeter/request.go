package gatewaymeter

import (
	"slices"
	"strings"
	"time"

	"example.com/weir"
	"example.com/weir/apps/gatewaymeter/gateway"
)

// phase is how far a request has come; see assembler.
type phase uint8

const (
	waiting phase = iota
	abandoned
	over
)

// request is what is known of a request. There are many, so it holds no pointers, which the collector would
// have to follow; what only a few requests need is in more.
type request struct {
	started   half
	completed half
	// names is the number of those that Started gave, while they are needed, and noNames without.
	names   uint32
	phase   phase
	came    halves
	hasMore bool // more has an entry for the request
}

// halves are those that came, a bit each.
type halves uint8

func (h halves) has(k gateway.Kind) bool { return h>>k&1 != 0 }

func (h halves) with(k gateway.Kind) halves { return h | 1<<k }

// noNames stands for a Started that has not come, or whose names are no longer needed.
const noNames = 0

// half is what is known of each of a request's two events.
type half struct {
	at      int64 // event time, until the request is over
	eventID eventID
}

// more is what few requests need: texts that are too long to lie in place, a Completed whose Started is
// missing, and conflicts.
type more struct {
	key                    *longKey
	startedID, completedID string // where the eventID is long
	// names are those that Started gave, where they have no number.
	names *namePair
	// alone is what Completed gave, while Started is missing.
	alone *completed
	// conflicts are events that came after the first of their kind.
	conflicts []string
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

// longID returns where the text of a half's event ID is if it is long.
func (m *more) longID(k gateway.Kind) *string {
	if k == gateway.Started {
		return &m.startedID
	}
	return &m.completedID
}

// conflictID names an event of a request.
func conflictID(e *gateway.Event) string {
	if e.Kind == gateway.Started {
		return "s" + e.EventID
	}
	return "c" + e.EventID
}

// requests are the requests of a subtask. Its methods work on the request that the context stands at.
type requests struct {
	requests weir.DeadlineState[request]
	rare     weir.Value[more]
	names    *names
}

func (s *requests) open(o *weir.OpenContext[string]) (err error) {
	if s.requests, err = weir.NewDeadlineState(o, "request", requestCodec{names: s.names}); err != nil {
		return err
	}
	s.rare, err = weir.NewValue(o, "more", moreCodec{names: s.names})
	return err
}

// more returns what r has of it, for reading, and never nil.
func (s *requests) more(r *request) *more {
	if r.hasMore {
		if m := s.rare.Peek(); m != nil {
			return m
		}
	}
	return &more{}
}

// change returns r's more, to be written to.
func (s *requests) change(r *request) (*more, error) {
	r.hasMore = true
	return s.rare.Put()
}

// at returns the request of an event; it is zero if there was none.
func (s *requests) at(ctx *atRequest, e *arrival) (*request, error) {
	r, err := s.requests.Put()
	if err != nil || fitsKey(e.TenantID, e.RequestID) {
		return r, err
	}
	m, err := s.change(r)
	switch {
	case err != nil:
		return nil, err
	case m.key == nil:
		m.key = &longKey{tenant: strings.Clone(e.TenantID), request: strings.Clone(e.RequestID)}
	case m.key.tenant != e.TenantID || m.key.request != e.RequestID:
		return nil, errSameHash(keyAt(ctx), m.key, e.TenantID, e.RequestID)
	}
	return r, nil
}

// peek returns the request for reading, or nil.
func (s *requests) peek() *request { return s.requests.Peek() }

// get returns the request for reading and writing, or nil.
func (s *requests) get() *request { return s.requests.Get() }

// until sets the time at which the assembler looks at the request again, or forgets it.
func (s *requests) until(at time.Time) { s.requests.SetDeadline(at) }

// forget drops the request.
func (s *requests) forget(r *request) {
	s.forgetMore(r)
	s.requests.Clear()
}

// forgetMore drops what a request that goes by itself has beside it.
func (s *requests) forgetMore(r *request) {
	if r.hasMore {
		s.rare.Clear()
	}
}

// take keeps an event, whose strings may lie in memory that is shared with a whole fetch.
func (s *requests) take(r *request, e *arrival) error {
	*r.half(e.Kind) = half{at: e.Time, eventID: e.id}
	r.came = r.came.with(e.Kind)
	if e.id.kind != idLong {
		return nil
	}
	m, err := s.change(r)
	if err != nil {
		return err
	}
	*m.longID(e.Kind) = strings.Clone(e.EventID)
	return nil
}

// repeats reports whether an event was there before: as a half of the request, or as a conflict.
func (s *requests) repeats(r *request, e *arrival) bool {
	if !r.came.has(e.Kind) {
		return false
	}
	if e.id == r.half(e.Kind).eventID && (e.id.kind != idLong || *s.more(r).longID(e.Kind) == e.EventID) {
		return true
	}
	return r.hasMore && slices.Contains(s.more(r).conflicts, conflictID(&e.Event))
}

// eventID returns the text of the ID of a half.
func (s *requests) eventID(r *request, k gateway.Kind) string {
	h := r.half(k)
	if h.eventID.kind == idLong {
		return *s.more(r).longID(k)
	}
	return string(h.eventID.appendText(nil))
}

func (s *requests) addConflict(r *request, id string) error {
	m, err := s.change(r)
	if err == nil {
		m.conflicts = append(m.conflicts, id)
	}
	return err
}

// name keeps the names that Started gave.
func (s *requests) name(r *request, pair *namePair) error {
	if r.names = pair.number; pair.number != unnumbered {
		return nil
	}
	m, err := s.change(r)
	if err == nil {
		m.names = pair
	}
	return err
}

// named returns the names that Started gave; empty ones without it.
func (s *requests) named(r *request) *namePair {
	if r.names == unnumbered {
		return s.more(r).names
	}
	return s.names.pair(r.names)
}

// wait keeps a Completed until its Started comes.
func (s *requests) wait(r *request, c *completed) error {
	m, err := s.change(r)
	if err == nil {
		m.alone = c
	}
	return err
}

// settle drops what only an unfinished request needs.
func (s *requests) settle(r *request) error {
	r.phase, r.names, r.started.at, r.completed.at = over, noNames, 0, 0
	if !r.hasMore {
		return nil
	}
	m, err := s.rare.Put()
	if err != nil {
		return err
	}
	m.names, m.alone = nil, nil
	if m.key == nil && m.startedID == "" && m.completedID == "" && m.conflicts == nil {
		s.rare.Clear()
		r.hasMore = false
	}
	return nil
}

// namesOf returns the names that count: each one that Completed gives wins.
func (s *requests) namesOf(r *request, c *completed) *namePair {
	started := s.named(r)
	switch {
	case c.names.provider != "" && c.names.model != "":
		return c.names
	case c.names.provider == "" && c.names.model == "":
		return started
	case c.names.provider == "":
		return s.names.own(started.provider, c.names.model)
	}
	return s.names.own(c.names.provider, started.model)
}

// event gives an event of the request back.
func (s *requests) event(ctx *atRequest, r *request, kind gateway.Kind) gateway.Event {
	e := gateway.Event{EventID: s.eventID(r, kind), Time: r.half(kind).at, Kind: kind}
	m := s.more(r)
	k := keyAt(ctx)
	e.TenantID, e.RequestID = textsOf(&k, m.key)
	pair := s.named(r)
	if kind == gateway.Completed {
		pair, e.Usage, e.Status = m.alone.names, m.alone.usage, m.alone.status
	}
	e.Provider, e.Model = pair.provider, pair.model
	return e
}

// keyAt returns the key that the context stands at.
func keyAt(ctx *atRequest) (k requestKey) {
	k.set(ctx.KeyBytes())
	return k
}

// textsOf returns the tenant and the request of a key.
func textsOf(k *requestKey, long *longKey) (tenant, request string) {
	if long != nil {
		return long.tenant, long.request
	}
	t, r := k.split()
	return string(t), string(r)
}
