package state

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"example.com/weir/connector"
)

// Deadlines is a table whose entries have a deadline each, in event time: what is to happen to an entry
// that is still there at that time happens then, and it is gone after that unless it was given a later one.
//
// A deadline lies in its entry, so to move it costs a write there, and a snapshot holds nothing beside
// the entries. That an entry went at its deadline is in no log, but where the log may say a later one of it
// (remove): a restore knows how far event time had come, and leaves out what was due by then.
//
// When an entry is to be looked at, the agenda knows. An entry is in one list, and its filed says in which;
// when it is looked at and its deadline has moved on, it goes into another one. What other lists say of
// it is void:
//
//	an entry goes while its list waits; another key takes its place, and is filed in a list of its own;
//	the first list comes, and finds an entry that was filed elsewhere.
type Deadlines[K comparable, V any] struct {
	table  *Table[K, limited[V]]
	codec  limitedCodec[V]
	agenda agenda
	open   order      // of the tick that event time has come to
	opened []dueEntry // its places
	tick   uint64
	late   queue[lateEntry, *lateEntry] // set behind the horizon
	next   int64                        // no deadline is before it
	limit  int                          // of what agenda and late hold, before it is swept

	here  location // of the entry that was asked for last
	key   Key[K]   // of the entry that is due
	bytes []byte   // its encoding

	groups []uint16 // of look
	hashes []uint64
	soon   func(groups []uint16, hashes []uint64)
}

// limited is a value with its deadline.
type limited[V any] struct {
	deadline int64
	filed    uint64 // the tick of its list, or inLate, or unfiled
	value    V
}

const (
	unfiled = 0
	inLate  = 1
	// noDeadline is the deadline of an entry that was given none.
	noDeadline = math.MaxInt64
)

// dueEntry is an entry whose tick has come, with the hash of its key.
type dueEntry struct {
	entry location
	hash  uint64
}

type lateEntry struct {
	at    int64
	entry location
}

func (x *lateEntry) before(y *lateEntry) bool { return x.at < y.at }

// DeclareDeadlines declares a table whose entries have deadlines.
func DeclareDeadlines[K comparable, V any](
	k *Keyed[K], name string, codec connector.Codec[V],
) (*Deadlines[K, V], error) {
	d := &Deadlines[K, V]{
		table: NewTable[K, limited[V]](k.First, k.End, k.codec), codec: limitedCodec[V]{codec},
		agenda: newAgenda(), next: math.MaxInt64, limit: leastRefs, soon: k.Prefetch,
	}
	s := tableState(d.table, connector.Codec[limited[V]](d.codec),
		description{name: name, kind: deadlineKind, schema: SchemaOf(codec)})
	s.restore = func(group int, key, value []byte) error {
		return d.restore(group, key, value, k.Timers.floors[group-k.First])
	}
	if k.deadlines != nil {
		return nil, fmt.Errorf("state %q: an operator has at most one state with deadlines", name)
	}
	k.deadlines = d
	return d, k.declare(s)
}

// Peek returns the value of a key, for reading, or nil.
func (d *Deadlines[K, V]) Peek(k *Key[K]) *V {
	if !d.find(k) {
		return nil
	}
	return &d.table.entry(d.here).value.value
}

// Get returns the value of a key, for reading and writing, or nil.
func (d *Deadlines[K, V]) Get(k *Key[K]) *V {
	if !d.find(k) {
		return nil
	}
	return &d.table.touch(k, d.here.position).value.value
}

// Put returns the value of a key; it is zero, and has no deadline, if the key was not there.
func (d *Deadlines[K, V]) Put(k *Key[K]) (*V, error) {
	position, fresh, err := d.table.place(k)
	if err != nil {
		return nil, err
	}
	d.here = location{uint32(k.Group), position}
	e := d.table.touch(k, position)
	if fresh {
		e.value.deadline = noDeadline
	}
	return &e.value.value, nil
}

// Delete removes a key, if it is there.
func (d *Deadlines[K, V]) Delete(k *Key[K]) { d.table.Delete(k) }

// Deadline returns the deadline of a key; false if it has none.
func (d *Deadlines[K, V]) Deadline(k *Key[K]) (at int64, ok bool) {
	if !d.find(k) {
		return 0, false
	}
	at = d.table.entry(d.here).value.deadline
	return at, at != noDeadline
}

// SetDeadline moves the deadline of a key, which is there. at is later than how far event time has come for
// the key.
func (d *Deadlines[K, V]) SetDeadline(k *Key[K], at int64) error {
	if !d.find(k) {
		return fmt.Errorf("state: key %v has no entry that a deadline could be given to", k.Value())
	}
	d.file(d.here, &d.table.touch(k, d.here.position).value, min(at, noDeadline-1))
	return nil
}

