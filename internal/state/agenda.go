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
	last    *list // most locations go where the one before went
	lastOf  uint64
	spare   []*list
}

type list struct{ locations []location }

type tickID uint64

func (t *tickID) before(other *tickID) bool { return *t < *other }

func newAgenda() agenda { return agenda{lists: map[uint64]*list{}} }

// add adds a location to a tick, which is not before the horizon.
func (a *agenda) add(tick uint64, at location) {
	if a.last == nil || a.lastOf != tick {
		a.last, a.lastOf = a.of(tick), tick
	}
	a.last.locations = append(a.last.locations, at)
	a.n++
}

func (a *agenda) of(tick uint64) *list {
	l := a.lists[tick]
	if l == nil {
		l = a.fresh()
		a.lists[tick] = l
		a.ticks.push(tickID(tick))
	}
	return l
}

func (a *agenda) fresh() *list {
	if n := len(a.spare); n > 0 {
		l := a.spare[n-1]
		a.spare = a.spare[:n-1]
		return l
	}
	return &list{}
}

// first returns the earliest tick that has locations.
func (a *agenda) first() (tick uint64, ok bool) {
	if len(a.ticks) == 0 {
		return 0, false
	}
	return uint64(a.ticks[0]), true
}

// take removes the earliest tick; what comes for it from here on comes too late. The list is to be
// given back.
func (a *agenda) take() *list {
	tick := uint64(a.ticks.pop())
	l := a.lists[tick]
	delete(a.lists, tick)
	a.horizon, a.last, a.n = tick+1, nil, a.n-len(l.locations)
	return l
}

// moveTo moves the horizon to a time before whose tick no list is left.
func (a *agenda) moveTo(at int64) { a.horizon = max(a.horizon, tick(at)) }

// mostSpare is how many lists are kept to be used again.
const mostSpare = 64

// giveBack keeps a list to be used again.
func (a *agenda) giveBack(l *list) {
	if len(a.spare) < mostSpare {
		l.locations = l.locations[:0]
		a.spare = append(a.spare, l)
	}
}

// sweep drops what is void, and what is said twice.
func (a *agenda) sweep(void func(tick uint64, at location) bool) {
	a.n = 0
	for tick, l := range a.lists {
		slices.SortFunc(l.locations, location.compare)
		l.locations = slices.DeleteFunc(slices.Compact(l.locations), func(at location) bool { return void(tick, at) })
		a.n += len(l.locations)
	}
}

func (l location) compare(m location) int {
	return cmp.Or(cmp.Compare(l.group, m.group), cmp.Compare(l.position, m.position))
}
