package state

import (
	"cmp"
	"math"
	"slices"
)

// Timers are the pending timers of an operator subtask, in event time or in processing time. There is at most one timer of
// a key at a time; setting it twice is setting it once.
//
// They are kept by key group. In each, far timers lie unsorted in buckets: most timers are set long
// before they fire, and setting one is an append. A bucket is sorted when event time comes to it, and
// what is set behind that lies in a heap.
type Timers[K comparable] struct {
	codec  KeyCodec[K]
	first  int
	groups []groupTimers[K]
	next   tournament // of each group, the time before which nothing of it is due
	log    *changeLog // nil: not logged
	domain byte       // added to the kinds of records
	passed int64      // the last watermark that Fire was given
	seq    uint64     // of the next timer that is set
	run    []timer[K]
	key    Key[K] // of the timer that fires
	soon   func(group int, hashes []uint64)
	hashes []uint64
	seen   []uint64
	logged K            // the key that is being logged, here so that it does not escape
	spare  [][]timer[K] // buckets to be used again
}

type groupTimers[K comparable] struct {
	sorted  []timer[K] // of buckets that event time has come to; those before head are gone
	head    int
	late    queue[timer[K], *timer[K]] // set after their bucket was sorted
	horizon int64                      // buckets before it have been sorted
	buckets map[int64][]timer[K]
	order   queue[bucketID, *bucketID]
	pending int
	passed  int64 // the watermark that a restore found for the group
}

// bucketWidth is 32 seconds, in microseconds.
const bucketWidth = 32_000_000

// bucketStart is the capacity that a bucket begins with.
const bucketStart = 16

type timer[K comparable] struct {
	at      int64
	seq     uint64
	hash    uint64
	key     K
	group   int32
	deleted bool
	overdue bool // its time had passed when it was set
}

func (x *timer[K]) before(y *timer[K]) bool {
	if x.at != y.at {
		return x.at < y.at
	}
	return x.seq < y.seq
}

type bucketID int64

func (b *bucketID) before(other *bucketID) bool { return *b < *other }

// NewTimers returns no timers, over the key groups [first, end).
func NewTimers[K comparable](first, end int, codec KeyCodec[K]) *Timers[K] {
	t := &Timers[K]{
		codec: codec, first: first, groups: make([]groupTimers[K], end-first),
		next: newTournament(end - first), passed: math.MinInt64,
	}
	for i := range t.groups {
		t.groups[i].clear()
	}
	return t
}

func (g *groupTimers[K]) clear() {
	*g = groupTimers[K]{horizon: math.MinInt64, buckets: map[int64][]timer[K]{}, passed: math.MinInt64}
}

// Set adds the timer of a key at a time.
func (t *Timers[K]) Set(k *Key[K], at int64) error {
	passed := max(t.passed, t.groups[k.Group-t.first].passed)
	return t.change(k, timer[K]{at: at, overdue: at <= passed})
}

// Delete removes the timer of a key at a time, if it is set.
func (t *Timers[K]) Delete(k *Key[K], at int64) error {
	return t.change(k, timer[K]{at: at, deleted: true})
}

func (t *Timers[K]) change(k *Key[K], x timer[K]) error {
	if err := k.take(t.codec); err != nil {
		return err
	}
	x.hash, x.key = k.Hash, k.Value
	x.at = min(x.at, math.MaxInt64-1) // the end of time itself is when nothing is pending
	t.logChange(k.Group, &x)
	t.add(k.Group, x)
	return nil
}

func (t *Timers[K]) logChange(group int, x *timer[K]) {
	if t.log == nil {
		return
	}
	kind := byte(timerRecord)
	switch {
	case x.deleted:
		kind = untimerRecord
	case x.overdue:
		kind = overdueRecord
	}
	t.logged = x.key
	t.log.timer(t.domain+kind, group, x.at, func(b []byte) []byte { return t.codec.Append(b, &t.logged) })
}

func (t *Timers[K]) add(group int, x timer[K]) {
	i := group - t.first
	g := &t.groups[i]
	x.seq, x.group = t.seq, int32(group)
	t.seq++
	g.pending++
	if id := floorDiv(x.at, bucketWidth); id < g.horizon {
		g.late.push(x)
	} else {
		b, ok := g.buckets[id]
		if !ok {
			b = t.newBucket()
			g.order.push(bucketID(id))
		}
		g.buckets[id] = append(b, x)
	}
	if due := g.due(); due < t.next.of(i) {
		t.next.set(i, due)
	}
}

