package truebill

import (
	"container/heap"
	"fmt"
	"math/big"
	"time"
)

// timer is what happens once the watermark has reached a time. Timers come before the windows
// that the same watermark fires, and among each other in the order of their times, then in the
// order in which they were set.
type timer struct {
	at     time.Time
	window bool
	order  int
	fire   func(now time.Time)
}

type timerHeap []timer

func (h timerHeap) Len() int      { return len(h) }
func (h timerHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h timerHeap) Less(i, j int) bool {
	if !h[i].at.Equal(h[j].at) {
		return h[i].at.Before(h[j].at)
	}
	return h[i].order < h[j].order
}

func (h *timerHeap) Push(x any) { *h = append(*h, x.(timer)) }
func (h *timerHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	*h = (*h)[:last]
	return t
}
