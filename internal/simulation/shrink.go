package simulation

import (
	"slices"
	"strings"
)

// Shrink looks for a smaller world and fewer choices that go wrong in the same way, and returns what it found.
// It tries at most so many worlds.
func Shrink(r Result, tries int) Result {
	return shrink(r, tries, func(c Config, choices []uint16) Result { return Replay(c, choices, nil) })
}

func shrink(r Result, tries int, run func(Config, []uint16) Result) Result {
	s := shrinker{run: run, kind: Kind(r.Violation), best: r, tries: tries}
	s.best.Choices = trimmed(r.Choices)
	for before := ""; before != s.size(); {
		before = s.size()
		s.world()
		s.cut()
		s.lower()
		s.hasten()
	}
	return s.best
}

// Kind returns the word that a violation begins with.
func Kind(violation string) string {
	kind, _, _ := strings.Cut(violation, ":")
	return kind
}

type shrinker struct {
	run   func(Config, []uint16) Result
	kind  string
	best  Result
	tries int
}

// size tells two results apart.
func (s *shrinker) size() string {
	b := strings.Builder{}
	b.WriteString(s.best.Config.String())
	for _, c := range s.best.Choices {
		b.WriteRune(rune(c))
	}
	return b.String()
}

// try reports whether a world goes wrong in the same way, and keeps it if it does.
func (s *shrinker) try(c Config, choices []uint16) bool {
	if s.tries--; s.tries < 0 {
		return false
	}
	got := s.run(c, choices)
	if Kind(got.Violation) != s.kind {
		return false
	}
	got.Seed, got.Choices = s.best.Seed, trimmed(choices)
	s.best = got
	return true
}

// world makes the world smaller.
func (s *shrinker) world() {
	for _, change := range []func(*Config){
		func(c *Config) { c.Splits = 1 },
		func(c *Config) { c.Partitions = 1 },
		func(c *Config) { c.Records = 1 },
		func(c *Config) { c.Records = max(1, c.Records-1) },
		func(c *Config) { c.Tolerable = 0 },
		func(c *Config) { c.Keep = true },
		func(c *Config) { c.StrictMarkers = false },
		func(c *Config) { c.MarkerRight = true },
		func(c *Config) { c.Version2 = true },
	} {
		c := s.best.Config
		if change(&c); c != s.best.Config {
			s.try(c, s.best.Choices)
		}
	}
}

// cut takes choices away, many at a time and then fewer, and makes them ordinary ones.
func (s *shrinker) cut() {
	for size := (len(s.best.Choices) + 1) / 2; size > 0; size = s.smaller(size) {
		for at := 0; at < len(s.best.Choices); {
			end := min(at+size, len(s.best.Choices))
			shorter := slices.Delete(slices.Clone(s.best.Choices), at, end)
			if s.try(s.best.Config, shorter) {
				continue
			}
			calmer := slices.Clone(s.best.Choices)
			clear(calmer[at:end])
			if !slices.Equal(calmer, s.best.Choices) {
				s.try(s.best.Config, calmer)
			}
			at = end
		}
	}
}

// smaller halves a size, and tries each of the last few where there is little left: a step takes two or three
// choices.
func (s *shrinker) smaller(size int) int {
	if size <= 8 && len(s.best.Choices) < 200 {
		return size - 1
	}
	return size / 2
}

// lower makes each choice the lowest that will do.
func (s *shrinker) lower() {
	for at := 0; at < len(s.best.Choices); at++ {
		for n := range s.best.Choices[at] {
			lower := slices.Clone(s.best.Choices)
			if lower[at] = n; s.try(s.best.Config, lower) {
				break
			}
		}
	}
}

// hasten lets each choice that is not the ordinary one come earlier, where the ones between are: taking
// those away would move everything behind, too.
func (s *shrinker) hasten() {
	free := 0
	for at := 0; at < len(s.best.Choices); at++ {
		if s.best.Choices[at] == 0 {
			continue
		}
		for to := free; to < at; to++ {
			sooner := slices.Clone(s.best.Choices)
			sooner[to], sooner[at] = sooner[at], 0
			if s.try(s.best.Config, sooner) {
				at = to
				break
			}
		}
		free = at + 1
	}
}

// trimmed drops the ordinary choices at the end, which need not be written down.
func trimmed(choices []uint16) []uint16 {
	n := len(choices)
	for n > 0 && choices[n-1] == 0 {
		n--
	}
	return slices.Clone(choices[:n])
}
