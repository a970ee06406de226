package state

import (
	"cmp"
	"slices"
)

// agenda keeps the locations of entries by the tick in which they are to be looked at. Which entries
// are gone by then, or are to be looked at later, it does not know.
type agenda struct {
	horizon uint64 // no list is for a tick before it
	n       int    // the locations in all lists
	lists   map[uint64]*list
	ticks   queue[tickID, *tickID]
	recent  [recentLists]recentList // most locations go where others went just before
	blocks  []*block                // to be used again
	used    int                     // blocks of lists
}

// list are the locations of a tick, in blocks that are full but for the last one.
type list struct {
	blocks []*block
	last   int // how many are in the last block
}

// block is as many locations as are read ahead at once.
type block [ahead]location

// recentList is a list that was added to not long ago.
type recentList struct {
	tick uint64
	list *list
}

const recentLists = 4

type tickID uint64

func (t *tickID) before(other *tickID) bool { return *t < *other }

func newAgenda() agenda { return agenda{lists: map[uint64]*list{}} }

// add adds a location to a tick, which is not before the horizon.
func (a *agenda) add(tick uint64, at location) {
	r := &a.recent[tick%recentLists]
	if r.list == nil || r.tick != tick {
		*r = recentList{tick, a.of(tick)}
	}
	l := r.list
	if l.last == ahead || len(l.blocks) == 0 {
		l.blocks, l.last = append(l.blocks, a.fresh()), 0
	}
	l.blocks[len(l.blocks)-1][l.last] = at
	l.last++
	a.n++
}

func (a *agenda) of(tick uint64) *list {
	l := a.lists[tick]
	if l == nil {
		l = &list{}
		a.lists[tick] = l
		a.ticks.push(tickID(tick))
	}
	return l
}

func (a *agenda) fresh() *block {
	a.used++
	if n := len(a.blocks); n > 0 {
		b := a.blocks[n-1]
		a.blocks = a.blocks[:n-1]
		return b
	}
	return new(block)
}

// first returns the earliest tick that has locations.
func (a *agenda) first() (tick uint64, ok bool) {
	if len(a.ticks) == 0 {
		return 0, false
	}
	return uint64(a.ticks[0]), true
}

// take removes the earliest tick, and calls visit with its locations, some at a time. What comes for it from here on
// comes too late.
func (a *agenda) take(visit func([]location)) {
	tick := uint64(a.ticks.pop())
	l := a.lists[tick]
	delete(a.lists, tick)
	a.recent[tick%recentLists] = recentList{}
	a.horizon = tick + 1
	l.each(func(some []location) {
		a.n -= len(some)
		visit(some)
	})
	a.giveBack(l)
}

// moveTo moves the horizon to a time before whose tick no list is left.
func (a *agenda) moveTo(at int64) { a.horizon = max(a.horizon, tick(at)) }

// giveBack keeps the blocks of a list to be used again, unless there are more of these than are used.
func (a *agenda) giveBack(l *list) {
	for _, b := range l.blocks {
		if a.used--; len(a.blocks) <= a.used+recentLists {
			a.blocks = append(a.blocks, b)
		}
	}
	l.blocks, l.last = nil, 0
}

func (l *list) each(visit func([]location)) {
	for i, b := range l.blocks {
		n := ahead
		if i == len(l.blocks)-1 {
			n = l.last
		}
		visit(b[:n])
	}
}

// sweep drops what is void, and what is said twice.
func (a *agenda) sweep(void func(tick uint64, at location) bool) {
	a.n, a.recent = 0, [recentLists]recentList{}
	for tick, l := range a.lists {
		var all []location
		l.each(func(some []location) { all = append(all, some...) })
		slices.SortFunc(all, location.compare)
		a.giveBack(l)
		for _, at := range slices.Compact(all) {
			if !void(tick, at) {
				a.add(tick, at)
			}
		}
	}
}

func (l location) compare(m location) int {
	return cmp.Or(cmp.Compare(l.group, m.group), cmp.Compare(l.position, m.position))
}
