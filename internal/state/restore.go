package state

import (
	"fmt"
	"math"
)

// cutVersion begins every cut. Version 1 had the names of states alone, and no timers in processing time.
const cutVersion = 2

// VersionError reports a cut in a format that this program does not read.
type VersionError struct{ Version, Newest int }

// Error names both versions.
func (e *VersionError) Error() string {
	return fmt.Sprintf("the cut has format version %d, and this program reads up to %d: start the newer "+
		"program", e.Version, e.Newest)
}

// appendHeader appends what a restore must know before it reads the records: what the keys and states
// are, and how far event time and processing time had come for each group.
func (k *Keyed[K]) appendHeader(dst []byte, watermark func(group int) int64) []byte {
	dst = append(dst, cutVersion, byte(len(k.states)))
	dst = k.codec.Schema.append(dst)
	for _, s := range k.states {
		dst = AppendString(dst, s.name)
		dst = append(dst, s.kind, boolByte(s.ttl))
		dst = s.schema.append(dst)
	}
	dst = AppendInt(dst, int64(k.First))
	dst = AppendInt(dst, int64(k.End))
	for g := k.First; g < k.End; g++ {
		dst = AppendInt(dst, watermark(g))
		dst = AppendInt(dst, max(k.Clock.passed, k.Clock.floors[g-k.First]))
	}
	return dst
}

func boolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// header is what a cut says of itself.
type header struct {
	key    Schema
	states []description
	first  int
	times  []reached
}

// reached is how far time had come for a group.
type reached struct{ watermark, clock int64 }

func (h *header) reached(group int) (reached, bool) {
	i := group - h.first
	if i < 0 || i >= len(h.times) {
		return reached{math.MinInt64, math.MinInt64}, false
	}
	return h.times[i], true
}

func readHeader(d *Decoder) (h header, err error) {
	version := int(d.byte())
	if d.err == nil && (version < 1 || version > cutVersion) {
		return h, &VersionError{Version: version, Newest: cutVersion}
	}
	count := int(d.byte())
	if version > 1 {
		if h.key, err = decodeSchema(d.Bytes()); err != nil {
			return h, err
		}
	}
	for ; count > 0 && d.err == nil; count-- {
		s := description{name: d.String()}
		if version > 1 {
			s.kind, s.ttl = d.byte(), d.byte() == 1
			if s.schema, err = decodeSchema(d.Bytes()); err != nil {
				return h, err
			}
		}
		h.states = append(h.states, s)
	}
	h.first = int(d.Int())
	for g, end := h.first, int(d.Int()); g < end && d.err == nil; g++ {
		at := reached{watermark: d.Int(), clock: math.MinInt64}
		if version > 1 {
			at.clock = d.Int()
		}
		h.times = append(h.times, at)
	}
	return h, d.err
}

// Restore reads a chain of cuts, oldest first, and calls watermark for each group that is restored.
// Groups of other subtasks are passed over. A state in the chain that is not declared, or is of
// another shape than it was, is an error before anything is read: to go on would be to lose it in
// silence.
//
// A timer that the watermark, or the clock, had passed has fired, unless it was set after that.
func (k *Keyed[K]) Restore(chain [][]byte, watermark func(group int, at int64)) error {
	if len(chain) == 0 {
		return nil
	}
	k.logTo(nil)
	defer k.logTo(k.log)
	cuts := make([]replay, len(chain))
	for i, cut := range chain {
		if err := k.begin(&cuts[i], cut); err != nil {
			return err
		}
	}
	last := &cuts[len(cuts)-1].header
	for g := k.First; g < k.End; g++ {
		if at, ok := last.reached(g); ok {
			k.Timers.floors[g-k.First] = at.watermark
			k.Clock.floors[g-k.First] = at.clock
			watermark(g, at.watermark)
		}
	}
	begins := map[int]place{}
	for i := range cuts {
		if err := findBegins(i, *cuts[i].Decoder, begins); err != nil {
			return err
		}
	}
	for i := range cuts {
		if err := k.replay(i, &cuts[i], last, begins); err != nil {
			return err
		}
	}
	return nil
}

// place is a place in a chain of cuts.
type place struct{ cut, left int }

func (p place) before(q place) bool { return p.cut < q.cut || p.cut == q.cut && p.left > q.left }

// findBegins notes where each group begins anew: what the chain says of it before that is void.
func findBegins(i int, d Decoder, begins map[int]place) error {
	for !d.Empty() {
		at := place{i, len(d.rest)}
		if r := readRecord(&d); r.kind == resetRecord {
			begins[r.group] = at
		}
	}
	return d.Err()
}