// pending returns how many times entries are to be looked at, an upper bound of the deadlines.
func (d *Deadlines[K, V]) pending() int {
	return d.agenda.n + len(d.open.due) - d.open.head + len(d.late)
}

// find looks for the entry of a key, and sets here to it. Most often it is the one of the last call.
func (d *Deadlines[K, V]) find(k *Key[K]) bool {
	if int(d.here.group) == k.Group && d.table.holds(d.here, k.Encoded) {
		return true
	}
	_, p := d.table.find(k)
	if p == 0 {
		return false
	}
	d.here = location{uint32(k.Group), p - 1}
	return true
}

// young is how many ticks from now on an entry is looked at for the first time, if its deadline is later. By then,
// most deadlines that are moved have been, and the entry is still in a cache.
const young = 4

// file gives an entry a deadline, and sees that it is looked at by then.
func (d *Deadlines[K, V]) file(at location, e *limited[V], deadline int64) {
	if d.agenda.n+len(d.late) >= d.limit {
		d.tidy()
	}
	was := e.deadline
	e.deadline = deadline
	switch tick := tick(deadline); {
	case e.filed == unfiled:
		d.list(at, e, min(tick, d.agenda.horizon+young))
	case deadline >= was, e.filed > inLate && e.filed >= d.agenda.horizon && e.filed <= tick:
		// it is looked at by then
	default:
		d.list(at, e, tick)
	}
}

// list sees that an entry is looked at when a tick comes, which is not later than its deadline.
func (d *Deadlines[K, V]) list(at location, e *limited[V], tick uint64) {
	if tick < d.agenda.horizon {
		d.late.push(lateEntry{at: e.deadline, entry: at})
		e.filed = inLate
		d.next = min(d.next, e.deadline)
		return
	}
	d.agenda.add(tick, at)
	e.filed = tick
	d.next = min(d.next, began(tick))
}

// tidy sweeps, unless there is hardly more to be looked at than there are entries.
func (d *Deadlines[K, V]) tidy() {
	if most := 2*d.table.live + leastRefs; d.limit < most {
		d.limit = most
		return
	}
	d.sweep()
}

// sweep drops what is void, or said twice: a key that is removed and put again would leave something each time.
func (d *Deadlines[K, V]) sweep() {
	void := func(filed uint64, at location) bool {
		e := d.table.entry(at)
		return e == nil || e.value.filed != filed
	}
	d.agenda.sweep(void)
	slices.SortFunc(d.late, func(x, y lateEntry) int { return cmp.Or(x.entry.compare(y.entry), cmp.Compare(x.at, y.at)) })
	d.late = slices.CompactFunc(d.late, func(x, y lateEntry) bool { return x.entry == y.entry }) // the earlier one is enough
	d.late = slices.DeleteFunc(d.late, func(x lateEntry) bool { return void(inLate, x.entry) })
	slices.SortFunc(d.late, func(x, y lateEntry) int { return cmp.Compare(x.at, y.at) }) // a heap again
	d.limit = 2*(d.agenda.n+len(d.late)) + leastRefs
}

// due returns the earliest deadline at or before a watermark.
func (d *Deadlines[K, V]) due(watermark int64) (at int64, ok bool) {
	if d.next > watermark {
		return 0, false
	}
	for {
		at = d.open.at()
		if len(d.late) > 0 {
			at = min(at, d.late[0].at)
		}
		tick, more := d.agenda.first()
		switch {
		case more && began(tick) <= min(watermark, at): // so what was opened before is over
			d.openNext()
			continue
		case at <= watermark && at != math.MaxInt64:
			return at, true
		case more:
			at = min(at, began(tick))
		}
		d.next = at
		d.agenda.moveTo(watermark)
		return 0, false
	}
}

// openNext puts the entries of the earliest tick in order. Those that are to be looked at later go where
// they belong.
func (d *Deadlines[K, V]) openNext() {
	d.tick, _ = d.agenda.first()
	d.open.begin(began(d.tick))
	d.opened = d.opened[:0]
	d.agenda.take(func(some []location) {
		d.table.readAhead(some)
		for _, at := range some {
			d.schedule(at)
		}
	})
	d.open.sort(tickBits)
}

// schedule looks at an entry whose tick has come.
func (d *Deadlines[K, V]) schedule(at location) {
	e := d.table.entry(at)
	switch {
	case e == nil || e.value.filed != d.tick:
	case tick(e.value.deadline) == d.tick:
		d.open.add(e.value.deadline, uint32(len(d.opened)))
		d.opened = append(d.opened, dueEntry{at, d.hashOf(at)})
	default:
		d.refile(at, &e.value)
	}
}

