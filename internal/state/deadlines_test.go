package state

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/weir/internal/keygroup"
)

// endsWorld is a state with deadlines, one without, and a model of both.
type endsWorld struct {
	keyed     *Keyed[string]
	ends      *Deadlines[string, string]
	watermark int64
	model     map[string]limitedText
}

type limitedText struct {
	value    string
	deadline int64
}

func newEnds(t require.TestingT, first, end int, incremental bool) *endsWorld {
	codec, err := NewKeyCodec[string]()
	require.NoError(t, err)
	w := &endsWorld{
		keyed: NewKeyed(first, end, codec, incremental), watermark: -10 * bucketWidth, model: map[string]limitedText{},
	}
	w.ends, err = DeclareDeadlines(w.keyed, "ends", textCodec{})
	require.NoError(t, err)
	return w
}

func (w *endsWorld) step(t *rapid.T) {
	key := fmt.Sprint(rapid.SampledFrom([]string{"key", "a key that is too long to lie in its entry "}).Draw(t, "prefix"),
		rapid.IntRange(0, 20).Draw(t, "key"))
	k := keyOf(t, key)
	is, there := w.model[key]
	switch rapid.IntRange(-1, 9).Draw(t, "what") {
	case -1:
		w.ends.sweep()
	case 0:
		w.ends.Delete(k)
		delete(w.model, key)
	case 1, 2:
		w.watermark += rapid.Int64Range(0, 2*bucketWidth).Draw(t, "forward")
		w.fire(t)
	case 3:
		v := w.ends.Get(k)
		require.Equal(t, there, v != nil)
		if there {
			*v += "y"
			is.value += "y"
			w.model[key] = is
		}
	case 4, 5:
		v, err := w.ends.Put(k)
		require.NoError(t, err)
		*v += "x"
		if !there {
			is.deadline = noDeadline
		}
		is.value += "x"
		w.model[key] = is
	default:
		if !there {
			require.Error(t, w.ends.SetDeadline(k, 0))
			return
		}
		is.deadline = w.watermark + rapid.Int64Range(1, 6*bucketWidth).Draw(t, "from now")
		require.NoError(t, w.ends.SetDeadline(k, is.deadline))
		w.model[key] = is
	}
	at, ok := w.ends.Deadline(keyOf(t, key))
	require.Equal(t, w.model[key].deadline != noDeadline && w.model[key] != limitedText{}, ok)
	require.True(t, !ok || at == w.model[key].deadline)
}

// fire fires what is due: in the order of time, each key that the model holds, which then goes, or does not.
func (w *endsWorld) fire(t *rapid.T) {
	last := int64(math.MinInt64)
	for at, ok := w.keyed.Due(w.watermark); ok; at, ok = w.keyed.Due(w.watermark) {
		require.GreaterOrEqual(t, at, last)
		last = at
		require.NoError(t, w.keyed.FireDeadlines(at, func(k *Key[string], at int64) error {
			key := k.Value()
			is, there := w.model[key]
			require.True(t, there, "%s is gone", key)
			require.Equal(t, is.deadline, at, "%s", key)
			require.Equal(t, is.value, *w.ends.Peek(k))
			w.due(t, k, key, is, at)
			return nil
		}))
	}
	for key, is := range w.model {
		require.Greater(t, is.deadline, w.watermark, "%s was due", key)
	}
}

// due is what happens at a deadline.
func (w *endsWorld) due(t *rapid.T, k *Key[string], key string, is limitedText, at int64) {
	switch rapid.IntRange(0, 4).Draw(t, "at the deadline") {
	case 0:
		is.deadline = at + rapid.Int64Range(1, 3*bucketWidth).Draw(t, "later")
		require.NoError(t, w.ends.SetDeadline(k, is.deadline))
		w.model[key] = is
	case 1:
		w.ends.Delete(k)
		v, err := w.ends.Put(k)
		require.NoError(t, err)
		*v = "anew"
		w.model[key] = limitedText{"anew", noDeadline}
	case 2:
		*w.ends.Get(k) += "z"
		delete(w.model, key)
	case 3:
		w.ends.Delete(k)
		delete(w.model, key)
	default:
		delete(w.model, key)
	}
}

func (w *endsWorld) require(t require.TestingT, restored *Deadlines[string, string], first, end int) {
	n := 0
	for key, is := range w.model {
		k := keyOf(t, key)
		if k.Group < first || k.Group >= end {
			continue
		}
		n++
		v := restored.Peek(k)
		require.NotNil(t, v, "%s is missing", key)
		require.Equal(t, is.value, *v)
		at, ok := restored.Deadline(k)
		require.Equal(t, is.deadline != noDeadline, ok)
		require.True(t, !ok || at == is.deadline)
	}
	require.Equal(t, n, restored.table.Len())
}

