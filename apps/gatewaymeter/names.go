package gatewaymeter

import (
	"strings"

	"github.com/cespare/xxhash/v2"

	"example.com/weir/apps/gatewaymeter/price"
)

// namePair is a provider and a model as an event names them, and what the price book has for them
// once that has been asked.
type namePair struct {
	provider, model string

	number uint32 // in names, where it has one
	asked  bool
	found  *price.Model
	err    error
}

// look asks the price book once.
func (p *namePair) look(prices *price.Cache) (*price.Model, error) {
	if !p.asked {
		p.found, p.err = prices.Find(p.provider, p.model)
		p.asked = true
	}
	return p.found, p.err
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
type names struct {
	pairs []*namePair // by number; the first names nothing
	// slots are a hash table with linear probing: the upper half of a hash and a number, or 0.
	slots []uint64
}

func newNames() *names {
	return &names{pairs: []*namePair{{}}, slots: make([]uint64, 64)}
}

// own returns the pair of these names. It keeps neither string.
func (n *names) own(provider, model string) *namePair {
	bounded := len(n.pairs) >= maxNames || len(provider)+len(model) > maxNameSize
	return n.find(provider, model, !bounded)
}

// numbered is own for names that a checkpoint holds by number: they get one again, however many there are.
func (n *names) numbered(provider, model string) *namePair { return n.find(provider, model, true) }

func (n *names) find(provider, model string, number bool) *namePair {
	if provider == "" && model == "" {
		return n.pairs[0]
	}
	hash, mask := n.hash(provider, model), uint64(len(n.slots)-1)
	i := hash & mask
	for ; n.slots[i] != 0; i = (i + 1) & mask {
		if slot := n.slots[i]; slot>>32 == hash>>32 {
			if p := n.pairs[uint32(slot)]; p.model == model && p.provider == provider {
				return p
			}
		}
	}
	p := &namePair{provider: strings.Clone(provider), model: strings.Clone(model), number: unnumbered}
	if !number {
		return p
	}
	p.number = uint32(len(n.pairs))
	n.pairs = append(n.pairs, p)
	n.slots[i] = hash>>32<<32 | uint64(p.number)
	if len(n.pairs)*2 > len(n.slots) {
		n.grow()
	}
	return p
}

func (n *names) hash(provider, model string) uint64 {
	return xxhash.Sum64String(model) ^ 3*xxhash.Sum64String(provider)
}

func (n *names) grow() {
	n.slots = make([]uint64, 2*len(n.slots))
	mask := uint64(len(n.slots) - 1)
	for _, p := range n.pairs[1:] {
		hash := n.hash(p.provider, p.model)
		i := hash & mask
		for n.slots[i] != 0 {
			i = (i + 1) & mask
		}
		n.slots[i] = hash>>32<<32 | uint64(p.number)
	}
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
