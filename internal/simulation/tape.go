package simulation

import "math/rand/v2"

// tape holds the choices of a run: at each place where more than one thing can happen, the number of
// what did. Zero is always the ordinary one: what has waited longest goes on, and nothing fails. A tape
// that has come to its end says zero for ever, so a world calms down by itself.
type tape struct {
	random *rand.Rand // nil: only what is written is played
	made   []uint16
	at     int
	limit  int // how many choices are made at random
}

// newTape makes choices at random, a number of them, and then none.
func newTape(seed uint64, limit int) *tape {
	return &tape{random: rand.New(rand.NewPCG(seed, 0x77656972)), limit: limit}
}

// play plays choices that were made before.
func play(made []uint16) *tape { return &tape{made: made, limit: len(made)} }

// calm reports whether every choice to come is the ordinary one.
func (t *tape) calm() bool { return t.at >= t.limit }

// choose returns the next choice among n; fresh makes it where it is not written yet.
func (t *tape) choose(n int, fresh func(*rand.Rand) int) int {
	at := t.at
	t.at++
	switch {
	case at < len(t.made):
		return int(t.made[at]) % n
	case t.random == nil || at >= t.limit:
		return 0
	}
	c := fresh(t.random)
	t.made = append(t.made, uint16(c))
	return c
}

// pick returns one of 0 … n-1, each as likely as the others.
func (t *tape) pick(n int) int {
	return t.choose(n, func(r *rand.Rand) int { return r.IntN(n) })
}

// chance reports whether something happens that does so n times in a thousand.
func (t *tape) chance(n int) bool {
	return t.choose(2, func(r *rand.Rand) int {
		if r.IntN(1000) < n {
			return 1
		}
		return 0
	}) == 1
}

// weigh returns one of 0 … len(weights): i+1 as often in a thousand as weights[i] says, and 0 otherwise.
func (t *tape) weigh(weights []int) int {
	return t.choose(len(weights)+1, func(r *rand.Rand) int {
		x := r.IntN(1000)
		for i, n := range weights {
			if x -= n; x < 0 {
				return i + 1
			}
		}
		return 0
	})
}
