package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/protocol"
)

// fillingStore takes snapshots unless it is full.
type fillingStore struct {
	checkpoint.Store
	full  bool
	bytes int // of the last snapshot
}

func (s *fillingStore) PutSnapshot(
	_ context.Context, _ checkpoint.SnapshotName, parts ...[]byte,
) (protocol.Handle, error) {
	if s.full {
		return protocol.Handle{}, errors.New("no space left")
	}
	s.bytes = length(parts)
	return protocol.Handle{}, nil
}

// Cuts that could not be written wait in memory for as long as a restore needs them, and no longer: while a
// disk is full for hours, a subtask does not keep all that has changed in them.
func TestCutsThatCouldNotBeWrittenAreForgottenWithTheirChain(t *testing.T) {
	store := &fillingStore{full: true}
	g := &generation{store: store, cfg: RunConfig{}.withDefaults(), ctx: t.Context()}
	c := &chain{task: &task{gen: g, ctx: t.Context()}}
	cutOf := func(number, oldest uint64) *cut {
		return &cut{checkpoint: number, number: number, oldest: oldest, encoded: make([]byte, 100)}
	}
	for n := range uint64(1000) {
		_, declined := c.answer(cutOf(n+1, max(n, 3)-2)).(protocol.Declined) // each needs the three before it
		require.True(t, declined)
		require.LessOrEqual(t, len(c.unwritten), 4)
	}
	store.full = false
	_, acknowledged := c.answer(cutOf(1001, 998)).(protocol.Acknowledged)
	require.True(t, acknowledged)
	require.Equal(t, 4*(4+100), store.bytes, "998, 999, 1000 and 1001")
	require.Empty(t, c.unwritten)
}
