package state

import (
	"encoding/binary"
	"fmt"
	"iter"

	"example.com/weir/connector"
)

// Maps holds a map for each key. Each entry is a record of its own: what changes in a large map
// costs what changes. A map's entries are in the order in which they were put; putting one that is
// there leaves it at its place.
type Maps[K, MK comparable, V any] struct {
	cells   *Table[K, *mapCell[K, MK, V]] // which is not logged: entries are
	keys    KeyCodec[K]
	names   KeyCodec[MK]
	values  connector.Codec[V]
	log     *tableLog
	dirty   []*mapEntry[K, MK, V]
	counts  []int  // entries in each key group
	encoded []byte // the key of a record
	x       *expiry[*mapEntry[K, MK, V]]
}

// mapCell is the map of one key.
type mapCell[K, MK comparable, V any] struct {
	key         Key[K]
	index       map[MK]*mapEntry[K, MK, V] // nil while the map is small
	first, last *mapEntry[K, MK, V]
	live        int
}

type mapEntry[K, MK comparable, V any] struct {
	cell       *mapCell[K, MK, V]
	prev, next *mapEntry[K, MK, V]
	name       MK
	value      V
	written    int64
	bucket     int64
	dirty      bool // it is among the changes
	gone       bool
}

// indexAbove is the number of entries up to which a map is searched from its beginning.
const indexAbove = 8

// DeclareMap adds a map state, as Declare does.
func DeclareMap[K, MK comparable, V any](
	k *Keyed[K], name string, names KeyCodec[MK], values connector.Codec[V], ttl TTL,
) (*Maps[K, MK, V], error) {
	m := &Maps[K, MK, V]{
		cells: NewTable[K, *mapCell[K, MK, V]](k.First, k.End, k.codec), keys: k.codec, names: names, values: values,
		counts: make([]int, k.End-k.First),
	}
	m.x = newExpiry(ttl, func(e *mapEntry[K, MK, V], bucket int64) bool { return e.gone || e.bucket != bucket })
	s := namedState{
		description: description{
			name: name, kind: mapKind, ttl: m.x != nil, schema: pair(names.Schema, SchemaOf(values)),
		},
		logTo:   func(l *tableLog) { m.log = l },
		flush:   m.flush,
		pending: func() int { return len(m.dirty) },
		base:    m.base,
		size:    func(group int) int { return m.counts[group-k.First] },
		restore: m.restore,
		forget:  m.forget,
		fetch:   m.cells.Prefetch,
	}
	if m.x != nil {
		s.expire = m.expire
	}
	return m, k.declare(s)
}

// Get returns the value of an entry.
func (m *Maps[K, MK, V]) Get(k *Key[K], name MK, at Times) (v V, ok bool) {
	if e := m.find(k, name); e != nil && !m.x.expired(e.written, at.Now) {
		return e.value, true
	}
	return v, false
}

// Put sets an entry.
func (m *Maps[K, MK, V]) Put(k *Key[K], name MK, v V, at Times) error {
	e := m.find(k, name)
	switch {
	case e == nil:
		var err error
		if e, err = m.insert(k, name, at.Write); err != nil {
			return err
		}
	case m.x == nil:
	case m.x.expired(e.written, at.Now): // as if it had been gone already: it goes to the end
		m.delete(e)
		return m.Put(k, name, v, at)
	default:
		e.written = m.x.renewed(e.written, at.Write)
	}
	e.value = v
	m.touch(e)
	return nil
}

func (m *Maps[K, MK, V]) touch(e *mapEntry[K, MK, V]) {
	if m.log != nil && !e.dirty {
		e.dirty = true
		m.dirty = append(m.dirty, e)
	}
}

// Delete removes an entry, if it is there.
func (m *Maps[K, MK, V]) Delete(k *Key[K], name MK) {
	if e := m.find(k, name); e != nil {
		m.delete(e)
	}
}

func (m *Maps[K, MK, V]) delete(e *mapEntry[K, MK, V]) {
	if m.log != nil {
		m.log.delete(e.cell.key.Group, m.entryKey(e))
	}
	m.unlink(e)
}

