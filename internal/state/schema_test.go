package state

import (
	"errors"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
)

// evolve writes a value of one type into a cut, and reads it back as another.
func evolve[Was, Is any](t *testing.T, was Was) (is Is, err error) {
	t.Helper()
	return restoreAs[Is](t, writeAs(t, was))
}

func writeAs[V any](t *testing.T, v V) []byte {
	t.Helper()
	codec, err := NewKeyCodec[string]()
	require.NoError(t, err)
	k := NewKeyed(0, groups, codec, true)
	values, err := NewCBOR[V]()
	require.NoError(t, err)
	table, err := Declare(k, "s", values)
	require.NoError(t, err)
	p, err := table.Put(keyOf(t, "k"))
	require.NoError(t, err)
	*p = v
	cut, err := cutOf(k, func(int) int64 { return 0 })
	require.NoError(t, err)
	return cut
}

func restoreAs[V any](t *testing.T, cut []byte) (v V, err error) {
	t.Helper()
	codec, err := NewKeyCodec[string]()
	require.NoError(t, err)
	values, err := NewCBOR[V]()
	require.NoError(t, err)
	k := NewKeyed(0, groups, codec, true)
	table, err := Declare(k, "s", values)
	require.NoError(t, err)
	if err := k.Restore([][]byte{cut}, func(int, int64) {}); err != nil {
		return v, err
	}
	return *table.Peek(keyOf(t, "k")), nil
}

// refused requires that a type is not read as another, and which field is to blame.
func refused[Was, Is any](t *testing.T, field, wasKind, isKind string) {
	t.Helper()
	var was Was
	_, err := evolve[Was, Is](t, was)
	var changed *ChangedError
	require.ErrorAs(t, err, &changed)
	require.Equal(t, ChangedError{State: "s", Field: field, Was: wasKind, Is: isKind}, *changed)
}

type (
	money   int64
	link    struct{ Next *link }
	link2   struct{ Next *linkBad }
	linkBad struct{ Next int }

	// selfish has an encoding of its own.
	selfish struct{ n byte }
	other   struct{ n byte }
)

func (s selfish) MarshalBinary() ([]byte, error)  { return []byte{s.n}, nil }
func (s *selfish) UnmarshalBinary(b []byte) error { s.n = b[0]; return nil }
func (o other) MarshalBinary() ([]byte, error)    { return []byte{o.n}, nil }
func (o *other) UnmarshalBinary(src []byte) error { o.n = src[0]; return nil }
func (s selfish) String() string                  { return "selfish" }

func TestWhatMayChangeInAType(t *testing.T) {
	type inner struct{ A int32 }
	type was struct {
		N       int32
		Gone    string
		Prices  map[string]inner
		History []inner
		Took    time.Duration
		Cost    int64
	}
	type wider struct {
		A     int64
		Added *string
	}
	type is struct {
		Cost    money // another name of the same kind
		N       int64
		Added   []string
		Prices  map[string]wider
		History []wider
		Took    int64
	}
	got, err := evolve[was, is](t, was{
		N: -5, Gone: "x", Prices: map[string]inner{"a": {1}}, History: []inner{{-2}, {3}}, Took: time.Second, Cost: 7,
	})
	require.NoError(t, err)
	require.Equal(t, is{
		N: -5, Prices: map[string]wider{"a": {A: 1}}, History: []wider{{A: -2}, {A: 3}}, Took: 1e9, Cost: 7,
	}, got)

	type renamed struct {
		Number int64 `cbor:"N"`
	}
	r, err := evolve[was, renamed](t, was{N: 9})
	require.NoError(t, err)
	require.EqualValues(t, 9, r.Number)

	type embedding struct {
		inner
		N int32
	}
	flat, err := evolve[embedding, struct{ A, N int32 }](t, embedding{inner{4}, 5})
	require.NoError(t, err)
	require.EqualValues(t, 4, flat.A)

	_, err = evolve[link, link](t, link{Next: &link{}})
	require.NoError(t, err)
	n, err := evolve[uint8, uint64](t, 255)
	require.NoError(t, err)
	require.EqualValues(t, 255, n)
}

