package state

import (
	"math/bits"
	"slices"
)

// timer is a timer that was set or deleted. Its key lies elsewhere: a timer has no pointer.
type timer struct {
	at     int64
	hash   uint64
	key    uint32 // where its key begins
	size   uint32 // of the key
	before uint32 // 1 + the place of the timer of its group that was set before it, in a large bucket
	group  uint16
	kind   byte // of the record that says it
	gone   bool // it has fired
}

// timersInChunk is how many timers are kept together.
const timersInChunk = 64

// timerChunk is a part of a bucket.
type timerChunk struct {
	keys   []byte // first, so that a garbage collection looks no further
	timers [timersInChunk]timer
}

// bucket holds timers in the order in which they were set; their places count from 0.
type bucket struct {
	chunks []*timerChunk
	n      int
	// last is, of each group, 1 + the place of its latest timer. A bucket of one chunk has none: there one
	// looks at every timer.
	last []uint32
	// thinAt is how many timers it has when it is looked through for those that say nothing; 0 at first.
	thinAt int
}

func (b *bucket) at(place uint32) *timer {
	return &b.chunks[place/timersInChunk].timers[place%timersInChunk]
}

func (b *bucket) keyOf(place uint32) []byte {
	c := b.chunks[place/timersInChunk]
	x := &c.timers[place%timersInChunk]
	return c.keys[x.key : x.key+x.size]
}

func (b *bucket) link(place uint32, first int) {
	x := b.at(place)
	last := &b.last[int(x.group)-first]
	x.before, *last = *last, place+1
}

// of appends the places of a group's timers, in the order in which they were set.
func (b *bucket) of(group, first int, dst []uint32) []uint32 {
	if len(b.last) == 0 {
		for i := range uint32(b.n) {
			if int(b.at(i).group) == group {
				dst = append(dst, i)
			}
		}
		return dst
	}
	begin := len(dst)
	for i := b.last[group-first]; i > 0; i = b.at(i - 1).before {
		dst = append(dst, i-1)
	}
	slices.Reverse(dst[begin:])
	return dst
}

// A wheel keeps timers in buckets by their time. Those of the lowest level are 2^tickBits
// microseconds wide (4.2 s), those of the next one 64 times as much, and so on up to all of time. A
// timer lies at the level of the highest digit (of 64) in which its time differs from the horizon;
// when the horizon comes to a bucket of a higher level, its timers go to lower ones. So setting a
// timer is an append, however far away it is, and timers of one time stay in the order in which they
// were set.
type wheel struct {
	first, groups int    // the operator's key groups
	horizon       uint64 // the first tick of which timers may lie here
	full          [levels]uint64
	buckets       [levels][]*bucket
	used          int           // chunks of buckets, here and opened
	chunks        []*timerChunk // to be used again
	spare         []*bucket     // the same, without their chunks
}

const (
	tickBits  = 22
	digitBits = 6
	digits    = 1 << digitBits
	levels    = (64 - tickBits + digitBits - 1) / digitBits
)

// tick returns the tick of a time. Ticks are not negative.
func tick(at int64) uint64 { return (uint64(at) ^ 1<<63) >> tickBits }

// began returns the time at which a tick begins.
func began(tick uint64) int64 { return int64(tick<<tickBits ^ 1<<63) }

// place returns where timers of a tick lie. It is not before the horizon.
func (w *wheel) place(tick uint64) (level, digit int) {
	level = max(0, bits.Len64(tick^w.horizon)-1) / digitBits
	return level, int(tick>>(level*digitBits)) % digits
}

// bucket returns the bucket of a tick.
func (w *wheel) bucket(tick uint64) *bucket {
	level, digit := w.place(tick)
	if w.buckets[level] == nil {
		w.buckets[level] = make([]*bucket, digits)
	}
	if w.buckets[level][digit] == nil {
		w.buckets[level][digit] = w.fresh()
		w.full[level] |= 1 << digit
	}
	return w.buckets[level][digit]
}

// put puts a bucket in the place of the one of a tick.
func (w *wheel) put(tick uint64, b *bucket) {
	level, digit := w.place(tick)
	w.buckets[level][digit] = b
}

// empty reports whether no timer lies here.
func (w *wheel) empty() bool { return w.full == [levels]uint64{} }

