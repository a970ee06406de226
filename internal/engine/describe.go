package engine

import (
	"time"

	"example.com/weir/internal/status"
)

// placeID is an operator in a subtask.
type placeID struct {
	operator string
	subtask  int
}

// describe returns every operator of the plan with its counters: what earlier generations of this
// process have counted, and what the one that runs has. Between two generations there is none.
func (v *view) describe(now time.Time) []status.Operator {
	counted := make(map[placeID]status.Subtask, len(v.carried))
	for _, s := range v.subtasks {
		s.describe(now.Sub(s.base), counted)
	}
	all := make([]status.Operator, 0, len(v.operators))
	for _, o := range v.operators {
		d := status.Operator{UID: o.UID, Kind: o.Kind, Chain: o.Chain}
		for _, edge := range o.Inputs {
			d.Inputs = append(d.Inputs, edge.From)
		}
		for i := range v.status.Parallelism {
			at := placeID{operator: o.UID, subtask: i}
			c := counted[at]
			c.Index = i
			add(&c, v.carried[at])
			d.Subtasks = append(d.Subtasks, c)
		}
		all = append(all, d)
	}
	return all
}

// add adds what earlier generations have counted. What is so at a moment, a watermark or how many
// keys there are, is not added up.
func add(to *status.Subtask, carried status.Subtask) {
	to.RecordsIn += carried.RecordsIn
	to.RecordsOut += carried.RecordsOut
	to.Late += carried.Late
	to.DeadLetters += carried.DeadLetters
	to.Idle += carried.Idle
	to.Backpressured += carried.Backpressured
	to.Busy += carried.Busy
	to.ReleaseFailures += carried.ReleaseFailures
}

// carry adds what subtasks that have ended have counted to what was carried before.
func carry(before map[placeID]status.Subtask, ended []*SubtaskStats, now time.Time) map[placeID]status.Subtask {
	sum := map[placeID]status.Subtask{}
	for _, s := range ended {
		s.describe(now.Sub(s.base), sum)
	}
	for at, c := range before {
		total := sum[at]
		add(&total, c)
		sum[at] = total
	}
	return sum
}

// describe adds the operators of the subtask's chain.
func (s *SubtaskStats) describe(at time.Duration, to map[placeID]status.Subtask) {
	for i, o := range s.operators {
		d := status.Subtask{
			RecordsIn: o.recordsIn.Load(), RecordsOut: o.recordsOut.Load(),
			Late: o.late.Load(), DeadLetters: o.deadLetters.Load(),
			StateKeys: o.keys.Load(), Timers: o.timers.Load(),
		}
		s.describeTime(&d)
		if i == 0 { // splits are a source's, which is the head of its chain
			s.describeHead(at, &d)
			d.Splits, d.ReleaseFailures = s.describeSplits(), s.releaseFailures.Load()
		}
		to[placeID{operator: o.uid, subtask: s.Subtask.Index}] = d
	}
}

// describeHead adds what is the goroutine's, and stands with the head of the chain.
func (s *SubtaskStats) describeHead(at time.Duration, d *status.Subtask) {
	d.Idle, d.Backpressured = s.idle.read(at), s.backpressured.read(at)
	d.Busy = time.Duration(raise(&s.busy, int64(s.ran.read(at)-d.Idle-d.Backpressured)))
	d.Aligned, d.Paused = time.Duration(s.aligned.Load()), time.Duration(s.paused.Load())
}

func (s *SubtaskStats) describeSplits() []status.Split {
	splits := s.splits.Load()
	if splits == nil {
		return nil
	}
	all := make([]status.Split, 0, len(*splits))
	for _, sp := range *splits {
		d := status.Split{
			ID: sp.id, Position: s.text(sp.position.Load()), Released: s.text(sp.released.Load()),
			Behind: sp.behind.Load(), Idle: sp.idle.Load(),
		}
		d.Watermark, d.Ended = eventTime(sp.watermark.Load())
		all = append(all, d)
	}
	return all
}

// text is a position as people read it, and empty where there is none or nobody can.
func (s *SubtaskStats) text(position *[]byte) string {
	if position == nil || s.positionText == nil {
		return ""
	}
	return s.positionText(*position)
}

func (s *SubtaskStats) describeTime(d *status.Subtask) {
	d.Watermark, d.EventTimeDone = eventTime(s.Watermark.Load())
}

// eventTime is a watermark as people read it: nil before event time is known, and at its end.
func eventTime(at int64) (t *time.Time, ended bool) {
	switch at {
	case noTime:
		return nil, false
	case endTime:
		return nil, true
	}
	utc := time.UnixMicro(at).UTC()
	return &utc, false
}
