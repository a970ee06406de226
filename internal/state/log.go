package state

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
	scratch []byte
	records int
}

func (l *changeLog) record(kind byte, group int) {
	l.records++
	l.buf = append(l.buf, kind)
	l.buf = appendGroup(l.buf, group)
}

// appendGroup appends a key group in two bytes; max parallelism is below 2^16.
func appendGroup(dst []byte, group int) []byte { return append(dst, byte(group>>8), byte(group)) }

func (l *changeLog) key(encode func([]byte) []byte) {
	l.scratch = encode(l.scratch[:0])
	l.buf = AppendBytes(l.buf, l.scratch)
}

// timer logs what became of a timer.
func (l *changeLog) timer(kind byte, group int, at int64, key func([]byte) []byte) {
	l.record(kind, group)
	l.buf = AppendInt(l.buf, at)
	l.key(key)
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

func (l *tableLog) put(
	group int, key func([]byte) []byte, value func([]byte) ([]byte, error),
) (err error) {
	l.record(putRecord, group)
	l.buf = append(l.buf, l.state)
	l.key(key)
	l.buf, err = AppendSized(l.buf, value)
	return err
}

func (l *tableLog) delete(group int, key func([]byte) []byte) {
	l.record(deleteRecord, group)
	l.buf = append(l.buf, l.state)
	l.key(key)
}
