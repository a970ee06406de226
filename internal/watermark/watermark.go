// Package watermark merges event-time progress: of the splits of a source, and of the inputs of
// a subtask.
//
// It is pure: it reads no clock (the processing time that idleness needs is an argument) and
// keeps no record. It does not decide what is late; operators do, by what it returns.
//
// Invariants:
//
//  1. A merged watermark never goes back, whatever its inputs do and whichever inputs are added.
//  2. An input that has not spoken yet holds the merged watermark where it is.
//  3. Only a split that has been read up to its end can be left out: at once if it has never
//     had a record, else after it was quiet for a while (Splits.Merge).
//  4. An ended input is left out; the merged watermark is End only once every input has ended.
package watermark

import "math"

// Watermarks are microseconds since 1970-01-01T00:00:00Z; two values are special.
const (
	// None is the watermark before anything is known.
	None = math.MinInt64
	// End is the watermark after the last record.
	End = math.MaxInt64
)

type input struct {
	at   int64
	idle bool
}

// Merger merges the watermarks of inputs by their minimum.
type Merger struct {
	inputs []input
	merged int64
}

// NewMerger returns a merger of n inputs, none of which has spoken.
func NewMerger(n int) *Merger {
	m := &Merger{inputs: make([]input, n), merged: None}
	for i := range m.inputs {
		m.inputs[i].at = None
	}
	return m
}

// Add adds an input that has not spoken.
func (m *Merger) Add() { m.inputs = append(m.inputs, input{at: None}) }

// Set raises the watermark of input i and makes it active. A lower one than before is ignored.
func (m *Merger) Set(i int, at int64) {
	in := &m.inputs[i]
	in.at = max(in.at, at)
	in.idle = false
}

// SetIdle leaves input i out until its next Set.
func (m *Merger) SetIdle(i int) { m.inputs[i].idle = true }

// Rows turns the watermarks that stood at input i before each of its rows into the merged ones:
// marks[j] becomes the merged watermark before row j. No other input moves meanwhile.
func (m *Merger) Rows(i int, marks []int64) {
	others := m.others(i)
	in := &m.inputs[i]
	for j, at := range marks {
		if j == 0 || at > in.at { // most often the mark is that of the row before
			m.Set(i, at)
			m.merged = max(m.merged, min(others, in.at))
		}
		marks[j] = m.merged
	}
}

// Path appends to dst what the merged watermark will come to while input i follows path. Nothing moves
// yet.
func (m *Merger) Path(i int, path, dst []int64) []int64 {
	others, last := m.others(i), m.merged
	for _, at := range path {
		if at = min(others, at); at > last {
			dst = append(dst, at)
			last = at
		}
	}
	return dst
}

// others returns the lowest watermark of the active inputs beside i, and End if there is none.
func (m *Merger) others(i int) int64 {
	lowest := int64(End)
	for j := range m.inputs {
		if in := &m.inputs[j]; j != i && !in.idle {
			lowest = min(lowest, in.at)
		}
	}
	return lowest
}

// Merge returns the merged watermark, and whether there is no active input while not all have
// ended: then nothing moves it and the whole is idle.
func (m *Merger) Merge() (at int64, idle bool) {
	lowest, active, ended := int64(End), 0, 0
	for i := range m.inputs {
		switch in := &m.inputs[i]; {
		case in.at == End:
			ended++
		case !in.idle:
			active++
			lowest = min(lowest, in.at)
		}
	}
	switch {
	case active > 0:
		m.merged = max(m.merged, lowest)
	case ended == len(m.inputs):
		m.merged = End
	}
	return m.merged, active == 0 && ended < len(m.inputs)
}