func (t *Timers[K]) newBucket() []timer[K] {
	if n := len(t.spare); n > 0 {
		b := t.spare[n-1]
		t.spare = t.spare[:n-1]
		return b
	}
	return make([]timer[K], 0, bucketStart)
}

// maxSpare is how many buckets are kept to be used again.
const maxSpare = 1024

func (t *Timers[K]) giveBack(b []timer[K]) {
	if clear(b); len(t.spare) < maxSpare {
		t.spare = append(t.spare, b[:0])
	}
}

// due returns a time before which no timer of the group fires.
func (g *groupTimers[K]) due() int64 {
	due := g.near()
	if len(g.order) > 0 {
		due = min(due, int64(g.order[0])*bucketWidth)
	}
	return due
}

// Next returns a time before which no timer is due; the end of time if none is pending.
func (t *Timers[K]) Next() int64 { return t.next.lowest() }

// Advance notes how far event time has come, and reports whether Fire may find a timer.
func (t *Timers[K]) Advance(watermark int64) bool {
	t.passed = max(t.passed, watermark)
	return t.next.lowest() <= watermark
}

// Fire calls fire for every timer at or before the watermark, earliest first, and for one time in
// the order they were set. fire may set timers; those that are due fire in the same call.
func (t *Timers[K]) Fire(watermark int64, fire func(k *Key[K], at int64) error) error {
	t.Advance(watermark)
	for t.pop(watermark) {
		for i := range t.run {
			x := &t.run[i]
			t.key = Key[K]{Hash: x.hash, Group: int(x.group), Value: x.key, owned: true}
			if err := fire(&t.key, x.at); err != nil {
				return err
			}
		}
	}
	return nil
}

// pop takes the timers of the earliest time of all groups, if it is due, and leaves in run those
// that stand: of several operations on a key the last one counts.
func (t *Timers[K]) pop(watermark int64) bool {
	t.run = t.run[:0]
	i := t.earliest()
	at := t.groups[i].due()
	if at > watermark || at == math.MaxInt64 { // nothing is pending
		return false
	}
	groups := 0
	for ; t.groups[i].due() == at; groups++ {
		t.take(&t.groups[i], at)
		t.next.set(i, t.groups[i].due())
		i = t.earliest()
	}
	if groups > 1 {
		slices.SortFunc(t.run, func(x, y timer[K]) int { return cmp.Compare(x.seq, y.seq) })
	}
	t.voidOverdue(t.run)
	if t.mixed(t.run) {
		t.run = standing(t.run)
	}
	return true
}

// earliest returns the group with the earliest timer. What is known of a group may be the beginning of
// a bucket; the bucket is then sorted, until the time that is known is that of a timer.
func (t *Timers[K]) earliest() int {
	for {
		i := t.next.first()
		g := &t.groups[i]
		if len(g.order) == 0 || int64(g.order[0])*bucketWidth > g.near() {
			return i
		}
		t.sortBucket(t.first+i, g, int64(g.order.pop()))
		t.next.set(i, g.due())
	}
}

// near returns the time of the earliest timer outside of the buckets.
func (g *groupTimers[K]) near() int64 {
	at := int64(math.MaxInt64)
	if g.head < len(g.sorted) {
		at = g.sorted[g.head].at
	}
	if len(g.late) > 0 {
		at = min(at, g.late[0].at)
	}
	return at
}

// take moves the group's timers of a time to run, in the order in which they were set: what came
// late was set after what lay in a bucket.
func (t *Timers[K]) take(g *groupTimers[K], at int64) {
	before := len(t.run)
	for g.head < len(g.sorted) && g.sorted[g.head].at == at {
		t.run = append(t.run, g.sorted[g.head])
		g.sorted[g.head] = timer[K]{}
		g.head++
	}
	for len(g.late) > 0 && g.late[0].at == at {
		t.run = append(t.run, g.late.pop())
	}
	g.pending -= len(t.run) - before
}

