package engine

import (
	"fmt"
	"strings"
	"testing"

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
