package state

import (
	"bytes"
	"fmt"
	"math"
	"slices"
)

// Timers are the pending timers of an operator subtask, in event time or in processing time. There is at
// most one timer of a key at a time; setting it a thousand times is setting it once, and takes the memory of
// a few (thin).
//
// Most timers are set long before they fire: they lie in the buckets of a wheel. When event time comes
// to a bucket of the two lowest levels it is opened: its timers are sorted where they are. What is set behind
// the horizon lies in a heap.
type Timers[K comparable] struct {
	codec  KeyCodec[K]
	first  int
	log    *changeLog // nil: not logged
	domain byte       // added to the kinds of records
	passed int64      // the last watermark that Fire or Advance was given
	floors []int64    // of each group, the watermark that a restore found
	counts []int      // of each group, how many are pending
	next   int64      // nothing is due before it

	wheel wheel
	open  [2]opened // of the two lowest levels
	late  lateTimers

	run     []timer // of one time, about to fire
	runKeys []byte
	key     Key[K] // of the timer that fires
	back    K      // of Key.check
	fates   []fate // of standing
	seen    []uint32
	places  []uint32 // of base

	crowded int // how many timers a bucket has before it is thinned
	thinner thinner

	// soon is told whose timers fire soon.
	soon   func(groups []uint16, hashes []uint64)
	groups []uint16
	hashes []uint64
}

// NewTimers returns no timers, over the key groups [first, end).
func NewTimers[K comparable](first, end int, codec KeyCodec[K]) *Timers[K] {
	t := &Timers[K]{
		codec: codec, first: first, crowded: crowded, passed: math.MinInt64, next: math.MaxInt64,
		floors: make([]int64, end-first), counts: make([]int, end-first),
	}
	t.wheel.first, t.wheel.groups = first, end-first
	for i := range t.floors {
		t.floors[i] = math.MinInt64
	}
	return t
}

// Set adds the timer of a key at a time.
func (t *Timers[K]) Set(k *Key[K], at int64) error {
	if err := k.check(&t.back); err != nil {
		return err
	}
	kind := byte(timerRecord)
	if at <= max(t.passed, t.floors[k.Group-t.first]) {
		kind = overdueRecord
	}
	return t.change(k, at, kind)
}

// Delete removes the timer of a key at a time, if it is set.
func (t *Timers[K]) Delete(k *Key[K], at int64) error { return t.change(k, at, untimerRecord) }

func (t *Timers[K]) change(k *Key[K], at int64, kind byte) error {
	at = min(at, math.MaxInt64-1) // the end of time itself is when nothing is pending
	if t.log != nil {
		t.log.timer(t.domain+kind, k.Group, at, k.Encoded)
	}
	return t.add(&timer{at: at, hash: k.Hash, group: uint16(k.Group), kind: kind}, k.Encoded)
}

// maxTimerKey is how long the encoding of a key with timers may be.
const maxTimerKey = math.MaxUint32 / timersInChunk

func (t *Timers[K]) add(x *timer, key []byte) error {
	if len(key) > maxTimerKey {
		return fmt.Errorf("state: a key of %d bytes is too long for a timer", len(key))
	}
	t.counts[int(x.group)-t.first]++
	if t.wheel.empty() {
		t.wheel.horizon = max(t.wheel.horizon, tick(t.passed))
	}
	at := tick(x.at)
	if at < t.wheel.horizon {
		t.late.add(x, key)
		t.next = min(t.next, x.at)
		return nil
	}
	b := t.wheel.bucket(at)
	t.wheel.add(b, x, key)
	if b.n >= max(b.thinAt, t.crowded) {
		t.thin(at, b)
	}
	t.next = min(t.next, began(t.wheel.begin(at)))
	return nil
}

// Next returns a time before which no timer is due; the end of time if none is pending.
func (t *Timers[K]) Next() int64 { return t.next }

// Advance notes how far event time has come, and reports whether Fire may find a timer.
func (t *Timers[K]) Advance(watermark int64) bool {
	t.passed = max(t.passed, watermark)
	return t.next <= watermark
}

