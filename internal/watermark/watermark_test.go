package watermark

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestMergedWatermarkNeverGoesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "inputs")
		m := NewMerger(n)
		last := int64(None)
		for range rapid.IntRange(0, 50).Draw(t, "steps") {
			i := rapid.IntRange(0, n-1).Draw(t, "i")
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				m.SetIdle(i)
			case 1:
				m.Set(i, End)
			default:
				m.Set(i, rapid.Int64Range(-100, 100).Draw(t, "at"))
			}
			at, _ := m.Merge()
			require.GreaterOrEqual(t, at, last)
			last = at
		}
	})
}

func TestInputThatHasNotSpokenHoldsTheWatermark(t *testing.T) {
	m := NewMerger(2)
	m.Set(0, 10)
	at, idle := m.Merge()
	require.Equal(t, int64(None), at)
	require.False(t, idle)
	m.Set(1, 7)
	at, _ = m.Merge()
	require.Equal(t, int64(7), at)
}

func TestEndedInputIsLeftOutAndIdleOneDoesNotEnd(t *testing.T) {
	m := NewMerger(2)
	m.Set(0, 5)
	m.Set(1, End)
	at, idle := m.Merge()
	require.Equal(t, int64(5), at)
	require.False(t, idle)

	m.SetIdle(0)
	at, idle = m.Merge()
	require.Equal(t, int64(5), at, "an idle input beside an ended one must not end event time")
	require.True(t, idle)

	m.Set(0, End)
	at, idle = m.Merge()
	require.Equal(t, int64(End), at)
	require.False(t, idle)
}

func TestIdlenessIsOnlyForSplitsReadToTheirEnd(t *testing.T) {
	t0 := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	s := NewSplits(2, 0, time.Minute)
	s.Records(0, []int64{100}, nil, t0)
	s.Progress(0, false, false, t0)
	s.Records(1, []int64{50}, nil, t0)
	s.Progress(1, false, false, t0) // behind: the broker has more than we have read

	at, _ := s.Merge()
	require.Equal(t, int64(50), at, "a split that is behind holds event time back, however long it stalls")

	s.Progress(1, true, false, t0.Add(time.Hour))
	s.Progress(1, true, false, t0.Add(time.Hour+59*time.Second))
	at, _ = s.Merge()
	require.Equal(t, int64(50), at, "idleness counts from when the end was reached")
	s.Progress(1, true, false, t0.Add(time.Hour+time.Minute))
	at, _ = s.Merge()
	require.Equal(t, int64(100), at)

	// A split that has fallen behind again is active before its records are there.
	s.Progress(1, false, false, t0.Add(2*time.Hour))
	s.Records(0, []int64{200}, nil, t0.Add(2*time.Hour))
	at, _ = s.Merge()
	require.Equal(t, int64(100), at)
}

func TestRestoredSplitDoesNotGoBack(t *testing.T) {
	t0 := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	s := NewSplits(1, 5*time.Second, 0)
	s.Restore(0, 1000)
	s.Records(0, []int64{10}, nil, t0)
	at, _ := s.Merge()
	require.Equal(t, int64(1000), at)
	require.Equal(t, int64(1000), s.At(0))
}

func TestSubtaskWithoutSplitsIsIdle(t *testing.T) {
	_, idle := NewSplits(0, 0, 0).Merge()
	require.True(t, idle)
}

func TestEarliestTimesDoNotWrap(t *testing.T) {
	s := NewSplits(1, time.Hour, 0)
	s.Records(0, []int64{None + 1}, nil, time.Time{})
	at, _ := s.Merge()
	require.Equal(t, int64(None), at)
}

func TestRecordIsJudgedByTheWatermarkBeforeIt(t *testing.T) {
	s := NewSplits(2, 5*time.Microsecond, 0)
	require.Equal(t, []int64{None, None}, s.Records(0, []int64{100, 10}, nil, time.Time{}),
		"the other split has not spoken")
	require.Equal(t, []int64{None, 45, 95}, s.Records(1, []int64{50, 200, 90}, nil, time.Time{}))
	at, _ := s.Merge()
	require.Equal(t, int64(95), at)
	require.Equal(t, []int64{7, 95}, s.Records(0, []int64{300}, []int64{7}, time.Time{}))
}

// Merging row by row comes to the same as merging after each row.
func TestRowsMergeAsIfEachWereASignal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "inputs")
		a, b := NewMerger(n), NewMerger(n)
		for range rapid.IntRange(0, 20).Draw(t, "steps") {
			i := rapid.IntRange(0, n-1).Draw(t, "i")
			if rapid.Bool().Draw(t, "idle") {
				a.SetIdle(i)
				b.SetIdle(i)
				continue
			}
			marks := rapid.SliceOfN(rapid.Int64Range(-50, 50), 1, 5).Draw(t, "marks")
			var want []int64
			for _, m := range marks {
				a.Set(i, m)
				at, _ := a.Merge()
				want = append(want, at)
			}
			b.Rows(i, marks)
			require.Equal(t, want, marks)
		}
	})
}

func TestEmptySplitHoldsNothingBackOnceItIsKnownToBeEmpty(t *testing.T) {
	s := NewSplits(2, 0, 0)
	s.Records(0, []int64{100}, nil, time.Time{})
	at, _ := s.Merge()
	require.Equal(t, int64(None), at, "split 1 has not answered: it may hold earlier records")
	s.Progress(1, true, false, time.Time{})
	at, _ = s.Merge()
	require.Equal(t, int64(100), at)
	s.Records(1, []int64{40}, nil, time.Time{})
	s.Records(0, []int64{200}, nil, time.Time{})
	at, _ = s.Merge()
	require.Equal(t, int64(100), at, "from its first record on it holds event time like any other")
}

// Time that passes without an answer says nothing: the job may have stood still, and records may lie
// there.
func TestOnlyAnAnswerFromAfterItsQuietTimeMakesASplitIdle(t *testing.T) {
	t0 := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	s := NewSplits(2, 0, time.Minute)
	for i := range 2 {
		s.Records(i, []int64{50}, nil, t0)
		s.Progress(i, true, false, t0)
	}
	s.Records(0, []int64{100}, nil, t0.Add(time.Hour))
	s.Progress(0, true, false, t0.Add(time.Hour))
	at, _ := s.Merge()
	require.Equal(t, int64(50), at)
	require.False(t, s.Idle(1))
	s.Progress(1, true, false, t0.Add(time.Hour))
	at, _ = s.Merge()
	require.Equal(t, int64(100), at)
	require.True(t, s.Idle(1))
}

func TestASplitThatIsAddedLowersNothingAndHoldsEventTimeUntilItIsKnown(t *testing.T) {
	s := NewSplits(1, 0, 0)
	read := func(split int, at, merged int64) {
		t.Helper()
		s.Records(split, []int64{at}, nil, time.Time{})
		got, idle := s.Merge()
		require.Equal(t, merged, got)
		require.False(t, idle)
	}
	read(0, 100, 100)
	s.Add()
	read(0, 200, 100)
	read(1, 50, 100)
	read(1, 150, 150)

	s.Add()
	read(0, 300, 150)
	read(1, 300, 150)
	s.Progress(2, true, false, time.Time{}) // it is empty
	read(0, 300, 300)
}
