package state

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/weir/internal/keygroup"
)

// kinds is a Keyed with a state of each kind, with and without a time to live.
type kinds struct {
	keyed       *Keyed[string]
	value       *Expiring[string, string]
	maps, brief *Maps[string, string, string]
	list, short *Lists[string, string]
}

const life = 100 * time.Microsecond

func newKinds(t require.TestingT, first, end int, incremental bool) *kinds {
	codec, err := NewKeyCodec[string]()
	require.NoError(t, err)
	k := &kinds{keyed: NewKeyed(first, end, codec, incremental)}
	k.value, err = DeclareExpiring(k.keyed, "value", textCodec{}, TTL{After: life})
	require.NoError(t, err)
	k.maps, err = DeclareMap(k.keyed, "map", codec, textCodec{}, TTL{})
	require.NoError(t, err)
	k.brief, err = DeclareMap(k.keyed, "brief", codec, textCodec{}, TTL{After: life, FromCreation: true})
	require.NoError(t, err)
	k.list, err = DeclareList(k.keyed, "list", textCodec{}, TTL{})
	require.NoError(t, err)
	k.short, err = DeclareList(k.keyed, "short", textCodec{}, TTL{After: life})
	require.NoError(t, err)
	return k
}

// row is an entry in the model.
type row struct {
	name, value string
	written     int64
}

func (r row) over(now int64) bool { return now >= r.written+life.Microseconds() }

// kindsWorld is kinds, and a model of it: for each state and key the rows in order.
type kindsWorld struct {
	*kinds
	at    Times
	model map[string][]row // "state/key"
	clock map[string]bool  // "key@time" that has not fired
	now   int64            // processing time
}

func (w *kindsWorld) step(t *rapid.T) {
	key := fmt.Sprint("key", rapid.IntRange(0, 12).Draw(t, "key"))
	name := fmt.Sprint("name", rapid.IntRange(0, 14).Draw(t, "name"))
	v := fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "value"))
	k := keyOf(t, key)
	w.at.Write = w.at.Now + rapid.Int64Range(0, 60).Draw(t, "ahead")
	switch rapid.IntRange(0, 13).Draw(t, "what") {
	case 0:
		w.at.Now += rapid.Int64Range(0, 70).Draw(t, "step")
		if rapid.Bool().Draw(t, "expire") { // what has expired is not seen before it is removed, either
			require.NoError(t, w.keyed.Expire(w.at.Now))
		}
	case 1:
		w.value.Delete(k)
		delete(w.model, "value/"+key)
	case 2:
		w.maps.Clear(k)
		w.brief.Clear(k)
		delete(w.model, "map/"+key)
		delete(w.model, "brief/"+key)
	case 3:
		w.list.Clear(k)
		w.short.Clear(k)
		delete(w.model, "list/"+key)
		delete(w.model, "short/"+key)
	case 4, 5:
		w.maps.Delete(k, name)
		w.brief.Delete(k, name)
		named := func(r row) bool { return r.name == name }
		w.model["map/"+key] = slices.DeleteFunc(w.model["map/"+key], named)
		w.model["brief/"+key] = slices.DeleteFunc(w.model["brief/"+key], named)
	case 6:
		at := w.now + rapid.Int64Range(-20, 50).Draw(t, "at")
		require.NoError(t, w.keyed.Clock.Set(k, at))
		w.clock[timerID(key, at)] = true
	case 7:
		w.now += rapid.Int64Range(0, 20).Draw(t, "clock")
		w.fireClock(t)
	case 8, 9:
		require.NoError(t, w.list.Append(keyOf(t, key), v, w.at))
		require.NoError(t, w.short.Append(k, v, w.at))
		for _, state := range []string{"list/", "short/"} {
			w.model[state+key] = append(w.model[state+key], row{"", v, w.at.Write})
		}
	case 10, 11:
		got, err := w.value.Put(k, w.at)
		require.NoError(t, err)
		*got += v
		w.put("value/"+key, "", v, true, func(old string) string { return old + v })
	default:
		require.NoError(t, w.maps.Put(keyOf(t, key), name, v, w.at))
		require.NoError(t, w.brief.Put(k, name, v, w.at))
		w.put("map/"+key, name, v, false, func(string) string { return v })
		w.put("brief/"+key, name, v, false, func(string) string { return v })
	}
}

