package state

import (
	"bytes"
	"fmt"
	"math"

	"example.com/weir/connector"
)

// Key is a key with what has been computed of it once. Keys are told apart by their encodings.
type Key[K comparable] struct {
	Hash  uint64
	Group int
	// Encoded is the canonical encoding. It is the caller's memory.
	Encoded []byte

	codec *KeyCodec[K]
	of    func() K // where the key comes from; nil: from its encoding
	value K
	known bool // value is the key; otherwise it is made when it is asked for
	sound bool // it has been seen to come back from its encoding
}

// Stand makes k a key by its encoding, whose hash is known. of returns the key itself.
func (k *Key[K]) Stand(codec *KeyCodec[K], hash uint64, group int, encoded []byte, of func() K) {
	k.Hash, k.Group, k.Encoded, k.codec, k.of = hash, group, encoded, codec, of
	k.known, k.sound = false, false
}

// Set makes k the key v, whose encoding and hash are known.
func (k *Key[K]) Set(codec *KeyCodec[K], hash uint64, group int, encoded []byte, v K) {
	k.Hash, k.Group, k.Encoded, k.codec, k.of = hash, group, encoded, codec, nil
	k.value, k.known, k.sound = v, true, false
}

// Value returns the key itself.
func (k *Key[K]) Value() K {
	if k.known {
		return k.value
	}
	if k.known = true; k.of != nil {
		k.value = k.of()
		return k.value
	}
	v, err := k.codec.Decode(k.Encoded)
	if err != nil { // it was decoded before it was stored
		panic(fmt.Errorf("state: key %x: %w", k.Encoded, err))
	}
	k.value = v
	return v
}

// own returns the key in memory of its own.
func (k *Key[K]) own() Key[K] {
	return Key[K]{
		Hash: k.Hash, Group: k.Group, Encoded: bytes.Clone(k.Encoded), codec: k.codec, sound: k.sound,
	}
}

// check refuses a key that does not come back from an encoding of the user's own: another key could
// have the same one.
// back is memory for the key that does.
func (k *Key[K]) check(back *K) error {
	if k.sound || !k.codec.Own {
		return nil
	}
	var zero K
	*back = zero
	if err := k.codec.decodeTo(k.Encoded, back); err != nil {
		return fmt.Errorf("state: key %v does not survive its own encoding: %w", k.Value(), err)
	}
	if *back != k.Value() {
		return fmt.Errorf("state: key %v comes back from its own encoding as %v", k.Value(), *back)
	}
	k.sound = true
	return nil
}

// Table maps keys to values, by key group. Entries stay where they are while a table grows: only
// the index of one group is rebuilt at a time. Where values have no pointers, the table has none
// that a garbage collection would have to follow: keys lie in it as their encodings.
type Table[K comparable, V any] struct {
	first  int
	groups []group[V]
	codec  KeyCodec[K]
	live   int
	// log receives what changes; nil is a table that is not logged.
	log   *tableLog
	dirty []location // entries that may have changed since they were last logged
	spare []*chunk[V]

	round []location // of Prefetch: what each look-up will find
	back  K          // of Key.check
	read  uint64     // what it has read, so that reading is not left out
}

// location is where an entry lies: its key group, and its position in there.
type location struct{ group, position uint32 }

const chunkSize = 64

type chunk[V any] [chunkSize]entry[V]

// entry is a key with its value. The flags come last, so that who has read key and flags has read
// the ends of what lies between.
type entry[V any] struct {
	key   keyRef
	value V
	live  bool
	dirty bool // it is among the changes
}

// group is an open-addressing hash table (linear probing, deletion by shifting back). A slot holds
// 32 bits of a key's hash and 1 + the position of its entry; 0 is empty.
type group[V any] struct {
	slots  []uint64
	chunks []*chunk[V]
	keys   keys
	used   int      // entries ever used
	free   []uint32 // of these, the ones to be used again
	live   int
	// claimed is how many of free the keys take that are being read ahead.
	claimed int
}

// NewTable returns an empty table over the key groups [first, end).
func NewTable[K comparable, V any](first, end int, codec KeyCodec[K]) *Table[K, V] {
	return &Table[K, V]{first: first, groups: make([]group[V], end-first), codec: codec}
}

// Len returns the number of keys.
func (t *Table[K, V]) Len() int { return t.live }

