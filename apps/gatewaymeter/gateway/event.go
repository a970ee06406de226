package gateway

import (
	"strings"
	"time"
)

// Kind is the type of an event.
type Kind uint8

// The kinds of events. The zero value is none of them.
const (
	Started   Kind = iota + 1 // RequestStarted
	Completed                 // RequestCompleted
)

// String returns the event's type as it is written in JSON.
func (k Kind) String() string {
	switch k {
	case Started:
		return "RequestStarted"
	case Completed:
		return "RequestCompleted"
	}
	return "unknown"
}

// Status says how a request ended. It is zero in Started.
type Status uint8

// The ways a request ends.
const (
	OK Status = iota + 1
	Cancelled
	Failed
)

// String returns the status as it is written in JSON.
func (s Status) String() string {
	switch s {
	case OK:
		return "ok"
	case Cancelled:
		return "cancelled"
	case Failed:
		return "failed"
	}
	return "unknown"
}

// MaxTokens is the largest number of tokens an event can report, of each kind.
const MaxTokens = int64(1) << 53

// Usage is what a request used. A number that was not given is 0.
type Usage struct {
	InputTokens      int64 // includes the cached ones
	OutputTokens     int64
	CacheReadTokens  int64
	CacheWriteTokens int64
	Given            Given
}

// Given tells which parts of a usage the event held.
type Given uint8

// The parts of a usage. GivenUsage is the usage itself: without it nothing was reported, and
// with it alone nothing was used.
const (
	GivenUsage Given = 1 << iota
	GivenInput
	GivenOutput
	GivenCacheRead
	GivenCacheWrite
)

// Reported tells whether the event held a usage at all.
func (u *Usage) Reported() bool { return u.Given&GivenUsage != 0 }

// Event is one event of a gateway. Its strings may be parts of the value it was decoded from.
type Event struct {
	EventID   string
	TenantID  string
	RequestID string
	Provider  string // empty where Completed does not name one
	Model     string // empty where Completed does not name one
	Time      int64  // event time: microseconds since 1970-01-01T00:00:00Z, rounded down
	Usage     Usage  // of Completed
	Kind      Kind
	Status    Status // of Completed
}

// EventTime returns the event's time in UTC.
func (e *Event) EventTime() time.Time { return time.UnixMicro(e.Time).UTC() }

// EventMicros returns the event's time in microseconds since 1970-01-01T00:00:00Z.
func (e *Event) EventMicros() int64 { return e.Time }

// Clone returns a copy of e that shares no memory with the value e was decoded from. It takes
// one allocation.
func (e *Event) Clone() Event {
	c := *e
	var b strings.Builder
	b.Grow(len(e.EventID) + len(e.TenantID) + len(e.RequestID) + len(e.Provider) + len(e.Model))
	for _, s := range []*string{&c.EventID, &c.TenantID, &c.RequestID, &c.Provider, &c.Model} {
		from := b.Len()
		b.WriteString(*s)
		*s = b.String()[from:]
	}
	return c
}

// RequestRecord is an assembled request: what is priced and summed.
type RequestRecord struct {
	TenantID  string
	RequestID string
	Provider  string
	Model     string
	// StartedAt is the event time of Started, in microseconds since 1970-01-01T00:00:00Z; it
	// means nothing without HasStarted.
	StartedAt int64
	// CompletedAt is the event time of Completed, which says to which minute the request
	// belongs.
	CompletedAt int64
	Usage       Usage
	Status      Status
	HasStarted  bool
}
