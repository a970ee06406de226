package state

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A timer that a firing timer sets again, at a time that waits and has passed already, is one
// timer: it fires once, and not again after a restore.
func TestTimerSetAgainWhileTheSameOneIsDueFiresOnce(t *testing.T) {
	k, whole := newTimers(t)
	key := func() *Key[string] { return keyOf(t, "x") }
	require.NoError(t, k.Timers.Set(key(), 10))
	require.NoError(t, k.Timers.Set(key(), 20))
	fired := []int64{}
	require.NoError(t, k.Timers.Fire(30, func(_ *Key[string], at int64) error {
		fired = append(fired, at)
		if at == 10 {
			return k.Timers.Set(key(), 20)
		}
		return nil
	}))
	require.Equal(t, []int64{10, 20}, fired)
	require.Empty(t, restoredTimers(t, k, whole, 30))
}

// newTimers returns a state that has taken a cut, and holds groups whole as rarely as possible:
// what a restore finds of the next changes, it finds in the log.
func newTimers(t require.TestingT) (k *Keyed[string], whole []byte) {
	k, _ = newKeyed(t, 0, groups, true)
	k.least = 0
	k.Timers.Advance(-100)
	for g := range 4 * groups { // an empty group would be held whole in every cut
		require.NoError(t, k.Timers.Set(keyOf(t, fmt.Sprint("far", g)), farTimer))
	}
	whole, err := cutOf(k, func(int) int64 { return -100 })
	require.NoError(t, err)
	return k, whole
}

const farTimer = 1 << 61

// restoredTimers cuts k at a watermark, restores the chain, and returns the timers that fire then.
func restoredTimers(t require.TestingT, k *Keyed[string], whole []byte, watermark int64) map[string]int {
	cut, err := cutOf(k, func(int) int64 { return watermark })
	require.NoError(t, err)
	require.Equal(t, uint64(1), k.Oldest())
	fresh, _ := newKeyed(t, 0, groups, true)
	require.NoError(t, fresh.Restore([][]byte{whole, cut}, func(int, int64) {}))
	return firing(t, fresh)
}

// firing returns the timers that wait, and how often each fires, but for the far ones.
func firing(t require.TestingT, k *Keyed[string]) map[string]int {
	fired := map[string]int{}
	require.NoError(t, k.Timers.Fire(farTimer-1, func(k *Key[string], at int64) error {
		fired[timerID(k.Value(), at)]++
		return nil
	}))
	return fired
}

// Timers that set and delete timers while they fire, in the past and in the future: what waits
// after a restore from the log is what would have waited without one.
func TestTimersThatSetTimersAreRestoredAsTheyStand(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k, whole := newTimers(t)
		watermark := int64(-100)
		change := func(label string) {
			key := keyOf(t, fmt.Sprint("key", rapid.IntRange(0, 1).Draw(t, label+" key")))
			at := rapid.Int64Range(-4, 4).Draw(t, label+" at") * bucketWidth / 4
			if rapid.IntRange(0, 3).Draw(t, label) == 0 {
				require.NoError(t, k.Timers.Delete(key, at))
			} else {
				require.NoError(t, k.Timers.Set(key, at))
			}
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			change("set")
			if rapid.Bool().Draw(t, "fire") {
				watermark = max(watermark, rapid.Int64Range(-4, 4).Draw(t, "to")*bucketWidth/4)
				sets := 20 // or a timer could set itself for ever
				require.NoError(t, k.Timers.Fire(watermark, func(*Key[string], int64) error {
					if sets--; sets > 0 && rapid.Bool().Draw(t, "again") {
						change("again")
					}
					return nil
				}))
			}
		}
		restored := restoredTimers(t, k, whole, watermark)
		require.Equal(t, firing(t, k), restored)
	})
}

// Timers that have fired take no memory, however long a job runs and wherever event time stands in
// their buckets.
func TestFiredTimersPileUpNowhere(t *testing.T) {
	k, _ := newKeyed(t, 0, 1, true)
	codec, err := NewKeyCodec[string]()
	require.NoError(t, err)
	key, fired := codec.Key("x", 1), 0
	const ahead = 5*bucketWidth + bucketWidth/20 // event time never stands at the end of a bucket
	for i := range int64(5000) {
		now := i * bucketWidth / 10
		require.NoError(t, k.Timers.Set(&key, now+ahead))
		if i%7 == 0 {
			require.NoError(t, k.Timers.Fire(now, func(*Key[string], int64) error { fired++; return nil }))
		}
	}
	require.Equal(t, 5000-fired, k.Timers.Len())
	require.Less(t, k.Timers.Len(), 60)
	buckets, timers := 0, 0
	k.Timers.wheel.each(func(b *bucket) { buckets, timers = buckets+1, timers+b.n })
	require.LessOrEqual(t, buckets, 50)
	require.Less(t, timers, 500)
	require.Less(t, k.Timers.wheel.used+len(k.Timers.wheel.chunks), 200)
	require.Less(t, len(k.Timers.wheel.spare), 50)
	require.Less(t, cap(k.Timers.late.queue), 50)
}