// prefetchAbove is how many entries a table has at the least for Prefetch to do anything: a smaller
// one lies in a cache.
const prefetchAbove = 4096

// Prefetch reads what looking up these keys will read. It changes nothing: in a table that no cache
// holds, each look-up waits for memory two or three times, one after the other; read in rounds, for
// all the keys of a batch, the waits overlap.
func (t *Table[K, V]) Prefetch(groups []uint16, hashes []uint64) {
	if t.live < prefetchAbove {
		return
	}
	for i, h := range hashes {
		if g := &t.groups[int(groups[i])-t.first]; len(g.slots) > 0 {
			t.read += g.slots[int(fragment(h))&(len(g.slots)-1)]
		}
	}
	t.round = t.round[:0]
	for i, h := range hashes {
		if p := t.groups[int(groups[i])-t.first].expected(h); p > 0 {
			t.round = append(t.round, location{uint32(groups[i]), p - 1})
		}
	}
	for _, at := range t.round {
		e := t.groups[int(at.group)-t.first].at(at.position)
		t.read += uint64(e.key.size) + uint64(boolByte(e.live))
	}
	for _, at := range t.round {
		g := &t.groups[int(at.group)-t.first]
		g.claimed = 0
		if e := g.at(at.position); e.key.long() {
			t.read += uint64(g.keys.bytes[e.key.offset()])
		}
	}
}

// Peek returns the value of a key, for reading, or nil.
func (t *Table[K, V]) Peek(k *Key[K]) *V {
	if _, p := t.find(k); p > 0 {
		return &t.group(k).at(p - 1).value
	}
	return nil
}

// Get returns the value of a key, for reading and writing, or nil.
func (t *Table[K, V]) Get(k *Key[K]) *V {
	if _, p := t.find(k); p > 0 {
		return &t.touch(k, p-1).value
	}
	return nil
}

// Put returns the value of a key; it is zero if the key was not there.
func (t *Table[K, V]) Put(k *Key[K]) (*V, error) {
	position, _, err := t.place(k)
	if err != nil {
		return nil, err
	}
	return &t.touch(k, position).value, nil
}

// place returns the position of a key, and whether the key is new there.
func (t *Table[K, V]) place(k *Key[K]) (position uint32, fresh bool, err error) {
	if _, p := t.find(k); p > 0 {
		return p - 1, false, nil
	}
	if err := k.check(&t.back); err != nil {
		return 0, false, err
	}
	g := t.group(k)
	if uint64(len(g.keys.bytes)+len(k.Encoded)) > math.MaxUint32 {
		return 0, false, fmt.Errorf("state: the keys of key group %d take more than 4 GiB", k.Group)
	}
	t.live++
	return t.insert(g, k), true, nil
}

// Delete removes a key, if it is there.
func (t *Table[K, V]) Delete(k *Key[K]) {
	slot, p := t.find(k)
	if p == 0 {
		return
	}
	if t.log != nil {
		t.log.delete(k.Group, k.Encoded)
	}
	t.drop(k, slot)
}

// drop removes the key of a slot without saying so.
func (t *Table[K, V]) drop(k *Key[K], slot int) {
	t.live--
	t.remove(t.group(k), slot)
}

func (t *Table[K, V]) group(k *Key[K]) *group[V] { return &t.groups[k.Group-t.first] }

// find returns the slot of a key and 1 + its position, or 0. A key that is there came back from its
// encoding when it was stored.
func (t *Table[K, V]) find(k *Key[K]) (slot int, position uint32) {
	slot, position = t.group(k).find(k.Hash, k.Encoded)
	k.sound = k.sound || position > 0
	return slot, position
}

// touch notes that the entry may change, and returns it.
func (t *Table[K, V]) touch(k *Key[K], position uint32) *entry[V] {
	e := t.group(k).at(position)
	if t.log != nil && !e.dirty {
		e.dirty = true
		t.dirty = append(t.dirty, location{uint32(k.Group), position})
	}
	return e
}

// entry returns what is at a location, or nil if nothing is there any more.
func (t *Table[K, V]) entry(at location) *entry[V] {
	g := &t.groups[int(at.group)-t.first]
	if int(at.position) >= g.used { // the group was emptied
		return nil
	}
	if e := g.at(at.position); e.live {
		return e
	}
	return nil
}

// keyOf returns the encoding of the key of a live entry; it is good until another key is put.
func (t *Table[K, V]) keyOf(at location) []byte {
	g := &t.groups[int(at.group)-t.first]
	return g.keys.of(&g.at(at.position).key)
}

