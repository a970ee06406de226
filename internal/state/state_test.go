package state

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/weir/internal/keygroup"
)

const groups = 4

type textCodec struct{}

func (textCodec) Append(dst []byte, v *string) ([]byte, error) { return append(dst, *v...), nil }
func (textCodec) Decode(src []byte, v *string) error           { *v = string(src); return nil }

func keyOf[K comparable](t require.TestingT, k K) *Key[K] {
	codec, err := NewKeyCodec[K]()
	require.NoError(t, err)
	h := codec.Hash(codec.Append(nil, &k))
	return &Key[K]{Hash: h, Group: keygroup.Of(h, groups), Value: k}
}

// A table behaves as a Go map does, and what a snapshot of it restores is the same table.
func TestTableIsAMapAndSurvivesASnapshot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		codec, err := NewKeyCodec[string]()
		require.NoError(t, err)
		table, model := NewTable[string, string](0, groups, codec), map[string]string{}
		for range rapid.IntRange(0, 300).Draw(t, "operations") {
			k := fmt.Sprint("key", rapid.IntRange(0, 60).Draw(t, "key"))
			if rapid.IntRange(0, 2).Draw(t, "what") == 0 {
				table.Delete(keyOf(t, k))
				delete(model, k)
				continue
			}
			v, err := table.Put(keyOf(t, k))
			require.NoError(t, err)
			*v += "x"
			model[k] += "x"
		}
		requireTable(t, model, table)

		restored := NewTable[string, string](0, groups, codec)
		for g := range groups {
			b, err := table.AppendGroup(nil, g, codec, textCodec{})
			require.NoError(t, err)
			require.NoError(t, restored.RestoreGroup(NewDecoder(b), g, codec, textCodec{}))
		}
		requireTable(t, model, restored)
	})
}

func requireTable(t require.TestingT, model map[string]string, table *Table[string, string]) {
	require.Equal(t, len(model), table.Len())
	for k, v := range model {
		got := table.Get(keyOf(t, k))
		require.NotNil(t, got, "key %s", k)
		require.Equal(t, v, *got)
	}
	require.Nil(t, table.Get(keyOf(t, "absent")))
	seen := 0
	for g := range groups {
		require.NoError(t, table.Each(g, func(k, v *string) error {
			seen++
			require.Equal(t, model[*k], *v)
			return nil
		}))
	}
	require.Equal(t, len(model), seen)
}

func TestKeysInATableShareNoMemoryWithTheCaller(t *testing.T) {
	codec, err := NewKeyCodec[[3]byte]()
	require.NoError(t, err)
	require.NotNil(t, codec.Append)

	text, err := NewKeyCodec[string]()
	require.NoError(t, err)
	table := NewTable[string, int](0, groups, text)
	buffer := []byte("request-1")
	alias := unsafeString(buffer)
	k := keyOf(t, alias)
	_, err = table.Put(k)
	require.NoError(t, err)
	timers := NewTimers(text)
	other := keyOf(t, alias)
	require.NoError(t, timers.Set(other, 5))
	copy(buffer, "OVERWRITE")
	require.NotNil(t, table.Get(keyOf(t, "request-1")))
	require.NoError(t, timers.Fire(5, func(k *Key[string], _ int64) error {
		require.Equal(t, "request-1", k.Value)
		return nil
	}))
}

// Timers fire once, in order of time, exactly those that a plain model holds; also after a
// snapshot, and when firing sets more of them.
func TestTimersFireOnceInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		codec, err := NewKeyCodec[int]()
		require.NoError(t, err)
		timers, model := NewTimers(codec), map[string]bool{}
		watermark := int64(-5 * bucketWidth)
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			k := rapid.IntRange(0, 5).Draw(t, "key")
			at := rapid.Int64Range(-3*bucketWidth, 3*bucketWidth).Draw(t, "at") / 100_000 * 100_000
			id := fmt.Sprintf("%d@%d", k, at)
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				require.NoError(t, timers.Delete(keyOf(t, k), at))
				delete(model, id)
			case 1:
				watermark = max(watermark, at)
				requireFired(t, timers, model, watermark)
			case 2:
				timers = restoreTimers(t, timers, codec)
			default:
				require.NoError(t, timers.Set(keyOf(t, k), at))
				model[id] = true
			}
		}
		requireFired(t, timers, model, 10*bucketWidth)
		require.Zero(t, timers.Len())
	})
}

