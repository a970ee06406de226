package state

import (
	"fmt"
	"slices"

	"example.com/weir/connector"
)

// Keyed is the whole keyed state of one operator subtask: its named states and its timers, over
// the key groups [First, End).
//
// A snapshot of it is a chain of cuts. Each cut holds what has changed since the one before it,
// and, in turn, a few key groups whole (a base): once every group has had its base, the cuts before
// are not needed any more. The work at a barrier follows what changes and not what is there.
type Keyed[K comparable] struct {
	First, End int
	Timers     *Timers[K] // in event time
	Clock      *Timers[K] // in processing time (microseconds)
	// Dropped reports whether a state that the operator does not declare any more may be left out of a
	// restore; nil: none may.
	Dropped func(state string) bool

	codec     KeyCodec[K]
	states    []namedState
	deadlines deadlines[K] // of the state whose entries have some; nil: of none
	log       *changeLog   // nil: every cut is whole
	chunks    *chunks
	cuts      uint64
	based     []uint64 // of each group, the cut that holds its base
	turn      int      // the group whose base comes next
	// rebased is the number of records in the log when the last base was written.
	rebased int
	least   int  // leastBase
	most    int  // leastCollapse
	whole   bool // the next cut holds every group whole
}

// The kinds of states.
const (
	valueKind    = 'v'
	mapKind      = 'm'
	listKind     = 'l'
	deadlineKind = 'd'
)

// deadlines are those of a state's entries; see Deadlines.
type deadlines[K comparable] interface {
	due(watermark int64) (at int64, ok bool)
	fire(at int64, fire func(k *Key[K], at int64) error) error
	pending() int
}

// description is what a cut says of a state.
type description struct {
	name   string
	kind   byte // 0: written before kinds were kept
	ttl    bool // each record begins with the event time of its last write
	schema Schema
}

// namedState is one declared state, whatever its kind and value type.
type namedState struct {
	description
	logTo   func(l *tableLog)
	flush   func() error
	pending func() int
	base    func(group int) error
	size    func(group int) int
	restore func(group int, key, value []byte) error
	forget  func(group int, key []byte) error
	fetch   func(groups []uint16, hashes []uint64)
	expire  func(watermark int64, budget int) error // nil: nothing expires
}

// NewKeyed returns empty state over the key groups [first, end). With incremental set, changes are
// logged as they happen; without it every cut holds everything.
func NewKeyed[K comparable](first, end int, codec KeyCodec[K], incremental bool) *Keyed[K] {
	k := &Keyed[K]{
		First: first, End: end, codec: codec,
		Timers: NewTimers(first, end, codec), Clock: NewTimers(first, end, codec),
		chunks: newChunks(), based: make([]uint64, end-first), least: leastBase, most: leastCollapse,
	}
	k.Timers.soon = k.Prefetch
	k.Clock.domain = clockDomain
	if incremental {
		k.log = newChangeLog(k.chunks)
		k.Timers.log, k.Clock.log = k.log, k.log
	}
	return k
}

// maxStates is how many named states an operator can have.
const maxStates = 255

// Declare adds a state under a name that is unique in the operator. States are declared before
// Restore.
func Declare[K comparable, V any](
	k *Keyed[K], name string, codec connector.Codec[V],
) (*Table[K, V], error) {
	t := NewTable[K, V](k.First, k.End, k.codec)
	return t, k.declare(tableState(t, codec, description{name: name, kind: valueKind, schema: SchemaOf(codec)}))
}

// tableState is a state that is a table.
func tableState[K comparable, V any](t *Table[K, V], codec connector.Codec[V], d description) namedState {
	return namedState{
		description: d,
		logTo:       func(l *tableLog) { t.log = l },
		flush:       func() error { return t.flush(codec) },
		pending:     func() int { return len(t.dirty) },
		base:        func(group int) error { return t.base(group, codec) },
		size:        func(group int) int { return t.groups[group-t.first].live },
		restore:     func(group int, key, value []byte) error { return t.restore(group, key, value, codec) },
		forget:      t.forget,
		fetch:       t.Prefetch,
	}
}

func (k *Keyed[K]) declare(s namedState) error {
	for _, other := range k.states {
		if other.name == s.name {
			return fmt.Errorf("state %q is declared twice", s.name)
		}
	}
	if len(k.states) == maxStates {
		return fmt.Errorf("state %q: an operator has at most %d states", s.name, maxStates)
	}
	s.logTo(k.log.of(len(k.states)))
	k.states = append(k.states, s)
	return nil
}

// flushAbove is how many changed entries may wait to be encoded: a barrier finds fewer, and an
// entry that changes again soon is encoded once.
const flushAbove = 4096

// baseEvery is how many times as much as a group holds changes before its base is written: bases
// cost a part of what changes cost, and a chain holds at most so many times what the state does.
const baseEvery = 3

// leastBase is the number of entries and timers that a cut holds whole at the least, if there
// are so many.
const leastBase = 1024

// Prefetch reads what the look-ups of a batch of keys will read, in every state.
func (k *Keyed[K]) Prefetch(groups []uint16, hashes []uint64) {
	for i := range k.states {
		k.states[i].fetch(groups, hashes)
	}
}

// Work does a part of what would otherwise be done at the barrier: it encodes changed entries
// once enough of them wait, and the base of the next group once baseEvery times as much has changed as it holds.
func (k *Keyed[K]) Work() error {
	if k.log == nil {
		return nil
	}
	for i := range k.states {
		if s := &k.states[i]; s.pending() >= flushAbove {
			if err := s.flush(); err != nil {
				return fmt.Errorf("state %q: %w", s.name, err)
			}
		}
	}
	if n := k.log.records; n > k.most && n > k.most+collapseAbove*(k.Len()+k.Timers.Len()+k.Clock.Len()) {
		k.collapse()
	}
	if k.log.records-k.rebased < baseEvery*k.size(k.First+k.turn)+k.least {
		return nil
	}
	return k.rebaseNext()
}

