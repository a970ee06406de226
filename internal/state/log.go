package state

import "encoding/binary"

// The log is a sequence of records. Read in order, they make the state again.
const (
	putRecord     = 1 // state, group, key, value: the key has this value
	deleteRecord  = 2 // state, group, key: the key is gone
	timerRecord   = 3 // group, time, key: the timer is set; void once the watermark has reached it
	overdueRecord = 4 // group, time, key: the same, set when its time had passed: void when deleted
	untimerRecord = 5 // group, time, key: the timer is gone
	resetRecord   = 6 // group: forget everything of the group, its content follows

	// clockDomain is added to the kinds of timers in processing time.
	clockDomain = 16
)

// changeLog collects records between two snapshots.
type changeLog struct {
	buf     []byte
	records int
}

func (l *changeLog) record(kind byte, group int) {
	l.records++
	l.buf = append(l.buf, kind)
	l.buf = appendGroup(l.buf, group)
}

// appendGroup appends a key group in two bytes; max parallelism is below 2^16.
func appendGroup(dst []byte, group int) []byte { return append(dst, byte(group>>8), byte(group)) }

// timer logs what became of a timer.
func (l *changeLog) timer(kind byte, group int, at int64, key []byte) {
	l.record(kind, group)
	l.buf = AppendInt(l.buf, at)
	l.buf = AppendBytes(l.buf, key)
}

// of returns the log as one state writes to it; nil of nil.
func (l *changeLog) of(state int) *tableLog {
	if l == nil {
		return nil
	}
	return &tableLog{changeLog: l, state: byte(state)}
}

// tableLog is the log as one table writes to it.
type tableLog struct {
	*changeLog
	state byte
}

// put logs a key; its value follows.
func (l *tableLog) put(group int, key []byte) { l.change(putRecord, group, key) }

func (l *tableLog) delete(group int, key []byte) { l.change(deleteRecord, group, key) }

func (l *tableLog) change(kind byte, group int, key []byte) {
	l.record(kind, group)
	l.buf = append(l.buf, l.state)
	l.buf = AppendBytes(l.buf, key)
}

// record is one record as it is read.
type record struct {
	kind       byte
	group      int
	state      int   // of putRecord and deleteRecord
	at         int64 // of the records of timers
	key, value []byte
}

// readRecord reads the next record; d has the error.
func readRecord(d *Decoder) (r record) {
	r.kind = d.byte()
	r.group = int(binary.BigEndian.Uint16(d.take(2, 2)))
	switch r.kind {
	case putRecord:
		r.state, r.key, r.value = int(d.byte()), d.Bytes(), d.Sized()
	case deleteRecord:
		r.state, r.key = int(d.byte()), d.Bytes()
	case timerRecord, overdueRecord, untimerRecord,
		clockDomain + timerRecord, clockDomain + overdueRecord, clockDomain + untimerRecord:
		r.at, r.key = d.Int(), d.Bytes()
	case resetRecord:
	default:
		d.err = ErrCorrupt
	}
	return r
}
