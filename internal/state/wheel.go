package state

import "math/bits"

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

// bucket holds timers in the order in which they were set.
type bucket struct {
	timers []timer
	keys   []byte
	// last is, of each group, 1 + the place of its latest timer. A small bucket has none: there one
	// looks at every timer.
	last []uint32
}

// smallBucket is how many timers a bucket has at the most that does not know the groups of its timers.
const smallBucket = 64

func (b *bucket) keyOf(x *timer) []byte { return b.keys[x.key : x.key+x.size] }

// add puts a timer behind the others. first and groups are the operator's key groups.
func (b *bucket) add(x *timer, key []byte, first, groups int) {
	b.timers = append(b.timers, *x)
	t := &b.timers[len(b.timers)-1]
	t.key, t.size = uint32(len(b.keys)), uint32(len(key))
	b.keys = append(b.keys, key...)
	switch n := len(b.timers); {
	case n == smallBucket+1:
		b.last = append(b.last[:0], make([]uint32, groups)...)
		for i := range b.timers {
			b.link(uint32(i), first)
		}
	case n > smallBucket:
		b.link(uint32(n-1), first)
	}
}

func (b *bucket) link(i uint32, first int) {
	x := &b.timers[i]
	last := &b.last[int(x.group)-first]
	x.before, *last = *last, i+1
}

// of appends the places of a group's timers, in the order in which they were set.
func (b *bucket) of(group, first int, dst []uint32) []uint32 {
	if len(b.timers) <= smallBucket {
		for i := range b.timers {
			if int(b.timers[i].group) == group {
				dst = append(dst, uint32(i))
			}
		}
		return dst
	}
	begin := len(dst)
	for i := b.last[group-first]; i > 0; i = b.timers[i-1].before {
		dst = append(dst, i-1)
	}
	for i, j := begin, len(dst)-1; i < j; i, j = i+1, j-1 {
		dst[i], dst[j] = dst[j], dst[i]
	}
	return dst
}

func (b *bucket) reset() {
	b.timers, b.keys, b.last = b.timers[:0], b.keys[:0], b.last[:0]
}

// A wheel keeps timers in buckets by their time. Those of the lowest level are 2^tickBits
// microseconds wide (4.2 s), those of the next one 64 times as much, and so on up to all of time. A
// timer lies at the level of the highest digit (of 64) in which its time differs from the horizon;
// when the horizon comes to a bucket of a higher level, its timers go to lower ones. So setting a
// timer is an append, however far away it is, and timers of one time stay in the order in which they
// were set.
type wheel struct {
	horizon uint64 // the first tick of which timers may lie here
	full    [levels]uint64
	buckets [levels][]*bucket
	spare   [levels][]*bucket // to be used again
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
		w.buckets[level][digit] = w.fresh(level)
		w.full[level] |= 1 << digit
	}
	return w.buckets[level][digit]
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
	for i := range b.timers {
		first = min(first, tick(b.timers[i].at))
	}
	return first
}

func (w *wheel) fresh(level int) *bucket {
	if n := len(w.spare[level]); n > 0 {
		b := w.spare[level][n-1]
		w.spare[level] = w.spare[level][:n-1]
		return b
	}
	return &bucket{}
}

// maxSpareBuckets is how many buckets of a level are kept to be used again.
const maxSpareBuckets = 8

func (w *wheel) giveBack(level int, b *bucket) {
	if b.reset(); len(w.spare[level]) < maxSpareBuckets {
		w.spare[level] = append(w.spare[level], b)
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
func (w *wheel) moveTo(horizon uint64, first, groups int) {
	w.horizon = horizon
	for level := levels - 1; level > 0; level-- {
		digit := int(horizon>>(level*digitBits)) % digits
		if w.full[level]>>digit&1 == 0 {
			continue
		}
		b := w.take(level, horizon)
		for i := range b.timers {
			x := &b.timers[i]
			w.bucket(tick(x.at)).add(x, b.keyOf(x), first, groups)
		}
		w.giveBack(level, b)
	}
}