// sortBucket puts the earliest bucket behind those that have been sorted before, and tells whose
// timers they are: they fire soon.
func (t *Timers[K]) sortBucket(group int, g *groupTimers[K], id int64) {
	b := g.buckets[id]
	delete(g.buckets, id)
	g.horizon = max(g.horizon, id+1)
	slices.SortFunc(b, func(x, y timer[K]) int {
		if x.before(&y) {
			return -1
		}
		return 1
	})
	if g.head > 0 { // what is gone would pile up: event time seldom stands at the end of a bucket
		n := copy(g.sorted, g.sorted[g.head:])
		clear(g.sorted[n:])
		g.sorted, g.head = g.sorted[:n], 0
	}
	g.sorted = append(g.sorted, b...)
	if t.soon != nil {
		t.hashes = t.hashes[:0]
		for i := range b {
			t.hashes = append(t.hashes, b[i].hash)
		}
		t.soon(group, t.hashes)
	}
	t.giveBack(b)
}

// voidOverdue logs that the overdue timers among these are gone: no watermark says so, and they
// would fire again after a restore. A run may hold one beside a timer of the same key and time that
// was set before:
//
//	timers at 10 and 20 wait; event time comes to 30; the one at 10 fires and sets 20 again, which
//	has passed by now.
func (t *Timers[K]) voidOverdue(run []timer[K]) {
	if t.log == nil {
		return
	}
	for i := range run {
		if run[i].overdue && !run[i].deleted {
			t.logChange(int(run[i].group), &timer[K]{at: run[i].at, deleted: true, key: run[i].key})
		}
	}
}

// mixed reports whether the timers may hold several operations on one key. Most often each is of
// another key, and many are of one time: the end of a window, say.
func (t *Timers[K]) mixed(run []timer[K]) bool {
	if len(run) == 1 {
		return run[0].deleted
	}
	size := 4
	for size < 2*len(run) {
		size *= 2
	}
	t.seen = slices.Grow(t.seen[:0], size)[:size]
	clear(t.seen)
	for i := range run {
		if run[i].deleted {
			return true
		}
		h := run[i].hash | 1 // 0 is an empty place; a hash that is taken for another costs time alone
		at := int(h*0x9E3779B97F4A7C15>>32) & (size - 1)
		for ; t.seen[at] != 0; at = (at + 1) & (size - 1) {
			if t.seen[at] == h {
				return true
			}
		}
		t.seen[at] = h
	}
	return false
}

// standing keeps of timers of one time, in the order they were set or deleted, those that are
// set in the end, at the place where they were first set.
func standing[K comparable](run []timer[K]) []timer[K] {
	switch len(run) {
	case 0:
		return run
	case 1:
		if run[0].deleted {
			return run[:0]
		}
		return run
	}
	type fate struct {
		set   bool
		place int
	}
	type owner struct {
		group int32
		key   K
	}
	last := make(map[owner]fate, len(run))
	for i := range run {
		o := owner{run[i].group, run[i].key}
		f, seen := last[o]
		if !seen || !f.set {
			f.place = i
		}
		f.set = !run[i].deleted
		last[o] = f
	}
	kept := run[:0]
	for i := range run {
		if f := last[owner{run[i].group, run[i].key}]; f.set && f.place == i {
			kept = append(kept, run[i])
		}
	}
	return kept
}

// Len returns the number of pending operations, an upper bound of the pending timers.
func (t *Timers[K]) Len() int {
	n := 0
	for i := range t.groups {
		n += t.groups[i].pending
	}
	return n
}

// base logs every pending timer of a group; those of one time in the order in which they were set.
func (t *Timers[K]) base(groupID int) {
	g := &t.groups[groupID-t.first]
	for i := g.head; i < len(g.sorted); i++ {
		t.logChange(groupID, &g.sorted[i])
	}
	late := slices.Clone(g.late)
	slices.SortFunc(late, func(a, b timer[K]) int { return cmp.Compare(a.seq, b.seq) })
	for i := range late {
		t.logChange(groupID, &late[i])
	}
	ids := slices.Clone(g.order)
	slices.Sort(ids)
	for _, id := range ids {
		b := g.buckets[int64(id)]
		for i := range b {
			t.logChange(groupID, &b[i])
		}
	}
}

// restore does again what a record of the log says.
func (t *Timers[K]) restore(kind byte, groupID int, at int64, key []byte) error {
	k, err := t.codec.Decode(key)
	if err != nil {
		return err
	}
	t.add(groupID, timer[K]{
		at: at, deleted: kind == untimerRecord, overdue: kind == overdueRecord,
		hash: t.codec.Hash(key), key: k,
	})
	return nil
}

// clear removes every timer of a group.
func (t *Timers[K]) clear(groupID int) {
	g := &t.groups[groupID-t.first]
	passed := g.passed
	g.clear()
	g.passed = passed
	t.next.set(groupID-t.first, math.MaxInt64)
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