func TestAChangedTypeIsRefusedByStateAndField(t *testing.T) {
	type a struct{ N int64 }
	type b struct{ N string }
	refused[a, b](t, "N", "int64", "string")
	refused[struct{ In a }, struct{ In b }](t, "In.N", "int64", "string")
	refused[struct{ In []a }, struct{ In []b }](t, "In[].N", "int64", "string")
	refused[struct{ In map[string]a }, struct{ In map[string]b }](t, "In[].N", "int64", "string")
	refused[map[string]int, map[int]int](t, "[key]", "string", "int64")
	refused[struct{ M map[string]int }, struct{ M map[[2]byte]int }](t, "M[key]", "string", "[2]byte")
	refused[struct{ P *a }, struct{ P a }](t, "P", "*struct", "struct")
	refused[struct{ P a }, struct{ P *a }](t, "P", "struct", "*struct")
	refused[struct{ P *a }, struct{ P *b }](t, "P.N", "int64", "string")
	refused[struct{ N int64 }, struct{ N int32 }](t, "N", "int64", "int32")
	refused[struct{ N uint32 }, struct{ N int64 }](t, "N", "uint32", "int64")
	refused[struct{ N int32 }, struct{ N uint64 }](t, "N", "int32", "uint64")
	refused[struct{ N int64 }, struct{ N float64 }](t, "N", "int64", "float64")
	refused[struct{ N float64 }, struct{ N float32 }](t, "N", "float64", "float32")
	refused[struct{ N []int }, struct{ N [2]int }](t, "N", "[]int64", "[2]int64")
	refused[struct{ N [3]int }, struct{ N [2]int }](t, "N", "[3]int64", "[2]int64")
	refused[struct{ N [3]byte }, struct{ N [4]byte }](t, "N", "[3]byte", "[4]byte")
	refused[struct{ N []byte }, struct{ N string }](t, "N", "bytes", "string")
	refused[struct{ T time.Time }, struct{ T string }](t, "T", "time", "string")
	refused[struct{ T time.Time }, struct{ T int64 }](t, "T", "time", "int64")
	refused[struct{ T big.Int }, struct{ T int64 }](t, "T", "big integer", "int64")
	refused[struct{ T selfish }, struct{ T other }](t, "T", "encoded as state.selfish", "encoded as state.other")
	refused[struct{ T selfish }, struct{ T a }](t, "T", "encoded as state.selfish", "struct")
	refused[link, link2](t, "Next.Next", "*struct", "int64")
	refused[int, string](t, "", "int64", "string")
	type base struct{ N int }
	refused[struct{ base }, struct{ N string }](t, "N", "int64", "string")
	refused[struct {
		N int `cbor:"1,keyasint"`
		S string
	}, struct {
		N int `cbor:"1,keyasint"`
		S int
	}](t, "S", "string", "int64")
}

// What a value of another type would be read as does not get that far: nothing is decoded.
func TestOverflowIsAnErrorAndNotAnotherNumber(t *testing.T) {
	wide, err := NewCBOR[int64]()
	require.NoError(t, err)
	narrow, err := NewCBOR[int8]()
	require.NoError(t, err)
	unsigned, err := NewCBOR[uint8]()
	require.NoError(t, err)
	for _, v := range []int64{1 << 40, -1 << 40, 200} {
		b, err := wide.Append(nil, &v)
		require.NoError(t, err)
		require.Error(t, narrow.Decode(b, new(int8)), "%d", v)
	}
	for _, v := range []int64{-1, 256} {
		b, err := wide.Append(nil, &v)
		require.NoError(t, err)
		require.Error(t, unsigned.Decode(b, new(uint8)), "%d", v)
	}
	keys, err := NewKeyCodec[int8]()
	require.NoError(t, err)
	big, err := NewKeyCodec[int64]()
	require.NoError(t, err)
	k := int64(300)
	_, err = keys.Decode(big.Append(nil, &k))
	require.Error(t, err)
}

