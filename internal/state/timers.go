package state

import "slices"

// Timers are the pending event-time timers of an operator subtask. There is at most one timer of
// a key at a time; setting it twice is setting it once.
//
// Far timers lie unsorted in buckets of a second, near ones (whose bucket has begun) in a heap: most
// timers are set long before they fire, and setting one is then an append.
type Timers[K comparable] struct {
	codec   KeyCodec[K]
	near    queue[timer[K], *timer[K]]
	horizon int64 // buckets before it are in the heap
	buckets map[int64]*bucket[K]
	order   queue[bucketID, *bucketID]
	seq     uint64
	run     []timer[K]
}

// bucketWidth is one second, in microseconds.
const bucketWidth = 1_000_000

type timer[K comparable] struct {
	at      int64
	seq     uint64
	deleted bool
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

// NewTimers returns no timers.
func NewTimers[K comparable](codec KeyCodec[K]) *Timers[K] {
	return &Timers[K]{codec: codec, horizon: -1 << 63, buckets: map[int64]*bucket[K]{}}
}

// Set adds the timer of a key at a time.
func (t *Timers[K]) Set(k *Key[K], at int64) error {
	if err := k.take(t.codec); err != nil {
		return err
	}
	t.add(timer[K]{at: at, key: *k})
	return nil
}

// Delete removes the timer of a key at a time, if it is set.
func (t *Timers[K]) Delete(k *Key[K], at int64) error {
	if err := k.take(t.codec); err != nil {
		return err
	}
	t.add(timer[K]{at: at, key: *k, deleted: true})
	return nil
}

func (t *Timers[K]) add(x timer[K]) {
	x.seq = t.seq
	t.seq++
	id := floorDiv(x.at, bucketWidth)
	if id < t.horizon {
		t.near.push(x)
		return
	}
	b := t.buckets[id]
	if b == nil {
		b = &bucket[K]{}
		t.buckets[id] = b
		t.order.push(bucketID(id))
	}
	b.timers = append(b.timers, x)
}

// Due reports whether Fire may find a timer.
func (t *Timers[K]) Due(watermark int64) bool {
	return len(t.near) > 0 && t.near[0].at <= watermark ||
		len(t.order) > 0 && int64(t.order[0]) <= floorDiv(watermark, bucketWidth)
}

// Fire calls fire for every timer at or before the watermark, earliest first and for one time in
// the order they were set. fire may set timers; those that are due fire in the same call.
func (t *Timers[K]) Fire(watermark int64, fire func(k *Key[K], at int64) error) error {
	for {
		t.bringNear(watermark)
		if len(t.near) == 0 || t.near[0].at > watermark {
			return nil
		}
		run := t.popRun()
		for i := range run {
			if err := fire(&run[i].key, run[i].at); err != nil {
				return err
			}
		}
	}
}

// bringNear moves buckets that begin at or before the watermark into the heap.
func (t *Timers[K]) bringNear(watermark int64) {
	for len(t.order) > 0 && int64(t.order[0]) <= floorDiv(watermark, bucketWidth) {
		id := int64(t.order.pop())
		b := t.buckets[id]
		delete(t.buckets, id)
		t.horizon = max(t.horizon, id+1)
		for _, x := range b.timers {
			t.near.push(x)
		}
	}
}

// popRun takes the timers of the earliest time and returns those that stand: of several
// operations on a key the last one counts.
func (t *Timers[K]) popRun() []timer[K] {
	at := t.near[0].at
	t.run = t.run[:0]
	for len(t.near) > 0 && t.near[0].at == at {
		t.run = append(t.run, t.near.pop())
	}
	t.run = standing(t.run)
	return t.run
}

// standing keeps of timers of one time, in the order they were set or deleted, those that are
// set in the end, at the place where they were first set.
func standing[K comparable](run []timer[K]) []timer[K] {
	if len(run) == 1 {
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
	n := len(t.near)
	for _, b := range t.buckets {
		n += len(b.timers)
	}
	return n
}

// ByGroup returns the pending timers of the groups [first, end), each group's in firing order.
func (t *Timers[K]) ByGroup(first, end int) [][]timer[K] {
	all := append([]timer[K](nil), t.near...)
	for _, b := range t.buckets {
		all = append(all, b.timers...)
	}
	slices.SortFunc(all, func(a, b timer[K]) int {
		if a.before(&b) {
			return -1
		}
		return 1
	})
	groups := make([][]timer[K], end-first)
	for from := 0; from < len(all); {
		to := from + 1
		for to < len(all) && all[to].at == all[from].at {
			to++
		}
		for _, x := range standing(all[from:to]) {
			groups[x.key.Group-first] = append(groups[x.key.Group-first], x)
		}
		from = to
	}
	return groups
}

// AppendTimers appends the encoding of timers that ByGroup returned.
func AppendTimers[K comparable](dst []byte, timers []timer[K], keys KeyCodec[K]) []byte {
	dst = AppendInt(dst, int64(len(timers)))
	for i := range timers {
		dst = AppendInt(dst, timers[i].at)
		dst, _ = AppendSized(dst, func(b []byte) ([]byte, error) {
			return keys.Append(b, &timers[i].key.Value), nil
		})
	}
	return dst
}

// RestoreGroup adds what AppendTimers wrote.
func (t *Timers[K]) RestoreGroup(d *Decoder, groupID int, keys KeyCodec[K]) error {
	for n := d.Int(); n > 0 && d.Err() == nil; n-- {
		at, encoded := d.Int(), d.Sized()
		if d.Err() != nil {
			break
		}
		k, err := keys.Decode(encoded)
		if err != nil {
			return err
		}
		t.add(timer[K]{at: at, key: Key[K]{
			Hash: keys.Hash(encoded), Group: groupID, Value: k, owned: true,
		}})
	}
	return d.Err()
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
