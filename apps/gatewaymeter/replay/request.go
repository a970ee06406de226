package replay

import (
	"bytes"
	"fmt"
	"time"

	"example.com/weir/apps/gatewaymeter/gateway"
)

const (
	maxNetwork  = 2 * time.Second  // from an event to its record, where nothing is wrong
	maxRunning  = 5 * time.Minute  // from Started to Completed
	maxConflict = 10 * time.Second // from an event to the one that conflicts with it
	maxRepeat   = 30 * time.Minute // from a record to the same one sent again
	tooLateMin  = 2 * time.Hour
	tooLateMax  = 3 * time.Hour
)

// half is an event of a request and where it goes; without an event there is none.
type half struct {
	event     *gateway.Event
	at        time.Time
	partition int32
}

// request draws the next request and everything that is sent because of it.
func (g *Generator) request() {
	row := g.cfg.Trace[g.next%len(g.cfg.Trace)]
	started, completed := g.events(row)
	s, c := g.route(&started, &completed)
	g.loseHalf(&s, &c)
	for _, h := range []half{s, c} {
		if h.event != nil {
			g.writeEvent(h.at, h.partition, h.event)
		}
	}
	g.conflict(s, c)
	g.repeat(s)
	g.repeat(c)
	if g.dice.happens(g.cfg.Shares.Bad) {
		g.bad(completed)
	}
}

// events draws what a request asked for and how it ended.
func (g *Generator) events(row Row) (started, completed gateway.Event) {
	d, shares := g.dice, g.cfg.Shares
	id := g.requestID()
	model := g.cfg.Models[g.models.draw(d)]
	started = gateway.Event{
		Kind: gateway.Started, EventID: id + "-s", RequestID: id,
		TenantID: fmt.Sprintf("tenant-%03d", g.tenants.draw(d)+1),
		Provider: model.Provider, Model: model.Model, Time: g.arrival.UnixMicro(),
	}
	if d.happens(shares.UnknownModel) {
		started.Model = fmt.Sprintf("unlisted-%d", d.upTo(9))
	}
	completed = gateway.Event{
		Kind: gateway.Completed, EventID: id + "-c", RequestID: id, TenantID: started.TenantID, Status: gateway.OK,
	}
	if d.happens(shares.Fallback) {
		model = g.cfg.Models[g.models.draw(d)]
		completed.Provider, completed.Model = model.Provider, model.Model
	}
	g.end(row, model, &completed)
	return started, completed
}

// end draws the end of a request: its status, what it used and when it came.
func (g *Generator) end(row Row, model Model, completed *gateway.Event) {
	d, shares := g.dice, g.cfg.Shares
	input, output := row.ContextTokens, row.GeneratedTokens
	switch at := d.rng.Float64(); {
	case at < shares.Failed:
		completed.Status, output = gateway.Failed, 0
	case at < shares.Failed+shares.Cancelled:
		completed.Status, output = gateway.Cancelled, d.upTo(output)
	}
	// A token takes 15 to 40 ms to be generated, the first one up to a second more.
	running := d.between(200*time.Millisecond, 1200*time.Millisecond)
	running += time.Duration(min(output, 1_000_000)) * d.between(15*time.Millisecond, 40*time.Millisecond)
	completed.Time = g.arrival.Add(min(running, maxRunning)).UnixMicro()

	reported := !d.happens(shares.NoUsage)
	if completed.Status == gateway.Failed {
		reported = d.happens(0.3) // most gateways know nothing of a call that failed
	}
	if !reported {
		return
	}
	u := gateway.Usage{InputTokens: input, OutputTokens: output}
	u.Given = gateway.GivenUsage | gateway.GivenInput | gateway.GivenOutput
	if d.happens(shares.Cached) {
		g.cache(model, &u)
	}
	completed.Usage = u
}

// cache draws how much of the input was read from a cache, and how much of the rest was
// written to it.
func (g *Generator) cache(model Model, u *gateway.Usage) {
	if model.CacheRead {
		u.CacheReadTokens = g.dice.upTo(u.InputTokens)
		u.Given |= gateway.GivenCacheRead
	}
	if model.CacheWrite {
		u.CacheWriteTokens = g.dice.upTo(u.InputTokens - u.CacheReadTokens)
		u.Given |= gateway.GivenCacheWrite
	}
}

