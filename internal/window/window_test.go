package window

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestEveryTimeLiesInTheHalfOpenWindowsAroundIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slide := rapid.Int64Range(1, 1e9).Draw(t, "slide")
		w := Sliding{Slide: slide, Size: slide + rapid.Int64Range(0, 5*slide).Draw(t, "more")}
		at := rapid.Int64Range(-1e15, 1e15).Draw(t, "at")
		last := w.Last(at)
		require.Zero(t, last%slide)
		require.LessOrEqual(t, last, at)
		require.Greater(t, last+slide, at, "the next one begins behind it")
		require.Equal(t, last+slide, w.Last(last+slide), "a record at the beginning of a window lies in it")
	})
}

func TestSessionsOfKnownRecords(t *testing.T) {
	s := Session{Gap: 10}
	kept := []Span{{0, 10}, {15, 30}, {40, 50}}
	for at, want := range map[int64][4]int64{
		-10: {0, 0, -10, 0}, -9: {0, 1, -9, 10}, 9: {0, 2, 0, 30}, 10: {1, 2, 10, 30}, 29: {1, 2, 15, 39},
		30: {2, 2, 30, 40}, 31: {2, 3, 31, 50}, 50: {3, 3, 50, 60},
	} {
		from, to, joined := s.Join(kept, at)
		require.Equal(t, want, [4]int64{int64(from), int64(to), joined.Start, joined.End}, "a record at %d", at)
	}
}

// Whatever is late, and in whatever order records come, the sessions are those of the records that were
// taken, and a closed one never changes.
func TestSessionsAreThoseOfTheRecordsThatWereTaken(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Session{
			Gap:             rapid.Int64Range(1, 20).Draw(t, "gap"),
			AllowedLateness: rapid.Int64Range(0, 20).Draw(t, "lateness"),
		}
		var kept, closed []Span
		var taken []int64
		watermark := int64(math.MinInt64)
		for range rapid.IntRange(0, 60).Draw(t, "records") {
			at := rapid.Int64Range(0, 150).Draw(t, "at")
			if watermark = max(watermark, rapid.Int64Range(-50, 150).Draw(t, "watermark")); rapid.Bool().Draw(t, "collect") {
				kept, closed = split(kept, closed, watermark-s.AllowedLateness)
			}
			if !s.Taken(kept, at, watermark) {
				require.Less(t, at+s.AllowedLateness, watermark, "only what is late is refused")
				continue
			}
			taken = append(taken, at)
			from, to, joined := s.Join(kept, at)
			kept = slices.Replace(kept, from, to, joined)
		}
		all := append(closed, kept...)
		slices.SortFunc(all, func(a, b Span) int { return cmp.Compare(a.Start, b.Start) })
		require.Equal(t, batch(taken, s.Gap), all)
	})
}

// split moves the sessions that have ended by a time to the closed ones.
func split(kept, closed []Span, end int64) (still, gone []Span) {
	for _, k := range kept {
		if k.End <= end {
			closed = append(closed, k)
		} else {
			still = append(still, k)
		}
	}
	return still, closed
}

// batch computes the sessions of a set of records.
func batch(times []int64, gap int64) (all []Span) {
	slices.Sort(times)
	for _, at := range times {
		if n := len(all); n > 0 && at < all[n-1].End {
			all[n-1].End = at + gap
			continue
		}
		all = append(all, Span{at, at + gap})
	}
	return all
}

func TestJudgement(t *testing.T) {
	for _, c := range []struct {
		watermark int64
		want      Judgement
	}{
		{-1 << 63, Open}, {99, Open}, {100, Refire}, {149, Refire}, {150, Late}, {1<<63 - 1, Late},
	} {
		require.Equal(t, c.want, Judge(100, 50, c.watermark), "watermark %d", c.watermark)
	}
	require.Equal(t, Late, Judge(100, 0, 100), "without lateness a window that fires is closed")
}
