package simulation

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"sync"
)

// Report is what came of many worlds. The same seeds give the same report.
type Report struct {
	First, Seeds uint64
	Steps        int
	Finished     int
	Stopped      int // by name, after a fault that takes it
	Records      int // of the worlds that finished; each is to be visible exactly once
	Missing      int // worlds in which one was not
	Doubled      int // worlds in which one was visible twice
	Counts       Counts
	Faults       []FaultReport
	Failures     []Result `json:"-"`
}

// FaultReport is what came of the worlds that a fault hit.
type FaultReport struct {
	Fault                     string
	Hit, Worlds               int
	Records, Missing, Doubled int
}

// RunMany runs the worlds of seeds, each on one thread and several at a time.
func RunMany(first, seeds uint64) Report {
	results := make([]Result, seeds)
	next := make(chan int)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range next {
				results[i] = Run(first+uint64(i), nil)
				if results[i].Violation == "" {
					results[i].Choices = nil // nobody wants to see it again
				}
			}
		})
	}
	for i := range results {
		next <- i
	}
	close(next)
	wg.Wait()
	r := Report{First: first, Seeds: seeds}
	for _, f := range faults() {
		r.Faults = append(r.Faults, FaultReport{Fault: f.words})
	}
	for i := range results {
		r.add(&results[i])
	}
	return r
}

func (r *Report) add(x *Result) {
	r.Steps += x.Steps
	r.Counts.add(&x.Counts)
	var records, missing, doubled int
	switch x.Ended {
	case finished:
		r.Finished++
		records = x.Config.Splits * x.Config.Records
	case stoppedByName:
		r.Stopped++
	case goesOn:
	}
	switch Kind(x.Violation) {
	case "MISSING":
		missing = 1
	case "DOUBLED":
		doubled = 1
	}
	if x.Violation != "" {
		r.Failures = append(r.Failures, *x)
	}
	r.Records, r.Missing, r.Doubled = r.Records+records, r.Missing+missing, r.Doubled+doubled
	for i, f := range faults() {
		if hit := f.of(&x.Counts); hit > 0 {
			into := &r.Faults[i]
			into.Hit += hit
			into.Worlds++
			into.Records, into.Missing, into.Doubled = into.Records+records, into.Missing+missing, into.Doubled+doubled
		}
	}
}

// String says in one line what came of all.
func (r *Report) String() string {
	return fmt.Sprintf("seeds %d to %d: %d worlds, %d steps; %d finished and %d stopped by name; %d records checked, "+
		"%d missing, %d doubled; %d worlds went wrong", r.First, r.First+r.Seeds-1, r.Seeds, r.Steps, r.Finished,
		r.Stopped, r.Records, r.Missing, r.Doubled, len(r.Failures))
}

// Never returns what was not met in any world: faults that did not hit, and branches not taken.
func (r *Report) Never() []string {
	var never []string
	v := reflect.ValueOf(r.Counts)
	for i := range v.NumField() {
		if v.Field(i).Int() == 0 {
			never = append(never, v.Type().Field(i).Name)
		}
	}
	return never
}

// unusual lists the choices that are not the ordinary ones, by their places.
func unusual(choices []uint16) string {
	var b strings.Builder
	for at, c := range choices {
		if c != 0 {
			fmt.Fprintf(&b, " %d=%d", at, c)
		}
	}
	return b.String()
}

// Explain makes a failure as short as it can, and tells its course.
func Explain(r Result, tries int) string {
	short := Shrink(r, tries)
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nThe shortest course found that goes wrong in this way (%d choices; not the "+
		"ordinary ones are%s), in a world of %s:\n\n", &r, len(short.Choices), unusual(short.Choices), &short.Config)
	Replay(short.Config, short.Choices, func(line string) { b.WriteString(line + "\n") })
	return b.String()
}
