package engine

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir/internal/state"
	"example.com/weir/internal/window"
)

// newBase builds the keyed part of a subtask that is restored from cuts.
func newBase(t *testing.T, subtask, parallelism int, chains ...[][]byte) *keyedBase[string] {
	codec, err := state.NewKeyCodec[string]()
	require.NoError(t, err)
	g := &generation{
		cfg:   RunConfig{Interval: time.Second}.withDefaults(),
		plan:  NewPlan("test", parallelism, 8),
		state: &restored{chains: map[string][][][]byte{"op": chains}},
	}
	b := newKeyedBase(&task{
		subtask: subtask, parallelism: parallelism, gen: g,
		ctx: context.Background(), stats: &SubtaskStats{},
	}, "op", codec)
	b.stand = func(int64) {}
	b.fire = func(*state.Key[string], int64) error { return nil }
	require.NoError(t, b.restore())
	return b
}

func cutOf(t *testing.T, b *keyedBase[string]) []byte {
	head, records, err := b.keyed.Cut(b.watermarkOf)
	require.NoError(t, err)
	return slices.Concat(append([][]byte{head}, records...)...)
}

// Subtasks may have come to different event times when they were cut. After a rescale each key
// group stands where it stood: it goes back for none, and is not carried ahead by another.
func TestEventTimeGoesBackForNoKeyGroupWhenSubtasksAreMerged(t *testing.T) {
	first, second := newBase(t, 0, 2), newBase(t, 1, 2)
	require.NoError(t, first.advance(100))
	require.NoError(t, second.advance(50))
	chains := [][][]byte{{cutOf(t, first)}, {cutOf(t, second)}}

	merged := newBase(t, 0, 1, chains...)
	for g := range 8 {
		require.EqualValues(t, []int64{100, 50}[g/4], merged.watermarkOf(g), "key group %d", g)
	}
	require.EqualValues(t, 50, merged.watermark)
	require.NoError(t, merged.advance(70))
	require.EqualValues(t, 100, merged.watermarkOf(0))
	require.EqualValues(t, 70, merged.watermarkOf(7))
	require.Equal(t, window.Late, window.Judge(90, 0, merged.watermarkOf(0)))
	require.Equal(t, window.Open, window.Judge(90, 0, merged.watermarkOf(7)))

	// And again, two generations later, at a third parallelism.
	again := newBase(t, 1, 4, [][]byte{cutOf(t, merged)})
	require.EqualValues(t, 100, again.watermarkOf(2))
	again = newBase(t, 3, 4, [][]byte{cutOf(t, merged)})
	require.EqualValues(t, 70, again.watermarkOf(7))
}

// A timer that had fired in its old subtask does not fire again in one that is behind, and one that
// had not fires there once.
func TestTimersFollowTheEventTimeOfTheirKeyGroup(t *testing.T) {
	first, second := newBase(t, 0, 2), newBase(t, 1, 2)
	for _, b := range []*keyedBase[string]{first, second} {
		for g := b.keyed.First; g < b.keyed.End; g++ {
			for _, at := range []int64{60, 200} {
				k := b.keyed.Codec().Key("k", 8)
				k.Group = g
				require.NoError(t, b.keyed.Timers.Set(&k, at))
			}
		}
	}
	require.NoError(t, first.advance(100)) // its timers at 60 have fired
	require.NoError(t, second.advance(50))
	merged := newBase(t, 0, 1, [][]byte{cutOf(t, first)}, [][]byte{cutOf(t, second)})
	fired := map[int64][]int{}
	merged.fire = func(k *state.Key[string], at int64) error {
		fired[at] = append(fired[at], k.Group)
		return nil
	}
	require.NoError(t, merged.advance(150))
	require.Equal(t, map[int64][]int{60: {4, 5, 6, 7}}, fired)
	require.NoError(t, merged.advance(endTime))
	require.Len(t, fired[200], 8)
}
