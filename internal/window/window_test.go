package window

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestEveryTimeLiesInOneHalfOpenWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(1, 1e9).Draw(t, "size")
		at := rapid.Int64Range(-1e18, 1e18).Draw(t, "at")
		start, end := Tumbling{Size: size}.Of(at)
		require.Equal(t, size, end-start)
		require.LessOrEqual(t, start, at)
		require.Less(t, at, end)
		require.Zero(t, start%size)
		next, _ := Tumbling{Size: size}.Of(end)
		require.Equal(t, end, next, "a record at the end belongs to the next window")
	})
}

func TestJudgement(t *testing.T) {
	for _, c := range []struct {
		watermark int64
		want      Judgement
	}{
		{-1 << 63, Open}, {99, Open}, {100, Refire}, {149, Refire}, {150, Late}, {1<<63 - 1, Late},
	} {
		require.Equal(t, c.want, Judge(100, 50, c.watermark), "watermark %d", c.watermark)
	}
	require.Equal(t, Late, Judge(100, 0, 100), "without lateness a window that fires is closed")
}
