package simulation

import "fmt"

// Result is what came of one world.
type Result struct {
	Seed      uint64
	Config    Config
	Steps     int
	Violation string // empty: nothing was wrong
	Ended     Ending
	Reason    string // of a stop by name
	Counts    Counts
	Choices   []uint16
}

// Run runs the world of a seed. trace, if there is one, is told each thing that happens.
func Run(seed uint64, trace func(line string)) Result {
	c := randomConfig(seed)
	r := runWorld(newWorld(c, newTape(seed, c.Choices), trace))
	r.Seed = seed
	return r
}

// Replay runs a world by choices that were made before.
func Replay(c Config, choices []uint16, trace func(line string)) Result {
	return runWorld(newWorld(c, play(choices), trace))
}

func runWorld(w *world) Result {
	w.say("%s", &w.cfg)
	w.run()
	return Result{
		Config: w.cfg, Steps: w.steps, Violation: w.violation, Ended: w.ended, Reason: w.reason, Counts: w.counts,
		Choices: w.tape.made,
	}
}

// String says in one line what came of the world.
func (r *Result) String() string {
	s := fmt.Sprintf("seed %d (%s): %d steps, %s", r.Seed, &r.Config, r.Steps, r.Ended)
	if r.Reason != "" {
		s += ": " + r.Reason
	}
	if r.Violation != "" {
		s += "; " + r.Violation
	}
	return s
}
