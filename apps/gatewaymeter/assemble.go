package gatewaymeter

import (
	"fmt"
	"time"

	"example.com/weir"
	"example.com/weir/apps/gatewaymeter/gateway"
	"example.com/weir/apps/gatewaymeter/money"
	"example.com/weir/apps/gatewaymeter/price"
)

// Priced is an assembled request with what it costs. Nothing is allocated for it: its names are shared, and its
// IDs lie in place, in its key.
type Priced struct {
	key   requestKey
	long  *longKey  // where the key is a hash
	names *namePair // those that count; only its names are for others than the assembler
	// tenant is the tenant's ID, one copy for all its requests.
	tenant string

	startedAt   int64 // of Started, if it came
	completedAt int64 // says to which minute the request belongs
	usage       gateway.Usage
	status      gateway.Status
	hasStarted  bool

	cost money.Amount
	// unpriced says why a request that is to be billed has no price; nil if it has one, and for
	// failed requests, which need none.
	unpriced *price.UnpricedError
}

func (p *Priced) tenantID() string { return p.tenant }

// pricedAt returns the time at which the price is looked up: that of Started, or that of Completed where it
// came alone.
func (p *Priced) pricedAt() int64 {
	if p.hasStarted {
		return p.startedAt
	}
	return p.completedAt
}

// record returns the request for a side output.
func (p *Priced) record() gateway.RequestRecord {
	r := gateway.RequestRecord{
		Provider: p.names.provider, Model: p.names.model, StartedAt: p.startedAt, CompletedAt: p.completedAt,
		HasStarted: p.hasStarted, Usage: p.usage, Status: p.status,
	}
	r.TenantID, r.RequestID = textsOf(&p.key, p.long)
	return r
}

// SideEvent is an event for a side output, with the reason.
type SideEvent struct {
	Event  gateway.Event
	Reason string
}

// sides are the side outputs of the assembler.
type sides struct {
	conflicts, abandoned, unmatched *weir.SideOutput[SideEvent]
	unpriced                        *weir.SideOutput[Priced]
}

// assembler makes rules 1 to 5 true for the requests of one subtask.
//
//	                     Completed                        Started
//	waiting (Started) ─────────────▶ over ◀───────────── waiting (Completed)
//	     │ timeout                   ▲  ▲  timeout: billed alone, or unmatched │
//	     ▼               Completed   │  └───────────────────────────────────────┘
//	abandoned ───────────────────────┘
//
// A request is forgotten once the watermark passes the end of its minute plus the longer of
// allowed lateness and deduplication window (over), or the deduplication window after it was
// abandoned: by then its minute is closed for good, so a repeat cannot be billed again.
type assembler struct {
	timeout, deduplication, lateness time.Duration
	prices                           *price.Cache
	sides                            sides
	counts                           *counts

	requests requests
	tenants  texts
}

// atRequest is where the assembler stands.
type atRequest = weir.Context[string]

// Open implements weir.Processor.
func (a *assembler) Open(o *weir.OpenContext[string]) error { return a.requests.open(o) }

// Process implements weir.Processor.
func (a *assembler) Process(ctx *atRequest, e *arrival, out *weir.Out[Priced]) error {
	r, err := a.requests.at(ctx, e)
	if err != nil {
		return err
	}
	if r.came.has(e.Kind) {
		return a.again(ctx, r, e)
	}
	if err := a.requests.take(r, e); err != nil {
		return err
	}
	if r.phase == over { // billed alone or unmatched, and now its Started comes
		a.counts.overdue.Add(1)
		return nil
	}
	if e.Kind == gateway.Started {
		if err := a.requests.name(r, e.names); err != nil {
			return err
		}
	}
	switch {
	case !r.came.has(gateway.Completed):
	case e.Kind == gateway.Completed && r.came.has(gateway.Started):
		return a.settle(ctx, r, &completed{names: e.names, usage: e.Usage, status: e.Status}, out)
	case r.came.has(gateway.Started):
		return a.settle(ctx, r, a.requests.more(r).alone, out)
	default:
		if err := a.requests.wait(r, &completed{names: e.names, usage: e.Usage, status: e.Status}); err != nil {
			return err
		}
	}
	deadline := ctx.EventTime()
	if w := ctx.Watermark(); w.After(deadline) {
		deadline = w
	}
	a.requests.until(deadline.Add(a.timeout))
	return nil
}