// holds reports whether a key is at a location.
func (t *Table[K, V]) holds(at location, key []byte) bool {
	e := t.entry(at)
	return e != nil && int(e.key.size) == len(key) && bytes.Equal(t.keyOf(at), key)
}

// readAhead reads the entries at some locations, so that the waits for memory overlap.
func (t *Table[K, V]) readAhead(at []location) {
	for i := range at {
		g := &t.groups[int(at[i].group)-t.first]
		if int(at[i].position) < g.used {
			e := g.at(at[i].position)
			t.read += uint64(e.key.size) + uint64(boolByte(e.live))
		}
	}
}

// insert adds a key that is not there, and returns its position.
func (t *Table[K, V]) insert(g *group[V], k *Key[K]) (position uint32) {
	if (g.live+1)*4 > len(g.slots)*3 {
		g.grow()
	}
	position = uint32(g.used)
	if n := len(g.free); n > 0 {
		position = g.free[n-1]
		g.free = g.free[:n-1]
	} else {
		if g.used == len(g.chunks)*chunkSize {
			g.chunks = append(g.chunks, t.newChunk())
		}
		g.used++
	}
	e := g.at(position)
	g.keys.set(&e.key, k.Encoded)
	e.live = true
	g.live++
	if g.keys.wasteful() {
		g.pack()
	}
	g.link(uint64(fragment(k.Hash))<<32 | uint64(position+1))
	return position
}

func (t *Table[K, V]) newChunk() *chunk[V] {
	if n := len(t.spare); n > 0 {
		c := t.spare[n-1]
		t.spare = t.spare[:n-1]
		return c
	}
	return new(chunk[V])
}

// remove empties a slot and its entry. A group that is empty gives its memory back.
func (t *Table[K, V]) remove(g *group[V], slot int) {
	position := uint32(g.slots[slot]) - 1
	e := g.at(position)
	var zero V
	e.value, e.live, e.dirty = zero, false, false
	g.live--
	if g.live > 0 {
		g.free = append(g.free, position)
		g.unlink(slot)
		return
	}
	for _, c := range g.chunks {
		if len(t.spare) == len(t.groups) { // one for each is enough for few keys that come and go
			break
		}
		for i := range c {
			c[i].key = keyRef{} // it may be one of this group's long keys
		}
		t.spare = append(t.spare, c)
	}
	g.empty()
}

// smallIndex is the number of slots that an empty group keeps.
const smallIndex = 64

func (g *group[V]) empty() {
	was := *g
	*g = group[V]{}
	if len(was.slots) <= smallIndex {
		clear(was.slots)
		clear(was.chunks)
		g.slots, g.chunks, g.free, g.keys.bytes = was.slots, was.chunks[:0], was.free[:0], was.keys.bytes[:0]
	}
}

// Each calls visit for every key of a group, oldest entry first.
func (t *Table[K, V]) Each(groupID int, visit func(*K, *V) error) error {
	return t.each(groupID, func(key []byte, e *entry[V]) error {
		k, err := t.codec.Decode(key)
		if err != nil {
			return err
		}
		return visit(&k, &e.value)
	})
}

