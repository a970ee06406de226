package state

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/weir/internal/keygroup"
)

const groups = 8

// bucketWidth is how many microseconds a bucket of the wheel holds at the least.
const bucketWidth = 1 << tickBits

type textCodec struct{}

func (textCodec) Append(dst []byte, v *string) ([]byte, error) { return append(dst, *v...), nil }
func (textCodec) Decode(src []byte, v *string) error           { *v = string(src); return nil }

func keyOf[K comparable](t require.TestingT, k K) *Key[K] {
	codec, err := NewKeyCodec[K]()
	require.NoError(t, err)
	key := codec.Key(k, groups)
	return &key
}

// world is a Keyed with two states, and a model of it made of Go maps.
type world struct {
	keyed     *Keyed[string]
	tables    map[string]*Table[string, string]
	watermark int64

	model  map[string]map[string]string // state, key
	timers map[string]int64             // "key@time"
}

func newKeyed(t require.TestingT, first, end int, incremental bool) (*Keyed[string], map[string]*Table[string, string]) {
	codec, err := NewKeyCodec[string]()
	require.NoError(t, err)
	k, tables := NewKeyed(first, end, codec, incremental), map[string]*Table[string, string]{}
	for _, name := range []string{"a", "b"} {
		tables[name], err = Declare(k, name, textCodec{})
		require.NoError(t, err)
	}
	return k, tables
}

func newWorld(t require.TestingT, incremental bool) *world {
	w := &world{
		watermark: -10 * bucketWidth, timers: map[string]int64{},
		model: map[string]map[string]string{"a": {}, "b": {}},
	}
	w.keyed, w.tables = newKeyed(t, 0, groups, incremental)
	return w
}

func timerID(k string, at int64) string { return fmt.Sprintf("%s@%d", k, at) }

// step does something to both.
func (w *world) step(t *rapid.T) {
	k := fmt.Sprint("key", rapid.IntRange(0, 40).Draw(t, "key"))
	name := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "state")
	at := rapid.Int64Range(-6, 6).Draw(t, "at") * bucketWidth / 2
	switch rapid.IntRange(0, 7).Draw(t, "what") {
	case 0:
		w.tables[name].Delete(keyOf(t, k))
		delete(w.model[name], k)
	case 1:
		require.NoError(t, w.keyed.Timers.Delete(keyOf(t, k), at))
		delete(w.timers, timerID(k, at))
	case 2:
		w.watermark = max(w.watermark, at)
		w.fire(t)
	case 3, 4:
		require.NoError(t, w.keyed.Timers.Set(keyOf(t, k), at))
		w.timers[timerID(k, at)] = at
	case 5:
		if v := w.tables[name].Get(keyOf(t, k)); v != nil {
			*v += "y"
			w.model[name][k] += "y"
		}
	default:
		v, err := w.tables[name].Put(keyOf(t, k))
		require.NoError(t, err)
		*v += "x"
		w.model[name][k] += "x"
	}
}

// fire fires what is due, and requires it to be what the model holds: each timer once, in the
// order of time.
func (w *world) fire(t require.TestingT) {
	last, fired := int64(-1<<63), []string{}
	require.NoError(t, w.keyed.Timers.Fire(w.watermark, func(k *Key[string], at int64) error {
		require.LessOrEqual(t, last, at)
		last = at
		fired = append(fired, timerID(k.Value(), at))
		return nil
	}))
	want := []string{}
	for id, at := range w.timers {
		if at <= w.watermark {
			want = append(want, id)
			delete(w.timers, id)
		}
	}
	slices.Sort(want)
	slices.Sort(fired)
	require.Equal(t, want, fired)
}

func (w *world) require(t require.TestingT) {
	for name, model := range w.model {
		require.Equal(t, len(model), w.tables[name].Len())
		for k, v := range model {
			got := w.tables[name].Peek(keyOf(t, k))
			require.NotNil(t, got, "state %s, key %s", name, k)
			require.Equal(t, v, *got)
		}
		require.Nil(t, w.tables[name].Peek(keyOf(t, "absent")))
	}
}

