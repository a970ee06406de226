package demo

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// perKill is how many checkpoint intervals a kill needs at the least: one to wait for a checkpoint, the
// better part of one until the moment, and one for the next start.
const perKill = 3

// moment says what a kill waits for, once its time has come and a checkpoint has completed.
type moment int

const (
	// inInterval is a share of the interval after the checkpoint.
	inInterval moment = iota
	// beforeBarrier is when a window has fired since the checkpoint and the next barrier has not come:
	// its records are on the topic, and no checkpoint names them.
	beforeBarrier
)

// plannedKill is one kill of the schedule.
type plannedKill struct {
	After  time.Duration // since the replay began: no kill before
	Moment moment
	Share  float64 // of a checkpoint interval, for inInterval
}

// String says where the kill is planned.
func (k plannedKill) String() string {
	switch {
	case k.Moment == beforeBarrier:
		return "after a window fired, before the next barrier"
	case k.Share == 0:
		return "as a checkpoint completes"
	}
	return fmt.Sprintf("%.0f %% of an interval after a checkpoint", k.Share*100)
}

// schedule draws kills over the time in which requests come: one in each of equal parts, early enough in
// it that the job is back before the next part. One of them is always beforeBarrier; of the others the
// first is at 60 % of an interval, and the rest there, at a checkpoint, or anywhere.
func schedule(seed uint64, kills int, duration time.Duration) []plannedKill {
	if kills == 0 {
		return nil
	}
	rng := rand.New(rand.NewPCG(seed, 0xd1b54a32d192ed03))
	begin, end := duration/20, duration-duration/10
	part := (end - begin) / time.Duration(kills)
	special := rng.IntN(kills)
	plan := make([]plannedKill, kills)
	others := 0
	for i := range plan {
		k := &plan[i]
		k.After = begin + time.Duration(i)*part + time.Duration(rng.Int64N(int64(part)/4+1))
		share := float64(10+rng.IntN(80)) / 100
		choice := rng.IntN(3)
		if i == special {
			k.Moment = beforeBarrier
			continue
		}
		switch {
		case others == 0 || choice == 0:
			k.Share = 0.6
		case choice == 1:
			k.Share = 0
		default:
			k.Share = share
		}
		others++
	}
	return plan
}