func TestFieldsThatHideEachOtherAreRefused(t *testing.T) {
	type a struct{ N int }
	type b struct{ N int }
	_, err := NewCBOR[struct {
		a
		b
	}]()
	require.ErrorContains(t, err, `are both encoded as "N"`)
	_, err = NewCBOR[struct {
		a
		N int
	}]()
	require.ErrorContains(t, err, `are both encoded as "N"`)
	_, err = NewCBOR[struct{ *a }]()
	require.ErrorContains(t, err, "field a of struct")
	_, err = NewCBOR[struct {
		time.Time
		Zone string
	}]()
	require.ErrorContains(t, err, "is encoded as the Time that it embeds")
	_, err = NewCBOR[struct{ money }]()
	require.ErrorContains(t, err, "field money of struct")
}

// keyed returns state by key of a type, and a cut of it with one key.
func keyedBy[K comparable](t *testing.T, key K) (*Keyed[K], []byte) {
	t.Helper()
	codec, err := NewKeyCodec[K]()
	require.NoError(t, err)
	k := NewKeyed(0, groups, codec, true)
	table, err := Declare(k, "s", textCodec{})
	require.NoError(t, err)
	_, err = table.Put(keyOf(t, key))
	require.NoError(t, err)
	cut, err := cutOf(k, func(int) int64 { return 0 })
	require.NoError(t, err)
	return k, cut
}

func keyRefused[Was, Is comparable](t *testing.T, want *ChangedError) {
	t.Helper()
	var was Was
	var is Is
	_, cut := keyedBy(t, was)
	k, _ := keyedBy(t, is)
	err := k.Restore([][]byte{cut}, func(int, int64) {})
	if want == nil {
		require.NoError(t, err)
		return
	}
	var got *ChangedError
	require.ErrorAs(t, err, &got)
	require.Equal(t, *want, *got)
}

func TestAChangedKeyTypeIsRefused(t *testing.T) {
	type pair struct{ A, B string }
	keyRefused[pair, pair](t, nil)
	keyRefused[int32, int64](t, nil) // one encoding
	keyRefused[pair, struct{ B, A string }](t, nil)
	keyRefused[int64, int32](t, &ChangedError{Was: "int64", Is: "int32"})
	keyRefused[int64, uint64](t, &ChangedError{Was: "int64", Is: "uint64"})
	keyRefused[string, int64](t, &ChangedError{Was: "string", Is: "int64"})
	keyRefused[string, pair](t, &ChangedError{Was: "string", Is: "struct"})
	keyRefused[pair, struct{ A, B, C string }](t, &ChangedError{Field: "C", Was: "not there", Is: "string"})
	keyRefused[pair, struct{ A string }](t, &ChangedError{Field: "B", Was: "string", Is: "not there"})
	keyRefused[pair, struct {
		A string
		B int
	}](t, &ChangedError{Field: "B", Was: "string", Is: "int64"})
	keyRefused[pair, struct {
		A string
		B string `cbor:",omitempty"`
	}](t, &ChangedError{Field: "B", Was: "always written", Is: "left out when empty"})
	keyRefused[ownKey1, ownKey1](t, nil)
	keyRefused[ownKey1, ownKey2](t, &ChangedError{Was: "encoded as own/1", Is: "encoded as own/2"})
	keyRefused[string, ownKey1](t, &ChangedError{Was: "string", Is: "encoded as own/1"})
}

type (
	ownKey1 struct{ s string }
	ownKey2 struct{ s string }
)

func (ownKey1) KeyEncoding() string           { return "own/1" }
func (k ownKey1) AppendKey(dst []byte) []byte { return append(dst, k.s...) }
func (k *ownKey1) DecodeKey(src []byte) error { k.s = string(src); return nil }
func (ownKey2) KeyEncoding() string           { return "own/2" }
func (k ownKey2) AppendKey(dst []byte) []byte { return append(dst, k.s...) }
func (k *ownKey2) DecodeKey(src []byte) error { k.s = string(src); return nil }

