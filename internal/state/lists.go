package state

import (
	"fmt"
	"iter"

	"example.com/weir/connector"
)

// Lists holds a list for each key. Appending costs what is appended, however long the list is.
type Lists[K comparable, V any] struct {
	cells  *Table[K, *listCell[K, V]] // which is not logged: what is appended is
	keys   KeyCodec[K]
	values connector.Codec[V]
	log    *tableLog
	counts []int // values in each key group
	x      *expiry[*listCell[K, V]]
}

// listCell is the list of one key.
type listCell[K comparable, V any] struct {
	key     Key[K]
	values  []V
	written []int64 // of each value; nil without a time to live
	head    int     // those before it have expired
	bucket  int64
	gone    bool
}

// DeclareList adds a list state, as Declare does. The time to live is that of each value, from its
// being appended on.
func DeclareList[K comparable, V any](
	k *Keyed[K], name string, values connector.Codec[V], ttl TTL,
) (*Lists[K, V], error) {
	l := &Lists[K, V]{
		cells: NewTable[K, *listCell[K, V]](k.First, k.End, k.codec), keys: k.codec, values: values,
		counts: make([]int, k.End-k.First),
	}
	l.x = newExpiry(ttl, func(c *listCell[K, V], bucket int64) bool { return c.gone || c.bucket != bucket })
	s := namedState{
		description: description{name: name, kind: listKind, ttl: l.x != nil, schema: SchemaOf(values)},
		logTo:       func(t *tableLog) { l.log = t },
		flush:       func() error { return nil },
		pending:     func() int { return 0 },
		base:        l.base,
		size:        func(group int) int { return l.counts[group-k.First] },
		restore:     l.restore,
		forget:      l.forget,
		fetch:       l.cells.Prefetch,
	}
	if l.x != nil {
		s.expire = l.expire
	}
	return l, k.declare(s)
}

// Append adds a value at the end. It is logged at once: it is not to be changed any more.
func (l *Lists[K, V]) Append(k *Key[K], v V, at Times) error {
	cell, err := l.add(k, v, at.Write)
	if err != nil || l.log == nil {
		return err
	}
	return l.logRun(cell, len(cell.values)-1, len(cell.values))
}

func (l *Lists[K, V]) add(k *Key[K], v V, written int64) (*listCell[K, V], error) {
	c, err := l.cells.Put(k)
	if err != nil {
		return nil, err
	}
	if *c == nil {
		*c = &listCell[K, V]{key: k.own()}
		if l.x != nil {
			(*c).bucket = l.x.bucket(written)
			l.x.add(*c, written)
		}
	}
	cell := *c
	cell.values = append(cell.values, v)
	if l.x != nil {
		cell.written = append(cell.written, written)
	}
	l.counts[k.Group-l.cells.first]++
	return cell, nil
}

// Clear removes the list of a key.
func (l *Lists[K, V]) Clear(k *Key[K]) {
	cell := l.cell(k)
	if cell == nil {
		return
	}
	if l.log != nil {
		l.log.delete(cell.key.Group, cell.key.Encoded)
	}
	l.drop(cell)
}

func (l *Lists[K, V]) drop(cell *listCell[K, V]) {
	cell.gone = true
	l.counts[cell.key.Group-l.cells.first] -= len(cell.values) - cell.head
	l.cells.Delete(&cell.key)
}

// Len returns the number of values of a key.
func (l *Lists[K, V]) Len(k *Key[K], at Times) int {
	cell := l.cell(k)
	switch {
	case cell == nil:
		return 0
	case l.x == nil:
		return len(cell.values)
	}
	n := 0
	for _, written := range cell.written[cell.head:] {
		if !l.x.expired(written, at.Now) {
			n++
		}
	}
	return n
}

