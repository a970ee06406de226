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

// changeLog collects records between two cuts, in chunks: nothing is copied when it grows, and a cut hands
// its chunks over as they are. A record lies in one chunk.
type changeLog struct {
	chunks  *chunks
	full    [][]byte
	buf     []byte // the chunk behind the full ones, which is written to
	began   int    // where its last record begins
	room    int    // how much of a chunk must be free for a record to begin in it
	value   int    // where the size of the value lies that is being logged
	records int
}

// A record that does not fit into its chunk moves to a larger one, which is not used again. So room is kept
// for as much as the largest record of a cut so far, within limits.
const (
	leastRoom = 512
	mostRoom  = chunkBytes / 8
)

func newChangeLog(c *chunks) *changeLog { return &changeLog{chunks: c, room: leastRoom} }

// record begins a record. A key group is two bytes: max parallelism is below 2^16.
func (l *changeLog) record(kind byte, group int) {
	l.records++
	l.room = max(l.room, min(len(l.buf)-l.began, mostRoom))
	if cap(l.buf)-len(l.buf) < l.room {
		l.extend()
	}
	l.began = len(l.buf)
	l.buf = append(l.buf, kind, byte(group>>8), byte(group))
}

// extend begins a chunk.
func (l *changeLog) extend() {
	if len(l.buf) > 0 {
		l.full = append(l.full, l.buf)
	}
	l.buf, l.began = l.chunks.take(), 0
}

// take returns what has been logged, and begins anew.
func (l *changeLog) take() [][]byte {
	taken := l.full
	if len(l.buf) > 0 {
		taken = append(taken, l.buf)
	}
	l.chunks.keep(len(taken) + 1) // for as much again
	*l = changeLog{chunks: l.chunks, room: leastRoom, full: make([][]byte, 0, len(taken)+1)}
	return taken
}

// timer logs what became of a timer.
func (l *changeLog) timer(kind byte, group int, at int64, key []byte) {
	l.record(kind, group)
	l.buf = AppendBytes(AppendInt(l.buf, at), key)
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

// put logs a key, and returns the memory that its value is to be appended to; set follows.
func (l *tableLog) put(group int, key []byte) []byte {
	l.change(putRecord, group, key)
	l.value = len(l.buf)
	return append(l.buf, 0, 0, 0, 0)
}

// set ends what put began: b is what it returned, with the value behind it.
func (l *tableLog) set(b []byte, err error) error {
	if err != nil {
		return err
	}
	l.buf = b
	return setSize(b, l.value)
}

func (l *tableLog) delete(group int, key []byte) { l.change(deleteRecord, group, key) }

func (l *tableLog) change(kind byte, group int, key []byte) {
	l.record(kind, group)
	l.buf = AppendBytes(append(l.buf, l.state), key)
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
