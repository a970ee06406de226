package state

import (
	"encoding/binary"
	"fmt"
)

// cutVersion begins every cut.
const cutVersion = 1

// appendHeader appends what a restore must know before it reads the records: the names of the
// states, and the watermark of each group.
func (k *Keyed[K]) appendHeader(dst []byte, watermark func(group int) int64) []byte {
	dst = append(dst, cutVersion, byte(len(k.states)))
	for _, s := range k.states {
		dst = AppendString(dst, s.name)
	}
	dst = AppendInt(dst, int64(k.First))
	dst = AppendInt(dst, int64(k.End))
	for g := k.First; g < k.End; g++ {
		dst = AppendInt(dst, watermark(g))
	}
	return dst
}

// header is what a cut says of itself.
type header struct {
	names      []string
	first      int
	watermarks []int64
}

func (h *header) watermark(group int) (int64, bool) {
	i := group - h.first
	if i < 0 || i >= len(h.watermarks) {
		return 0, false
	}
	return h.watermarks[i], true
}

func readHeader(d *Decoder) (h header, err error) {
	if v := d.byte(); d.err == nil && v != cutVersion {
		return h, fmt.Errorf("state: cut has version %d, and this program reads %d", v, cutVersion)
	}
	for n := d.byte(); n > 0 && d.err == nil; n-- {
		h.names = append(h.names, d.String())
	}
	h.first = int(d.Int())
	for g, end := h.first, int(d.Int()); g < end && d.err == nil; g++ {
		h.watermarks = append(h.watermarks, d.Int())
	}
	return h, d.err
}

// Restore reads a chain of cuts, oldest first, and calls watermark for each group that is restored.
// Groups of other subtasks are passed over. A state in the chain that is not declared is an
// error: to go on without it would be to lose it in silence.
//
// A timer that the watermark has passed has fired, unless it was set after that.
func (k *Keyed[K]) Restore(chain [][]byte, watermark func(group int, at int64)) error {
	if len(chain) == 0 {
		return nil
	}
	k.logTo(nil)
	defer k.logTo(k.log)
	last, err := readHeader(NewDecoder(chain[len(chain)-1]))
	if err != nil {
		return err
	}
	for g := k.First; g < k.End; g++ {
		if at, ok := last.watermark(g); ok {
			k.Timers.groups[g-k.First].passed = at
			watermark(g, at)
		}
	}
	for _, cut := range chain {
		if err := k.replay(cut, &last); err != nil {
			return err
		}
	}
	return nil
}

// logTo lets states and timers write to a log, or to none.
func (k *Keyed[K]) logTo(l *changeLog) {
	k.Timers.log = l
	for i, s := range k.states {
		s.logTo(l, byte(i))
	}
}

func (k *Keyed[K]) replay(cut []byte, last *header) error {
	d := NewDecoder(cut)
	h, err := readHeader(d)
	if err != nil {
		return err
	}
	states := make([]*namedState, len(h.names))
	for i, name := range h.names {
		if states[i] = k.find(name); states[i] == nil {
			return fmt.Errorf("the checkpoint holds state %q, which the operator does not declare", name)
		}
	}
	for !d.Empty() {
		if err := k.replayRecord(d, states, last); err != nil {
			return err
		}
	}
	return d.Err()
}

func (k *Keyed[K]) find(name string) *namedState {
	for i := range k.states {
		if k.states[i].name == name {
			return &k.states[i]
		}
	}
	return nil
}

// replayRecord does again what one record says.
func (k *Keyed[K]) replayRecord(d *Decoder, states []*namedState, last *header) error {
	kind := d.byte()
	group := int(binary.BigEndian.Uint16(d.take(2, 2)))
	own := group >= k.First && group < k.End
	switch kind {
	case putRecord, deleteRecord:
		i, key := int(d.byte()), d.Bytes()
		var value []byte
		if kind == putRecord {
			value = d.Sized()
		}
		if d.err != nil || i >= len(states) {
			return ErrCorrupt
		}
		if !own {
			return nil
		}
		if kind == putRecord {
			return states[i].restore(group, key, value)
		}
		return states[i].forget(group, key)
	case timerRecord, overdueRecord, untimerRecord:
		at, key := d.Int(), d.Bytes()
		passed, _ := last.watermark(group)
		if d.err != nil || !own || kind == timerRecord && at <= passed {
			return d.err
		}
		return k.Timers.restore(kind, group, at, key)
	case resetRecord:
		if !own || d.err != nil {
			return d.err
		}
		k.Timers.clear(group)
		for i := range k.states {
			k.states[i].clear(group)
		}
		return nil
	}
	return ErrCorrupt
}