// State is what a model of maps says; a chain of cuts, from the oldest that is needed on, restores
// it, at the same parallelism and at another one, timers included.
func TestChainOfCutsRestoresTheState(t *testing.T) {
	for _, incremental := range []bool{true, false} {
		rapid.Check(t, func(t *rapid.T) {
			w := newWorld(t, incremental)
			// Chains of every length: with the default a cut of so few keys would hold them all.
			w.keyed.least = rapid.SampledFrom([]int{1, 10, leastBase}).Draw(t, "least base")
			w.keyed.most = rapid.SampledFrom([]int{-1000, 0, leastCollapse}).Draw(t, "most records")
			var chain [][]byte
			for range rapid.IntRange(1, 12).Draw(t, "cuts") {
				for range rapid.IntRange(0, 60).Draw(t, "steps") {
					w.step(t)
					require.NoError(t, w.keyed.Work())
				}
				w.require(t)
				cut, err := cutOf(w.keyed, func(int) int64 { return w.watermark })
				require.NoError(t, err)
				chain = append(chain, cut)
			}
			require.Equal(t, uint64(len(chain)), w.keyed.Cuts())
			needed := chain[w.keyed.Oldest()-1:]
			parallelism := rapid.IntRange(1, 3).Draw(t, "parallelism")
			w.restore(t, needed, parallelism)
		})
	}
}

// restore restores the chain into several subtasks, puts them together again, and goes on.
func (w *world) restore(t *rapid.T, chain [][]byte, parallelism int) {
	fired := map[string]bool{}
	rows := map[string]map[string]string{"a": {}, "b": {}}
	for s := range parallelism {
		first, end := keygroup.Range(s, groups, parallelism)
		k, tables := newKeyed(t, first, end, true)
		seen := 0
		require.NoError(t, k.Restore(chain, func(g int, at int64) {
			require.Equal(t, w.watermark, at)
			seen++
		}))
		require.Equal(t, end-first, seen)
		for name, table := range tables {
			for g := first; g < end; g++ {
				require.NoError(t, table.Each(g, func(key, v *string) error {
					rows[name][*key] = *v
					return nil
				}))
			}
		}
		require.NoError(t, k.Timers.Fire(1<<62, func(k *Key[string], at int64) error {
			id := timerID(k.Value(), at)
			require.False(t, fired[id], "timer %s fired twice", id)
			fired[id] = true
			return nil
		}))
	}
	require.Equal(t, w.model, rows)
	want := map[string]bool{}
	for id := range w.timers {
		want[id] = true
	}
	require.Equal(t, want, fired)
}

// The chain that a restore needs does not grow with the number of cuts.
func TestChainStaysShort(t *testing.T) {
	k, tables := newKeyed(t, 0, groups, true)
	for i := range 500 {
		for j := range 50 {
			v, err := tables["a"].Put(keyOf(t, fmt.Sprint("key", (i*50+j)%20_000)))
			require.NoError(t, err)
			*v = "value"
		}
		require.NoError(t, k.Work())
		_, err := cutOf(k, func(int) int64 { return 0 })
		require.NoError(t, err)
		require.LessOrEqual(t, k.Cuts()-k.Oldest(), uint64(groups), "cut %d", i)
	}
}

// While no cut is taken, what has changed takes no more memory than a few times the state.
func TestChangesBetweenTwoCutsAreBounded(t *testing.T) {
	k, tables := newKeyed(t, 0, groups, true)
	k.most = 0
	_, err := cutOf(k, func(int) int64 { return 0 })
	require.NoError(t, err)
	const keys = 6000
	most := 0
	for i := range 30 * keys {
		v, err := tables["a"].Put(keyOf(t, fmt.Sprint("key", i%keys)))
		require.NoError(t, err)
		*v = fmt.Sprint(i)
		require.NoError(t, k.Work())
		most = max(most, k.log.records)
	}
	require.Less(t, most, 3*collapseAbove*keys)
	cut, err := cutOf(k, func(int) int64 { return 0 })
	require.NoError(t, err)
	require.Equal(t, k.Cuts(), k.Oldest())
	fresh, restored := newKeyed(t, 0, groups, true)
	require.NoError(t, fresh.Restore([][]byte{cut}, func(int, int64) {}))
	require.Equal(t, keys, restored["a"].Len())
	require.Equal(t, fmt.Sprint(29*keys+7), *restored["a"].Peek(keyOf(t, "key7")))
}

func TestCutOfAQuietStateIsSmall(t *testing.T) {
	k, tables := newKeyed(t, 0, groups, true)
	for i := range 50_000 {
		_, err := tables["a"].Put(keyOf(t, fmt.Sprint("key", i)))
		require.NoError(t, err)
	}
	whole, err := cutOf(k, func(int) int64 { return 0 })
	require.NoError(t, err)
	_, err = cutOf(k, func(int) int64 { return 0 })
	require.NoError(t, err)
	_, err = tables["a"].Put(keyOf(t, "key1"))
	require.NoError(t, err)
	next, err := cutOf(k, func(int) int64 { return 0 })
	require.NoError(t, err)
	require.Less(t, len(next), len(whole)/4, "a cut holds the changes and the base of a group")
}