// logTo lets states and timers write to a log, or to none.
func (k *Keyed[K]) logTo(l *changeLog) {
	k.Timers.log, k.Clock.log = l, l
	for i, s := range k.states {
		s.logTo(l.of(i))
	}
}

// replay is a cut that is being read.
type replay struct {
	*Decoder
	header header
	states []*namedState // of each state in the cut; nil: dropped
}

// begin reads what a cut says of itself, and holds it against what the operator declares.
func (k *Keyed[K]) begin(r *replay, cut []byte) (err error) {
	r.Decoder = NewDecoder(cut)
	if r.header, err = readHeader(r.Decoder); err != nil {
		return err
	}
	if err := changed(r.header.key, k.codec.Schema, true); err != nil {
		return err
	}
	for i := range r.header.states {
		s, err := k.match(&r.header.states[i])
		if err != nil {
			return err
		}
		r.states = append(r.states, s)
	}
	return nil
}

// match returns the declared state that reads what was written, or nil if nobody does and that is
// allowed.
func (k *Keyed[K]) match(was *description) (*namedState, error) {
	s := k.find(was.name)
	switch {
	case s == nil && k.Dropped != nil && k.Dropped(was.name):
		return nil, nil
	case s == nil:
		return nil, &UndeclaredError{State: was.name}
	case was.kind == 0 && s.kind != valueKind, was.kind != 0 && was.kind != s.kind:
		return nil, &ChangedError{State: s.name, Was: kindName(was.kind), Is: kindName(s.kind)}
	}
	if err := changed(was.schema, s.schema, false); err != nil {
		err.State = s.name
		return nil, err
	}
	return s, nil
}

// UndeclaredError reports a state that a checkpoint holds and the operator does not declare.
type UndeclaredError struct{ State string }

// Error names the state.
func (e *UndeclaredError) Error() string {
	return fmt.Sprintf("the checkpoint holds state %q, which the operator does not declare: declare it, or "+
		"allow by name that it is dropped: --allow-dropped-state UID/%s, with the operator's uid", e.State, e.State)
}

func kindName(kind byte) string {
	switch kind {
	case mapKind:
		return "a map state"
	case listKind:
		return "a list state"
	case deadlineKind:
		return "a state with deadlines"
	}
	return "a value state"
}

func (k *Keyed[K]) find(name string) *namedState {
	for i := range k.states {
		if k.states[i].name == name {
			return &k.states[i]
		}
	}
	return nil
}

func (k *Keyed[K]) replay(i int, cut *replay, last *header, begins map[int]place) error {
	for !cut.Empty() {
		at := place{i, len(cut.rest)}
		r := readRecord(cut.Decoder)
		begin, anew := begins[r.group]
		if cut.err != nil || r.group < k.First || r.group >= k.End || anew && at.before(begin) {
			continue
		}
		if err := k.replayRecord(cut, &r, last); err != nil {
			return err
		}
	}
	return cut.Err()
}

// replayRecord does again what one record says.
func (k *Keyed[K]) replayRecord(cut *replay, r *record, last *header) error {
	at, _ := last.reached(r.group)
	switch r.kind {
	case putRecord, deleteRecord:
		return k.replayChange(cut, r, at.watermark)
	case timerRecord, overdueRecord, untimerRecord:
		return replayTimer(k.Timers, r, r.kind, at.watermark)
	case clockDomain + timerRecord, clockDomain + overdueRecord, clockDomain + untimerRecord:
		return replayTimer(k.Clock, r, r.kind-clockDomain, at.clock)
	}
	return nil // a reset: what came before it has been passed over
}

// replayChange does again what became of an entry. Where a state was given a time to live since, its
// entries live from the watermark of the last cut on; where it has none any more, they stay.
func (k *Keyed[K]) replayChange(cut *replay, r *record, watermark int64) error {
	if r.state >= len(cut.states) {
		return ErrCorrupt
	}
	s, value := cut.states[r.state], r.value
	if s == nil {
		return nil
	}
	if r.kind == deleteRecord {
		return s.forget(r.group, r.key)
	}
	switch was := cut.header.states[r.state].ttl; {
	case was && !s.ttl:
		if len(value) < 8 {
			return ErrCorrupt
		}
		value = value[8:]
	case !was && s.ttl:
		value = append(AppendInt(make([]byte, 0, 8+len(value)), watermark), value...)
	}
	if err := s.restore(r.group, r.key, value); err != nil {
		return fmt.Errorf("state %q: %w", s.name, err)
	}
	return nil
}

func replayTimer[K comparable](t *Timers[K], r *record, kind byte, passed int64) error {
	if kind == timerRecord && r.at <= passed {
		return nil
	}
	return t.restore(kind, r.group, r.at, r.key)
}
