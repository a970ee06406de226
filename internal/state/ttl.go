package state

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"example.com/weir/connector"
)

// TTL is how long an entry lives, in event time. The zero value is for ever.
type TTL struct {
	After time.Duration
	// FromCreation counts from the first write of an entry, and not from its last one.
	FromCreation bool
}

// Times are what a state with a time to live is told at each call.
type Times struct {
	// Now is how far event time has come for the key: what expired at or before it is not seen.
	Now int64
	// Write is the event time that a write is dated with.
	Write int64
}

// never is the time of a write before anything was known of event time.
const never = math.MinInt64

// expiry knows which entries may expire soon. R refers to an entry. An entry is in one bucket, whatever
// becomes of it; when its bucket is due it is looked at, and either expires or goes into another one:
// to renew an entry costs nothing here.
type expiry[R any] struct {
	after, width int64
	renews       bool
	buckets      map[int64][]R
	order        queue[bucketID, *bucketID]
	refs, limit  int
	// stale reports whether the entry is gone, or in another bucket.
	stale func(ref R, bucket int64) bool
}

// bucketsInLife is into how many buckets the entries of one time to live are spread: what is expired stays
// in memory for so much longer.
const bucketsInLife = 64

// leastRefs is the number of references below which stale ones are left alone.
const leastRefs = 4096

func newExpiry[R any](ttl TTL, stale func(R, int64) bool) *expiry[R] {
	if ttl.After <= 0 {
		return nil
	}
	after := max(ttl.After.Microseconds(), 1)
	return &expiry[R]{
		after: after, width: max(after/bucketsInLife, 1), renews: !ttl.FromCreation,
		buckets: map[int64][]R{}, limit: leastRefs, stale: stale,
	}
}

// expired reports whether what was written at a time is over.
func (x *expiry[R]) expired(written, now int64) bool {
	return x != nil && written != never && now >= x.end(written)
}

func (x *expiry[R]) end(written int64) int64 {
	if written > math.MaxInt64-x.after {
		return math.MaxInt64
	}
	return written + x.after
}

// bucket returns the bucket of an entry: by its end, everything in it is over that was not written again.
func (x *expiry[R]) bucket(written int64) int64 {
	if written == never {
		return floorDiv(never, x.width)
	}
	return floorDiv(x.end(written)-1, x.width) + 1
}

// add puts an entry into its bucket, which is returned.
func (x *expiry[R]) add(ref R, written int64) int64 {
	if x.refs >= x.limit {
		x.sweep()
	}
	id := x.bucket(written)
	b, ok := x.buckets[id]
	if !ok {
		x.order.push(bucketID(id))
	}
	x.buckets[id] = append(b, ref)
	x.refs++
	return id
}

// sweep drops references to what is gone: a key that is cleared and set again would leave one each time.
func (x *expiry[R]) sweep() {
	x.refs = 0
	for id, b := range x.buckets {
		kept := b[:0]
		for _, r := range b {
			if !x.stale(r, id) {
				kept = append(kept, r)
			}
		}
		clear(b[len(kept):])
		x.buckets[id] = kept
		x.refs += len(kept)
	}
	x.limit = 2*x.refs + leastRefs
}

// take returns an entry to be looked at, which is in no bucket any more.
func (x *expiry[R]) take(now int64) (ref R, ok bool) {
	for len(x.order) > 0 {
		id := int64(x.order[0])
		if id > floorDiv(now, x.width) {
			return ref, false
		}
		b := x.buckets[id]
		if len(b) == 0 {
			x.order.pop()
			delete(x.buckets, id)
			continue
		}
		ref = b[len(b)-1]
		clear(b[len(b)-1:])
		x.buckets[id] = b[:len(b)-1]
		x.refs--
		if !x.stale(ref, id) {
			return ref, true
		}
	}
	return ref, false
}

// renewed returns when an entry counts as written after a write.
func (x *expiry[R]) renewed(written, write int64) int64 {
	if written == never || x.renews && write > written {
		return write
	}
	return written
}

// Expiring is a table whose entries have a time to live.
type Expiring[K comparable, V any] struct {
	table *Table[K, stamped[V]]
	x     *expiry[listing[K]]
	codec stampedCodec[V]
	last  uint64 // listing
}

// listing refers to an entry as it was put into a bucket: a key that is cleared and set again is another
// entry, also in the same bucket.
type listing[K comparable] struct {
	key    Key[K]
	number uint64
}