// collapseAbove is how many times as many records as it has entries and timers a state logs between two
// cuts, and leastCollapse how many more.
const (
	collapseAbove = 4
	leastCollapse = 1 << 18
)

// collapse forgets what has been logged since the last cut. The next one holds every group whole instead:
// while checkpoints wait for something, what has changed between two of them would grow without bound.
func (k *Keyed[K]) collapse() {
	k.chunks.giveBack(k.log.take())
	k.rebased, k.whole = 0, true
	for i := range k.based {
		k.based[i] = min(k.based[i], k.cuts)
	}
}

// Pending returns the number of timers and deadlines, or a little more.
func (k *Keyed[K]) Pending() int {
	n := k.Timers.Len() + k.Clock.Len()
	if k.deadlines != nil {
		n += k.deadlines.pending()
	}
	return n
}

// Due returns the earliest deadline at or before a watermark.
func (k *Keyed[K]) Due(watermark int64) (at int64, ok bool) {
	if k.deadlines == nil {
		return 0, false
	}
	return k.deadlines.due(watermark)
}

// FireDeadlines calls fire for the entries whose deadline is at, which Due has returned. An entry whose
// deadline fire does not move is gone after that.
func (k *Keyed[K]) FireDeadlines(at int64, fire func(k *Key[K], at int64) error) error {
	return k.deadlines.fire(at, fire)
}

// expireAtOnce is how many entries Expire looks at in one state, so that many that expire at one time do not
// hold the stream up.
const expireAtOnce = 4096

// Expire removes entries whose time to live is over at a watermark. They are not to be seen any more
// before that; what one call leaves, later ones remove.
func (k *Keyed[K]) Expire(watermark int64) error {
	for i := range k.states {
		if s := &k.states[i]; s.expire != nil {
			if err := s.expire(watermark, expireAtOnce); err != nil {
				return fmt.Errorf("state %q: %w", s.name, err)
			}
		}
	}
	return nil
}

// rebaseNext logs the next group whole. Changes of it that wait to be encoded follow later in the
// log, and say the same or something newer.
func (k *Keyed[K]) rebaseNext() error {
	err := k.base(k.First + k.turn)
	k.turn = (k.turn + 1) % len(k.based)
	k.rebased = k.log.records
	return err
}

// Cut returns what has changed since the last cut, and the bases that are due: head and records
// are to be kept one behind the other. watermark says how far event time has come for a group. A
// restore needs the cuts from Oldest on.
//
// The records are not copied: they are the caller's, who hands them to GiveBack once they are kept.
func (k *Keyed[K]) Cut(watermark func(group int) int64) (head []byte, records [][]byte, err error) {
	whole := k.log == nil
	if whole {
		k.log = newChangeLog(k.chunks)
		k.logTo(k.log)
		defer func() { k.log = nil; k.logTo(nil) }()
	}
	for _, s := range k.states {
		if err := s.flush(); err != nil {
			return nil, nil, fmt.Errorf("state %q: %w", s.name, err)
		}
	}
	if err := k.rebaseDue(whole || k.whole || k.cuts == 0); err != nil {
		return nil, nil, err
	}
	k.whole = false
	k.cuts++
	k.rebased = 0
	return k.appendHeader(nil, watermark), k.log.take(), nil
}

// GiveBack takes the records of a cut, which nobody reads any more: the next ones are collected in their
// memory. Unlike all else here, any goroutine may call it.
func (k *Keyed[K]) GiveBack(records [][]byte) { k.chunks.giveBack(records) }

// rebaseDue logs groups whole that cost nothing because they are empty, and some of the others,
// in turn; or all of them.
func (k *Keyed[K]) rebaseDue(all bool) error {
	for budget := k.least; budget > 0 && k.based[k.turn] <= k.cuts; {
		budget -= k.size(k.First+k.turn) + 1
		if err := k.rebaseNext(); err != nil {
			return err
		}
	}
	for i := range k.based {
		group := k.First + i
		if k.based[i] <= k.cuts && (all || k.size(group) == 0) {
			if err := k.base(group); err != nil {
				return err
			}
		}
	}
	return nil
}

// Codec returns the codec of the keys.
func (k *Keyed[K]) Codec() *KeyCodec[K] { return &k.codec }

// Oldest returns the cut from which on a restore needs them all. Cuts are counted from 1.
func (k *Keyed[K]) Oldest() uint64 { return slices.Min(k.based) }

// Len returns the number of entries in all its states; timers have a count of their own.
func (k *Keyed[K]) Len() int {
	n := 0
	for group := k.First; group < k.End; group++ {
		for i := range k.states {
			n += k.states[i].size(group)
		}
	}
	return n
}

// Cuts returns the number of cuts so far.
func (k *Keyed[K]) Cuts() uint64 { return k.cuts }

func (k *Keyed[K]) size(group int) int {
	n := k.Timers.counts[group-k.First] + k.Clock.counts[group-k.First]
	for i := range k.states {
		n += k.states[i].size(group)
	}
	return n
}

// base logs a group whole, in the cut that is being collected.
func (k *Keyed[K]) base(group int) error {
	k.based[group-k.First] = k.cuts + 1
	k.log.record(resetRecord, group)
	k.Timers.base(group)
	k.Clock.base(group)
	for i := range k.states {
		if err := k.states[i].base(group); err != nil {
			return fmt.Errorf("state %q, key group %d: %w", k.states[i].name, group, err)
		}
	}
	return nil
}
