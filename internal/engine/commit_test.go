package engine

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
	"example.com/weir/internal/protocol"
)

type recordingCommitter struct{ committed []connector.CommittableID }

func (r *recordingCommitter) Commit(_ context.Context, c connector.Committable) error {
	r.committed = append(r.committed, c.ID())
	return nil
}
func (*recordingCommitter) Release(connector.Committable) {}

// permitOf takes a coordinator to the restore of a checkpoint that names cs, and returns its permit.
func permitOf(t *testing.T, cs ...connector.Committable) protocol.CommitPermit {
	current := protocol.Current{Job: "job", Lineage: "0123456789abcdef", Generation: 1, Checkpoint: 3}
	c := protocol.New(protocol.Config{Job: "job"})
	swap := c.Step(protocol.Begin{Current: current, Named: cs})[0].(protocol.SwapCurrent)
	claimed := c.Step(protocol.Swapped{Current: swap.New})
	return claimed[len(claimed)-1].(protocol.Restore).Permit
}

func committable(sink string, n uint64) connector.Committable {
	return connector.Committable{Sink: sink, Checkpoint: n}
}

func TestNothingIsCommittedWithoutAPermitThatCoversIt(t *testing.T) {
	g := &generation{logger: slog.New(slog.DiscardHandler), cfg: RunConfig{}.withDefaults(), ctx: t.Context()}
	named, other := committable("sink", 3), committable("sink", 4)
	permit := permitOf(t, named)
	committer := &recordingCommitter{}
	for _, p := range []permitted{
		{permit: permit, committable: other}, {committable: named},
	} {
		failed, ok := g.commitOne(committer, p).(protocol.CommitFailed)
		require.True(t, ok)
		require.True(t, connector.IsStop(failed.Err))
	}
	require.Empty(t, committer.committed)
	require.Equal(t, protocol.CommitSettled{ID: named.ID()},
		g.commitOne(committer, permitted{permit: permit, committable: named}))
	require.Equal(t, []connector.CommittableID{named.ID()}, committer.committed)
}

func TestNothingIsSettledAtARestoreThatThePermitDoesNotCoverOrTheJobDoesNotKnow(t *testing.T) {
	restored := 0
	plan := NewPlan("job", 1, 8)
	plan.sinks = []sinkNode{
		{uid: "two", restore: func(_ context.Context, rc connector.RestoreContext) error {
			restored += len(rc.Named)
			return nil
		}},
		{uid: "one"},
	}
	g := &generation{logger: slog.New(slog.DiscardHandler), cfg: RunConfig{}.withDefaults(), ctx: t.Context(), plan: plan}
	g.logger = g.cfg.Logger
	for want, c := range map[string]connector.Committable{
		"does not cover":                committable("two", 9),
		"was its guarantee changed?":    committable("one", 3),
		"which the job does not have":   committable("gone", 3),
		"permit g2 c3 does not cover o": committable("one", 9),
	} {
		a := protocol.Restore{Named: []connector.Committable{c}, Permit: permitOf(t, committable(c.Sink, 3))}
		err := g.restoreSinks(a)
		require.ErrorContains(t, err, want)
		require.True(t, connector.IsStop(err))
		require.Zero(t, restored)
	}
	named := []connector.Committable{committable("two", 3)}
	require.NoError(t, g.restoreSinks(protocol.Restore{Named: named, Permit: permitOf(t, named...)}))
	require.Equal(t, 1, restored)
}