// stamped is a value and when it was last written.
type stamped[V any] struct {
	written int64
	listing uint64 // its number; 0: none yet
	value   V
}

// DeclareExpiring declares a table whose entries have a time to live.
func DeclareExpiring[K comparable, V any](
	k *Keyed[K], name string, codec connector.Codec[V], ttl TTL,
) (*Expiring[K, V], error) {
	t := &Expiring[K, V]{
		table: NewTable[K, stamped[V]](k.First, k.End, k.codec), codec: stampedCodec[V]{codec},
	}
	t.x = newExpiry(ttl, t.stale)
	s := tableState(t.table, connector.Codec[stamped[V]](t.codec),
		description{name: name, kind: valueKind, ttl: true, schema: SchemaOf(codec)})
	s.restore, s.expire = t.restore, t.expire
	return t, k.declare(s)
}

func (t *Expiring[K, V]) stale(l listing[K], _ int64) bool {
	e := t.table.Peek(&l.key)
	return e == nil || e.listing != l.number
}

// Peek returns the value of a key, for reading, or nil.
func (t *Expiring[K, V]) Peek(k *Key[K], at Times) *V {
	e := t.table.Peek(k)
	if e == nil || t.x.expired(e.written, at.Now) {
		return nil
	}
	return &e.value
}

// Get returns the value of a key, for reading and writing, or nil. It counts as a write.
func (t *Expiring[K, V]) Get(k *Key[K], at Times) *V {
	if t.Peek(k, at) == nil {
		return nil
	}
	e := t.table.Get(k)
	e.written = t.x.renewed(e.written, at.Write)
	return &e.value
}

// Put returns the value of a key; it is zero if the key was not there, or has expired.
func (t *Expiring[K, V]) Put(k *Key[K], at Times) (*V, error) {
	e, err := t.table.Put(k)
	if err != nil {
		return nil, err
	}
	switch {
	case e.listing == 0:
		e.written = at.Write
		t.list(k, e)
	case t.x.expired(e.written, at.Now):
		var zero V
		e.value, e.written = zero, at.Write
	default:
		e.written = t.x.renewed(e.written, at.Write)
	}
	return &e.value, nil
}

func (t *Expiring[K, V]) list(k *Key[K], e *stamped[V]) {
	t.last++
	e.listing = t.last
	t.x.add(listing[K]{key: k.own(), number: t.last}, e.written)
}

// Delete removes a key, if it is there.
func (t *Expiring[K, V]) Delete(k *Key[K]) { t.table.Delete(k) }

func (t *Expiring[K, V]) expire(now int64, budget int) error {
	for ; budget > 0; budget-- {
		l, ok := t.x.take(now)
		if !ok {
			return nil
		}
		k := l.key
		e := t.table.Peek(&k)
		if e.written == never { // event time begins now
			e = t.table.Get(&k)
			e.written = now
		}
		if t.x.expired(e.written, now) {
			t.table.Delete(&k)
			continue
		}
		t.list(&k, e)
	}
	return nil
}

func (t *Expiring[K, V]) restore(groupID int, key, value []byte) error {
	if err := t.table.restore(groupID, key, value, t.codec); err != nil {
		return err
	}
	k, err := t.table.codec.restored(groupID, key)
	if err != nil {
		return err
	}
	if e := t.table.Peek(&k); e.listing == 0 {
		t.list(&k, e)
	}
	return nil
}

// stampedCodec writes the time before the value.
type stampedCodec[V any] struct{ values connector.Codec[V] }

func (c stampedCodec[V]) Append(dst []byte, v *stamped[V]) ([]byte, error) {
	return c.values.Append(AppendInt(dst, v.written), &v.value)
}

// Decode leaves the entry's listing.
func (c stampedCodec[V]) Decode(src []byte, v *stamped[V]) error {
	written, value, err := unstamp(src)
	if err != nil {
		return err
	}
	v.written = written
	return c.values.Decode(value, &v.value)
}

func unstamp(src []byte) (written int64, rest []byte, err error) {
	if len(src) < 8 {
		return 0, nil, fmt.Errorf("%w: no time of the last write", ErrCorrupt)
	}
	return int64(binary.LittleEndian.Uint64(src)), src[8:], nil
}

type bucketID int64

func (b *bucketID) before(other *bucketID) bool { return *b < *other }

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
