package rig

import (
	"encoding/json"
	"maps"
	"strconv"
	"strings"
	"time"
)

// Line is a line of the job's log, as far as it matters here.
type Line struct {
	Time        time.Time `json:"time"`
	Level       string    `json:"level"`
	Msg         string    `json:"msg"`
	Generation  uint64    `json:"generation"`
	Checkpoint  uint64    `json:"checkpoint"`
	Subtask     int       `json:"subtask"`
	Events      int64     `json:"events"`
	Watermark   string    `json:"watermark"`
	Committable string    `json:"committable"`
	Transaction string    `json:"transaction"`
	Settled     int       `json:"settled"`
	Lost        string    `json:"lost"`
	Again       string    `json:"again"`
	Where       string    `json:"where"`
	Because     string    `json:"because"`
	Outcome     string    `json:"outcome"`
	Error       string    `json:"error"`

	Text string `json:"-"` // the line itself
}

// The messages of the lines that the journal understands.
const (
	GenerationStarted    = "generation started"
	BarrierPassed        = "barrier passed"
	Progressed           = "progress"
	CheckpointCompleted  = "checkpoint completed"
	TransactionCommitted = "transaction committed"
)

// ParseLine reads a line of a log in JSON, and reports whether it is one.
func ParseLine(text []byte) (Line, bool) {
	var l Line
	err := json.Unmarshal(text, &l)
	l.Text = string(text)
	return l, err == nil && l.Msg != ""
}

// Journal is what the job's log tells. A generation counts events from its own start; the journal counts
// them over all, from the cut of the checkpoint that a generation was restored from.
type Journal struct {
	Generation  uint64 // 0: none has started
	Generations int    // started
	Restored    uint64 // the checkpoint that this generation was restored from
	Checkpoint  uint64 // the last one that this generation completed; 0: none
	CompletedAt time.Time
	Barrier     uint64 // the last checkpoint whose barrier entered this generation
	Read        int64  // the furthest that is known to have been read, in this generation
	Watermark   time.Time
	Committed   int    // transactions, over all generations
	Settled     uint64 // the checkpoint of the last of them

	base int64            // the cut that this generation began at
	cuts map[uint64]int64 // how many events lie before each checkpoint's cut
	// parts are the cuts of this generation, by checkpoint and subtask, counted from base.
	parts map[uint64]map[int]int64
}

// Cut returns how many events lie before a checkpoint's cut.
func (j *Journal) Cut(checkpoint uint64) int64 { return j.cuts[checkpoint] }

// Unsaved returns how many of the events that were read no checkpoint that the log tells of has.
func (j *Journal) Unsaved() int64 {
	return j.Read - j.Cut(max(j.Checkpoint, j.Restored))
}

// clone returns a copy that does not change.
func (j *Journal) clone() Journal {
	c := *j
	c.cuts, c.parts = maps.Clone(j.cuts), nil
	return c
}

func (j *Journal) apply(l Line) {
	switch l.Msg {
	case GenerationStarted:
		j.start(l)
	case BarrierPassed:
		if j.parts[l.Checkpoint] == nil {
			j.parts[l.Checkpoint] = map[int]int64{}
		}
		j.parts[l.Checkpoint][l.Subtask] = l.Events
		j.Barrier = max(j.Barrier, l.Checkpoint)
		j.cuts[l.Checkpoint] = j.base
		for _, events := range j.parts[l.Checkpoint] {
			j.cuts[l.Checkpoint] += events
		}
		j.Read = max(j.Read, j.cuts[l.Checkpoint])
	case Progressed:
		j.progress(l)
	case CheckpointCompleted:
		j.progress(l)
		j.Checkpoint, j.CompletedAt = l.Checkpoint, l.Time
	case TransactionCommitted:
		j.Committed++
		_, checkpoint, _ := strings.Cut(l.Committable, "@")
		if n, err := strconv.ParseUint(checkpoint, 10, 64); err == nil {
			j.Settled = n
		}
	}
}

// start begins a generation: what an earlier one cut beyond the checkpoint that this one was restored
// from does not exist.
func (j *Journal) start(l Line) {
	if j.cuts == nil {
		j.cuts = map[uint64]int64{}
	}
	maps.DeleteFunc(j.cuts, func(n uint64, _ int64) bool { return n > l.Checkpoint })
	j.parts = map[uint64]map[int]int64{}
	j.Generation, j.Restored = l.Generation, l.Checkpoint
	j.Generations++
	j.base = j.cuts[l.Checkpoint]
	j.Checkpoint, j.CompletedAt, j.Barrier, j.Read = 0, time.Time{}, l.Checkpoint, j.base
}

func (j *Journal) progress(l Line) {
	j.Read = max(j.Read, j.base+l.Events)
	if at, err := time.Parse(time.RFC3339Nano, l.Watermark); err == nil {
		j.Watermark = at
	}
}
