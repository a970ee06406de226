package state

import (
	"fmt"

	"example.com/weir/connector"
)

// Key is a key with what has been computed of it once.
type Key[K comparable] struct {
	Hash  uint64
	Group int
	Value K
	owned bool // Value shares no memory with what the caller may use again
}

// take makes the key's memory its own.
func (k *Key[K]) take(codec KeyCodec[K]) error {
	if k.owned {
		return nil
	}
	own, err := codec.Decode(codec.Append(nil, &k.Value))
	if err != nil {
		return fmt.Errorf("state: key %v does not survive its own encoding: %w", k.Value, err)
	}
	if own != k.Value {
		return fmt.Errorf("state: key %v comes back from its own encoding as %v", k.Value, own)
	}
	k.Value, k.owned = own, true
	return nil
}

// Table maps keys to values, by key group. Entries stay where they are while a table grows: only
// the index of one group is rebuilt at a time.
type Table[K comparable, V any] struct {
	first  int
	groups []group[K, V]
	codec  KeyCodec[K]
	// log receives what changes; nil is a table that is not logged.
	log   *tableLog
	dirty []location // entries that may have changed since they were last logged

	round []uint32 // of Prefetch: where each look-up begins
	read  uint64   // what it has read, so that reading is not left out
}

type location struct{ group, position uint32 }

const chunkSize = 64

type entry[K comparable, V any] struct {
	hash  uint64
	live  bool
	dirty bool // it is among the changes
	key   K
	value V
	last  byte // behind the value, for Prefetch to read
}

// group is an open-addressing hash table (linear probing, deletion by shifting back) whose
// slots hold 1 + the position of an entry.
type group[K comparable, V any] struct {
	slots  []uint32
	chunks [][]entry[K, V]
	used   int      // entries ever used
	free   []uint32 // of these, the ones to be used again
	live   int
}

// NewTable returns an empty table over the key groups [first, end).
func NewTable[K comparable, V any](first, end int, codec KeyCodec[K]) *Table[K, V] {
	return &Table[K, V]{first: first, groups: make([]group[K, V], end-first), codec: codec}
}

// Len returns the number of keys.
func (t *Table[K, V]) Len() int {
	n := 0
	for i := range t.groups {
		n += t.groups[i].live
	}
	return n
}

// Prefetch reads what looking up these hashes will read. It changes nothing: in a table that no cache
// holds, each look-up waits for memory two or three times, one after the other; read in rounds, for
// all the keys of a batch, the waits overlap. A hash's key group is its remainder by
// maxParallelism.
func (t *Table[K, V]) Prefetch(hashes []uint64, maxParallelism int) {
	t.round = t.round[:0]
	for _, h := range hashes {
		slot, g := uint32(0), &t.groups[int(h%uint64(maxParallelism))-t.first]
		if len(g.slots) > 0 {
			slot = g.slots[g.home(h)]
		}
		t.round = append(t.round, slot)
	}
	for i, slot := range t.round {
		if slot > 0 {
			g := &t.groups[int(hashes[i]%uint64(maxParallelism))-t.first]
			e := g.at(slot - 1)
			t.read += e.hash + uint64(e.last)
		}
	}
}

// prefetchGroup is Prefetch for keys of one group.
func (t *Table[K, V]) prefetchGroup(groupID int, hashes []uint64) {
	g := &t.groups[groupID-t.first]
	if len(g.slots) == 0 {
		return
	}
	t.round = t.round[:0]
	for _, h := range hashes {
		t.round = append(t.round, g.slots[g.home(h)])
	}
	for _, slot := range t.round {
		if slot > 0 {
			e := g.at(slot - 1)
			t.read += e.hash + uint64(e.last)
		}
	}
}

// Peek returns the value of a key, for reading, or nil. Peek, Get and Put make k.Value the
// table's own copy.
func (t *Table[K, V]) Peek(k *Key[K]) *V {
	g := &t.groups[k.Group-t.first]
	if i, ok := g.find(k); ok {
		return g.at(g.slots[i] - 1).use(k)
	}
	return nil
}

// Get returns the value of a key, for reading and writing, or nil.
func (t *Table[K, V]) Get(k *Key[K]) *V {
	g := &t.groups[k.Group-t.first]
	if i, ok := g.find(k); ok {
		return t.touch(k, g.slots[i]-1).use(k)
	}
	return nil
}

// touch notes that the entry may change, and returns it.
func (t *Table[K, V]) touch(k *Key[K], position uint32) *entry[K, V] {
	e := t.groups[k.Group-t.first].at(position)
	if t.log != nil && !e.dirty {
		e.dirty = true
		t.dirty = append(t.dirty, location{uint32(k.Group), position})
	}
	return e
}

// Put returns the value of a key; it is zero if the key was not there.
func (t *Table[K, V]) Put(k *Key[K]) (*V, error) {
	g := &t.groups[k.Group-t.first]
	if i, ok := g.find(k); ok {
		return t.touch(k, g.slots[i]-1).use(k), nil
	}
	if err := k.take(t.codec); err != nil {
		return nil, err
	}
	return &t.touch(k, g.insert(k.Hash, k.Value)).value, nil
}

// use returns the value, and lets the key share the entry's memory from here on.
func (e *entry[K, V]) use(k *Key[K]) *V {
	k.Value, k.owned = e.key, true
	return &e.value
}

