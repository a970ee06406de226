package state

import (
	"math"
	"slices"
)

// Timers are the pending event-time timers of an operator subtask. There is at most one timer of
// a key at a time; setting it twice is setting it once.
//
// They are kept by key group. In each, far timers lie unsorted in buckets, near ones (whose bucket
// has begun) in a heap: most timers are set long before they fire, and setting one is an append.
type Timers[K comparable] struct {
	codec  KeyCodec[K]
	first  int
	groups []groupTimers[K]
	next   tournament // of each group, the time before which nothing of it is due
	log    *changeLog // nil: not logged
	passed int64      // the last watermark that Fire was given
	run    []timer[K]
}

type groupTimers[K comparable] struct {
	near    queue[timer[K], *timer[K]]
	horizon int64 // buckets before it are in the heap
	buckets map[int64]*bucket[K]
	order   queue[bucketID, *bucketID]
	seq     uint64
	pending int
	passed  int64 // the watermark that a restore found for the group
}

// bucketWidth is 32 seconds, in microseconds.
const bucketWidth = 32_000_000

type timer[K comparable] struct {
	at      int64
	seq     uint64
	deleted bool
	overdue bool // its time had passed when it was set
	key     Key[K]
}

func (x *timer[K]) before(y *timer[K]) bool {
	if x.at != y.at {
		return x.at < y.at
	}
	return x.seq < y.seq
}

type bucket[K comparable] struct{ timers []timer[K] }

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
	*g = groupTimers[K]{horizon: math.MinInt64, buckets: map[int64]*bucket[K]{}, passed: math.MinInt64}
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
	x.key = *k
	t.logChange(&x)
	t.add(x)
	return nil
}

func (t *Timers[K]) logChange(x *timer[K]) {
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
	t.log.timer(kind, x.key.Group, x.at, func(b []byte) []byte { return t.codec.Append(b, &x.key.Value) })
}

func (t *Timers[K]) add(x timer[K]) {
	i := x.key.Group - t.first
	t.groups[i].add(x)
	if due := t.groups[i].due(); due < t.next.of(i) {
		t.next.set(i, due)
	}
}

func (g *groupTimers[K]) add(x timer[K]) {
	x.seq = g.seq
	g.seq++
	g.pending++
	id := floorDiv(x.at, bucketWidth)
	if id < g.horizon {
		g.near.push(x)
		return
	}
	b := g.buckets[id]
	if b == nil {
		b = &bucket[K]{}
		g.buckets[id] = b
		g.order.push(bucketID(id))
	}
	b.timers = append(b.timers, x)
}

// due returns a time before which no timer of the group fires.
func (g *groupTimers[K]) due() int64 {
	due := int64(math.MaxInt64)
	if len(g.near) > 0 {
		due = g.near[0].at
	}
	if len(g.order) > 0 {
		due = min(due, int64(g.order[0])*bucketWidth)
	}
	return due
}

// Advance notes how far event time has come, and reports whether Fire may find a timer.
func (t *Timers[K]) Advance(watermark int64) bool {
	t.passed = max(t.passed, watermark)
	return t.next.lowest() <= watermark
}

// Fire calls fire for every timer at or before the watermark. Those of one key group fire earliest
// first, and for one time in the order they were set. fire may set timers; those that are due
// fire in the same call.
func (t *Timers[K]) Fire(watermark int64, fire func(k *Key[K], at int64) error) error {
	t.Advance(watermark)
	for t.next.lowest() <= watermark && t.next.lowest() < math.MaxInt64 || t.endDue(watermark) {
		i := t.next.first()
		g := &t.groups[i]
		run := t.popRun(g, watermark)
		t.next.set(i, g.due())
		for j := range run {
			if err := fire(&run[j].key, run[j].at); err != nil {
				return err
			}
		}
	}
	return nil
}

// endDue reports whether timers at the end of time are due.
func (t *Timers[K]) endDue(watermark int64) bool {
	if watermark != math.MaxInt64 {
		return false
	}
	g := &t.groups[t.next.first()]
	return g.pending > 0
}

// popRun takes the timers of the group's earliest time, if it is due, and returns those that
// stand: of several operations on a key the last one counts.
func (t *Timers[K]) popRun(g *groupTimers[K], watermark int64) []timer[K] {
	for len(g.order) > 0 && int64(g.order[0]) <= floorDiv(watermark, bucketWidth) {
		id := int64(g.order.pop())
		b := g.buckets[id]
		delete(g.buckets, id)
		g.horizon = max(g.horizon, id+1)
		for _, x := range b.timers {
			g.near.push(x)
		}
	}
	t.run = t.run[:0]
	for len(g.near) > 0 && g.near[0].at <= watermark && (len(t.run) == 0 || g.near[0].at == t.run[0].at) {
		t.run = append(t.run, g.near.pop())
		g.pending--
	}
	t.voidOverdue(t.run)
	t.run = standing(t.run)
	return t.run
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
			t.logChange(&timer[K]{at: run[i].at, deleted: true, key: run[i].key})
		}
	}
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
	last := make(map[K]fate, len(run))
	for i := range run {
		f, seen := last[run[i].key.Value]
		if !seen || !f.set {
			f.place = i
		}
		f.set = !run[i].deleted
		last[run[i].key.Value] = f
	}
	kept := run[:0]
	for i := range run {
		if f := last[run[i].key.Value]; f.set && f.place == i {
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

// base logs every pending timer of a group, in the order in which they were set.
func (t *Timers[K]) base(groupID int) {
	g := &t.groups[groupID-t.first]
	near := slices.Clone(g.near)
	slices.SortFunc(near, func(a, b timer[K]) int {
		if a.seq < b.seq {
			return -1
		}
		return 1
	})
	for i := range near {
		t.logChange(&near[i])
	}
	ids := slices.Clone(g.order)
	slices.Sort(ids)
	for _, id := range ids {
		for i := range g.buckets[int64(id)].timers {
			t.logChange(&g.buckets[int64(id)].timers[i])
		}
	}
}

// restore does again what a record of the log says.
func (t *Timers[K]) restore(kind byte, groupID int, at int64, key []byte) error {
	k, err := t.codec.Decode(key)
	if err != nil {
		return err
	}
	t.add(timer[K]{
		at: at, deleted: kind == untimerRecord, overdue: kind == overdueRecord,
		key: Key[K]{Hash: t.codec.Hash(key), Group: groupID, Value: k, owned: true},
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
