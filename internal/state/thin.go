package state

import (
	"bytes"
	"slices"
)

// crowded is how many timers a bucket has before it is looked through for those that say nothing: a
// processor that sets the end of its window at each row sets one timer thousands of times.
const crowded = 1024

// thinAgain is how many times as many it has when it is looked through again.
const thinAgain = 4

// thinner finds, among the timers of a bucket, those of one key and time.
type thinner struct {
	seen []uint32 // 1 + a place in said, by hash
	said []said
	of   []uint32 // of each timer, its place in said
}

// said is what the operations on one key and time come to.
type said struct {
	first   uint32 // the place of one of them
	deleted int64  // of the last one that deletes; -1: none
	set     int64  // of the first one that sets after it; -1: none
}

// thin keeps of a bucket's operations on a key at a time the last one that deletes and the first one that
// sets after it: the same stands then, in the same order. What deletes is kept because what it deletes may
// lie elsewhere, in a bucket that is open already. What was overdue is kept, too: that it has fired
// is logged for each (voidOverdue).
func (t *Timers[K]) thin(tick uint64, b *bucket) {
	t.thinner.look(b)
	if len(t.thinner.said) == b.n {
		b.thinAt = thinAgain * b.n
		return
	}
	kept := t.wheel.fresh()
	for i := range uint32(b.n) {
		x, s := b.at(i), &t.thinner.said[t.thinner.of[i]]
		if x.kind == overdueRecord || int64(i) == s.deleted || int64(i) == s.set {
			t.wheel.add(kept, x, b.keyOf(i))
		} else {
			t.counts[int(x.group)-t.first]--
		}
	}
	kept.thinAt = thinAgain * kept.n
	t.wheel.put(tick, kept)
	t.wheel.giveBack(b)
}

// look finds what the operations of a bucket come to.
func (h *thinner) look(b *bucket) {
	size := 4
	for size < 2*b.n {
		size *= 2
	}
	h.seen, h.said, h.of = slices.Grow(h.seen[:0], size)[:size], h.said[:0], h.of[:0]
	clear(h.seen)
	for i := range uint32(b.n) {
		x := b.at(i)
		at := int(fragment(x.hash^uint64(x.at))) & (size - 1)
		for ; h.seen[at] != 0 && !sameTimer(b, i, h.said[h.seen[at]-1].first); at = (at + 1) & (size - 1) {
		}
		if h.seen[at] == 0 {
			h.said = append(h.said, said{first: i, deleted: -1, set: -1})
			h.seen[at] = uint32(len(h.said))
		}
		h.of = append(h.of, h.seen[at]-1)
		s := &h.said[h.seen[at]-1]
		switch {
		case x.kind == untimerRecord:
			s.deleted, s.set = int64(i), -1
		case s.set < 0:
			s.set = int64(i)
		}
	}
}

func sameTimer(b *bucket, i, j uint32) bool {
	x, y := b.at(i), b.at(j)
	return x.at == y.at && x.hash == y.hash && x.group == y.group && bytes.Equal(b.keyOf(i), b.keyOf(j))
}