// Delete removes a key, if it is there.
func (t *Table[K, V]) Delete(k *Key[K]) {
	g := &t.groups[k.Group-t.first]
	if i, ok := g.find(k); ok {
		if t.log != nil {
			t.log.delete(k.Group, func(dst []byte) []byte { return t.codec.Append(dst, &k.Value) })
		}
		g.remove(i)
	}
}

// clear removes every key of a group.
func (t *Table[K, V]) clear(groupID int) { t.groups[groupID-t.first] = group[K, V]{} }

// Each calls visit for every key of a group, oldest entry first.
func (t *Table[K, V]) Each(groupID int, visit func(*K, *V) error) error {
	g := &t.groups[groupID-t.first]
	for p := range uint32(g.used) {
		if e := g.at(p); e.live {
			if err := visit(&e.key, &e.value); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *group[K, V]) at(position uint32) *entry[K, V] {
	return &g.chunks[position/chunkSize][position%chunkSize]
}

// home is where the probe of a hash begins. The hash's remainder by max parallelism is the same
// for all keys of a group, so its upper bits are used.
func (g *group[K, V]) home(hash uint64) int {
	return int((hash * 0x9E3779B97F4A7C15) >> 32 & uint64(len(g.slots)-1))
}

func (g *group[K, V]) find(k *Key[K]) (slot int, ok bool) {
	if g.live == 0 {
		return 0, false
	}
	mask := len(g.slots) - 1
	for i := g.home(k.Hash); ; i = (i + 1) & mask {
		p := g.slots[i]
		if p == 0 {
			return 0, false
		}
		if e := g.at(p - 1); e.hash == k.Hash && e.key == k.Value {
			return i, true
		}
	}
}

func (g *group[K, V]) insert(hash uint64, key K) (position uint32) {
	if (g.live+1)*4 > len(g.slots)*3 {
		g.grow()
	}
	position = uint32(g.used)
	if n := len(g.free); n > 0 {
		position = g.free[n-1]
		g.free = g.free[:n-1]
	} else {
		if g.used == len(g.chunks)*chunkSize {
			g.chunks = append(g.chunks, make([]entry[K, V], chunkSize))
		}
		g.used++
	}
	e := g.at(position)
	e.hash, e.key, e.live = hash, key, true
	g.live++
	g.link(hash, position+1)
	return position
}

func (g *group[K, V]) link(hash uint64, slot uint32) {
	mask := len(g.slots) - 1
	i := g.home(hash)
	for g.slots[i] != 0 {
		i = (i + 1) & mask
	}
	g.slots[i] = slot
}

func (g *group[K, V]) grow() {
	g.slots = make([]uint32, max(8, len(g.slots)*2))
	for p := range uint32(g.used) {
		if e := g.at(p); e.live {
			g.link(e.hash, p+1)
		}
	}
}

// remove empties slot i and shifts back the entries behind it that could not be found any more
// across the hole. A group that is empty gives its memory back.
func (g *group[K, V]) remove(i int) {
	position := g.slots[i] - 1
	*g.at(position) = entry[K, V]{}
	g.live--
	if g.live == 0 {
		*g = group[K, V]{}
		return
	}
	g.free = append(g.free, position)
	mask := len(g.slots) - 1
	g.slots[i] = 0
	for j := (i + 1) & mask; g.slots[j] != 0; j = (j + 1) & mask {
		home := g.home(g.at(g.slots[j] - 1).hash)
		if (j-home)&mask >= (j-i)&mask {
			g.slots[i], g.slots[j] = g.slots[j], 0
			i = j
		}
	}
}

// flush logs the entries that may have changed. An entry that was deleted meanwhile, or whose
// place another key has taken and been logged from, is clean and passed over.
func (t *Table[K, V]) flush(values connector.Codec[V]) error {
	for _, at := range t.dirty {
		if int(at.position) >= t.groups[int(at.group)-t.first].used {
			continue // the group was emptied
		}
		e := t.groups[int(at.group)-t.first].at(at.position)
		if !e.dirty {
			continue
		}
		e.dirty = false
		if err := t.append(int(at.group), e, values); err != nil {
			return err
		}
	}
	t.dirty = t.dirty[:0]
	return nil
}

// base logs every entry of a group.
func (t *Table[K, V]) base(groupID int, values connector.Codec[V]) error {
	g := &t.groups[groupID-t.first]
	for p := range uint32(g.used) {
		if e := g.at(p); e.live {
			if err := t.append(groupID, e, values); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *Table[K, V]) append(groupID int, e *entry[K, V], values connector.Codec[V]) error {
	return t.log.put(groupID,
		func(dst []byte) []byte { return t.codec.Append(dst, &e.key) },
		func(dst []byte) ([]byte, error) { return values.Append(dst, &e.value) })
}

// restore sets a key to a value, both encoded.
func (t *Table[K, V]) restore(groupID int, key, value []byte, values connector.Codec[V]) error {
	k, err := t.codec.Decode(key)
	if err != nil {
		return fmt.Errorf("key: %w", err)
	}
	v, err := t.Put(&Key[K]{Hash: t.codec.Hash(key), Group: groupID, Value: k, owned: true})
	if err != nil {
		return err
	}
	if err := values.Decode(value, v); err != nil {
		return fmt.Errorf("value of key %v: %w", k, err)
	}
	return nil
}

// forget removes an encoded key.
func (t *Table[K, V]) forget(groupID int, key []byte) error {
	k, err := t.codec.Decode(key)
	if err != nil {
		return fmt.Errorf("key: %w", err)
	}
	t.Delete(&Key[K]{Hash: t.codec.Hash(key), Group: groupID, Value: k, owned: true})
	return nil
}