// Fire calls fire for every timer at or before the watermark, earliest first, and for one time in
// the order they were set. fire may set timers; those that are due fire in the same call. The key is
// good until fire returns.
func (t *Timers[K]) Fire(watermark int64, fire func(k *Key[K], at int64) error) error {
	t.Advance(watermark)
	for {
		if fired, err := t.FireNext(watermark, fire); err != nil || !fired {
			return err
		}
	}
}

// FireNext is Fire for the timers of the earliest time alone, and reports whether one was due.
func (t *Timers[K]) FireNext(watermark int64, fire func(k *Key[K], at int64) error) (fired bool, err error) {
	if t.next > watermark || !t.pop(watermark) {
		return false, nil
	}
	for i := range t.run {
		x := &t.run[i]
		t.key = Key[K]{
			Hash: x.hash, Group: int(x.group), Encoded: t.runKeys[x.key : x.key+x.size],
			codec: &t.codec, sound: true,
		}
		if err := fire(&t.key, x.at); err != nil {
			return true, err
		}
	}
	return true, nil
}

// pop takes the timers of the earliest time, if it is due, and leaves in run those that stand: of
// several operations on a key the last one counts.
func (t *Timers[K]) pop(watermark int64) bool {
	t.run, t.runKeys = t.run[:0], t.runKeys[:0]
	t.openNext(watermark)
	at := t.near()
	if at > watermark || at == math.MaxInt64 { // nothing is pending
		t.next = at
		if _, begin, ok := t.wheel.lowest(); ok {
			t.next = min(at, began(begin))
		}
		return false
	}
	for level := len(t.open) - 1; level >= 0; level-- { // set before those below, and these before the late ones
		for o := &t.open[level]; o.at() == at; t.look(o) {
			place := o.pop()
			t.take(o.bucket.at(place), o.bucket.keyOf(place))
		}
	}
	for t.late.at() == at {
		x := t.late.queue[0]
		t.take(&x.timer, t.late.keyOf(&x.timer))
		t.late.pop()
	}
	t.voidOverdue()
	t.run = t.standing(t.run)
	return true
}

// near returns the time of the earliest timer outside of the wheel.
func (t *Timers[K]) near() int64 { return min(t.open[0].at(), t.open[1].at(), t.late.at()) }

func (t *Timers[K]) take(x *timer, key []byte) {
	t.counts[int(x.group)-t.first]--
	t.run = append(t.run, *x)
	r := &t.run[len(t.run)-1]
	r.key = uint32(len(t.runKeys))
	t.runKeys = append(t.runKeys, key...)
}

// openNext opens the earliest bucket, if the watermark has come to it and nothing is due before it. So what
// was opened before at its level has fired: it lies before the bucket.
func (t *Timers[K]) openNext(watermark int64) {
	for {
		level, begin, ok := t.wheel.lowest()
		if !ok || began(begin) > min(watermark, t.near()) {
			return
		}
		if level < len(t.open) {
			o := &t.open[level]
			was := o.bucket
			o.open(t.wheel.take(level, begin), began(begin), tickBits+level*digitBits)
			if was != nil {
				t.wheel.giveBack(was)
			}
			// What is set from here on for a tick that is opened is late; a bucket of the upper level stays
			// open while what is set for its time goes to lower ones.
			t.wheel.moveTo(begin + uint64(1-level))
			t.look(o)
			continue
		}
		// What is set from here on shall not be late if it is later than the watermark.
		next := min(t.wheel.earliest(level, begin), tick(watermark))
		t.wheel.moveTo(max(begin, next))
	}
}

// ahead is for how many timers soon is told at once: what they read stays in a cache until they fire.
const ahead = 128

// look tells whose timers fire soon.
func (t *Timers[K]) look(o *opened) {
	if t.soon == nil || o.head%ahead != 0 {
		return
	}
	t.groups, t.hashes = t.groups[:0], t.hashes[:0]
	for _, next := range o.due[o.head:min(o.head+ahead, len(o.due))] {
		x := o.bucket.at(uint32(next))
		t.groups, t.hashes = append(t.groups, x.group), append(t.hashes, x.hash)
	}
	t.soon(t.groups, t.hashes)
}

