package protocol

import (
	"maps"
	"slices"
	"testing"

	"example.com/weir/internal/proof"
)

// What goes wrong in a schedule.
const (
	aDeath          = "a process dies, and another generation begins"
	aSecondProcess  = "a second process takes the job from one that lives on"
	aLostSwap       = "CURRENT swapped, the answer lost"
	aSwapNotApplied = "CURRENT not swapped, the answer lost"
	aFailedManifest = "a manifest not written"
	aFailedRestore  = "a restore not brought to its end"
	aCommitNotSent  = "a commit not sent"
	aCommitInDoubt  = "a commit done, the answer lost"
	aLoss           = "an open transaction ended outside"
	aDeclined       = "a snapshot not written"
	anAbort         = "a checkpoint timed out"
	aPanic          = "a subtask failed"
)

// tally counts what went wrong in all schedules, and what was looked for after each.
type tally struct {
	counts map[string]*proof.Count
	seen   map[string]bool // in the schedule that runs
}

func newTally() *tally { return &tally{counts: map[string]*proof.Count{}, seen: map[string]bool{}} }

// put notes that a fault was put in, and whether it hit.
func (t *tally) put(fault string, hit bool) {
	c := t.counts[fault]
	if c == nil {
		c = &proof.Count{Suite: proof.Protocol, Fault: fault}
		t.counts[fault] = c
	}
	c.Injected++
	if hit {
		c.Hit++
		t.seen[fault] = true
	}
}

// end notes how many records were looked for when a schedule was over, and all found once.
func (t *tally) end(records int) {
	for fault := range t.seen {
		t.counts[fault].Records += int64(records)
	}
	clear(t.seen)
}

func (t *tally) note(tt *testing.T) {
	for _, fault := range slices.Sorted(maps.Keys(t.counts)) {
		proof.Note(tt, *t.counts[fault])
	}
}
