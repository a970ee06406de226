package state

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// anyTime draws times that lie in buckets of every level, and many of one time.
func anyTime(t *rapid.T, near int64) int64 {
	shift := rapid.IntRange(0, 62).Draw(t, "shift")
	at := near + rapid.Int64Range(-3, 3).Draw(t, "at")<<shift
	if at == math.MaxInt64 {
		at--
	}
	return at
}

// Timers fire by their time, and those of one time in the order in which they were set, whatever buckets
// they have lain in and however event time moves. None fires before its time or after.
func TestTimersFireByTimeAndThenInTheOrderOfSetting(t *testing.T) {
	type set struct {
		at int64
		n  int
	}
	codec, err := NewKeyCodec[int]()
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		timers := NewTimers(0, groups, codec)
		if rapid.Bool().Draw(t, "told") {
			timers.soon = func(groups []uint16, hashes []uint64) { require.Len(t, groups, len(hashes)) }
		}
		now, n, waiting := int64(0), 0, []set{}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			many := rapid.SampledFrom([]int{1, 1, 3, 200, 1500}).Draw(t, "timers")
			at := anyTime(t, now)
			for i := range many {
				k := codec.Key(n, groups)
				x := set{at: at + int64(i%7)*100, n: n}
				n++
				if x.at < at {
					x.at = at
				}
				require.NoError(t, timers.Set(&k, x.at))
				waiting = append(waiting, x)
			}
			if rapid.Bool().Draw(t, "rest") {
				continue
			}
			now = max(now, anyTime(t, now))
			fired, want := []set{}, []set{}
			if timers.Advance(now) {
				require.NoError(t, timers.Fire(now, func(k *Key[int], at int64) error {
					fired = append(fired, set{at, k.Value()})
					return nil
				}))
			}
			slices.SortStableFunc(waiting, func(a, b set) int {
				if a.at != b.at {
					return map[bool]int{true: -1, false: 1}[a.at < b.at]
				}
				return a.n - b.n
			})
			for len(waiting) > 0 && waiting[0].at <= now {
				want, waiting = append(want, waiting[0]), waiting[1:]
			}
			require.Equal(t, want, fired)
			require.Equal(t, len(waiting), timers.Len())
		}
	})
}

// A base holds the timers of its group alone, those of one time in the order in which they were set, and
// none that has fired.
func TestBaseHoldsTheTimersOfItsGroup(t *testing.T) {
	codec, err := NewKeyCodec[int]()
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		timers := NewTimers(0, groups, codec)
		now, fired := int64(0), map[int]bool{}
		n := 0
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			for range rapid.SampledFrom([]int{1, 10, 100, 700}).Draw(t, "timers") {
				k := codec.Key(n, groups)
				n++
				require.NoError(t, timers.Set(&k, now+rapid.Int64Range(0, 40).Draw(t, "at")*bucketWidth/4))
			}
			now += rapid.Int64Range(0, 20).Draw(t, "step") * bucketWidth / 4
			require.NoError(t, timers.Fire(now, func(k *Key[int], _ int64) error {
				fired[k.Value()] = true
				return nil
			}))
		}
		held := 0
		for g := range groups {
			timers.log = newChangeLog(newChunks())
			timers.base(g)
			last := map[int64]int{}
			for d := NewDecoder(slices.Concat(timers.log.take()...)); !d.Empty(); held++ {
				r := readRecord(d)
				require.Equal(t, g, r.group)
				k, err := codec.Decode(r.key)
				require.NoError(t, err)
				require.False(t, fired[k])
				if before, ok := last[r.at]; ok {
					require.Less(t, before, k)
				}
				last[r.at] = k
			}
		}
		require.Equal(t, n-len(fired), held)
	})
}

