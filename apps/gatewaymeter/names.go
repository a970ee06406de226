package gatewaymeter

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"example.com/weir/apps/gatewaymeter/price"
)

// namePair is a provider and a model as an event names them, and what the price book has for them
// once that has been asked. Several goroutines share it.
type namePair struct {
	provider, model string

	number uint32 // in names, where it has one
	found  atomic.Pointer[found]
}

// found is what the price book has for a pair of names.
type found struct {
	model *price.Model
	err   error
}

// look asks the price book once. Where two ask at once, both get the same answer.
func (p *namePair) look(prices *price.Cache) (*price.Model, error) {
	f := p.found.Load()
	if f == nil {
		f = &found{}
		f.model, f.err = prices.Find(p.provider, p.model)
		p.found.Store(f)
	}
	return f.model, f.err
}

const (
	// maxNames is how many pairs of names have a number.
	maxNames = 1 << 14
	// maxNameSize is the length in bytes of the longest pair of names that gets a number.
	maxNameSize = 512
	// unnumbered is the number of a pair that got none.
	unnumbered = 1<<32 - 1
)

// names gives each pair of names a number, which is good for as long as the process runs: requests keep it in
// place of the names. Names come from outside, so there are at most maxNames numbers, and no long names have
// one. A pair without a number is made anew each time, and works as well, if not as fast.
//
// The readers and subtasks of a job share one, and find names without waiting for each other. Who adds one, which
// is rare, holds the lock.
type names struct {
	table  atomic.Pointer[nameTable]
	adding sync.Mutex
}

// nameTable is a hash table with linear probing. Names are added in place while others read it: a slot is set once,
// when its pair can be seen. Once half of the slots are used, another table takes its place.
type nameTable struct {
	slots []atomic.Uint64 // the upper half of a hash and a number, or 0
	pairs []atomic.Pointer[namePair]
	used  uint32 // numbers given, of who adds; the first names nothing
}

func newNameTable(slots int) *nameTable {
	t := &nameTable{slots: make([]atomic.Uint64, slots), pairs: make([]atomic.Pointer[namePair], slots/2), used: 1}
	t.pairs[0].Store(&namePair{})
	return t
}

func newNames() *names {
	n := &names{}
	n.table.Store(newNameTable(64))
	return n
}

// own returns the pair of these names. It keeps neither string.
func (n *names) own(provider, model string) *namePair {
	t := n.table.Load()
	if provider == "" && model == "" {
		return t.pairs[0].Load()
	}
	hash := hashNames(provider, model)
	if p, _ := t.find(hash, provider, model); p != nil {
		return p
	}
	return n.add(hash, provider, model, maxNames)
}

// numbered is own for names that a checkpoint holds by number: they get one again, however many there are.
func (n *names) numbered(provider, model string) *namePair {
	return n.add(hashNames(provider, model), provider, model, unnumbered)
}

// pair returns the pair with a number.
func (n *names) pair(number uint32) *namePair { return n.table.Load().pairs[number].Load() }

// add returns the pair of these names, with a number if fewer than most have one.
func (n *names) add(hash uint64, provider, model string, most uint32) *namePair {
	n.adding.Lock()
	defer n.adding.Unlock()
	t := n.table.Load()
	old, slot := t.find(hash, provider, model)
	if old != nil {
		return old
	}
	p := &namePair{provider: strings.Clone(provider), model: strings.Clone(model), number: unnumbered}
	if t.used >= most || most == maxNames && len(provider)+len(model) > maxNameSize {
		return p
	}
	p.number = t.used
	if int(t.used) == len(t.pairs) {
		t = t.grown()
		_, slot = t.find(hash, provider, model)
		defer n.table.Store(t) // before the lock is given back
	}
	t.put(slot, hash, p)
	return p
}

// find returns the pair of these names, or else the slot that they would take.
func (t *nameTable) find(hash uint64, provider, model string) (p *namePair, slot uint64) {
	mask := uint64(len(t.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		s := t.slots[i].Load()
		if s == 0 {
			return nil, i
		}
		if s>>32 == hash>>32 {
			if p := t.pairs[uint32(s)].Load(); p.model == model && p.provider == provider {
				return p, i
			}
		}
	}
}

// put adds a pair: first the pair, then the slot that leads to it.
func (t *nameTable) put(slot, hash uint64, p *namePair) {
	t.pairs[p.number].Store(p)
	t.slots[slot].Store(hash>>32<<32 | uint64(p.number))
	t.used++
}

// grown returns a table with the same pairs and twice the room.
func (t *nameTable) grown() *nameTable {
	g := newNameTable(2 * len(t.slots))
	for i := uint32(1); i < t.used; i++ {
		p := t.pairs[i].Load()
		hash := hashNames(p.provider, p.model)
		_, slot := g.find(hash, p.provider, p.model)
		g.put(slot, hash, p)
	}
	return g
}

func hashNames(provider, model string) uint64 {
	return xxhash.Sum64String(model) ^ 3*xxhash.Sum64String(provider)
}

// texts keeps copies of texts that come again and again. It has a fixed number of places, and what comes takes
// the place of what was there: memory is bounded whatever comes.
type texts struct{ places [1024]string }

// maxText is the length in bytes of the longest text that is kept.
const maxText = 256

// own returns a string of the same content that shares no memory with s.
func (t *texts) own(s []byte) string {
	if len(s) > maxText {
		return string(s)
	}
	place := &t.places[xxhash.Sum64(s)%uint64(len(t.places))]
	if *place != string(s) {
		*place = string(s)
	}
	return *place
}