// Clear removes the map of a key.
func (m *Maps[K, MK, V]) Clear(k *Key[K]) {
	cell := m.cell(k)
	if cell == nil {
		return
	}
	if m.log != nil {
		m.log.delete(cell.key.Group, append([]byte{wholeMap}, cell.key.Encoded...))
	}
	m.drop(cell)
}

// drop removes a cell with all its entries.
func (m *Maps[K, MK, V]) drop(cell *mapCell[K, MK, V]) {
	for e := cell.first; e != nil; e = e.next {
		e.gone = true
	}
	m.counts[cell.key.Group-m.cells.first] -= cell.live
	m.cells.Delete(&cell.key)
}

// Len returns the number of entries of a key.
func (m *Maps[K, MK, V]) Len(k *Key[K], at Times) int {
	cell := m.cell(k)
	switch {
	case cell == nil:
		return 0
	case m.x == nil:
		return cell.live
	}
	n := 0
	for e := cell.first; e != nil; e = e.next {
		if !m.x.expired(e.written, at.Now) {
			n++
		}
	}
	return n
}

// All lists the entries of a key, in order. Entries may be put and deleted meanwhile.
func (m *Maps[K, MK, V]) All(k *Key[K], at Times) iter.Seq2[MK, V] {
	cell := m.cell(k)
	return func(yield func(MK, V) bool) {
		if cell == nil {
			return
		}
		for e := cell.first; e != nil; e = e.next {
			if !e.gone && !m.x.expired(e.written, at.Now) && !yield(e.name, e.value) {
				return
			}
		}
	}
}

func (m *Maps[K, MK, V]) cell(k *Key[K]) *mapCell[K, MK, V] {
	if c := m.cells.Peek(k); c != nil {
		return *c
	}
	return nil
}

func (m *Maps[K, MK, V]) find(k *Key[K], name MK) *mapEntry[K, MK, V] {
	cell := m.cell(k)
	if cell == nil {
		return nil
	}
	if cell.index != nil {
		return cell.index[name]
	}
	for e := cell.first; e != nil; e = e.next {
		if e.name == name {
			return e
		}
	}
	return nil
}

// insert adds an entry behind the others.
func (m *Maps[K, MK, V]) insert(k *Key[K], name MK, written int64) (*mapEntry[K, MK, V], error) {
	own, err := m.names.owned(name)
	if err != nil {
		return nil, err
	}
	c, err := m.cells.Put(k)
	if err != nil {
		return nil, err
	}
	if *c == nil {
		*c = &mapCell[K, MK, V]{key: k.own()}
	}
	cell := *c
	e := &mapEntry[K, MK, V]{cell: cell, prev: cell.last, name: own, written: written}
	if cell.last == nil {
		cell.first = e
	} else {
		cell.last.next = e
	}
	cell.last = e
	cell.live++
	m.counts[k.Group-m.cells.first]++
	cell.enter(e)
	if m.x != nil {
		e.bucket = m.x.bucket(written)
		m.x.add(e, written)
	}
	return e, nil
}

func (c *mapCell[K, MK, V]) enter(e *mapEntry[K, MK, V]) {
	if c.index != nil {
		c.index[e.name] = e
		return
	}
	if c.live > indexAbove {
		c.index = make(map[MK]*mapEntry[K, MK, V], 2*indexAbove)
		for e := c.first; e != nil; e = e.next {
			c.index[e.name] = e
		}
	}
}

// unlink takes an entry out of its map, and the map out of the state if it is empty then. The entry
// keeps its successor, for whoever stands at it.
func (m *Maps[K, MK, V]) unlink(e *mapEntry[K, MK, V]) {
	cell := e.cell
	e.gone = true
	if e.prev == nil {
		cell.first = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		cell.last = e.prev
	} else {
		e.next.prev = e.prev
	}
	delete(cell.index, e.name)
	cell.live--
	m.counts[cell.key.Group-m.cells.first]--
	if cell.live == 0 {
		m.cells.Delete(&cell.key)
	}
}

// The key of a record is a key alone, for the whole map, or a key and the name of an entry.
const (
	wholeMap = 0
	oneEntry = 1
)