// Keys of every length come and go in one group, and each keeps its value: what a long key has left is
// used again, or packed away.
func TestTableKeepsKeysOfEveryLengthApart(t *testing.T) {
	codec, err := NewKeyCodec[string]()
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		table, model := NewTable[string, int](0, 1, codec), map[string]int{}
		lengths := rapid.SampledFrom([][]int{{0, 1, 27, 28, 29, 30}, {10, 29, 60}, {29, 300, 3000}}).Draw(t, "lengths")
		for i := range rapid.IntRange(1, 400).Draw(t, "steps") {
			name := fmt.Sprintf("%03d", rapid.IntRange(0, 60).Draw(t, "key"))
			length := rapid.SampledFrom(lengths).Draw(t, "length")
			for len(name) < length {
				name += name
			}
			k := codec.Key(name[:min(len(name), max(length, 1))], 1)
			if rapid.IntRange(0, 2).Draw(t, "what") == 0 {
				table.Delete(&k)
				delete(model, k.Value())
				continue
			}
			v, err := table.Put(&k)
			require.NoError(t, err)
			require.Equal(t, model[k.Value()], *v)
			*v, model[k.Value()] = i, i
		}
		got := map[string]int{}
		require.NoError(t, table.Each(0, func(k *string, v *int) error { got[*k] = *v; return nil }))
		require.Equal(t, model, got)
		require.Equal(t, len(model), table.Len())
		for name, want := range model {
			k := codec.Key(name, 1)
			require.Equal(t, want, *table.Peek(&k))
		}
	})
}

// A group whose keys are all gone leaves nothing that the next ones could meet.
func TestChunksOfAnEmptyGroupAreUsedAgain(t *testing.T) {
	codec, err := NewKeyCodec[string]()
	require.NoError(t, err)
	table := NewTable[string, int](0, groups, codec)
	name := func(round, i int) string {
		return fmt.Sprintf("key %d of round %d, which does not fit into its entry", i, round)
	}
	for round := range 20 {
		for i := range 100 * (round%3 + 1) {
			k := codec.Key(name(round, i), groups)
			v, err := table.Put(&k)
			require.NoError(t, err)
			require.Zero(t, *v)
			*v = i + 1
		}
		for i := range 100 * (round%3 + 1) {
			k := codec.Key(name(round, i), groups)
			require.Equal(t, i+1, *table.Peek(&k))
			table.Delete(&k)
		}
		require.Zero(t, table.Len())
	}
	require.NotEmpty(t, table.spare)
}

// lossy is a key whose encoding forgets what does not fit into a byte.
type lossy struct{ N int }

func (k lossy) AppendKey(dst []byte) []byte { return append(dst, byte(k.N)) }
func (k *lossy) DecodeKey(src []byte) error { k.N = int(src[0]); return nil }

// A key that does not come back from an encoding of the user's own would be taken for another one.
func TestKeyThatItsEncodingLosesIsRefused(t *testing.T) {
	codec, err := NewKeyCodec[lossy]()
	require.NoError(t, err)
	table, timers := NewTable[lossy, int](0, groups, codec), NewTimers(0, groups, codec)
	for n, refused := range map[int]bool{7: false, 256 + 8: true} {
		known := codec.Key(lossy{n}, groups)
		var asked Key[lossy]
		asked.Stand(&codec, known.Hash, known.Group, known.Encoded, func() lossy { return lossy{n} })
		for _, k := range []*Key[lossy]{&known, &asked} {
			err := timers.Set(k, 1)
			require.Equal(t, refused, err != nil, "%d: %v", n, err)
			_, err = table.Put(k)
			require.Equal(t, refused, err != nil, "%d: %v", n, err)
		}
	}
}

// A timer that is set for a time whose bucket of the upper level is open already fires behind those that
// were set before.
func TestTimersOfAnOpenBucketFireBeforeWhatIsSetForTheirTimeLater(t *testing.T) {
	codec, err := NewKeyCodec[int]()
	require.NoError(t, err)
	timers, fired := NewTimers(0, groups, codec), []int{}
	set := func(n int, at int64) {
		k := codec.Key(n, groups)
		require.NoError(t, timers.Set(&k, at))
	}
	fire := func(at int64) {
		require.NoError(t, timers.Fire(at, func(k *Key[int], _ int64) error {
			fired = append(fired, k.Value())
			return nil
		}))
	}
	const upper = digits * bucketWidth // how wide a bucket of the upper level is
	const at = upper + 20*bucketWidth
	fire(0)
	set(1, upper+1)
	set(2, at)
	fire(upper + 2)
	require.Equal(t, 1, len(timers.open[1].due)-timers.open[1].head)
	set(3, at)
	set(4, at+1)
	fire(at - 1)
	set(5, at) // in the lowest level
	fire(at + 1)
	require.Equal(t, []int{1, 2, 3, 5, 4}, fired)
}
