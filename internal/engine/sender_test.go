package engine

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/weir/internal/keygroup"
	"example.com/weir/internal/state"
)

func newSender(t *testing.T, targets int) *hashSender[int, int] {
	g := &generation{cfg: RunConfig{}.withDefaults(), plan: NewPlan("test", targets, keygroup.DefaultMax)}
	return newHashSender(newEnd(g, targets), KeyBy(Stream[int]{}, same))
}

// newEnd is the end of an exchange from one subtask to several.
func newEnd(g *generation, targets int) sender[int] {
	return sender[int]{
		task: &task{gen: g, ctx: context.Background(), stats: &SubtaskStats{}},
		ch:   newChannels[int](1, targets), pending: make([]*Batch[int], targets),
	}
}

// senders are all kinds of senders to a number of subtasks.
func senders(t *testing.T, targets int) map[string]collectorAt {
	g := &generation{cfg: RunConfig{}.withDefaults()}
	hash, turn, all := newSender(t, targets), &turnSender[int]{sender: newEnd(g, targets)}, &copySender[int]{newEnd(g, targets)}
	forward := &copySender[int]{newEnd(g, targets)}
	forward.first, forward.pending = targets-1, forward.pending[:1]
	return map[string]collectorAt{
		"hash": {hash, hash.ch}, "rebalance": {turn, turn.ch}, "broadcast": {all, all.ch}, "forward": {forward, forward.ch},
	}
}

type collectorAt struct {
	Collector[int]
	ch *channels[int]
}

// received takes what waits for each target: rows and barriers, in order.
func (c collectorAt) received(t require.TestingT) [][]string {
	all := make([][]string, len(c.ch.to))
	for target, inputs := range c.ch.to {
		for len(inputs[0]) > 0 {
			m := <-inputs[0]
			if m.batch == nil {
				all[target] = append(all[target], fmt.Sprint("signal ", m.signal.kind))
				continue
			}
			require.Len(t, m.batch.Marks, len(m.batch.Rows))
			for i, v := range m.batch.Rows {
				require.EqualValues(t, v+1, m.batch.Times[i])
				require.EqualValues(t, v+2, m.batch.Marks[i])
				all[target] = append(all[target], fmt.Sprint(v))
			}
		}
	}
	return all
}

func numbered(from, to int) *Batch[int] {
	b := &Batch[int]{}
	for v := from; v < to; v++ {
		b.Rows, b.Times, b.Marks = append(b.Rows, v), append(b.Times, int64(v+1)), append(b.Marks, int64(v+2))
	}
	return b
}

// However rows come in batches, an exchange sends them to the same subtasks in the same order, and every
// signal but a flush to each of its targets behind them (E4).
func TestWhereARowGoesDoesNotDependOnBatches(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const targets, rows = 3, 700 // in fewer batches than a channel holds
		cuts := rapid.SliceOfN(rapid.IntRange(0, rows), 0, 3).Draw(rt, "cuts")
		slices.Sort(cuts)
		for name, s := range senders(t, targets) {
			from := 0
			for _, to := range append(cuts, rows) {
				require.NoError(rt, s.batch(numbered(from, to)))
				require.NoError(rt, s.signal(signal{kind: flushSignal}))
				from = to
			}
			require.NoError(rt, s.signal(signal{kind: barrierSignal}))
			require.Equal(rt, expected(name, targets, rows), s.received(rt), name)
		}
	})
}

func expected(kind string, targets, rows int) [][]string {
	hash, all := owners(keygroup.DefaultMax, targets), make([][]string, targets)
	codec, _ := state.NewKeyCodec[int]()
	for v := range rows {
		to := []int{v % targets}
		switch kind {
		case "hash":
			to = []int{int(hash[keygroup.Of(codec.Hash(codec.Append(nil, &v)), keygroup.DefaultMax)])}
		case "broadcast":
			to = []int{0, 1, 2}
		case "forward":
			to = []int{targets - 1}
		}
		for _, target := range to {
			all[target] = append(all[target], fmt.Sprint(v))
		}
	}
	for target := range all {
		if kind != "forward" || target == targets-1 {
			all[target] = append(all[target], fmt.Sprint("signal ", barrierSignal))
		}
	}
	return all
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
