package weirtest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
	"example.com/weir/connector/connectortest"
)

// bounded reads a source to where its splits end when it is asked for them.
type bounded struct{ *Source[string] }

func (b bounded) Discover(ctx context.Context) ([]connector.Split, error) {
	splits, err := b.Source.Discover(ctx)
	for i := range splits {
		splits[i].Position = position{end: int64(b.Entries(i))}.append(nil)
	}
	return splits, err
}

func TestSourceKeepsTheContract(t *testing.T) {
	connectortest.Source(t, func(*testing.T) connectortest.SourceFixture {
		s := NewSource[string](3)
		return connectortest.SourceFixture{
			Source: s, Bounded: bounded{s}, Splits: 3,
			Write: func(_ *testing.T, split int, values ...string) {
				for _, v := range values {
					e := entry[string]{row: v, at: farFuture()}
					if strings.HasPrefix(v, "bad") {
						e.bad = connectortest.ErrBad.Error()
					}
					s.append(split, e)
				}
			},
		}
	})
}

// What is exactly once shows nothing before the commit, and nothing twice; what is not shows it at once.
func TestSinkShowsWhatItsGuaranteeSays(t *testing.T) {
	s := NewSink[int](connector.ExactlyOnce)
	w, err := s.Writer(t.Context(), connector.WriterContext{Operator: "sink"})
	require.NoError(t, err)
	two := w.(connector.TwoPhaseWriter[int])
	none, err := two.PrepareCommit(t.Context(), 1)
	require.NoError(t, err)
	require.Nil(t, none, "nothing was written")
	require.NoError(t, w.Write(t.Context(), []int{1, 2}))
	c, err := two.PrepareCommit(t.Context(), 2)
	require.NoError(t, err)
	require.Empty(t, s.Rows())
	for range 2 {
		require.NoError(t, two.Commit(t.Context(), *c))
		require.Equal(t, []int{1, 2}, s.Rows())
	}
	require.NoError(t, s.Restore(t.Context(), connector.RestoreContext{Named: []connector.Committable{*c}}))
	require.Equal(t, []int{1, 2}, s.Rows())
	require.True(t, connector.IsStop(two.Commit(t.Context(), connector.Committable{Payload: []byte("unknown")})))

	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	_, err = s.Await(ctx, 3)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	plain := NewSink[int](connector.AtLeastOnce)
	pw, err := plain.Writer(t.Context(), connector.WriterContext{})
	require.NoError(t, err)
	require.NoError(t, pw.Write(t.Context(), []int{7}))
	require.Equal(t, []int{7}, plain.Rows())
	require.ErrorContains(t, plain.Validate(false), "needs checkpoints")
	require.NoError(t, NewSink[int](connector.None).Validate(false))
}
