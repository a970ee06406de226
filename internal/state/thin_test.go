package state

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Whether what says nothing is thrown away early or late, the same timers fire in the same order, and the
// bases say the same to a restore.
func TestThinningTimersChangesNothingButMemory(t *testing.T) {
	type fired struct {
		key int
		at  int64
	}
	codec, err := NewKeyCodec[int]()
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		thin, whole := NewTimers(0, groups, codec), NewTimers(0, groups, codec)
		thin.crowded, whole.crowded = rapid.IntRange(2, 40).Draw(t, "crowded"), math.MaxInt
		both := []*Timers[int]{thin, whole}
		now := int64(0)
		fire := func(to int64) (seen [2][]fired) {
			for i, timers := range both {
				require.NoError(t, timers.Fire(to, func(k *Key[int], at int64) error {
					seen[i] = append(seen[i], fired{k.Value(), at})
					if at%3 == 0 && at < 200*bucketWidth { // sets what has passed, and what has not
						return timers.Set(k, at+bucketWidth*int64(k.Value()%3)-1)
					}
					return nil
				}))
			}
			return seen
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			at := now + rapid.Int64Range(-2, 40).Draw(t, "at")*bucketWidth/2
			for range rapid.SampledFrom([]int{1, 5, 60}).Draw(t, "times") {
				k := codec.Key(rapid.IntRange(0, 12).Draw(t, "key"), groups)
				remove := rapid.IntRange(0, 3).Draw(t, "op") == 0
				for _, timers := range both {
					if remove {
						require.NoError(t, timers.Delete(&k, at))
					} else {
						require.NoError(t, timers.Set(&k, at))
					}
				}
			}
			if rapid.Bool().Draw(t, "fire") {
				now += rapid.Int64Range(0, 30).Draw(t, "step") * bucketWidth / 4
				seen := fire(now)
				require.Equal(t, seen[1], seen[0])
			}
			require.LessOrEqual(t, thin.Len(), whole.Len())
		}
		if rapid.Bool().Draw(t, "restored") {
			for i, timers := range both {
				both[i] = fromBases(t, timers, codec)
			}
		}
		seen := fire(math.MaxInt64 - 1)
		require.Equal(t, seen[1], seen[0])
	})
}

// fromBases returns timers that a restore makes of the bases of others.
func fromBases(t *rapid.T, from *Timers[int], codec KeyCodec[int]) *Timers[int] {
	to := NewTimers(0, groups, codec)
	to.crowded = from.crowded
	to.passed = from.passed
	for g := range groups {
		from.log = newChangeLog(newChunks())
		from.base(g)
		for d := NewDecoder(slices.Concat(from.log.take()...)); !d.Empty(); {
			r := readRecord(d)
			require.NoError(t, to.restore(r.kind, r.group, r.at, r.key))
		}
	}
	return to
}

// A timer that is set at each row takes the memory of a few.
func TestATimerThatIsSetAgainAndAgainTakesTheMemoryOfAFew(t *testing.T) {
	codec, err := NewKeyCodec[int]()
	require.NoError(t, err)
	timers := NewTimers(0, groups, codec)
	for range 100_000 {
		for n := range 3 {
			k := codec.Key(n, groups)
			require.NoError(t, timers.Set(&k, 1000*bucketWidth))
		}
	}
	require.LessOrEqual(t, timers.Len(), crowded)
	fired := 0
	require.NoError(t, timers.Fire(math.MaxInt64-1, func(*Key[int], int64) error { fired++; return nil }))
	require.Equal(t, 3, fired)
}

// That an overdue timer has fired is said by no watermark: it is logged, also where the same timer was set in
// time before.
func TestThinningLeavesWhatWasOverdueToBeLogged(t *testing.T) {
	codec, err := NewKeyCodec[int]()
	require.NoError(t, err)
	timers := NewTimers(0, groups, codec)
	timers.crowded, timers.log = 2, newChangeLog(newChunks())
	k := codec.Key(1, groups)
	require.NoError(t, timers.Set(&k, 50))
	timers.Advance(100)
	require.NoError(t, timers.Set(&k, 50))
	fired := 0
	require.NoError(t, timers.Fire(100, func(*Key[int], int64) error { fired++; return nil }))
	require.Equal(t, 1, fired)
	var kinds []byte
	for d := NewDecoder(slices.Concat(timers.log.take()...)); !d.Empty(); {
		kinds = append(kinds, readRecord(d).kind)
	}
	require.Equal(t, []byte{timerRecord, overdueRecord, untimerRecord}, kinds)
}