// Entries live until their deadlines, wherever these move and whatever happens at them; a chain of cuts restores
// the ones that are there, and each of their deadlines comes once.
func TestEntriesLiveUntilTheirDeadlinesThroughRestores(t *testing.T) {
	for _, incremental := range []bool{true, false} {
		rapid.Check(t, func(t *rapid.T) {
			w := newEnds(t, 0, groups, incremental)
			w.keyed.least = rapid.SampledFrom([]int{1, 10, leastBase}).Draw(t, "least base")
			var chain [][]byte
			for range rapid.IntRange(1, 10).Draw(t, "cuts") {
				for range rapid.IntRange(0, 60).Draw(t, "steps") {
					w.step(t)
					require.NoError(t, w.keyed.Work())
				}
				w.require(t, w.ends, 0, groups)
				chain = append(chain, w.cut(t))
			}
			parallelism := rapid.IntRange(1, 3).Draw(t, "parallelism")
			for s := range parallelism {
				first, end := keygroup.Range(s, groups, parallelism)
				r := newEnds(t, first, end, true)
				require.NoError(t, r.keyed.Restore(chain[w.keyed.Oldest()-1:], func(int, int64) {}))
				w.require(t, r.ends, first, end)
				r.watermark = math.MaxInt64
				for key, is := range w.model {
					if g := keyOf(t, key).Group; g >= first && g < end {
						r.model[key] = is
					}
				}
				for at, ok := r.keyed.Due(r.watermark); ok; at, ok = r.keyed.Due(r.watermark) {
					require.NoError(t, r.keyed.FireDeadlines(at, func(k *Key[string], at int64) error {
						require.Equal(t, r.model[k.Value()].deadline, at)
						delete(r.model, k.Value())
						return nil
					}))
				}
				for key, is := range r.model {
					require.EqualValues(t, noDeadline, is.deadline, "%s is left", key)
				}
				require.Equal(t, len(r.model), r.ends.table.Len())
			}
		})
	}
}

// cut returns the state's next cut.
func (w *endsWorld) cut(t require.TestingT) []byte {
	cut, err := cutOf(w.keyed, func(int) int64 { return w.watermark })
	require.NoError(t, err)
	return cut
}

// An entry without a deadline is there behind the end of event time too, where a finished job goes on.
func TestAnEntryWithoutADeadlineOutlivesTheEndOfEventTime(t *testing.T) {
	w := newEnds(t, 0, groups, true)
	for _, key := range []string{"for ever", "until the end"} {
		_, err := w.ends.Put(keyOf(t, key))
		require.NoError(t, err)
	}
	require.NoError(t, w.ends.SetDeadline(keyOf(t, "until the end"), math.MaxInt64))
	w.watermark = math.MaxInt64
	r := newEnds(t, 0, groups, true)
	require.NoError(t, r.keyed.Restore([][]byte{w.cut(t)}, func(int, int64) {}))
	require.NotNil(t, r.ends.Peek(keyOf(t, "for ever")))
	require.Nil(t, r.ends.Peek(keyOf(t, "until the end")))
}

// A key that is removed and put again, with a deadline each time, leaves nothing behind.
func TestAKeyThatIsPutAgainAndAgainWithADeadlineLeavesNothingBehind(t *testing.T) {
	w := newEnds(t, 0, groups, false)
	for i := range int64(10 * leastRefs) {
		k := keyOf(t, "key")
		_, err := w.ends.Put(k)
		require.NoError(t, err)
		if i == leastRefs { // from here on some are in the tick that event time has come to
			require.NoError(t, w.ends.SetDeadline(k, 1))
			at, ok := w.keyed.Due(1)
			require.True(t, ok)
			require.NoError(t, w.keyed.FireDeadlines(at, func(*Key[string], int64) error { return nil }))
			continue
		}
		require.NoError(t, w.ends.SetDeadline(k, 2+i%2*bucketWidth*5))
		w.ends.Delete(k)
		require.LessOrEqual(t, w.ends.agenda.n+len(w.ends.late), leastRefs+2)
	}
	require.Zero(t, w.ends.table.Len())
	w.ends.sweep()
	require.Zero(t, w.keyed.Pending())
}

// An operator has one state with deadlines.
func TestASecondStateWithDeadlinesIsRefused(t *testing.T) {
	w := newEnds(t, 0, groups, true)
	_, err := DeclareDeadlines(w.keyed, "more", textCodec{})
	require.ErrorContains(t, err, "at most one state with deadlines")
}
