// Package window decides which window a time lies in, when the window fires, and when it is
// closed for good.
//
// It is pure arithmetic on event times (microseconds since 1970-01-01T00:00:00Z). It keeps
// nothing: what has been added to a window is the engine's.
//
// Invariants:
//
//  1. Windows are half-open: a record at a window's end belongs to the next one.
//  2. A window fires once the watermark has reached its end, and is closed for good once it
//     has reached its end plus the allowed lateness. In between, every record fires it again.
//  3. Whether a record is late depends on the watermark and the window's end alone; of a session, on the
//     watermark, the record's time and the sessions that are not closed.
//  4. A record that is taken lies in no session that was closed for good: the sessions are those of the set
//     of records that were taken, in whatever order they came.
package window

import "math"

// Sliding cuts time into windows of one size, one beginning at each multiple of Slide since 1970-01-01. With
// a slide of their size they tumble: they do not overlap.
type Sliding struct{ Size, Slide int64 } // microseconds, above 0, and Slide at most Size

// Last returns the start of the last window that a time lies in. The others begin Slide before it, and so
// on, as long as they end behind the time.
func (w Sliding) Last(t int64) (start int64) {
	offset := t % w.Slide
	if offset < 0 {
		offset += w.Slide
	}
	return t - offset
}

// Judgement is what a record finds when it comes to its window.
type Judgement int

// The judgements.
const (
	// Open: the window has not fired yet.
	Open Judgement = iota
	// Refire: the window has fired, and fires again with the record.
	Refire
	// Late: the window is closed for good.
	Late
)

// Judge judges a record of a window that ends at end.
func Judge(end, allowedLateness, watermark int64) Judgement {
	switch {
	case watermark < end:
		return Open
	case watermark < CloseTime(end, allowedLateness):
		return Refire
	}
	return Late
}

// CloseTime is the watermark at which a window is closed for good.
func CloseTime(end, allowedLateness int64) int64 {
	if end > math.MaxInt64-allowedLateness {
		return math.MaxInt64
	}
	return end + allowedLateness
}
