package price

import (
	"fmt"
	"regexp"
	"time"
)

const secondsOfDay = 24 * 60 * 60

// instant is a time in the two parts that constraints ask for, in UTC.
type instant struct {
	day   int64         // since 1970-01-01
	clock time.Duration // since midnight
}

func instantOf(t time.Time) instant {
	seconds := t.Unix()
	day := seconds / secondsOfDay
	if seconds%secondsOfDay < 0 {
		day--
	}
	inDay := time.Duration(seconds - day*secondsOfDay)
	return instant{day, inDay*time.Second + time.Duration(t.Nanosecond())}
}

// constraint says when a set is in force. The zero value is always.
type constraint struct {
	kind     constraintKind
	day      int64         // sinceDay: the first day
	from, to time.Duration // daily: half-open, over midnight if to < from, never if they are equal
}

type constraintKind uint8

const (
	always constraintKind = iota
	sinceDay
	daily
)

func (c constraint) active(now instant) bool {
	switch c.kind {
	case always:
		return true
	case sinceDay:
		return now.day >= c.day
	case daily:
		if c.to < c.from {
			return now.clock >= c.from || now.clock < c.to
		}
		return c.from <= now.clock && now.clock < c.to
	default:
		panic("price: constraint of an unknown kind")
	}
}

// parseDay reads "2026-03-13" as days since 1970-01-01.
func parseDay(s string) (int64, error) {
	t, err := time.Parse(time.DateOnly, s)
	if err != nil {
		return 0, fmt.Errorf("%q is not a date like 2026-03-13", s)
	}
	return instantOf(t).day, nil
}

// parseClock reads a time of day ("16:30", "16:30:00", "16:30:00.5", each also with "Z" or a zone like
// "+08:00") as time since midnight UTC. Without a zone it is UTC.
func parseClock(s string) (time.Duration, error) {
	// time.Parse alone would let pass a one-digit hour, a comma, and digits that it then drops.
	shape := regexp.MustCompile(`^\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[-+]\d\d:\d\d)?$`)
	if shape.MatchString(s) {
		for _, layout := range []string{"15:04", "15:04Z07:00", "15:04:05", "15:04:05Z07:00"} {
			if t, err := time.Parse(layout, s); err == nil {
				return instantOf(t).clock, nil
			}
		}
	}
	return 0, fmt.Errorf("%q is not a time of day like 16:30:00Z", s)
}