// put is what a put does to the model.
func (w *kindsWorld) put(id, name, v string, renew bool, change func(old string) string) {
	rows := w.model[id]
	i := slices.IndexFunc(rows, func(r row) bool { return r.name == name })
	if i >= 0 && id[0] != 'm' && rows[i].over(w.at.Now) {
		rows, i = slices.Delete(rows, i, i+1), -1
	}
	if i < 0 {
		w.model[id] = append(rows, row{name, change(""), w.at.Write})
		return
	}
	rows[i].value = change(rows[i].value)
	if renew {
		rows[i].written = max(rows[i].written, w.at.Write)
	}
}

func (w *kindsWorld) fireClock(t require.TestingT) {
	require.NoError(t, w.keyed.Clock.Fire(w.now, func(k *Key[string], at int64) error {
		require.True(t, w.clock[timerID(k.Value(), at)], "%s fires, and is not set", timerID(k.Value(), at))
		delete(w.clock, timerID(k.Value(), at))
		return nil
	}))
	for id := range w.clock {
		var at int64
		_, err := fmt.Sscanf(id[1+slices.Index([]byte(id), '@'):], "%d", &at)
		require.NoError(t, err)
		require.Greater(t, at, w.now, "%s has not fired", id)
	}
}

// require holds the states of a subtask against the model.
func (w *kindsWorld) require(t require.TestingT, k *kinds) {
	for i := range 13 {
		key := fmt.Sprint("key", i)
		at := keyOf(t, key)
		if at.Group < k.keyed.First || at.Group >= k.keyed.End {
			continue
		}
		want := map[string][]string{}
		for _, state := range []string{"value", "map", "brief", "list", "short"} {
			for _, r := range w.model[state+"/"+key] {
				if state == "map" || state == "list" || !r.over(w.at.Now) {
					want[state] = append(want[state], r.name+"="+r.value)
				}
			}
		}
		got := map[string][]string{}
		if v := k.value.Peek(at, w.at); v != nil {
			got["value"] = []string{"=" + *v}
		}
		for name, m := range map[string]*Maps[string, string, string]{"map": k.maps, "brief": k.brief} {
			for mk, v := range m.All(at, w.at) {
				got[name] = append(got[name], mk+"="+v)
				found, ok := m.Get(at, mk, w.at)
				require.True(t, ok)
				require.Equal(t, v, found)
			}
			require.Equal(t, len(got[name]), m.Len(at, w.at))
		}
		for name, l := range map[string]*Lists[string, string]{"list": k.list, "short": k.short} {
			for v := range l.All(at, w.at) {
				got[name] = append(got[name], "="+v)
			}
			require.Equal(t, len(got[name]), l.Len(at, w.at))
		}
		require.Equal(t, want, got, "key %s at %d", key, w.at.Now)
	}
}

// States of every kind are what a model says, in order, and what has expired is not seen; a chain of
// cuts restores them, and the timers of the wall clock, at any parallelism.
func TestEveryKindOfStateIsWhatAModelSaysAndComesBack(t *testing.T) {
	for _, incremental := range []bool{true, false} {
		rapid.Check(t, func(t *rapid.T) {
			w := &kindsWorld{kinds: newKinds(t, 0, groups, incremental), model: map[string][]row{}, clock: map[string]bool{}}
			w.keyed.least = rapid.SampledFrom([]int{1, 10, leastBase}).Draw(t, "least base")
			var chain [][]byte
			for range rapid.IntRange(1, 10).Draw(t, "cuts") {
				for range rapid.IntRange(0, 60).Draw(t, "steps") {
					w.step(t)
					require.NoError(t, w.keyed.Work())
				}
				w.require(t, w.kinds)
				cut, err := cutOf(w.keyed, func(int) int64 { return w.at.Now })
				require.NoError(t, err)
				chain = append(chain, cut)
			}
			parallelism := rapid.IntRange(1, 3).Draw(t, "parallelism")
			w.now += 1000
			for s := range parallelism {
				first, end := keygroup.Range(s, groups, parallelism)
				k := newKinds(t, first, end, true)
				require.NoError(t, k.keyed.Restore(chain[w.keyed.Oldest()-1:], func(int, int64) {}))
				w.require(t, k)
				require.NoError(t, k.keyed.Clock.Fire(w.now, func(k *Key[string], at int64) error {
					require.True(t, w.clock[timerID(k.Value(), at)], "%s fires again", timerID(k.Value(), at))
					delete(w.clock, timerID(k.Value(), at))
					return nil
				}))
				require.NoError(t, k.keyed.Expire(w.at.Now))
				w.require(t, k)
				require.NoError(t, k.keyed.Expire(w.at.Now+2*life.Microseconds()))
				for g := first; g < end; g++ {
					require.Zero(t, k.brief.counts[g-first]+k.short.counts[g-first])
				}
				require.Zero(t, k.value.table.Len()+k.brief.cells.Len()+k.short.cells.Len())
			}
			require.Empty(t, w.clock, "timers that did not fire")
		})
	}
}

