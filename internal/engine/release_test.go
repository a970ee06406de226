package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
)

// A release comes late: the next barrier has passed meanwhile, and its checkpoint may never complete.
func TestALateReleaseTellsThePositionsOfItsOwnCheckpoint(t *testing.T) {
	r := &releaser{cuts: make(chan []cutPositions, 1), due: make(chan uint64, 1)}
	r.cuts <- nil
	at := func(position string) []connector.Split {
		return []connector.Split{{ID: "a", Position: []byte(position)}}
	}
	for n, position := range []string{"zero", "one", "two", "three"} {
		r.cut(uint64(n), at(position))
	}
	require.Equal(t, at("two"), r.take(2))
	require.Empty(t, r.take(1), "an older one is not told behind it")
	r.cut(4, at("four"))
	require.Equal(t, at("three"), r.take(3))
	require.Empty(t, r.take(5), "its barrier has not passed here")
	r.completed(6)
	r.completed(7) // waits for nobody
	require.EqualValues(t, 7, <-r.due)
	var none *releaser
	none.cut(1, at("a"))
}
