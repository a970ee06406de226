package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// However ticks and the ends of checkpoints fall, no checkpoint begins sooner after one than the pause,
// and one that is due begins as soon as the pause is over.
func TestCheckpointsKeepThePauseAndAreNotForgotten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := pace{pause: time.Duration(rapid.IntRange(0, 20).Draw(t, "pause"))}
		now, open, waiting := time.Unix(0, 0), false, false
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			step := time.Duration(rapid.IntRange(0, 8).Draw(t, "time"))
			if d, ok := p.wait(now, open); ok && d <= step {
				now = now.Add(d)
				require.True(t, p.due(now, open), "the pause is over")
				open, waiting = true, false
				continue
			}
			now = now.Add(step)
			if open && rapid.Bool().Draw(t, "ends") {
				open, p.ended = false, now
			}
			if rapid.Bool().Draw(t, "tick") {
				if p.due(now, open) {
					require.False(t, p.pause > 0 && now.Before(p.ended.Add(p.pause)))
					open, waiting = true, false
				} else {
					waiting = true
				}
			}
			_, ok := p.wait(now, open)
			require.Equal(t, waiting && !open, ok, "a checkpoint that is due is waited for")
		}
	})
}
