package replay

import (
	"math/rand/v2"
	"slices"
	"time"
)

// dice draws from a seed. It computes with integers wherever it can, so that no machine's
// floating-point unit has a say in what is drawn.
type dice struct{ rng *rand.Rand }

func newDice(seed uint64) dice { return dice{rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))} }

// happens draws whether something of the given share happens.
func (d dice) happens(share float64) bool { return d.rng.Float64() < share }

// between draws a duration in microseconds, both ends included.
func (d dice) between(low, high time.Duration) time.Duration {
	return low + time.Duration(d.rng.Int64N(int64((high-low)/time.Microsecond)+1))*time.Microsecond
}

// upTo draws a number from 0 to n, both included.
func (d dice) upTo(n int64) int64 { return d.rng.Int64N(n + 1) }

// weighted draws indexes with given weights.
type weighted struct {
	sums []int64 // of the weights up to each index
}

func newWeighted(n int, weight func(i int) int64) weighted {
	var w weighted
	sum := int64(0)
	for i := range n {
		sum += weight(i)
		w.sums = append(w.sums, sum)
	}
	return w
}

func (w weighted) draw(d dice) int {
	at := d.rng.Int64N(w.sums[len(w.sums)-1])
	i, _ := slices.BinarySearch(w.sums, at+1)
	return i
}
