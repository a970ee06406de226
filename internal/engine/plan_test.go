package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// drawn writes the operators of a plan down, one a line.
func drawn(p *Plan) string {
	var b strings.Builder
	for _, o := range p.Operators() {
		fmt.Fprintf(&b, "%s %s in %s", o.Kind, o.UID, o.Chain)
		for _, in := range o.Inputs {
			from := in.From
			if in.Side != "" {
				from += "/" + in.Side
			}
			fmt.Fprintf(&b, " ←%s %s", in.Exchange, from)
		}
		b.WriteByte('\n')
	}
	return strings.TrimSpace(b.String())
}

func same(v *int) int { return *v }

func pass(v *int, out *Out[int]) error { out.Emit(*v); return nil }

// numbersIn adds what stands for a source.
func numbersIn(p *Plan, uid string) Stream[int] {
	return streamOf(p, p.add(Operator{UID: uid, Kind: "source"}), &outputs[int]{}, nil)
}

func TestPlanSaysHowRowsGetFromOneOperatorToTheNext(t *testing.T) {
	p := NewPlan("test", 2, 8)
	numbers := numbersIn(p, "numbers")
	late := &SideOutput[int]{Name: "late"}
	mapped := FlatMap(numbers, "double", "map", pass)
	sums := Aggregate(KeyBy(mapped, same), "sum", WindowConfig[int]{Size: 1_000_000, Late: late}, summing{})
	FlatMap(sums, "keep", "filter", pass)
	FlatMap(Side(sums, late), "aside", "flat-map", pass)
	require.Equal(t, strings.TrimSpace(`
source numbers in numbers
map double in numbers ←chained numbers
window sum in sum ←hash double
filter keep in sum ←chained sum
flat-map aside in sum ←chained sum/late
`), drawn(p))
}

// Where several streams meet, or an exchange was asked for, the operator that reads begins a chain.
func TestUnionsAndExchangesAreEdgesOfWhoReadsThem(t *testing.T) {
	p := NewPlan("test", 2, 8)
	a, b := numbersIn(p, "a"), numbersIn(p, "b")
	both := Union(a, FlatMap(b, "double", "map", pass))
	FlatMap(both, "keep", "filter", pass)
	Aggregate(KeyBy(Union(both, a), same), "sum", WindowConfig[int]{Size: time.Second}, summing{})
	spread := FlatMap(a.WithExchange(Rebalance), "spread", "map", pass)
	FlatMap(Union(spread, a.WithExchange(Rebalance).WithExchange(Broadcast)), "all", "map", pass)
	Aggregate(KeyBy(a.WithExchange(Rebalance), same), "direct", WindowConfig[int]{Size: time.Second}, summing{})
	require.Equal(t, strings.TrimSpace(`
source a in a
source b in b
map double in b ←chained b
filter keep in keep ←forward a ←forward double
window sum in sum ←hash a ←hash double ←hash a
map spread in spread ←rebalance a
map all in all ←forward spread ←broadcast a
window direct in direct ←hash a
`), drawn(p))
	require.NoError(t, errors.Join(p.errs...))
}

// A watermark that a subtask has merged from all splits is a bound for who comes behind, if all of its
// inputs say it of the same splits.
func TestABoundHoldsForTheSourcesItWasMergedFrom(t *testing.T) {
	p := NewPlan("test", 2, 8)
	a, b := numbersIn(p, "a"), numbersIn(p, "b")
	spread := func(s Stream[int], uid string) Stream[int] {
		return FlatMap(s.WithExchange(Rebalance), uid, "map", pass)
	}
	all := map[string]Stream[int]{
		"":       spread(a, "behind the source itself"),
		"bound":  spread(spread(a, "a1"), "behind an exchange"),
		"bound ": spread(Union(spread(a, "a2"), spread(a, "a3")), "behind two exchanges of one source"),
		" ":      spread(Union(spread(a, "a4"), spread(b, "b1")), "behind exchanges of two sources"),
		"  ":     spread(Union(spread(a, "a5"), a), "behind an exchange, and the source itself"),
		"bound  ": spread(spread(Union(spread(a, "a6"), b.WithExchange(Broadcast)), "ab"),
			"behind who has merged two sources"),
		"   ": spread(FlatMap(Union(a, a), "aa", "map", pass), "behind who has merged its own splits"),
	}
	for want, s := range all {
		require.Equal(t, strings.TrimSpace(want) != "", p.merged(s.From), s.From.UID)
	}
}

func TestStreamsThatCannotBeAreRefusedByName(t *testing.T) {
	for want, build := range map[string]func(a, other Stream[int]){
		"union of streams of different jobs: other": func(a, other Stream[int]) { Union(a, other) },
		"the stream of a is broadcast already":      func(a, _ Stream[int]) { a.WithExchange(Broadcast).WithExchange(Rebalance) },
		"keyed stream behind a, which is broadcast": func(a, _ Stream[int]) { KeyBy(Union(a, a.WithExchange(Broadcast)), same) },
		"union of a, a has no side outputs":         func(a, _ Stream[int]) { Side(Union(a, a), &SideOutput[int]{}) },
	} {
		p := NewPlan("test", 2, 8)
		build(numbersIn(p, "a"), numbersIn(NewPlan("other", 2, 8), "other"))
		require.ErrorContains(t, p.Validate(true), want)
	}
}
