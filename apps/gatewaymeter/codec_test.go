package gatewaymeter

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/weir/apps/gatewaymeter/gateway"
	"example.com/weir/apps/gatewaymeter/money"
)

func drawHalf(t *rapid.T, label string) half {
	if !rapid.Bool().Draw(t, label) {
		return half{}
	}
	return half{present: true, at: rapid.Int64().Draw(t, "at"), eventID: rapid.String().Draw(t, "event ID")}
}

func drawNames(t *rapid.T) *namePair {
	return &namePair{provider: rapid.String().Draw(t, "provider"), model: rapid.String().Draw(t, "model")}
}

// Whatever is known of a request comes back from its encoding, and no damage is taken for one.
func TestRequestsAndTotalsComeBackFromTheirEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := request{
			phase:   phase(rapid.IntRange(0, int(over)).Draw(t, "phase")),
			started: drawHalf(t, "started"), completed: drawHalf(t, "completed"),
			deadline: rapid.Int64().Draw(t, "deadline"),
		}
		if rapid.Bool().Draw(t, "names") {
			r.names = drawNames(t)
		}
		if rapid.Bool().Draw(t, "alone") {
			r.alone = &completed{
				names: drawNames(t), status: gateway.OK,
				usage: gateway.Usage{
					InputTokens: rapid.Int64().Draw(t, "input"), OutputTokens: 1, CacheReadTokens: 2,
					CacheWriteTokens: rapid.Int64().Draw(t, "write"), Given: gateway.GivenUsage,
				},
			}
		}
		for range rapid.IntRange(0, 2).Draw(t, "conflicts") {
			r.addConflict(rapid.String().Draw(t, "conflict"))
		}
		codec := requestCodec{names: &names{}}
		b, err := codec.Append(nil, &r)
		require.NoError(t, err)
		var got request
		require.NoError(t, codec.Decode(b, &got))
		require.Equal(t, r, got)
		if len(b) > 0 {
			cut := rapid.IntRange(0, len(b)-1).Draw(t, "cut")
			require.ErrorIs(t, codec.Decode(b[:cut], &got), errFormat)
		}

		usd, err := money.Parse(rapid.SampledFrom([]string{"0", "1.5", "4.0054321e-8"}).Draw(t, "usd"))
		require.NoError(t, err)
		sum := totals{all: 5, failed: 1, requests: 4, input: rapid.Int64().Draw(t, "in"), output: 7, usd: usd}
		b, err = totalsCodec{}.Append(nil, &sum)
		require.NoError(t, err)
		var back totals
		require.NoError(t, totalsCodec{}.Decode(b, &back))
		require.Equal(t, sum, back)
		require.ErrorIs(t, totalsCodec{}.Decode(b[:len(b)-1], &back), errFormat)
	})
}

func TestRequestKeysAreToldApart(t *testing.T) {
	a := RequestKey{Tenant: "ab", Request: "c"}.AppendKey(nil)
	b := RequestKey{Tenant: "a", Request: "bc"}.AppendKey(nil)
	require.NotEqual(t, a, b)
	var k RequestKey
	require.NoError(t, k.DecodeKey(a))
	require.Equal(t, RequestKey{Tenant: "ab", Request: "c"}, k)
	require.Error(t, k.DecodeKey([]byte{9, 'x'}))
}