// begin returns the tick at which the bucket of a tick begins.
func (w *wheel) begin(tick uint64) uint64 {
	level, _ := w.place(tick)
	return tick &^ (1<<(level*digitBits) - 1)
}

// earliest returns the tick of the earliest timer in the bucket of a level that begins at a tick.
func (w *wheel) earliest(level int, begin uint64) uint64 {
	first := uint64(1<<64 - 1)
	b := w.buckets[level][int(begin>>(level*digitBits))%digits]
	for i := range uint32(b.n) {
		first = min(first, tick(b.at(i).at))
	}
	return first
}

func (w *wheel) fresh() *bucket {
	if n := len(w.spare); n > 0 {
		b := w.spare[n-1]
		w.spare = w.spare[:n-1]
		return b
	}
	return &bucket{}
}

// giveBack keeps a bucket to be used again.
func (w *wheel) giveBack(b *bucket) {
	for _, c := range b.chunks {
		w.release(c)
	}
	clear(b.chunks)
	b.chunks, b.n, b.last, b.thinAt = b.chunks[:0], 0, b.last[:0], 0
	w.spare = append(w.spare, b)
}

// release keeps a chunk to be used again, unless there are more of these than are used.
func (w *wheel) release(c *timerChunk) {
	if w.used--; len(w.chunks) <= w.used+timersInChunk {
		c.keys = c.keys[:0]
		w.chunks = append(w.chunks, c)
	}
}

// add puts a timer into a bucket, behind the others.
func (w *wheel) add(b *bucket, x *timer, key []byte) {
	in := b.n % timersInChunk
	if in == 0 {
		w.extend(b)
	}
	c := b.chunks[len(b.chunks)-1]
	t := &c.timers[in]
	*t = *x
	t.key, t.size = uint32(len(c.keys)), uint32(len(key))
	c.keys = append(c.keys, key...)
	if b.n++; len(b.last) > 0 {
		b.link(uint32(b.n-1), w.first)
	}
}

// extend adds a chunk to a bucket. With the second one the bucket begins to link the timers of each group.
func (w *wheel) extend(b *bucket) {
	w.used++
	if n := len(w.chunks); n > 0 {
		b.chunks = append(b.chunks, w.chunks[n-1])
		w.chunks = w.chunks[:n-1]
	} else {
		b.chunks = append(b.chunks, &timerChunk{})
	}
	if len(b.chunks) == 2 {
		b.last = append(b.last[:0], make([]uint32, w.groups)...)
		for i := range uint32(b.n) {
			b.link(i, w.first)
		}
	}
}

// lowest returns the level of the earliest bucket, and the tick at which it begins.
func (w *wheel) lowest() (level int, begin uint64, ok bool) {
	for level = range levels {
		if w.full[level] != 0 {
			shift := level * digitBits
			above := w.horizon >> shift &^ (digits - 1)
			return level, (above | uint64(bits.TrailingZeros64(w.full[level]))) << shift, true
		}
	}
	return 0, 0, false
}

// take removes the bucket of a level that holds a tick.
func (w *wheel) take(level int, tick uint64) *bucket {
	digit := int(tick>>(level*digitBits)) % digits
	b := w.buckets[level][digit]
	w.buckets[level][digit] = nil
	w.full[level] &^= 1 << digit
	return b
}

// each visits every bucket.
func (w *wheel) each(visit func(*bucket)) {
	for level := range levels {
		for f := w.full[level]; f != 0; f &= f - 1 {
			visit(w.buckets[level][bits.TrailingZeros64(f)])
		}
	}
}

// moveTo sets the horizon to a tick that no timer lies before.
func (w *wheel) moveTo(horizon uint64) {
	w.horizon = horizon
	for level := levels - 1; level > 0; level-- {
		digit := int(horizon>>(level*digitBits)) % digits
		if w.full[level]>>digit&1 != 0 {
			w.spread(w.take(level, horizon))
		}
	}
}

// spread puts the timers of a bucket into those of lower levels.
func (w *wheel) spread(b *bucket) {
	for at, c := range b.chunks {
		for i := range min(b.n-at*timersInChunk, timersInChunk) {
			x := &c.timers[i]
			w.add(w.bucket(tick(x.at)), x, c.keys[x.key:x.key+x.size])
		}
		w.release(c)
	}
	clear(b.chunks)
	b.chunks = b.chunks[:0]
	w.giveBack(b)
}
