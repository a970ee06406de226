package watermark

import "time"

// Splits follows the event time of a source subtask's splits: bounded out-of-orderness for each,
// merged by minimum, with idleness.
type Splits struct {
	// delay is how much earlier than the highest time seen a record may still be expected, in
	// microseconds.
	delay int64
	// idleAfter is the processing time without a record, by the source's answers, after which a split
	// that has been read up to its end is left out. Zero is never.
	idleAfter time.Duration
	merger    *Merger
	splits    []split
}

type split struct {
	at       int64
	caughtUp bool
	ended    bool
	idle     bool
	last     time.Time // of the last record, or of when the split was first seen caught up
	// asOf is when the source last answered that the split is caught up. Nothing is known of later, and
	// least of all while the job itself stands still.
	asOf time.Time
}

// NewSplits returns the tracker of n splits.
func NewSplits(n int, delay, idleAfter time.Duration) *Splits {
	s := &Splits{
		delay: delay.Microseconds(), idleAfter: idleAfter,
		merger: NewMerger(n), splits: make([]split, n),
	}
	for i := range s.splits {
		s.splits[i].at = None
	}
	return s
}

// Add takes in one more split, of which nothing is known yet: it holds event time where it is until
// it is caught up or has had records, and lowers nothing.
func (s *Splits) Add() {
	s.merger.Add()
	s.splits = append(s.splits, split{at: None})
}

// Idle reports whether split i is left out at the moment.
func (s *Splits) Idle(i int) bool { return s.splits[i].idle }

// Restore sets the watermark of split i to what a checkpoint holds.
func (s *Splits) Restore(i int, at int64) {
	if at != None {
		s.splits[i].at = at
		s.merger.Set(i, at)
	}
}

// At returns the watermark of split i, for a checkpoint.
func (s *Splits) At(i int) int64 { return s.splits[i].at }

// Records tells that records with these event times were read from split i, and appends to marks
// the merged watermark before each of them: a record does not move what it is judged by.
func (s *Splits) Records(i int, times, marks []int64, now time.Time) []int64 {
	sp := &s.splits[i]
	sp.last = now
	sp.idle = false
	first := len(marks)
	for _, t := range times {
		marks = append(marks, sp.at)
		sp.at = max(sp.at, subtract(t, s.delay))
	}
	s.merger.Rows(i, marks[first:])
	s.merger.Set(i, sp.at)
	return marks
}

// Reached tells that split i has reached an event time, without a record.
func (s *Splits) Reached(i int, eventTime int64, now time.Time) {
	sp := &s.splits[i]
	sp.last = now
	sp.idle = false
	sp.at = max(sp.at, eventTime)
	s.merger.Set(i, sp.at)
}

// Progress tells whether split i had been read up to its end when its source answered, at a time, and
// whether it has ended for good.
func (s *Splits) Progress(i int, caughtUp, ended bool, at time.Time) {
	sp := &s.splits[i]
	if caughtUp && !sp.caughtUp {
		sp.last = at
	}
	if caughtUp {
		sp.asOf = at
	}
	sp.caughtUp = caughtUp
	if !caughtUp && sp.idle {
		sp.idle = false
		s.merger.Set(i, sp.at)
	}
	if ended && !sp.ended {
		sp.ended = true
		s.merger.Set(i, End)
	}
}

// Merge returns the watermark of the subtask, and whether it is idle. A subtask without splits is idle.
//
// A split is quiet by an answer from after its quiet time, and not because time has passed:
//
//	split 1 is caught up; a sink holds the job up for an hour; split 1 gets records, which nobody
//	reads; the job goes on with split 0. Split 1 had no record for an hour, and is not idle.
func (s *Splits) Merge() (at int64, idle bool) {
	for i := range s.splits {
		sp := &s.splits[i]
		if !sp.caughtUp || sp.ended || sp.idle {
			continue
		}
		// An empty split has no event time to hold others back with.
		empty := sp.at == None
		quiet := s.idleAfter > 0 && sp.asOf.Sub(sp.last) >= s.idleAfter
		if empty || quiet {
			sp.idle = true
			s.merger.SetIdle(i)
		}
	}
	if len(s.splits) == 0 {
		return None, true
	}
	return s.merger.Merge()
}

// subtract returns a − b without wrapping below None.
func subtract(a, b int64) int64 {
	if b > 0 && a < None+b {
		return None
	}
	return a - b
}
