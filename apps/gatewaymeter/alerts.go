package gatewaymeter

import (
	"time"

	"example.com/weir"
)

// modelMinute is what an alert about missing prices is known by. The minute is the one the
// request would have been billed in.
type modelMinute struct {
	Provider, Model string
	End             int64 // microseconds since 1970-01-01T00:00:00Z
}

func modelMinuteOf(p *Priced) modelMinute {
	return modelMinute{Provider: p.names.provider, Model: p.names.model, End: windowEnd(p.completedAt).UnixMicro()}
}

// UnpricedAlert is a minute in which a model had no price.
type UnpricedAlert struct {
	Provider, Model string
	End             int64
	Reason          string
}

// unpricedAlerts emits the first request without a price of each model and minute.
type unpricedAlerts struct {
	remember time.Duration // after the end of the minute
	alerted  weir.Value[bool]
}

// Open implements weir.Processor.
func (u *unpricedAlerts) Open(o *weir.OpenContext[modelMinute]) (err error) {
	u.alerted, err = weir.NewValue[bool](o, "alerted", nil)
	return err
}

// Process implements weir.Processor.
func (u *unpricedAlerts) Process(
	ctx *weir.Context[modelMinute], p *Priced, out *weir.Out[UnpricedAlert],
) error {
	if u.alerted.Peek() != nil {
		return nil
	}
	alerted, err := u.alerted.Put()
	if err != nil {
		return err
	}
	*alerted = true
	k := ctx.Key()
	ctx.SetTimer(time.UnixMicro(k.End).Add(u.remember))
	out.Emit(UnpricedAlert{
		Provider: k.Provider, Model: k.Model, End: k.End, Reason: p.unpriced.Error(),
	})
	return nil
}

// OnTimer implements weir.Processor.
func (u *unpricedAlerts) OnTimer(*weir.Context[modelMinute], *weir.Out[UnpricedAlert]) error {
	u.alerted.Clear()
	return nil
}
