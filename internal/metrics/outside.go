package metrics

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"example.com/weir/internal/status"
)

// split makes a metric of each split of each source. ok says whether it is known.
func split(name, flink, help string, value func(p *status.Split) (v float64, ok bool)) metric {
	return metric{
		name: name, kind: gauge, flink: flink, help: help, labels: []string{"operator", "subtask", "split"},
		each: func(s *status.Status, emit emit) {
			for i := range s.Operators {
				o := &s.Operators[i]
				for j := range o.Subtasks {
					for k := range o.Subtasks[j].Splits {
						p := &o.Subtasks[j].Splits[k]
						if v, ok := value(p); ok {
							emit(v, o.UID, strconv.Itoa(o.Subtasks[j].Index), p.ID)
						}
					}
				}
			}
		},
	}
}

func splitMetrics() []metric {
	return []metric{
		split("currentOffset", "currentOffset", "Where the split goes on. Left out where positions are no numbers.",
			func(p *status.Split) (float64, bool) { return number(p.Position) }),
		split("committedOffset", "committedOffset", "The offset that was committed for the consumer group. No restore "+
			"asks for it.",
			func(p *status.Split) (float64, bool) { return number(p.Released) }),
		operator("commitsFailed", counter, "", "commitsFailed",
			"How often a source could not commit its offsets for the consumer group. The job does not depend on it.",
			func(_ *status.Status, o *status.Operator, t *status.Subtask) (float64, bool) {
				return float64(t.ReleaseFailures), o.Kind == "source"
			}),
		split("pendingRecords", "pendingRecords", "Records between the position and the end of the split, when the "+
			"source last asked.",
			func(p *status.Split) (float64, bool) { return float64(p.Behind), p.Behind >= 0 }),
		split("splitIdle", "", "1 while the split is left out of the watermark.",
			func(p *status.Split) (float64, bool) { return truth(p.Idle), true }),
	}
}

func number(s string) (float64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return float64(n), err == nil
}

// held is what one subtask of a sink holds open outside.
type held struct {
	sink    string
	subtask int
	pending int           // committables
	oldest  time.Duration // age of the oldest transaction
	share   float64       // of its timeout that has passed, of the one that is nearest to it
	limited bool          // there is a timeout
	kept    int64         // bytes of records
}

// heldBy sums transactions up by sink and subtask. A sink with nothing open is not in it: its age is
// none, and not zero.
func heldBy(ts []status.Transaction) []held {
	var all []held
	for i := range ts {
		t := &ts[i]
		at := slices.IndexFunc(all, func(h held) bool { return h.sink == t.Sink && h.subtask == t.Subtask })
		if at < 0 {
			at = len(all)
			all = append(all, held{sink: t.Sink, subtask: t.Subtask})
		}
		h := &all[at]
		if t.Checkpoint > 0 {
			h.pending++
		}
		h.oldest = max(h.oldest, t.Age)
		h.kept += t.Kept
		if t.Timeout > 0 {
			h.limited = true
			h.share = max(h.share, float64(t.Age)/float64(t.Timeout))
		}
	}
	slices.SortFunc(all, func(a, b held) int { return cmp.Or(cmp.Compare(a.sink, b.sink), a.subtask-b.subtask) })
	return all
}

func transactionMetrics() []metric {
	of := func(name, unit, flink, help string, value func(h *held) (float64, bool)) metric {
		return metric{
			name: name, kind: gauge, unit: unit, flink: flink, help: help, labels: []string{"operator", "subtask"},
			each: func(s *status.Status, emit emit) {
				all := heldBy(s.Transactions)
				for i := range all {
					if v, ok := value(&all[i]); ok {
						emit(v, all[i].sink, strconv.Itoa(all[i].subtask))
					}
				}
			},
		}
	}
	return []metric{
		job("successfulCommittables", counter, "", "successfulCommittables",
			"Committables that were committed and are known to be.",
			func(s *status.Status) float64 { return float64(s.Committed) }),
		of("pendingCommittables", "", "pendingCommittables", "Committables that are not known to be committed yet.",
			func(h *held) (float64, bool) { return float64(h.pending), true }),
		of("openTransactionAge", "ms", "", "Age of the oldest open transaction, the one being written included.",
			func(h *held) (float64, bool) { return millis(h.oldest), true }),
		of("openTransactionTimeoutRatio", "share", "", "The share of its timeout that the open transaction nearest to "+
			"it has used up. At 1 the outside ends it.",
			func(h *held) (float64, bool) { return h.share, h.limited }),
		of("keptRecordBytes", "bytes", "", "Records of open transactions that the checkpoints' storage holds, compressed, "+
			"to write them again if they are lost.",
			func(h *held) (float64, bool) { return float64(h.kept), true }),
	}
}