// entryKey returns the key of an entry's record. It is good until the next one.
func (m *Maps[K, MK, V]) entryKey(e *mapEntry[K, MK, V]) []byte {
	key := e.cell.key.Encoded
	m.encoded = binary.LittleEndian.AppendUint32(append(m.encoded[:0], oneEntry), uint32(len(key)))
	m.encoded = m.names.Append(append(m.encoded, key...), &e.name)
	return m.encoded
}

// flush logs the entries that have changed and are still there.
func (m *Maps[K, MK, V]) flush() error {
	for i, e := range m.dirty {
		m.dirty[i] = nil
		if e.dirty = false; e.gone {
			continue
		}
		if err := m.logEntry(e); err != nil {
			return err
		}
	}
	m.dirty = m.dirty[:0]
	return nil
}

func (m *Maps[K, MK, V]) logEntry(e *mapEntry[K, MK, V]) error {
	b := m.log.put(e.cell.key.Group, m.entryKey(e))
	if m.x != nil {
		b = AppendInt(b, e.written)
	}
	return m.log.set(m.values.Append(b, &e.value))
}

// base logs every map of a group.
func (m *Maps[K, MK, V]) base(groupID int) error {
	return m.cells.each(groupID, func(_ []byte, cell *entry[*mapCell[K, MK, V]]) error {
		for e := cell.value.first; e != nil; e = e.next {
			if err := m.logEntry(e); err != nil {
				return err
			}
		}
		return nil
	})
}

// locate reads the key of a record. name is nil for the whole map.
func (m *Maps[K, MK, V]) locate(groupID int, encoded []byte) (k Key[K], name *MK, err error) {
	d := NewDecoder(encoded)
	key := d.rest
	switch d.byte() {
	case wholeMap:
		key = d.rest
	case oneEntry:
		key = d.Sized()
		n, err := m.names.Decode(d.rest)
		if err != nil {
			return k, nil, fmt.Errorf("map key: %w", err)
		}
		name = &n
	default:
		d.err = ErrCorrupt
	}
	if d.err != nil {
		return k, nil, d.err
	}
	k, err = m.keys.restored(groupID, key)
	return k, name, err
}

func (m *Maps[K, MK, V]) restore(groupID int, key, value []byte) error {
	k, name, err := m.locate(groupID, key)
	if err != nil {
		return err
	}
	if name == nil {
		return ErrCorrupt
	}
	written := int64(0)
	if m.x != nil {
		if written, value, err = unstamp(value); err != nil {
			return err
		}
	}
	e := m.find(&k, *name)
	if e == nil {
		if e, err = m.insert(&k, *name, written); err != nil {
			return err
		}
	}
	e.written = written
	if err := m.values.Decode(value, &e.value); err != nil {
		return fmt.Errorf("value of key %v: %w", k.Value(), err)
	}
	return nil
}

func (m *Maps[K, MK, V]) forget(groupID int, key []byte) error {
	k, name, err := m.locate(groupID, key)
	if err != nil {
		return err
	}
	if name != nil {
		m.Delete(&k, *name)
	} else {
		m.Clear(&k)
	}
	return nil
}

func (m *Maps[K, MK, V]) expire(now int64, budget int) error {
	for ; budget > 0; budget-- {
		e, ok := m.x.take(now)
		if !ok {
			return nil
		}
		if e.written == never { // event time begins now
			e.written = now
			m.touch(e)
		}
		if m.x.expired(e.written, now) {
			m.delete(e)
			continue
		}
		e.bucket = m.x.bucket(e.written)
		m.x.add(e, e.written)
	}
	return nil
}

// pair is the schema of a map's entries: its keys are held to the exact encoding.
func pair(names, values Schema) Schema {
	s := Compose("entry", "[]", values)
	at := len(s.nodes)
	inner := Compose(exactKind, "[key]", names)
	for i := range inner.nodes {
		for j := range inner.nodes[i].parts {
			inner.nodes[i].parts[j].node += at
		}
	}
	s.nodes = append(s.nodes, inner.nodes...)
	s.nodes[0].parts = append(s.nodes[0].parts, member{name: "", node: at})
	return s
}