// route draws when the halves come, and where.
//
// A late request keeps to one partition, Started first. Otherwise one half could be read while
// event time is held back by another partition, time out when that one catches up, and be
// billed alone before its other half is read: the bill would depend on how partitions are mixed
// (R4). A half that is not late holds event time back itself, wherever the other one lies.
func (g *Generator) route(started, completed *gateway.Event) (s, c half) {
	d, shares := g.dice, g.cfg.Shares
	partition := g.partition(started.RequestID)
	s = half{started, started.EventTime().Add(d.between(0, maxNetwork)), partition}
	c = half{completed, completed.EventTime().Add(d.between(0, maxNetwork)), partition}
	if !c.at.After(s.at) {
		c.at = s.at.Add(time.Millisecond)
	}
	switch at := d.rng.Float64(); {
	case at < shares.Late:
		late := d.between(g.cfg.LateMin, g.cfg.LateMax-maxNetwork)
		s.at, c.at = s.at.Add(late), c.at.Add(late)
		return s, c
	case at < shares.Late+shares.LateCompleted:
		c.at = c.at.Add(d.between(g.cfg.LateMin, g.cfg.LateMax-maxNetwork))
		return s, c
	case at < shares.Late+shares.LateCompleted+shares.TooLate:
		late := d.between(tooLateMin, tooLateMax)
		s.at, c.at = s.at.Add(late), c.at.Add(late)
		return s, c
	}
	if d.happens(shares.CompletedFirst) {
		s.at = c.at.Add(d.between(time.Millisecond, maxNetwork))
	}
	if d.happens(shares.Spread) {
		c.partition = g.otherPartition(partition)
	}
	return s, c
}

// loseHalf draws whether one half never comes.
func (g *Generator) loseHalf(s, c *half) {
	shares := g.cfg.Shares
	switch at := g.dice.rng.Float64(); {
	case at < shares.StartedAlone:
		c.event = nil
	case at < shares.StartedAlone+shares.CompletedAlone:
		if c.event.Model == "" {
			c.event.Provider, c.event.Model = s.event.Provider, s.event.Model
		}
		s.event = nil
	case at < shares.StartedAlone+shares.CompletedAlone+shares.Unmatched:
		c.event.Provider, c.event.Model = "", ""
		s.event = nil
	}
}

// conflict draws whether one of the halves is followed by another event of its kind, in the
// same partition (R3).
func (g *Generator) conflict(s, c half) {
	if !g.dice.happens(g.cfg.Shares.Conflicting) {
		return
	}
	first := s
	if first.event == nil || c.event != nil && g.dice.happens(0.5) {
		first = c
	}
	other := *first.event
	other.EventID += "-again"
	if other.Kind == gateway.Started {
		model := g.cfg.Models[g.models.draw(g.dice)]
		other.Provider, other.Model = model.Provider, model.Model
	} else {
		other.Usage.OutputTokens = other.Usage.OutputTokens/2 + 17
		other.Usage.Given |= gateway.GivenUsage | gateway.GivenOutput
	}
	g.writeEvent(first.at.Add(g.dice.between(time.Millisecond, maxConflict)), first.partition, &other)
}

// repeat draws whether an event is sent again: as it was, and while its request is remembered.
func (g *Generator) repeat(h half) {
	if h.event == nil || !g.dice.happens(g.cfg.Shares.Repeated) {
		return
	}
	left := g.cfg.LateMax - h.at.Sub(h.event.EventTime())
	if left < time.Millisecond {
		return // it came so late that another one would find its request forgotten
	}
	g.writeEvent(h.at.Add(g.dice.between(time.Millisecond, min(left, maxRepeat))), h.partition, h.event)
}

// bad writes a record that the contract does not allow: an event of a request of its own, spoilt
// in one of many ways.
func (g *Generator) bad(e gateway.Event) {
	e.RequestID += "-bad"
	e.EventID += "-bad"
	e.Usage = gateway.Usage{InputTokens: 4711, Given: gateway.GivenUsage | gateway.GivenInput}
	spoil := spoilt()
	way := spoil[g.dice.rng.IntN(len(spoil))]
	value := bytes.Replace(gateway.AppendEvent(nil, &e), []byte(way.old), []byte(way.with), 1)
	if way.cut {
		value = value[:len(value)/2]
	}
	at := e.EventTime().Add(g.dice.between(0, maxNetwork))
	g.write(at, g.partition(e.RequestID), e.RequestID, value)
}

// spoiling replaces a part of a value, which every Completed event with input tokens has, or
// cuts off its second half.
type spoiling struct {
	old, with string
	cut       bool
}

func spoilt() []spoiling {
	return []spoiling{
		{cut: true},
		{old: `{"event_id"`, with: `[{"event_id"`},
		{old: `"event_id"`, with: `event_id`},
		{old: `"tenant-`, with: "\"tenant\xff-"},
		{old: `"tenant_id"`, with: `"tenant"`},
		{old: `"request_id":"`, with: `"request_id":null,"was":"`},
		{old: `"RequestCompleted"`, with: `"RequestRetried"`},
		{old: `"status":"`, with: `"status":"not `},
		{old: `4711`, with: `-4711`},
		{old: `4711`, with: `4711.5`},
		{old: `4711`, with: `9007199254740993`},
		{old: `4711`, with: `"4711"`},
		{old: `"event_time":"`, with: `"event_time":"2026-03-02T10:01:02","was":"`},
		{old: `"event_time":"`, with: `"event_time":"2026-03-02T10:01:02.0123456789Z","was":"`},
		{old: `"event_time":"`, with: `"event_time":"9999-12-31T23:59:59Z","was":"`}, // ahead of its record
	}
}
