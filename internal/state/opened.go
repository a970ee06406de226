package state

import (
	"cmp"
	"math"
	"slices"
)

// order is the order in which what has one tick, or a few of them, is due.
type order struct {
	began int64
	due   []uint64 // the time since began, and a place
	head  int      // those before it were taken
	spare []uint64
}

// at returns the next time; the end of time if there is none.
func (o *order) at() int64 {
	if o.head == len(o.due) {
		return math.MaxInt64
	}
	return o.began + int64(o.due[o.head]>>32)
}

// take returns the place of what is next.
func (o *order) take() uint32 {
	o.head++
	return uint32(o.due[o.head-1])
}

// begin forgets everything, and begins at a time.
func (o *order) begin(began int64) { o.began, o.due, o.head = began, o.due[:0], 0 }

// add adds a time and a place behind those of before.
func (o *order) add(at int64, place uint32) {
	o.due = append(o.due, uint64(at-o.began)<<32|uint64(place))
}

// sort sorts by time, and for one time by place. The times are within 2^width microseconds.
func (o *order) sort(width int) {
	if len(o.due) < 1<<10 {
		slices.Sort(o.due)
		return
	}
	// The places rise already, so it is the times that are sorted, from their last bits on.
	o.spare = slices.Grow(o.spare[:0], len(o.due))[:len(o.due)]
	for shift := 32; shift < 32+width; shift += radix {
		scatter(o.due, o.spare, shift)
		o.due, o.spare = o.spare, o.due
	}
}

// opened is a bucket whose timers fire.
type opened struct {
	order
	bucket *bucket
}

// pop returns the place of the next timer.
func (o *opened) pop() uint32 {
	place := o.take()
	o.bucket.at(place).gone = true
	return place
}

// open takes a bucket that begins at a time and is 2^width microseconds wide.
func (o *opened) open(b *bucket, began int64, width int) {
	o.bucket = b
	o.begin(began)
	for i := range uint32(b.n) {
		o.add(b.at(i).at, i)
	}
	o.sort(width)
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
