package state

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// comes encodes a value, and requires it to come back.
func comes[T any](t *testing.T, v T) {
	t.Helper()
	codec, err := NewCBOR[T]()
	require.NoError(t, err)
	b, err := codec.Append(nil, &v)
	require.NoError(t, err)
	var got T
	require.NoError(t, codec.Decode(b, &got))
	require.Equal(t, v, got)
}

type call struct {
	ID      string
	Begin   time.Time
	Took    time.Duration
	Parts   []part
	Prices  map[string]part
	Before  *call
	Scratch []byte `cbor:"-"`
}

type part struct {
	N int64
	F float64
}

func TestDefaultCodecGivesBackWhatItWasGiven(t *testing.T) {
	at := time.Date(2026, 3, 2, 10, 0, 0, 123_456_789, time.UTC)
	comes(t, call{
		ID: "x", Begin: at, Took: 1500 * time.Millisecond, Parts: []part{{1, 0.1}, {-1 << 63, math.Pi}},
		Prices: map[string]part{"a": {N: 1}}, Before: &call{Begin: at.Add(-time.Nanosecond)},
	})
	comes(t, call{}) // the zero time, too
	comes(t, "caf\xe9: not UTF-8")
	comes(t, *big.NewInt(-1 << 62))
	comes(t, [3]bool{true, false, true})
	comes(t, 9_007_199_254_740_993.0)
}

func TestDefaultCodecHasNoLimitThatOnlyARestoreFinds(t *testing.T) {
	large := make([]int, 200_000)
	entries := map[int]int{}
	for i := range large {
		large[i], entries[i] = i, i
	}
	comes(t, large)
	comes(t, entries)
	deep := &call{}
	for range 1000 {
		deep = &call{Before: deep}
	}
	comes(t, *deep)
}

func TestTypesThatWouldNotComeBackAreRefused(t *testing.T) {
	type hidden struct {
		Shown int
		sum   int
	}
	_ = hidden{sum: 1}
	_, err := NewCBOR[hidden]()
	require.ErrorContains(t, err, "field sum of state.hidden is not exported")
	_, err = NewCBOR[map[string][]*hidden]()
	require.ErrorContains(t, err, "field sum of state.hidden is not exported")
	_, err = NewCBOR[struct{ Any any }]()
	require.ErrorContains(t, err, "interface {} would not come back from a snapshot")
	_, err = NewCBOR[struct{ F func() }]()
	require.ErrorContains(t, err, "in field F of struct")
}

func TestAddedFieldIsZeroARemovedOneIgnoredAndAnotherTypeRefusedByName(t *testing.T) {
	type before struct{ A, Gone int }
	type after struct{ A, Added int }
	type changed struct{ A string }
	old, err := NewCBOR[before]()
	require.NoError(t, err)
	b, err := old.Append(nil, &before{A: 1, Gone: 2})
	require.NoError(t, err)
	codec, err := NewCBOR[after]()
	require.NoError(t, err)
	got := after{Added: 7}
	require.NoError(t, codec.Decode(b, &got))
	require.Equal(t, after{A: 1}, got)
	other, err := NewCBOR[changed]()
	require.NoError(t, err)
	require.ErrorContains(t, other.Decode(b, &changed{}), "changed.A")
}