func (t *Table[K, V]) each(groupID int, visit func(key []byte, e *entry[V]) error) error {
	g := &t.groups[groupID-t.first]
	for p := range uint32(g.used) {
		if e := g.at(p); e.live {
			if err := visit(g.keys.of(&e.key), e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *group[V]) at(position uint32) *entry[V] {
	return &g.chunks[position/chunkSize][position%chunkSize]
}

// fragment is the part of a hash that a slot holds. The hash's remainder by max parallelism is the
// same for all keys of a group, so the bits are mixed first.
func fragment(hash uint64) uint32 { return uint32(hash * 0x9E3779B97F4A7C15 >> 32) }

func (g *group[V]) find(hash uint64, key []byte) (slot int, position uint32) {
	if g.live == 0 {
		return 0, 0
	}
	f, mask := fragment(hash), len(g.slots)-1
	for i := int(f) & mask; ; i = (i + 1) & mask {
		s := g.slots[i]
		if s == 0 {
			return 0, 0
		}
		if uint32(s>>32) == f && g.holds(uint32(s)-1, key) {
			return i, uint32(s)
		}
	}
}

func (g *group[V]) holds(position uint32, key []byte) bool {
	r := &g.at(position).key
	return int(r.size) == len(key) && bytes.Equal(g.keys.of(r), key)
}

// candidate returns 1 + the position of the first key with the fragment of a hash, or 0.
func (g *group[V]) candidate(hash uint64) uint32 {
	if g.live == 0 {
		return 0
	}
	f, mask := fragment(hash), len(g.slots)-1
	for i := int(f) & mask; ; i = (i + 1) & mask {
		s := g.slots[i]
		if s == 0 || uint32(s>>32) == f {
			return uint32(s)
		}
	}
}

// expected returns 1 + the position at which a key with a hash is, or will be when it is put; 0: one that was
// never used.
func (g *group[V]) expected(hash uint64) uint32 {
	if p := g.candidate(hash); p > 0 {
		return p
	}
	n := len(g.free) - g.claimed
	if n <= 0 {
		return 0
	}
	g.claimed++
	return g.free[n-1] + 1
}

func (g *group[V]) link(slot uint64) {
	mask := len(g.slots) - 1
	i := int(slot>>32) & mask
	for g.slots[i] != 0 {
		i = (i + 1) & mask
	}
	g.slots[i] = slot
}

func (g *group[V]) grow() {
	old := g.slots
	g.slots = make([]uint64, max(8, len(old)*2))
	for _, s := range old {
		if s != 0 {
			g.link(s)
		}
	}
}

// unlink empties slot i and shifts back those behind it that could not be found any more across
// the hole.
func (g *group[V]) unlink(i int) {
	mask := len(g.slots) - 1
	g.slots[i] = 0
	for j := (i + 1) & mask; g.slots[j] != 0; j = (j + 1) & mask {
		home := int(g.slots[j]>>32) & mask
		if (j-home)&mask >= (j-i)&mask {
			g.slots[i], g.slots[j] = g.slots[j], 0
			i = j
		}
	}
}

// pack writes the long keys anew, without what removed ones have left.
func (g *group[V]) pack() {
	packed := keys{bytes: make([]byte, 0, len(g.keys.bytes)-g.keys.waste)}
	for p := range uint32(g.used) {
		e := g.at(p)
		key := g.keys.of(&e.key)
		if !e.live && e.key.long() {
			key = nil
		}
		e.key = keyRef{}
		packed.set(&e.key, key)
	}
	g.keys = packed
}

// flushAhead is how many changed entries are read ahead.
const flushAhead = 32

// flush logs the entries that may have changed. An entry that was deleted meanwhile, or that has been
// logged with its group or under another key, is clean and passed over.
func (t *Table[K, V]) flush(values connector.Codec[V]) error {
	for i, at := range t.dirty {
		if i%flushAhead == 0 {
			t.readAhead(t.dirty[i:min(i+flushAhead, len(t.dirty))])
		}
		g := &t.groups[int(at.group)-t.first]
		if int(at.position) >= g.used {
			continue // the group was emptied
		}
		e := g.at(at.position)
		if !e.dirty {
			continue
		}
		if err := t.append(int(at.group), g.keys.of(&e.key), e, values); err != nil {
			return err
		}
	}
	t.dirty = t.dirty[:0]
	return nil
}

// base logs every entry of a group.
func (t *Table[K, V]) base(groupID int, values connector.Codec[V]) error {
	return t.each(groupID, func(key []byte, e *entry[V]) error {
		return t.append(groupID, key, e, values)
	})
}

func (t *Table[K, V]) append(groupID int, key []byte, e *entry[V], values connector.Codec[V]) error {
	e.dirty = false
	return t.log.set(values.Append(t.log.put(groupID, key), &e.value))
}

// restore sets a key to a value, both encoded.
func (t *Table[K, V]) restore(groupID int, key, value []byte, values connector.Codec[V]) error {
	k, err := t.codec.restored(groupID, key)
	if err != nil {
		return err
	}
	v, err := t.Put(&k)
	if err != nil {
		return err
	}
	if err := values.Decode(value, v); err != nil {
		return fmt.Errorf("value of key %v: %w", k.Value(), err)
	}
	return nil
}

// forget removes an encoded key.
func (t *Table[K, V]) forget(groupID int, key []byte) error {
	k, err := t.codec.restored(groupID, key)
	if err != nil {
		return err
	}
	t.Delete(&k)
	return nil
}