// What is put or appended costs the log what it is, however much is there.
func TestAChangeInALargeMapOrListCostsWhatItChanges(t *testing.T) {
	k := newKinds(t, 0, groups, true)
	key := keyOf(t, "tenant")
	at := Times{}
	for i := range 20_000 {
		require.NoError(t, k.maps.Put(key, fmt.Sprint(i), "some value", at))
		require.NoError(t, k.list.Append(key, "some value", at))
	}
	_, err := cutOf(k.keyed, func(int) int64 { return 0 })
	require.NoError(t, err)
	for range 3 { // until the group's turn is over
		_, err := cutOf(k.keyed, func(int) int64 { return 0 })
		require.NoError(t, err)
	}
	empty, err := cutOf(k.keyed, func(int) int64 { return 0 })
	require.NoError(t, err)
	require.NoError(t, k.maps.Put(key, "17", "another", at))
	require.NoError(t, k.list.Append(key, "another", at))
	before := k.keyed.log.records
	require.NoError(t, k.maps.flush())
	require.Equal(t, 1, k.keyed.log.records-before)
	require.Less(t, len(k.keyed.log.buf), 200, "an empty cut has %d bytes", len(empty))
}

// What has expired leaves nothing behind, neither in memory nor in a checkpoint: for keys that come
// once, for keys that are cleared and set again without end, and in lists that never end.
func TestStateWithATimeToLiveStaysBounded(t *testing.T) {
	k := newKinds(t, 0, groups, true)
	cut := 0
	for i := range int64(200_000) {
		at := Times{Now: i, Write: i}
		once, again := keyOf(t, fmt.Sprint(i)), keyOf(t, fmt.Sprint("again", i%3))
		k.value.Delete(again)
		for _, key := range []*Key[string]{once, again} {
			_, err := k.value.Put(key, at)
			require.NoError(t, err)
			require.NoError(t, k.brief.Put(key, fmt.Sprint(i), "v", at))
			require.NoError(t, k.short.Append(key, "v", at))
		}
		require.NoError(t, k.keyed.Expire(i))
		require.NoError(t, k.keyed.Work())
		if i%1000 == 0 {
			b, err := cutOf(k.keyed, func(int) int64 { return i })
			require.NoError(t, err)
			cut = len(b)
			require.LessOrEqual(t, k.keyed.Cuts()-k.keyed.Oldest(), uint64(groups))
		}
	}
	require.Less(t, k.value.table.Len(), 150)
	require.Less(t, k.brief.cells.Len(), 150)
	require.Less(t, k.short.cells.Len(), 150)
	require.Less(t, k.value.x.refs, 3*leastRefs)
	require.Less(t, k.brief.x.refs, 1000)
	require.Less(t, len(k.value.x.buckets), 2*bucketsInLife)
	require.Less(t, cut, 1_000_000)
	for g := range groups {
		require.Less(t, k.brief.counts[g]+k.short.counts[g], 500)
	}
	again := k.short.cell(keyOf(t, "again0"))
	require.Less(t, cap(again.values), 1000)
}

