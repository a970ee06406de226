// Package metrics says how a job does in the words of Prometheus, under the names that Flink has for
// the same things, and answers whether the process lives and whether the job is ready.
//
// It counts nothing: every metric is read off one status.Status at the moment it is asked for. It
// opens no port: its handlers are for whoever does. A metric that is unknown is left out, and never
// reported as zero.
//
// docs/METRICS.md lists all of it; a test holds it to the table here.
package metrics

import (
	"strconv"
	"time"

	"example.com/weir/internal/status"
)

// Prefix is in front of every name.
const Prefix = "weir_"

// kind says how a metric moves.
type kind string

const (
	counter kind = "counter" // never goes back while the process lives
	gauge   kind = "gauge"
)

// metric is one row of the table: what it is called, and how it is read off a status.
type metric struct {
	name   string // behind the prefix
	kind   kind
	unit   string // as documented; empty: a count
	flink  string // the metric of Flink that it stands for; empty: Flink has none
	help   string
	labels []string // behind job
	each   func(s *status.Status, emit emit)
}

// emit reports a value, with a value for each label of its metric.
type emit func(v float64, labels ...string)

// table lists every metric.
func table() []metric {
	var all []metric
	for _, part := range [][]metric{
		jobMetrics(), checkpointMetrics(), operatorMetrics(), taskMetrics(), splitMetrics(),
		transactionMetrics(),
	} {
		all = append(all, part...)
	}
	return all
}

// job makes the metric of a job from one number.
func job(name string, k kind, unit, flink, help string, value func(s *status.Status) float64) metric {
	return metric{name: name, kind: k, unit: unit, flink: flink, help: help, each: func(s *status.Status, emit emit) {
		emit(value(s))
	}}
}

func jobMetrics() []metric {
	return []metric{
		job("up", gauge, "", "", "1 until the job has ended.",
			func(s *status.Status) float64 { return truth(s.State != status.Ended) }),
		job("ready", gauge, "", "", "1 while the job reads and writes: CURRENT is its own, and the restore is settled.",
			func(s *status.Status) float64 { return truth(s.Ready()) }),
		{
			name: "jobStatus", kind: gauge, labels: []string{"state"},
			help: "1 for the state that the job is in: starting, restoring, running, stopping, restarting or ended.",
			each: func(s *status.Status, emit emit) { emit(1, string(s.State)) },
		},
		job("uptime", gauge, "ms", "uptime", "How long this process has run the job, restarts included.",
			func(s *status.Status) float64 { return millis(s.At.Sub(s.Started)) }),
		job("generation", gauge, "", "", "The generation: it rises with every start and restart.",
			func(s *status.Status) float64 { return float64(s.Generation) }),
		job("numRestarts", counter, "", "numRestarts", "Generations that failed and were followed by a restart.",
			func(s *status.Status) float64 { return float64(s.Restarts) }),
	}
}

func checkpointMetrics() []metric {
	// last is known once there is a checkpoint, of this process or restored.
	last := func(name, unit, flink, help string, value func(s *status.Status) float64) metric {
		m := job(name, gauge, unit, flink, help, value)
		m.each = func(s *status.Status, emit emit) {
			if s.Checkpoints.Last > 0 {
				emit(value(s))
			}
		}
		return m
	}
	// own is known once this process has completed one.
	own := func(name, unit, help string, value func(c *status.Checkpoints) float64) metric {
		m := job(name, gauge, unit, name, help, nil)
		m.each = func(s *status.Status, emit emit) {
			if s.Checkpoints.Completed > 0 {
				emit(value(&s.Checkpoints))
			}
		}
		return m
	}
	return []metric{
		job("numberOfCompletedCheckpoints", counter, "", "numberOfCompletedCheckpoints", "Checkpoints that exist.",
			func(s *status.Status) float64 { return float64(s.Checkpoints.Completed) }),
		job("numberOfFailedCheckpoints", counter, "", "numberOfFailedCheckpoints", "Checkpoints that were given up.",
			func(s *status.Status) float64 { return float64(s.Checkpoints.Aborted) }),
		job("numberOfInProgressCheckpoints", gauge, "", "numberOfInProgressCheckpoints",
			"1 while a checkpoint is on its way.",
			func(s *status.Status) float64 { return truth(s.Checkpoints.InProgress > 0) }),
		last("lastCompletedCheckpointId", "", "lastCompletedCheckpointId", "The last checkpoint that exists.",
			func(s *status.Status) float64 { return float64(s.Checkpoints.Last) }),
		last("lastCheckpointAge", "ms", "",
			"How long ago the last checkpoint came to be: about what a restart reads again.",
			func(s *status.Status) float64 { return millis(s.At.Sub(s.Checkpoints.LastAt)) }),
		own("lastCheckpointDuration", "ms", "From the barrier of the last checkpoint until it existed.",
			func(c *status.Checkpoints) float64 { return millis(c.LastDuration) }),
		own("lastCheckpointSize", "bytes", "What was written for the last checkpoint.",
			func(c *status.Checkpoints) float64 { return float64(c.LastSize) }),
		own("lastCheckpointFullSize", "bytes", "What a restore of the last checkpoint reads.",
			func(c *status.Checkpoints) float64 { return float64(c.LastFullSize) }),
	}
}