// versioned is a codec that says what it writes and reads.
type versioned struct {
	textCodec
	writes string
	reads  []string
}

func (v versioned) Encoding() string           { return v.writes }
func (v versioned) Reads(encoding string) bool { return slices.Contains(v.reads, encoding) }

func withCodec(t *testing.T, values connector.Codec[string]) (*Keyed[string], *Table[string, string]) {
	t.Helper()
	codec, err := NewKeyCodec[string]()
	require.NoError(t, err)
	k := NewKeyed(0, groups, codec, true)
	table, err := Declare(k, "s", values)
	require.NoError(t, err)
	return k, table
}

func TestACodecOfItsOwnSaysWhatItReads(t *testing.T) {
	plain, err := NewCBOR[string]()
	require.NoError(t, err)
	v1 := versioned{writes: "text/1", reads: []string{"text/1"}}
	v2 := versioned{writes: "text/2", reads: []string{"text/2", "text/1", ""}}
	fromCBOR := versioned{writes: "text/3", reads: []string{"text/3", "cbor"}}
	for _, c := range []struct {
		was, is connector.Codec[string]
		want    string
	}{
		{v1, v1, ""},
		{v1, v2, ""},
		{textCodec{}, v2, ""},
		{textCodec{}, textCodec{}, ""},
		{plain, fromCBOR, ""},
		{v2, v1, `state "s" was encoded as text/2 in the checkpoint and is encoded as text/1 now`},
		{v1, textCodec{}, `was encoded as text/1 in the checkpoint and is an encoding of its own now`},
		{textCodec{}, v1, `was an encoding of its own in the checkpoint and is encoded as text/1 now`},
		{plain, v2, `state "s" was string in the checkpoint and is encoded as text/2 now`},
		{v2, plain, `was encoded as text/2 in the checkpoint and is string now`},
		{plain, textCodec{}, `was string in the checkpoint and is an encoding of its own now`},
	} {
		k, table := withCodec(t, c.was)
		_, err := table.Put(keyOf(t, "k"))
		require.NoError(t, err)
		cut, err := cutOf(k, func(int) int64 { return 0 })
		require.NoError(t, err)
		k, _ = withCodec(t, c.is)
		err = k.Restore([][]byte{cut}, func(int, int64) {})
		if c.want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, c.want)
	}
}

// Entries of maps and values of lists are held to the same rules, and a state stays of its kind.
func TestMapsAndListsAreHeldToTheSameRules(t *testing.T) {
	numbers, err := NewKeyCodec[int64]()
	require.NoError(t, err)
	texts, err := NewKeyCodec[string]()
	require.NoError(t, err)
	ints, err := NewCBOR[int]()
	require.NoError(t, err)
	strings, err := NewCBOR[string]()
	require.NoError(t, err)
	fresh := func() *Keyed[string] { return NewKeyed(0, groups, texts, true) }
	cut := func(k *Keyed[string]) []byte {
		cut, err := cutOf(k, func(int) int64 { return 0 })
		require.NoError(t, err)
		return cut
	}
	restore := func(k *Keyed[string], cut []byte) string {
		err := k.Restore([][]byte{cut}, func(int, int64) {})
		var changed *ChangedError
		if errors.As(err, &changed) {
			return changed.Field + ": " + changed.Was + " -> " + changed.Is
		}
		require.NoError(t, err)
		return ""
	}
	k := fresh()
	_, err = DeclareMap(k, "s", texts, ints, TTL{})
	require.NoError(t, err)
	aMap := cut(k)
	k = fresh()
	_, err = DeclareList(k, "s", ints, TTL{})
	require.NoError(t, err)
	aList := cut(k)

	k = fresh()
	_, err = DeclareMap(k, "s", texts, ints, TTL{})
	require.NoError(t, err)
	require.Empty(t, restore(k, aMap))
	require.Equal(t, ": a list state -> a map state", restore(k, aList))
	k = fresh()
	_, err = DeclareMap(k, "s", numbers, ints, TTL{})
	require.NoError(t, err)
	require.Equal(t, "[key]: string -> int64", restore(k, aMap))
	k = fresh()
	_, err = DeclareMap(k, "s", texts, strings, TTL{})
	require.NoError(t, err)
	require.Equal(t, "[]: int64 -> string", restore(k, aMap))
	k = fresh()
	_, err = DeclareList(k, "s", strings, TTL{})
	require.NoError(t, err)
	require.Equal(t, ": int64 -> string", restore(k, aList))
	k = fresh()
	_, err = Declare(k, "s", ints)
	require.NoError(t, err)
	require.Equal(t, ": a list state -> a value state", restore(k, aList))
}