// A state may be given a time to live, or lose it: what is there lives from the restore on, or for ever.
func TestATimeToLiveMayComeAndGo(t *testing.T) {
	codec, err := NewKeyCodec[string]()
	require.NoError(t, err)
	forever := NewKeyed(0, groups, codec, true)
	table, err := Declare(forever, "s", textCodec{})
	require.NoError(t, err)
	v, err := table.Put(keyOf(t, "x"))
	require.NoError(t, err)
	*v = "kept"
	cut, err := cutOf(forever, func(int) int64 { return 1000 })
	require.NoError(t, err)

	limited := NewKeyed(0, groups, codec, true)
	expiring, err := DeclareExpiring(limited, "s", textCodec{}, TTL{After: life})
	require.NoError(t, err)
	require.NoError(t, limited.Restore([][]byte{cut}, func(int, int64) {}))
	require.Equal(t, "kept", *expiring.Peek(keyOf(t, "x"), Times{Now: 1099}))
	require.Nil(t, expiring.Peek(keyOf(t, "x"), Times{Now: 1100}))
	cut, err = cutOf(limited, func(int) int64 { return 1050 })
	require.NoError(t, err)

	forever = NewKeyed(0, groups, codec, true)
	table, err = Declare(forever, "s", textCodec{})
	require.NoError(t, err)
	require.NoError(t, forever.Restore([][]byte{cut}, func(int, int64) {}))
	require.Equal(t, "kept", *table.Peek(keyOf(t, "x")))
}

// An entry from before anything was known of event time begins to live when event time does.
func TestEntriesFromBeforeEventTimeBegan(t *testing.T) {
	k := newKinds(t, 0, groups, true)
	at := Times{Now: never, Write: never}
	key := keyOf(t, "x")
	_, err := k.value.Put(key, at)
	require.NoError(t, err)
	require.NoError(t, k.brief.Put(key, "m", "v", at))
	require.NoError(t, k.short.Append(key, "v", at))
	seen := func(now int64) []bool {
		at := Times{Now: now}
		return []bool{k.value.Peek(key, at) != nil, k.brief.Len(key, at) == 1, k.short.Len(key, at) == 1}
	}
	require.Equal(t, []bool{true, true, true}, seen(never))
	require.NoError(t, k.keyed.Expire(5000))
	require.Equal(t, []bool{true, true, true}, seen(5099))
	require.Equal(t, []bool{false, false, false}, seen(5100))
}

// A map may be changed while it is listed.
func TestAMapMayBeChangedWhileItIsListed(t *testing.T) {
	k := newKinds(t, 0, groups, true)
	key, at := keyOf(t, "x"), Times{}
	for i := range 20 {
		require.NoError(t, k.maps.Put(key, fmt.Sprint(i), "v", at))
	}
	var seen []string
	for name := range k.maps.All(key, at) {
		seen = append(seen, name)
		if len(seen) == 3 {
			for _, gone := range []string{"2", "3", "4"} { // the one at work, and the two behind it
				k.maps.Delete(key, gone)
			}
			require.NoError(t, k.maps.Put(key, "new", "v", at))
		}
	}
	require.Equal(t, []string{
		"0", "1", "2", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16", "17", "18", "19", "new",
	}, seen)
}

// A key that is cleared and set again without end, while event time stands still, leaves nothing behind.
func TestAKeyThatIsSetAgainAndAgainLeavesNothingBehind(t *testing.T) {
	k := newKinds(t, 0, groups, true)
	key, at := keyOf(t, "x"), Times{Now: 5, Write: 5}
	for range 10 * leastRefs {
		k.value.Delete(key)
		k.brief.Clear(key)
		k.short.Clear(key)
		_, err := k.value.Put(key, at)
		require.NoError(t, err)
		require.NoError(t, k.brief.Put(key, "m", "v", at))
		require.NoError(t, k.short.Append(key, "v", at))
	}
	require.LessOrEqual(t, k.value.x.refs, 2*leastRefs)
	require.LessOrEqual(t, k.brief.x.refs, 2*leastRefs)
	require.LessOrEqual(t, k.short.x.refs, 2*leastRefs)
}