// again handles an event of a kind that has come before.
func (a *assembler) again(ctx *atRequest, r *request, e *arrival) error {
	if a.requests.repeats(r, e) {
		a.counts.repeated.Add(1)
		return nil
	}
	weir.EmitSide(ctx, a.sides.conflicts, SideEvent{Event: e.Event, Reason: "another " + e.Kind.String() +
		" of this request came first: event " + a.requests.eventID(r, e.Kind)})
	return a.requests.addConflict(r, conflictID(&e.Event))
}

// OnTimer implements weir.Processor. The deadline of a request has come: what waits is dealt with, anything else is
// forgotten.
func (a *assembler) OnTimer(ctx *atRequest, out *weir.Out[Priced]) error {
	if r := a.requests.peek(); r.phase != waiting {
		a.requests.forgetMore(r)
		return nil
	}
	r := a.requests.get()
	if r.came.has(gateway.Completed) {
		return a.completedAlone(ctx, r, out)
	}
	weir.EmitSide(ctx, a.sides.abandoned, SideEvent{
		Event: a.requests.event(ctx, r, gateway.Started), Reason: "RequestCompleted did not come within " + a.timeout.String(),
	})
	r.phase = abandoned
	a.requests.until(ctx.EventTime().Add(a.deduplication))
	return nil
}

// completedAlone bills a Completed whose Started has not come, if it names what is billed.
func (a *assembler) completedAlone(ctx *atRequest, r *request, out *weir.Out[Priced]) error {
	alone := a.requests.more(r).alone
	if alone.names.provider != "" && alone.names.model != "" {
		return a.settle(ctx, r, alone, out)
	}
	weir.EmitSide(ctx, a.sides.unmatched, SideEvent{
		Event: a.requests.event(ctx, r, gateway.Completed), Reason: "RequestStarted did not come within " + a.timeout.String(),
	})
	return a.remember(ctx, r)
}

// settle emits the request and remembers it.
func (a *assembler) settle(ctx *atRequest, r *request, c *completed, out *weir.Out[Priced]) error {
	p := Priced{
		names: a.requests.namesOf(r, c), startedAt: r.started.at, completedAt: r.completed.at,
		hasStarted: r.came.has(gateway.Started), usage: c.usage, status: c.status,
	}
	if p.key.set(ctx.KeyBytes()); p.key.hashed() {
		p.long = a.requests.more(r).key
		p.tenant = p.long.tenant
	} else {
		tenant, _ := p.key.split()
		p.tenant = a.tenants.own(tenant)
	}
	if p.status != gateway.Failed {
		if err := a.price(&p); err != nil {
			return err
		}
	}
	if p.unpriced != nil {
		weir.EmitSide(ctx, a.sides.unpriced, p)
	}
	out.EmitAt(p, time.UnixMicro(p.completedAt))
	return a.remember(ctx, r)
}

// price is rule 5.
func (a *assembler) price(p *Priced) error {
	model, err := p.names.look(a.prices)
	if err == nil {
		p.cost, err = model.Price(time.UnixMicro(p.pricedAt()), price.Usage{
			Reported: p.usage.Reported(),
			Input:    p.usage.InputTokens, Output: p.usage.OutputTokens,
			CacheRead: p.usage.CacheReadTokens, CacheWrite: p.usage.CacheWriteTokens,
		})
	}
	switch unpriced, ok := err.(*price.UnpricedError); {
	case err == nil:
	case ok:
		p.unpriced = unpriced
	default:
		return fmt.Errorf("price of %v: %w", p.key, err)
	}
	return nil
}

// remember keeps of the request what tells its events from new ones, until nothing of its minute
// can change any more.
func (a *assembler) remember(ctx *atRequest, r *request) error {
	until := windowEnd(r.completed.at).Add(max(a.lateness, a.deduplication))
	if !until.After(ctx.Watermark()) {
		a.requests.forget(r) // it came after that already
		return nil
	}
	a.requests.until(until)
	return a.requests.settle(r)
}

// windowEnd is rule 2: the end of the minute that a time lies in.
func windowEnd(micros int64) time.Time {
	minute := time.Minute.Microseconds()
	offset := micros % minute
	if offset < 0 {
		offset += minute
	}
	return time.UnixMicro(micros - offset + minute).UTC()
}
