package state

import (
	"cmp"
	"math"
	"slices"
)

// opened is a bucket whose timers fire.
type opened struct {
	bucket *bucket
	began  int64
	order  []uint64 // of each timer, its time since began and its place
	head   int      // those before it have fired
	spare  []uint64
}

// at returns the time of the next timer.
func (o *opened) at() int64 {
	if o.head == len(o.order) {
		return math.MaxInt64
	}
	return o.began + int64(o.order[o.head]>>32)
}

// pop returns the place of the next timer.
func (o *opened) pop() uint32 {
	place := uint32(o.order[o.head])
	o.bucket.at(place).gone = true
	o.head++
	return place
}

// sort opens a bucket that begins at a time and is 2^width microseconds wide.
func (o *opened) sort(b *bucket, began int64, width int) {
	o.bucket, o.began, o.head, o.order = b, began, 0, o.order[:0]
	for i := range uint32(b.n) {
		o.order = append(o.order, uint64(b.at(i).at-began)<<32|uint64(i))
	}
	if len(o.order) < 1<<10 {
		slices.Sort(o.order)
		return
	}
	// The places rise already, so it is the times that are sorted, from their last bits on.
	o.spare = slices.Grow(o.spare[:0], len(o.order))[:len(o.order)]
	for shift := 32; shift < 32+width; shift += radix {
		scatter(o.order, o.spare, shift)
		o.order, o.spare = o.spare, o.order
	}
}

const radix = 11

// scatter sorts from into to by radix bits from shift on, and leaves what is equal in its order.
func scatter(from, to []uint64, shift int) {
	var counts [1 << radix]int
	for _, x := range from {
		counts[x>>shift%(1<<radix)]++
	}
	sum := 0
	for i, n := range counts {
		counts[i] = sum
		sum += n
	}
	for _, x := range from {
		at := &counts[x>>shift%(1<<radix)]
		to[*at] = x
		*at++
	}
}

// lateTimers were set behind the horizon of the wheel.
type lateTimers struct {
	queue queue[lateTimer, *lateTimer]
	keys  []byte
	spare []byte // for packing
	live  int    // bytes of keys that are in use
	seq   uint64
}

type lateTimer struct {
	timer
	seq uint64
}

func (x *lateTimer) before(y *lateTimer) bool {
	if x.at != y.at {
		return x.at < y.at
	}
	return x.seq < y.seq
}

func (l *lateTimers) keyOf(x *timer) []byte { return l.keys[x.key : x.key+x.size] }

func (l *lateTimers) at() int64 {
	if len(l.queue) == 0 {
		return math.MaxInt64
	}
	return l.queue[0].at
}

func (l *lateTimers) add(x *timer, key []byte) {
	if len(l.queue) == 0 {
		l.keys, l.live = l.keys[:0], 0
	}
	if len(l.keys) > 4096 && l.live < len(l.keys)/2 {
		l.pack()
	}
	late := lateTimer{timer: *x, seq: l.seq}
	late.key, late.size = uint32(len(l.keys)), uint32(len(key))
	l.keys = append(l.keys, key...)
	l.live += len(key)
	l.seq++
	l.queue.push(late)
}

func (l *lateTimers) pop() { l.live -= int(l.queue.pop().size) }

// of appends the places of a group's timers, in the order in which they were set.
func (l *lateTimers) of(group int, dst []uint32) []uint32 {
	for i := range l.queue {
		if int(l.queue[i].group) == group {
			dst = append(dst, uint32(i))
		}
	}
	slices.SortFunc(dst, func(a, b uint32) int { return cmp.Compare(l.queue[a].seq, l.queue[b].seq) })
	return dst
}

// pack writes the keys anew, without those of timers that have fired.
func (l *lateTimers) pack() {
	packed := l.spare[:0]
	for i := range l.queue {
		x := &l.queue[i].timer
		at := uint32(len(packed))
		packed = append(packed, l.keyOf(x)...)
		x.key = at
	}
	l.keys, l.spare = packed, l.keys
}
