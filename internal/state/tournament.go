package state

import "math"

// tournament knows the lowest of a fixed number of times, each of which may change. It is a
// segment tree: a change costs one step for each doubling of the number.
type tournament struct {
	size int     // leaves, a power of two
	tree []int64 // tree[1] is the lowest of all, tree[size+i] the i-th
}

func newTournament(n int) tournament {
	size := 1
	for size < n {
		size *= 2
	}
	t := tournament{size: size, tree: make([]int64, 2*size)}
	for i := range t.tree {
		t.tree[i] = math.MaxInt64
	}
	return t
}

func (t *tournament) lowest() int64  { return t.tree[1] }
func (t *tournament) of(i int) int64 { return t.tree[t.size+i] }

func (t *tournament) set(i int, at int64) {
	i += t.size
	t.tree[i] = at
	for i /= 2; i > 0; i /= 2 {
		t.tree[i] = min(t.tree[2*i], t.tree[2*i+1])
	}
}

// first returns which one is the lowest.
func (t *tournament) first() int {
	i := 1
	for i < t.size {
		if i *= 2; t.tree[i] > t.tree[i+1] {
			i++
		}
	}
	return i - t.size
}
