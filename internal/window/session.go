package window

// Span is a session: the time [Start, End) from its first record until the gap behind its last one.
type Span struct{ Start, End int64 }

// Session merges records that are less than Gap apart into one session. A record as far as Gap behind the
// last one begins the next.
type Session struct{ Gap, AllowedLateness int64 } // microseconds; the gap above 0

// Taken reports whether a record is taken, by the sessions of its key that are kept, at a watermark. It
// is if it is within the allowed lateness itself, or within a session that is not closed.
//
// Why no record that is taken meets a closed session: that one ended before the watermark less the
// lateness, or it would not be closed. The record is behind that, or in a session of its own that ends
// behind it, and sessions do not overlap.
func (s Session) Taken(kept []Span, at, watermark int64) bool {
	if watermark <= CloseTime(at, s.AllowedLateness) {
		return true
	}
	for _, k := range kept {
		if k.Start <= at && at < k.End && watermark < CloseTime(k.End, s.AllowedLateness) {
			return true
		}
	}
	return false
}

// Join returns the session that a record makes with the sessions of its key, which are in order: those
// from index from to below index to become one, and the others stay as they are.
func (s Session) Join(kept []Span, at int64) (from, to int, joined Span) {
	joined = Span{Start: at, End: CloseTime(at, s.Gap)}
	for from < len(kept) && kept[from].End <= joined.Start {
		from++
	}
	for to = from; to < len(kept) && kept[to].Start < joined.End; to++ {
		joined.End = max(joined.End, kept[to].End)
	}
	if from < to {
		joined.Start = min(joined.Start, kept[from].Start)
	}
	return from, to, joined
}
