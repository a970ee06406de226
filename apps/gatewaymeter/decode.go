package gatewaymeter

import (
	"sync/atomic"

	"example.com/weir/apps/gatewaymeter/gateway"
	"example.com/weir/connectors/kafka"
)

// learnEvery is of how many events that look in no known way one is learnt from: where few events look alike,
// learning would cost more than it saves.
const learnEvery = 16

// decoder decodes events as gateway.Decode does, and learns how they look. All readers share one.
type decoder struct {
	names   *names
	shapes  atomic.Pointer[gateway.Shapes]
	strange atomic.Uint32 // events that looked in no known way
}

// arrival is an event on its way to its request, with its ID and its names as they are kept there: who makes them
// later and on another core, of the event's text, waits for the memory of a fetch.
type arrival struct {
	gateway.Event
	id    eventID
	names *namePair
}

func (d *decoder) decode(r *kafka.Record, a *arrival) error {
	if err := d.read(r.Value, &a.Event); err != nil {
		return err
	}
	a.id, a.names = newEventID(a.EventID), d.names.own(a.Provider, a.Model)
	return nil
}

func (d *decoder) read(value []byte, e *gateway.Event) error {
	shapes := d.shapes.Load()
	if shapes.Decode(value, e) {
		return nil
	}
	err := gateway.Decode(value, e)
	if err == nil && (d.strange.Add(1)-1)%learnEvery == 0 {
		// Where two learn at once, one of them wins: the other shape comes again.
		d.shapes.CompareAndSwap(shapes, shapes.Learn(value, e))
	}
	return err
}
