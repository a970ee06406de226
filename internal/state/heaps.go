package state

// before is implemented by what a priority queue orders.
type before[T any] interface{ before(other *T) bool }

// queue is a binary heap of T; queue[0] is the first. (container/heap would put each element
// behind an interface: an allocation for every timer.)
type queue[T any, P interface {
	*T
	before[T]
}] []T

func (q *queue[T, P]) push(x T) {
	h := append(*q, x)
	*q = h
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if !P(&h[i]).before(&h[parent]) {
			return
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
}

func (q *queue[T, P]) pop() T {
	h := *q
	first, last := h[0], len(h)-1
	h[0] = h[last]
	var zero T
	h[last] = zero
	h = h[:last]
	*q = h
	for i := 0; ; {
		child := 2*i + 1
		if child >= len(h) {
			return first
		}
		if right := child + 1; right < len(h) && P(&h[right]).before(&h[child]) {
			child = right
		}
		if !P(&h[child]).before(&h[i]) {
			return first
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}