// A state that is gone is left out only where that is allowed by name; the others are read.
func TestAStateThatIsGoneIsLeftOutByNameOnly(t *testing.T) {
	k, tables := newKeyed(t, 0, groups, true)
	for name, table := range tables {
		v, err := table.Put(keyOf(t, "x"))
		require.NoError(t, err)
		*v = name
	}
	tables["b"].Delete(keyOf(t, "y"))
	cut, err := cutOf(k, func(int) int64 { return 0 })
	require.NoError(t, err)
	k, table := withCodec(t, textCodec{})
	b, err := Declare(k, "b", textCodec{})
	require.NoError(t, err)
	var undeclared *UndeclaredError
	require.ErrorAs(t, k.Restore([][]byte{cut}, func(int, int64) {}), &undeclared)
	require.Equal(t, "a", undeclared.State)
	k.Dropped = func(state string) bool { return state == "a" }
	require.NoError(t, k.Restore([][]byte{cut}, func(int, int64) {}))
	require.Zero(t, table.Len(), "a new state begins empty")
	require.Equal(t, "b", *b.Peek(keyOf(t, "x")))
}

func TestACutOfANewerFormatIsRefusedByName(t *testing.T) {
	k, cut := keyedBy(t, "x")
	cut[0] = cutVersion + 1
	var version *VersionError
	require.ErrorAs(t, k.Restore([][]byte{cut}, func(int, int64) {}), &version)
	require.Equal(t, VersionError{Version: cutVersion + 1, Newest: cutVersion}, *version)
}

// The format before this one had the names of states alone: a value is read as what the job says.
func TestACutOfTheFormatBeforeIsRead(t *testing.T) {
	k, tables := newKeyed(t, 0, groups, true)
	v, err := tables["b"].Put(keyOf(t, "x"))
	require.NoError(t, err)
	*v = "kept"
	require.NoError(t, k.Timers.Set(keyOf(t, "x"), 70))
	require.NoError(t, k.Timers.Set(keyOf(t, "x"), 40)) // has fired
	_, records, err := k.Cut(func(int) int64 { return 50 })
	require.NoError(t, err)
	cut := AppendString(AppendString([]byte{1, 2}, "a"), "b")
	cut = AppendInt(AppendInt(cut, 0), groups)
	for range groups {
		cut = AppendInt(cut, 50)
	}
	cut = slices.Concat(append([][]byte{cut}, records...)...)

	k, tables = newKeyed(t, 0, groups, true)
	require.NoError(t, k.Restore([][]byte{cut}, func(_ int, at int64) { require.EqualValues(t, 50, at) }))
	require.Equal(t, "kept", *tables["b"].Peek(keyOf(t, "x")))
	require.Zero(t, tables["a"].Len())
	fired := []int64{}
	require.NoError(t, k.Timers.Fire(100, func(_ *Key[string], at int64) error {
		fired = append(fired, at)
		return nil
	}))
	require.Equal(t, []int64{70}, fired)

	codec, err := NewKeyCodec[string]()
	require.NoError(t, err)
	k = NewKeyed(0, groups, codec, true)
	_, err = Declare(k, "a", textCodec{})
	require.NoError(t, err)
	_, err = DeclareList(k, "b", textCodec{}, TTL{})
	require.NoError(t, err)
	require.ErrorContains(t, k.Restore([][]byte{cut}, func(int, int64) {}),
		`state "b" was a value state in the checkpoint and is a list state now`)
}