func TestUndeclaredStateIsNotLostInSilence(t *testing.T) {
	k, tables := newKeyed(t, 0, groups, true)
	_, err := tables["b"].Put(keyOf(t, "x"))
	require.NoError(t, err)
	cut, err := cutOf(k, func(int) int64 { return 0 })
	require.NoError(t, err)
	codec, err := NewKeyCodec[string]()
	require.NoError(t, err)
	other := NewKeyed(0, groups, codec, true)
	_, err = Declare(other, "a", textCodec{})
	require.NoError(t, err)
	require.ErrorContains(t, other.Restore([][]byte{cut}, func(int, int64) {}), `holds state "b"`)
}

func TestKeysInATableShareNoMemoryWithTheCaller(t *testing.T) {
	text, err := NewKeyCodec[string]()
	require.NoError(t, err)
	table := NewTable[string, int](0, groups, text)
	buffer := []byte("request-1")
	alias := unsafeString(buffer)
	k := keyOf(t, alias)
	_, err = table.Put(k)
	require.NoError(t, err)
	timers := NewTimers(0, groups, text)
	other := keyOf(t, alias)
	require.NoError(t, timers.Set(other, 5))
	copy(buffer, "OVERWRITE")
	require.NotNil(t, table.Get(keyOf(t, "request-1")))
	require.NoError(t, timers.Fire(5, func(k *Key[string], _ int64) error {
		require.Equal(t, "request-1", k.Value())
		return nil
	}))
}

func TestTimerSetWhileFiringFiresInTheSameCall(t *testing.T) {
	codec, err := NewKeyCodec[int]()
	require.NoError(t, err)
	timers, fired := NewTimers(0, groups, codec), []int64{}
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

func TestTimerAtTheEndOfTimeFiresAtTheEnd(t *testing.T) {
	codec, err := NewKeyCodec[int]()
	require.NoError(t, err)
	timers, fired := NewTimers(0, groups, codec), 0
	require.NoError(t, timers.Set(keyOf(t, 1), 1<<63-1))
	count := func(*Key[int], int64) error { fired++; return nil }
	require.NoError(t, timers.Fire(1<<62, count))
	require.Zero(t, fired)
	require.NoError(t, timers.Fire(1<<63-1, count))
	require.Equal(t, 1, fired)
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
	roundTrip(t, pair{Tenant: "not UTF-8: \xff"})
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

func TestDamagedCutIsAnErrorNotAPanic(t *testing.T) {
	k, tables := newKeyed(t, 0, groups, true)
	for i := range 20 {
		_, err := tables["a"].Put(keyOf(t, fmt.Sprint(i)))
		require.NoError(t, err)
		require.NoError(t, k.Timers.Set(keyOf(t, fmt.Sprint(i)), int64(i)))
	}
	cut, err := cutOf(k, func(int) int64 { return 0 })
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		damaged := slices.Clone(cut)
		damaged[rapid.IntRange(0, len(cut)-1).Draw(t, "at")] ^= rapid.ByteRange(1, 255).Draw(t, "bits")
		damaged = damaged[:rapid.IntRange(0, len(cut)).Draw(t, "length")]
		fresh, _ := newKeyed(t, 0, groups, true)
		_ = fresh.Restore([][]byte{damaged}, func(int, int64) {})
	})
}

func TestEqualContentHasEqualBytes(t *testing.T) {
	encode := func() []byte {
		w := newWorld(t, true)
		for i := range 300 {
			v, err := w.tables["a"].Put(keyOf(t, fmt.Sprint(i)))
			require.NoError(t, err)
			*v = "v"
			require.NoError(t, w.keyed.Timers.Set(keyOf(t, fmt.Sprint(i)), int64(i)*bucketWidth))
		}
		cut, err := cutOf(w.keyed, func(int) int64 { return 0 })
		require.NoError(t, err)
		return cut
	}
	first := encode()
	for range 5 {
		require.Equal(t, first, encode())
	}
}

// cutOf returns a cut in one piece.
func cutOf[K comparable](k *Keyed[K], watermark func(int) int64) ([]byte, error) {
	head, records, err := k.Cut(watermark)
	return slices.Concat(append([][]byte{head}, records...)...), err
}
