package gatewaymeter

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/weir/apps/gatewaymeter/gateway"
	"example.com/weir/apps/gatewaymeter/money"
	"example.com/weir/connector"
)

// drawHalf may draw a half of a request.
func drawHalf(t *rapid.T, r *request, k gateway.Kind) {
	if !rapid.Bool().Draw(t, k.String()) {
		return
	}
	r.came = r.came.with(k)
	r.half(k).eventID = newEventID(drawID().Draw(t, "event ID"))
	if r.phase != over {
		r.half(k).at = rapid.Int64().Draw(t, "at")
	}
}

// drawID draws short texts, long ones, and UUIDs well and badly written.
func drawID() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.String(), rapid.StringN(0, 80, 80), rapid.StringMatching(`[a-z]{22,25}`),
		rapid.StringMatching(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`),
		rapid.StringMatching(`[0-9a-f]{8}[-0][0-9a-f]{4}-[0-9a-fA-F]{4}-[0-9a-f]{4}-[0-9a-f]{12}`),
	)
}

func drawNames(t *rapid.T, n *names) *namePair {
	return n.own(rapid.String().Draw(t, "provider"), rapid.String().Draw(t, "model"))
}

// Whatever is known of a request comes back from its encoding, and no damage is taken for one.
func TestRequestsAndTotalsComeBackFromTheirEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		known := newNames()
		r := request{
			phase:   phase(rapid.IntRange(0, int(over)).Draw(t, "phase")),
			hasMore: rapid.Bool().Draw(t, "more"),
		}
		drawHalf(t, &r, gateway.Started)
		drawHalf(t, &r, gateway.Completed)
		if rapid.Bool().Draw(t, "names") {
			r.names = drawNames(t, known).number
		} else if rapid.Bool().Draw(t, "unnumbered") {
			r.names = unnumbered
		}
		requireSame(t, requestCodec{known}, r)

		m := more{startedID: rapid.String().Draw(t, "started ID"), completedID: rapid.String().Draw(t, "completed ID")}
		if rapid.Bool().Draw(t, "key") {
			m.key = &longKey{tenant: rapid.String().Draw(t, "tenant"), request: rapid.String().Draw(t, "request")}
		}
		if rapid.Bool().Draw(t, "names in more") {
			m.names = drawNames(t, known)
		}
		if rapid.Bool().Draw(t, "alone") {
			m.alone = &completed{
				names: drawNames(t, known), status: gateway.OK,
				usage: gateway.Usage{
					InputTokens: rapid.Int64().Draw(t, "input"), OutputTokens: 1, CacheReadTokens: 2,
					CacheWriteTokens: rapid.Int64().Draw(t, "write"), Given: gateway.GivenUsage,
				},
			}
		}
		for range rapid.IntRange(0, 2).Draw(t, "conflicts") {
			m.conflicts = append(m.conflicts, rapid.String().Draw(t, "conflict"))
		}
		requireSame(t, moreCodec{known}, m)

		usd, err := money.Parse(rapid.SampledFrom([]string{"0", "1.5", "4.0054321e-8"}).Draw(t, "usd"))
		require.NoError(t, err)
		sum := totals{all: 5, failed: 1, requests: 4, input: rapid.Int64().Draw(t, "in"), output: 7, usd: usd}
		b, err := totalsCodec{}.Append(nil, &sum)
		require.NoError(t, err)
		var back totals
		require.NoError(t, totalsCodec{}.Decode(b, &back))
		require.Equal(t, sum, back)
		require.ErrorIs(t, totalsCodec{}.Decode(b[:len(b)-1], &back), errFormat)
	})
}

// requireSame encodes v and decodes it, whole and cut off.
func requireSame[V any](t *rapid.T, codec connector.Codec[V], v V) {
	b, err := codec.Append(nil, &v)
	require.NoError(t, err)
	var got V
	require.NoError(t, codec.Decode(b, &got))
	require.Equal(t, v, got)
	cut := rapid.IntRange(0, len(b)-1).Draw(t, "cut")
	require.ErrorIs(t, codec.Decode(b[:cut], &got), errFormat)
}

// Two requests have one key only if they are one, however long their IDs are and wherever one ends and the
// other begins; and what fits into a key comes back out of it.
func TestRequestKeysAreToldApart(t *testing.T) {
	text := rapid.OneOf(rapid.StringMatching(`[ab]{1,3}`), rapid.StringMatching(`a{28,34}`), rapid.StringMatching(`[a]{60,64}`))
	rapid.Check(t, func(t *rapid.T) {
		type request struct{ tenant, id string }
		draw := func() (r request, e arrival) {
			r = request{text.Draw(t, "tenant"), text.Draw(t, "request")}
			return r, arrival{Event: gateway.Event{TenantID: r.tenant, RequestID: r.id}}
		}
		a, ea := draw()
		b, eb := draw()
		ka, kb := appendRequestKey(nil, &ea), appendRequestKey([]byte("x"), &eb)[1:]
		require.Equal(t, a == b, string(ka) == string(kb))

		var key requestKey
		key.set(ka)
		require.Equal(t, !fitsKey(a.tenant, a.id), key.hashed())
		if !key.hashed() {
			tenant, id := textsOf(&key, nil)
			require.Equal(t, a, request{tenant, id})
		}
	})
}

// An event ID that lies in place is the text that it was made of, and no other text's.
func TestEventIDsInPlaceAreTheirTexts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawID().Draw(t, "text")
		id := newEventID(s)
		if id.kind == idLong {
			require.Greater(t, len(s), idRoom)
			return
		}
		require.Equal(t, s, string(id.appendText(nil)))
		require.Equal(t, s == "", id == eventID{})
	})
}

func TestAUUIDWrittenOtherwiseIsAnotherText(t *testing.T) {
	const usual = "0192f0c1-7b5e-7cc3-98c4-dc0c0c07398f"
	id := newEventID(usual)
	require.Equal(t, byte(idUUID), id.kind)
	require.Equal(t, usual, string(id.appendText(nil)))
	for _, other := range []string{
		strings.ToUpper(usual), strings.Replace(usual, "f0c1", "f0C1", 1), strings.Replace(usual, "-", "0", 1),
		strings.Replace(usual, "9", "-", 1), strings.Replace(usual, "a", "g", 1) + "0", strings.Replace(usual, "f0", "g0", 1),
	} {
		id := newEventID(other)
		require.Equal(t, byte(idLong), id.kind, other)
	}
}

// A flood of invented names costs neither memory without bound nor an answer.
func TestNamesHaveABound(t *testing.T) {
	n := newNames()
	for i := range maxNames + 100 {
		p := n.own("p", fmt.Sprint(i))
		require.Equal(t, fmt.Sprint(i), p.model)
		require.Equal(t, i+1 >= maxNames, p.number == unnumbered)
	}
	require.Same(t, n.own("p", "5"), n.own("p", "5"))
	require.EqualValues(t, maxNames, n.table.Load().used)
	require.Equal(t, uint32(unnumbered), newNames().own("p", strings.Repeat("m", maxNameSize)).number)
	require.NotEqual(t, uint32(unnumbered), n.numbered("p", "from a checkpoint").number)
}

// Names of which all that is kept of a hash is equal are told apart.
func TestNamesWithOneHashAreToldApart(t *testing.T) {
	n := newNames()
	seen := map[uint64]string{}
	for i := range 10_000_000 {
		model := fmt.Sprint(i)
		hash := hashNames("p", model)
		kept := hash>>32<<32 | hash&63
		if other, ok := seen[kept]; ok {
			require.NotEqual(t, n.own("p", other).number, n.own("p", model).number)
			require.Equal(t, other, n.own("p", other).model)
			require.Equal(t, model, n.own("p", model).model)
			return
		}
		seen[kept] = model
	}
	t.Fatal("no two names have one hash")
}

// Several goroutines find, add and number the same names while the table grows, and get the same pairs.
func TestNamesAreSharedBetweenGoroutines(t *testing.T) {
	n := newNames()
	got := make([][]*namePair, 4)
	var all sync.WaitGroup
	for g := range got {
		all.Go(func() {
			for i := range 5000 {
				p := n.own("p", fmt.Sprint((i*(g+1))%2000))
				got[g] = append(got[g], p)
				if n.pair(p.number) != p {
					t.Errorf("%d is the number of another pair", p.number)
				}
			}
		})
	}
	all.Wait()
	for g := range got {
		for i, p := range got[g] {
			require.Equal(t, fmt.Sprint((i*(g+1))%2000), p.model)
			require.Same(t, n.own("p", p.model), p)
		}
	}
	require.EqualValues(t, 2001, n.table.Load().used)
}

func TestTextsAreTheSameWhateverCameBefore(t *testing.T) {
	var kept texts
	for i := range 5000 {
		s := fmt.Sprint("tenant", i%1500)
		require.Equal(t, s, kept.own([]byte(s)))
	}
	long := strings.Repeat("x", maxText+1)
	require.Equal(t, long, kept.own([]byte(long)))
}
