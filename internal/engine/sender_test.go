package engine

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/weir/internal/keygroup"
	"example.com/weir/internal/state"
)

func newSender(t *testing.T, targets int) *hashSender[int, int] {
	codec, err := state.NewKeyCodec[int]()
	require.NoError(t, err)
	g := &generation{cfg: RunConfig{}.withDefaults(), plan: NewPlan("test", targets, keygroup.DefaultMax)}
	return newHashSender(newEnd(g, targets), same, codec)
}

// newEnd is the end of an exchange from one subtask to several.
func newEnd(g *generation, targets int) sender[int] {
	return sender[int]{
		task: &task{gen: g, ctx: context.Background(), stats: &SubtaskStats{}},
		ch:   newChannels[int](1, targets), pending: make([]*Batch[int], targets),
	}
}

// Records leave before a signal does, whichever signal it is (E4): a barrier that overtook them
// would leave them out of the cut, though the source's position is behind them.
func TestSignalLeavesBehindTheRowsBeforeIt(t *testing.T) {
	for _, kind := range []signalKind{watermarkSignal, idleSignal, barrierSignal} {
		s, rows := newSender(t, 3), &Batch[int]{}
		for i := range 100 {
			rows.Rows, rows.Times, rows.Marks = append(rows.Rows, i), append(rows.Times, 0), append(rows.Marks, 0)
		}
		require.NoError(t, s.batch(rows))
		require.NoError(t, s.signal(signal{kind: kind, checkpoint: 7}))
		seen := 0
		for target := range 3 {
			in := s.ch.to[target][0]
			require.Len(t, in, 2)
			first, second := <-in, <-in
			require.NotNil(t, first.batch)
			require.Equal(t, signal{kind: kind, checkpoint: 7}, second.signal)
			for i := range first.batch.Rows {
				require.EqualValues(t, target, s.owner[keygroup.Of(first.batch.Hashes[i], keygroup.DefaultMax)])
				seen++
			}
			require.Len(t, s.ch.wake[target], 1)
		}
		require.Equal(t, 100, seen)
	}
}

func TestFlushSendsWhatIsPendingAndCrossesNoExchange(t *testing.T) {
	s := newSender(t, 2)
	require.NoError(t, s.batch(&Batch[int]{Rows: []int{1}, Times: []int64{0}, Marks: []int64{0}}))
	require.NoError(t, s.signal(signal{kind: flushSignal}))
	require.Equal(t, 1, len(s.ch.to[0][0])+len(s.ch.to[1][0]))
}

func TestOutPassesRowsOnBeforeASignal(t *testing.T) {
	got := &notes{}
	out := newOut[int](&task{}, got, &operatorStats{})
	out.mark = 3
	for i := range 2 {
		out.Emit(i)
	}
	require.Empty(t, got.all)
	require.NoError(t, out.signal(signal{kind: barrierSignal, checkpoint: 1}))
	require.Equal(t, []string{"0 after 3", "1 after 3", "barrier 1"}, got.all)
}