// All lists the values of a key in the order in which they were appended: those that are there when it
// begins.
func (l *Lists[K, V]) All(k *Key[K], at Times) iter.Seq[V] {
	cell := l.cell(k)
	return func(yield func(V) bool) {
		if cell == nil {
			return
		}
		values, written := cell.values[cell.head:], []int64(nil)
		if l.x != nil {
			written = cell.written[cell.head:]
		}
		for i := range values {
			if written != nil && l.x.expired(written[i], at.Now) {
				continue
			}
			if !yield(values[i]) {
				return
			}
		}
	}
}

func (l *Lists[K, V]) cell(k *Key[K]) *listCell[K, V] {
	if c := l.cells.Peek(k); c != nil {
		return *c
	}
	return nil
}

// logRun logs that the values [from, to) were appended. With a time to live they were written at the
// same time.
func (l *Lists[K, V]) logRun(cell *listCell[K, V], from, to int) error {
	b := l.log.put(cell.key.Group, cell.key.Encoded)
	if l.x != nil {
		b = AppendInt(b, cell.written[from])
	}
	var err error
	for i := from; i < to && err == nil; i++ {
		b, err = AppendSized(b, func(dst []byte) ([]byte, error) {
			return l.values.Append(dst, &cell.values[i])
		})
	}
	return l.log.set(b, err)
}

// base logs every list of a group.
func (l *Lists[K, V]) base(groupID int) error {
	return l.cells.each(groupID, func(_ []byte, e *entry[*listCell[K, V]]) error {
		cell := e.value
		for from := cell.head; from < len(cell.values); {
			to := cell.runEnd(from)
			if err := l.logRun(cell, from, to); err != nil {
				return err
			}
			from = to
		}
		return nil
	})
}

// mostInRun bounds the values of one record.
const mostInRun = 1024

// runEnd returns where the values end that go into one record.
func (c *listCell[K, V]) runEnd(from int) int {
	to := min(from+mostInRun, len(c.values))
	if c.written == nil {
		return to
	}
	for i := from + 1; i < to; i++ {
		if c.written[i] != c.written[from] {
			return i
		}
	}
	return to
}

func (l *Lists[K, V]) restore(groupID int, key, value []byte) error {
	k, err := l.keys.restored(groupID, key)
	if err != nil {
		return err
	}
	written := int64(0)
	if l.x != nil {
		if written, value, err = unstamp(value); err != nil {
			return err
		}
	}
	for d := NewDecoder(value); !d.Empty(); {
		encoded := d.Sized()
		if d.err != nil {
			return d.err
		}
		var v V
		if err := l.values.Decode(encoded, &v); err != nil {
			return fmt.Errorf("list of key %v: %w", k.Value(), err)
		}
		if _, err := l.add(&k, v, written); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lists[K, V]) forget(groupID int, key []byte) error {
	k, err := l.keys.restored(groupID, key)
	if err == nil {
		l.Clear(&k)
	}
	return err
}

// expire removes values from the front of lists. One that was written later than those behind it holds
// them back, unseen, until it goes itself: by as much as event time is out of order.
func (l *Lists[K, V]) expire(now int64, budget int) error {
	for ; budget > 0; budget-- {
		cell, ok := l.x.take(now)
		if !ok {
			return nil
		}
		before := cell.head
		for cell.head < len(cell.values) && l.x.expired(cell.written[cell.head], now) {
			cell.head++
		}
		budget -= cell.head - before
		if cell.head == len(cell.values) {
			cell.head = before
			l.Clear(&cell.key)
			continue
		}
		l.counts[cell.key.Group-l.cells.first] -= cell.head - before
		cell.trim()
		if cell.written[cell.head] == never { // event time begins now
			cell.written[cell.head] = now
		}
		cell.bucket = l.x.bucket(cell.written[cell.head])
		l.x.add(cell, cell.written[cell.head])
	}
	return nil
}

// trim gives the memory of expired values back once they are the greater part.
func (c *listCell[K, V]) trim() {
	clear(c.values[:c.head])
	if 2*c.head < len(c.values) {
		return
	}
	c.values, c.written, c.head = append([]V(nil), c.values[c.head:]...), append([]int64(nil), c.written[c.head:]...), 0
}