func (d *Deadlines[K, V]) refile(at location, e *limited[V]) {
	d.list(at, e, tick(e.deadline))
}

// fire calls fire for the entries whose deadline is at, which is the earliest.
func (d *Deadlines[K, V]) fire(at int64, fire func(k *Key[K], at int64) error) error {
	for d.open.at() == at {
		d.look()
		if err := d.end(d.opened[d.open.take()], d.tick, at, fire); err != nil {
			return err
		}
	}
	for len(d.late) > 0 && d.late[0].at == at {
		x := dueEntry{entry: d.late.pop().entry}
		if d.table.entry(x.entry) == nil {
			continue
		}
		x.hash = d.hashOf(x.entry)
		if err := d.end(x, inLate, at, fire); err != nil {
			return err
		}
	}
	return nil
}

// look reads what the look-ups for the entries that are due soon will read.
func (d *Deadlines[K, V]) look() {
	if d.open.head%ahead != 0 {
		return
	}
	d.groups, d.hashes = d.groups[:0], d.hashes[:0]
	for _, next := range d.open.due[d.open.head:min(d.open.head+ahead, len(d.open.due))] {
		x := &d.opened[uint32(next)]
		d.groups, d.hashes = append(d.groups, uint16(x.entry.group)), append(d.hashes, x.hash)
	}
	d.soon(d.groups, d.hashes)
}

// hashOf returns the hash of the key of a live entry.
func (d *Deadlines[K, V]) hashOf(at location) uint64 { return d.table.codec.Hash(d.table.keyOf(at)) }

// end lets what is to happen to an entry happen, if it is filed where it was found, and its deadline is
// still that time.
func (d *Deadlines[K, V]) end(x dueEntry, filed uint64, deadline int64, fire func(k *Key[K], at int64) error) error {
	at := x.entry
	e := d.table.entry(at)
	if e == nil || e.value.filed != filed {
		return nil
	}
	if e.value.deadline != deadline {
		d.refile(at, &e.value)
		return nil
	}
	e.value.filed = unfiled
	d.bytes = append(d.bytes[:0], d.table.keyOf(at)...)
	d.key.Stand(&d.table.codec, x.hash, int(at.group), d.bytes, nil)
	d.key.sound = true
	d.here = at
	if err := fire(&d.key, deadline); err != nil {
		return err
	}
	// The entry may be gone, and the place another key's.
	e = d.table.entry(at)
	if e != nil && e.value.filed == unfiled && e.value.deadline == deadline && d.table.holds(at, d.bytes) {
		d.remove(&d.key, e.dirty)
	}
	return nil
}

// remove removes an entry at its deadline. The log says so only where what it says last of the entry may have a
// later one.
func (d *Deadlines[K, V]) remove(k *Key[K], changed bool) {
	if changed {
		d.table.Delete(k)
		return
	}
	slot, _ := d.table.find(k)
	d.table.drop(k, slot)
}

// restore sets a key to a value, both encoded, unless it was due before event time came where it stood.
func (d *Deadlines[K, V]) restore(group int, key, value []byte, watermark int64) error {
	deadline, value, err := unstamp(value)
	switch {
	case err != nil:
		return err
	case deadline <= watermark && deadline != noDeadline:
		return d.table.forget(group, key)
	}
	k, err := d.table.codec.restored(group, key)
	if err != nil {
		return err
	}
	v, err := d.Put(&k)
	if err != nil {
		return err
	}
	if err := d.codec.values.Decode(value, v); err != nil {
		return fmt.Errorf("value of key %v: %w", k.Value(), err)
	}
	e := &d.table.entry(d.here).value
	switch e.deadline = deadline; {
	case deadline == noDeadline: // a list may hold the entry that was there under this key before
		e.filed = unfiled
	case e.filed == unfiled || tick(deadline) < e.filed: // not file: all of them would be young
		d.list(d.here, e, tick(deadline))
	}
	return nil
}

// limitedCodec writes the deadline before the value.
type limitedCodec[V any] struct{ values connector.Codec[V] }

func (c limitedCodec[V]) Append(dst []byte, e *limited[V]) ([]byte, error) {
	return c.values.Append(AppendInt(dst, e.deadline), &e.value)
}

// Decode leaves where the entry is filed.
func (c limitedCodec[V]) Decode(src []byte, e *limited[V]) error {
	deadline, value, err := unstamp(src)
	if err != nil {
		return err
	}
	e.deadline = deadline
	return c.values.Decode(value, &e.value)
}