// voidOverdue logs that the overdue timers of the run are gone: no watermark says so, and they
// would fire again after a restore. A run may hold one beside a timer of the same key and time that
// was set before:
//
//	timers at 10 and 20 wait; event time comes to 30; the one at 10 fires and sets 20 again, which
//	has passed by now.
func (t *Timers[K]) voidOverdue() {
	if t.log == nil {
		return
	}
	for i := range t.run {
		if x := &t.run[i]; x.kind == overdueRecord {
			t.log.timer(t.domain+untimerRecord, int(x.group), x.at, t.runKeys[x.key:x.key+x.size])
		}
	}
}

// fate is what becomes of the timer of a key at a time.
type fate struct {
	key int32 // the place of the key's first operation
	set bool
	at  int32 // where the timer that stands was first set
}

// standing keeps of timers of one time, in the order they were set or deleted, those that are
// set in the end, at the place where they were first set. Most often each is of another key, and many
// are of one time: the end of a window, say.
func (t *Timers[K]) standing(run []timer) []timer {
	if len(run) == 1 {
		if run[0].kind == untimerRecord {
			return run[:0]
		}
		return run
	}
	t.decide(run)
	kept := run[:0]
	for i := range run {
		if f := t.fates[t.fates[i].key]; f.set && int(f.at) == i {
			kept = append(kept, run[i])
		}
	}
	return kept
}

// decide finds the fates of all keys of a run.
func (t *Timers[K]) decide(run []timer) {
	size := 4
	for size < 2*len(run) {
		size *= 2
	}
	t.seen = slices.Grow(t.seen[:0], size)[:size]
	clear(t.seen)
	t.fates = t.fates[:0]
	for i := range run {
		x := &run[i]
		t.fates = append(t.fates, fate{key: int32(i), at: int32(i)})
		at := int(fragment(x.hash)) & (size - 1)
		for ; t.seen[at] != 0; at = (at + 1) & (size - 1) {
			if j := t.seen[at] - 1; t.same(x, &run[j]) {
				t.fates[i].key = int32(j)
				break
			}
		}
		f := &t.fates[t.fates[i].key]
		if int(f.key) == i {
			t.seen[at] = uint32(i) + 1
		}
		if !f.set {
			f.at = int32(i)
		}
		f.set = x.kind != untimerRecord
	}
}

func (t *Timers[K]) same(x, y *timer) bool {
	return x.hash == y.hash && x.group == y.group &&
		bytes.Equal(t.runKeys[x.key:x.key+x.size], t.runKeys[y.key:y.key+y.size])
}

// Len returns the number of pending operations, an upper bound of the pending timers.
func (t *Timers[K]) Len() int {
	n := 0
	for _, c := range t.counts {
		n += c
	}
	return n
}

// base logs every pending timer of a group; those of one time in the order in which they were set.
func (t *Timers[K]) base(group int) {
	if t.counts[group-t.first] == 0 {
		return
	}
	for level := len(t.open) - 1; level >= 0; level-- {
		if b := t.open[level].bucket; b != nil {
			t.baseOf(group, b)
		}
	}
	t.places = t.late.of(group, t.places[:0])
	for _, i := range t.places {
		x := &t.late.queue[i].timer
		t.log.timer(t.domain+x.kind, group, x.at, t.late.keyOf(x))
	}
	t.wheel.each(func(b *bucket) { t.baseOf(group, b) })
}

func (t *Timers[K]) baseOf(group int, b *bucket) {
	t.places = b.of(group, t.first, t.places[:0])
	for _, i := range t.places {
		if x := b.at(i); !x.gone {
			t.log.timer(t.domain+x.kind, group, x.at, b.keyOf(i))
		}
	}
}

// restore does again what a record of the log says.
func (t *Timers[K]) restore(kind byte, group int, at int64, key []byte) error {
	k, err := t.codec.restored(group, key)
	if err != nil {
		return err
	}
	return t.add(&timer{at: at, hash: k.Hash, group: uint16(group), kind: kind}, key)
}
