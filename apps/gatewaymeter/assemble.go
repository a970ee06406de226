package gatewaymeter

import (
	"fmt"
	"time"

	"example.com/weir"
	"example.com/weir/apps/gatewaymeter/gateway"
	"example.com/weir/apps/gatewaymeter/money"
	"example.com/weir/apps/gatewaymeter/price"
)

// Priced is an assembled request with what it costs.
type Priced struct {
	gateway.RequestRecord
	Cost money.Amount
	// Unpriced says why a request that is to be billed has no price; nil if it has one, and for
	// failed requests, which need none.
	Unpriced *price.UnpricedError
}

func (p *Priced) tenant() string { return p.TenantID }

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

	names    names
	requests weir.Value[request]
}

// atRequest is where the assembler stands.
type atRequest = weir.Context[RequestKey]

// Open implements weir.Processor.
func (a *assembler) Open(o *weir.OpenContext[RequestKey]) (err error) {
	a.requests, err = weir.NewValue(o, "request", requestCodec{names: &a.names})
	return err
}

// Process implements weir.Processor.
func (a *assembler) Process(ctx *atRequest, e *gateway.Event, out *weir.Out[Priced]) error {
	r, err := a.requests.Put()
	if err != nil {
		return err
	}
	half := r.half(e.Kind)
	switch {
	case half.present && half.eventID == e.EventID, r.conflicted(e):
		a.counts.repeated.Add(1)
		return nil
	case half.present:
		r.addConflict(conflictID(e))
		weir.EmitSide(ctx, a.sides.conflicts, SideEvent{Event: *e, Reason: "another " + e.Kind.String() +
			" of this request came first: event " + half.eventID})
		return nil
	}
	half.take(e)
	if r.phase == over { // billed alone or unmatched, and now its Started comes
		a.counts.overdue.Add(1)
		return nil
	}
	pair := a.names.own(e.Provider, e.Model)
	if e.Kind == gateway.Started {
		r.names = pair
	}
	switch {
	case !r.completed.present:
	case e.Kind == gateway.Completed && r.started.present:
		return a.settle(ctx, r, &completed{names: pair, usage: e.Usage, status: e.Status}, out)
	case r.started.present:
		return a.settle(ctx, r, r.alone, out)
	default:
		r.alone = &completed{names: pair, usage: e.Usage, status: e.Status}
	}
	deadline := ctx.EventTime()
	if w := ctx.Watermark(); w.After(deadline) {
		deadline = w
	}
	r.deadline = deadline.Add(a.timeout).UnixMicro()
	ctx.SetTimer(time.UnixMicro(r.deadline))
	return nil
}

// OnTimer implements weir.Processor. A timer whose time the request does not wait for any more is
// one that its other half has made void.
func (a *assembler) OnTimer(ctx *atRequest, out *weir.Out[Priced]) error {
	if r := a.requests.Peek(); r == nil || ctx.EventTime().UnixMicro() != r.deadline {
		return nil
	}
	r := a.requests.Get()
	switch {
	case r.phase != waiting:
		a.requests.Clear()
	case r.completed.present && r.alone.names.provider != "" && r.alone.names.model != "":
		return a.settle(ctx, r, r.alone, out)
	case r.completed.present:
		weir.EmitSide(ctx, a.sides.unmatched, SideEvent{
			Event: r.event(ctx.Key(), gateway.Completed), Reason: "RequestStarted did not come within " + a.timeout.String(),
		})
		a.remember(ctx, r)
	default:
		weir.EmitSide(ctx, a.sides.abandoned, SideEvent{
			Event: r.event(ctx.Key(), gateway.Started), Reason: "RequestCompleted did not come within " + a.timeout.String(),
		})
		r.phase = abandoned
		r.deadline = ctx.EventTime().Add(a.deduplication).UnixMicro()
		ctx.SetTimer(time.UnixMicro(r.deadline))
	}
	return nil
}

// settle emits the request and remembers it.
func (a *assembler) settle(ctx *atRequest, r *request, c *completed, out *weir.Out[Priced]) error {
	pair := r.namesOf(c, &a.names)
	p := Priced{RequestRecord: r.record(ctx.Key(), c, pair)}
	if p.Status != gateway.Failed {
		var err error
		if p.Cost, err = a.price(pair, &p.RequestRecord); err != nil {
			unpriced, ok := err.(*price.UnpricedError)
			if !ok {
				return fmt.Errorf("price of request %q of tenant %q: %w", p.RequestID, p.TenantID, err)
			}
			p.Unpriced = unpriced
		}
	}
	if p.Unpriced != nil {
		weir.EmitSide(ctx, a.sides.unpriced, p)
	}
	out.EmitAt(p, time.UnixMicro(p.CompletedAt))
	a.remember(ctx, r)
	return nil
}

// price is rule 5. The error is what package price returns, unwrapped.
func (a *assembler) price(pair *namePair, r *gateway.RequestRecord) (money.Amount, error) {
	model, err := pair.look(a.prices)
	if err != nil {
		return money.Amount{}, err
	}
	return model.Price(time.UnixMicro(r.PricedAt()), price.Usage{
		Reported: r.Usage.Reported(),
		Input:    r.Usage.InputTokens, Output: r.Usage.OutputTokens,
		CacheRead: r.Usage.CacheReadTokens, CacheWrite: r.Usage.CacheWriteTokens,
	})
}

// remember keeps of the request what tells its events from new ones, until nothing of its minute
// can change any more.
func (a *assembler) remember(ctx *atRequest, r *request) {
	until := windowEnd(r.completed.at).Add(max(a.lateness, a.deduplication))
	if !until.After(ctx.Watermark()) {
		a.requests.Clear() // it came after that already
		return
	}
	r.settle(until.UnixMicro())
	ctx.SetTimer(until)
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