// operator makes a metric of each operator in each subtask. ok says whether it is known.
func operator(
	name string, k kind, unit, flink, help string,
	value func(s *status.Status, o *status.Operator, t *status.Subtask) (v float64, ok bool),
) metric {
	return metric{
		name: name, kind: k, unit: unit, flink: flink, help: help, labels: []string{"operator", "subtask"},
		each: func(s *status.Status, emit emit) {
			for i := range s.Operators {
				o := &s.Operators[i]
				for j := range o.Subtasks {
					if v, ok := value(s, o, &o.Subtasks[j]); ok {
						emit(v, o.UID, strconv.Itoa(o.Subtasks[j].Index))
					}
				}
			}
		},
	}
}

func operatorMetrics() []metric {
	count := func(name string, k kind, flink, help string, value func(t *status.Subtask) int64) metric {
		return operator(name, k, "", flink, help,
			func(_ *status.Status, _ *status.Operator, t *status.Subtask) (float64, bool) {
				return float64(value(t)), true
			})
	}
	return []metric{
		count("numRecordsIn", counter, "numRecordsIn",
			"Records that came to the operator; to a source, records that it read.",
			func(t *status.Subtask) int64 { return t.RecordsIn }),
		count("numRecordsOut", counter, "numRecordsOut",
			"Records that the operator passed on, side outputs included; of a sink, records handed to its writer.",
			func(t *status.Subtask) int64 { return t.RecordsOut }),
		count("numLateRecordsDropped", counter, "numLateRecordsDropped",
			"Records later than the allowed lateness, also where a side output takes them.",
			func(t *status.Subtask) int64 { return t.Late }),
		count("numRecordsInErrors", counter, "numRecordsInErrors",
			"Dead letters: records that a source could not hand to the job.",
			func(t *status.Subtask) int64 { return t.DeadLetters }),
		operator("currentInputWatermark", gauge, "ms since 1970", "currentInputWatermark",
			"How far event time has come. Left out before it is known and after the end of the input.",
			func(_ *status.Status, _ *status.Operator, t *status.Subtask) (float64, bool) {
				if t.Watermark == nil {
					return 0, false
				}
				return float64(t.Watermark.UnixMilli()), true
			}),
		operator("watermarkLag", gauge, "ms", "watermarkLag", "The time of day less the watermark.",
			func(s *status.Status, _ *status.Operator, t *status.Subtask) (float64, bool) {
				if t.Watermark == nil {
					return 0, false
				}
				return millis(s.At.Sub(*t.Watermark)), true
			}),
		count("numStateEntries", gauge, "", "Entries in the operator's state, at the last barrier.",
			func(t *status.Subtask) int64 { return t.StateKeys }),
		count("numTimers", gauge, "", "Timers and deadlines that are pending, at the last barrier.",
			func(t *status.Subtask) int64 { return t.Timers }),
	}
}

// taskMetrics are of a chain of operators: of the goroutine that they share.
func taskMetrics() []metric {
	of := func(name string, k kind, unit, help string, value func(t *status.Subtask) float64) metric {
		return operator(name, k, unit, name, help,
			func(_ *status.Status, o *status.Operator, t *status.Subtask) (float64, bool) {
				return value(t), o.UID == o.Chain
			})
	}
	pause := of("checkpointPauseTime", gauge, "ns", "How long the subtask stood still at the last barrier, to cut "+
		"its state and to pass the barrier on.", func(t *status.Subtask) float64 { return float64(t.Paused) })
	pause.flink = ""
	return []metric{
		of("accumulateBusyTimeMs", counter, "ms", "Time in which the subtask worked.",
			func(t *status.Subtask) float64 { return millis(t.Busy) }),
		of("accumulateIdleTimeMs", counter, "ms", "Time in which the subtask waited for input.",
			func(t *status.Subtask) float64 { return millis(t.Idle) }),
		of("accumulateBackPressuredTimeMs", counter, "ms", "Time in which the subtask waited for one behind it.",
			func(t *status.Subtask) float64 { return millis(t.Backpressured) }),
		of("checkpointAlignmentTime", gauge, "ns", "How long the last barrier was waited for, from the first input that "+
			"delivered it to the last.", func(t *status.Subtask) float64 { return float64(t.Aligned) }),
		pause,
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