func requireFired(t *rapid.T, timers *Timers[int], model map[string]bool, watermark int64) {
	last, fired := int64(-1<<63), []string{}
	require.NoError(t, timers.Fire(watermark, func(k *Key[int], at int64) error {
		require.LessOrEqual(t, last, at)
		last = at
		fired = append(fired, fmt.Sprintf("%d@%d", k.Value, at))
		return nil
	}))
	var want []string
	for id := range model {
		var k int
		var at int64
		fmt.Sscanf(id, "%d@%d", &k, &at)
		if at <= watermark {
			want = append(want, id)
			delete(model, id)
		}
	}
	slices.Sort(want)
	slices.Sort(fired)
	require.Equal(t, strings.Join(want, " "), strings.Join(fired, " "))
}

func restoreTimers(t *rapid.T, timers *Timers[int], codec KeyCodec[int]) *Timers[int] {
	restored := NewTimers(codec)
	for g, pending := range timers.ByGroup(0, groups) {
		b := AppendTimers(nil, pending, codec)
		require.NoError(t, restored.RestoreGroup(NewDecoder(b), g, codec))
	}
	return restored
}

func TestTimerSetWhileFiringFiresInTheSameCall(t *testing.T) {
	codec, err := NewKeyCodec[int]()
	require.NoError(t, err)
	timers, fired := NewTimers(codec), []int64{}
	require.NoError(t, timers.Set(keyOf(t, 1), 10))
	require.NoError(t, timers.Fire(100, func(k *Key[int], at int64) error {
		fired = append(fired, at)
		if at < 100 {
			return timers.Set(k, at+45)
		}
		return nil
	}))
	require.Equal(t, []int64{10, 55, 100}, fired)
}

func TestKeyTypesWithoutACanonicalEncodingAreRefused(t *testing.T) {
	type hidden struct {
		A string
		b string
	}
	_ = hidden{b: "used"}
	_, err := NewKeyCodec[hidden]()
	require.ErrorContains(t, err, "field b is not exported")
	_, err = NewKeyCodec[float64]()
	require.ErrorContains(t, err, "no canonical encoding")
	_, err = NewKeyCodec[*int]()
	require.ErrorContains(t, err, "no canonical encoding")
	_, err = NewKeyCodec[any]()
	require.ErrorContains(t, err, "no canonical encoding")
}

func TestKeyCodecsRoundTrip(t *testing.T) {
	type pair struct {
		Tenant string
		N      [2]uint16
	}
	roundTrip(t, pair{"acme", [2]uint16{1, 2}})
	roundTrip(t, "text")
	roundTrip(t, int32(-7))
	roundTrip(t, uint64(1<<63))
}

func roundTrip[K comparable](t *testing.T, k K) {
	t.Helper()
	codec, err := NewKeyCodec[K]()
	require.NoError(t, err)
	got, err := codec.Decode(codec.Append(nil, &k))
	require.NoError(t, err)
	require.Equal(t, k, got)
}

func TestCorruptEncodingIsAnErrorNotAPanic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		codec, err := NewKeyCodec[string]()
		require.NoError(t, err)
		b := rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		table := NewTable[string, string](0, 1, codec)
		_ = table.RestoreGroup(NewDecoder(b), 0, codec, textCodec{})
		_ = NewTimers(codec).RestoreGroup(NewDecoder(b), 0, codec)
	})
}
