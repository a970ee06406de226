package gatewaymeter

import (
	"fmt"
	"time"

	"example.com/weir"
	"example.com/weir/apps/gatewaymeter/gateway"
	"example.com/weir/apps/gatewaymeter/money"
	"example.com/weir/connector"
)

// Minute is a tenant's minute, as it is written.
type Minute struct {
	TenantID   string
	Start, End int64 // microseconds since 1970-01-01T00:00:00Z
	USD        money.Amount
	Requests   int64
	Input      int64
	Output     int64
	Revision   int64
}

// ErrorRate is a tenant's minute in which too many requests failed.
type ErrorRate struct {
	TenantID         string
	End              int64
	Requests, Failed int64
}

// totals is what a window adds up: all requests, and of them the failed and the billed ones.
type totals struct {
	all, failed             int64
	requests, input, output int64
	usd                     money.Amount
}

// sum makes rules 4 and 6 true: it adds up a tenant's minute.
type sum struct {
	alerts     Alerts
	errorRates *weir.SideOutput[ErrorRate]
}

// AccumulatorCodec implements weir.AccumulatorCodec.
func (sum) AccumulatorCodec() connector.Codec[totals] { return totalsCodec{} }

// Add implements weir.Aggregator. A sum that cannot be held stops the job: a bill that wraps
// around is worse than none.
func (sum) Add(t *totals, p *Priced) error {
	t.all++
	switch {
	case p.status == gateway.Failed:
		t.failed++
		return nil
	case p.unpriced != nil:
		return nil
	}
	usd, err := t.usd.Add(p.cost)
	input, inputOK := add(t.input, p.usage.InputTokens)
	output, outputOK := add(t.output, p.usage.OutputTokens)
	if err != nil || !inputOK || !outputOK {
		return connector.Stop(fmt.Errorf("tenant %q, minute up to %s: the sum is too large to be held exactly",
			p.tenant, windowEnd(p.completedAt)))
	}
	t.usd, t.input, t.output = usd, input, output
	t.requests++
	return nil
}

// Fire implements weir.Aggregator. A minute in which nothing was billed emits nothing.
func (s sum) Fire(w *weir.WindowContext[string], t *totals, out *weir.Out[Minute]) error {
	if w.Firing == 1 && t.all >= s.alerts.Requests && exceeds(t.failed, t.all, s.alerts.Percent) {
		weir.EmitSide(w, s.errorRates, ErrorRate{
			TenantID: w.Key, End: w.End.UnixMicro(), Requests: t.all, Failed: t.failed,
		})
	}
	if t.requests == 0 {
		return nil
	}
	out.Emit(Minute{
		TenantID: w.Key, Start: w.Start.UnixMicro(), End: w.End.UnixMicro(),
		USD: t.usd, Requests: t.requests, Input: t.input, Output: t.output, Revision: int64(w.Revision),
	})
	return nil
}

// exceeds reports whether part is at least so many percent of whole.
func exceeds(part, whole, percent int64) bool { return part*100 >= whole*percent }

// oneMinute is the size of a window, by the contract.
const oneMinute = time.Minute
