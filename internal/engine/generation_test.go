package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/weir/internal/protocol"
)

// A source that is held back finds the newest barrier when it looks: the checkpoints of the ones
// before it were aborted.
func TestBarrierThatWasNotTakenMakesWayForTheNextOne(t *testing.T) {
	held, quick := make(chan signal, 1), make(chan signal, 1)
	g := &generation{started: true, sourceControls: []sourceControl{{inject: held}, {inject: quick}}}
	for n := uint64(7); n < 10; n++ {
		g.inject(protocol.InjectBarrier{Checkpoint: n})
		require.Equal(t, signal{kind: barrierSignal, checkpoint: n}, <-quick)
	}
	g.inject(protocol.InjectBarrier{Checkpoint: 10, Final: protocol.Finished})
	require.Equal(t, signal{kind: barrierSignal, checkpoint: 10, final: true, endOfInput: true}, <-held)
	require.Empty(t, held)
	require.Len(t, quick, 1)
}
