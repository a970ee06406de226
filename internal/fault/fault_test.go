package fault

import (
	"bytes"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestACrashIsReadAndWrittenAlike(t *testing.T) {
	for _, point := range Points() {
		for text, want := range map[string]Crash{
			point:                   {Point: point, Nth: 1},
			point + ":3":            {Point: point, Nth: 3},
			"hold:" + point:         {Point: point, Nth: 1, Hold: true},
			"hold:" + point + ":12": {Point: point, Nth: 12, Hold: true},
		} {
			c, err := Parse(text)
			require.NoError(t, err)
			require.Equal(t, want, c)
			again, err := Parse(c.String())
			require.NoError(t, err)
			require.Equal(t, c, again)
		}
	}
	for _, text := range []string{"", "hold:", "nowhere", AfterAck + ":0", AfterAck + ":x", AfterAck + ":", ":1"} {
		_, err := Parse(text)
		require.ErrorContains(t, err, "crash point", text)
	}
	points := Points()
	slices.Sort(points)
	require.Equal(t, points, slices.Compact(slices.Clone(points)), "each has a name of its own")
}

// The point says that it was reached, the nth time and once, and whoever reached it goes no further. Others do.
func TestWhoeverReachesThePointGoesNoFurther(t *testing.T) {
	var report bytes.Buffer
	c := Crash{Point: AfterAck, Nth: 3}
	reached := c.reached(&report, runtime.Goexit)
	passed := 0
	for range 2 {
		var wg sync.WaitGroup
		wg.Go(func() {
			for range 5 {
				reached(AfterAck)
				reached(AfterFlush)
				passed++
			}
		})
		wg.Wait()
	}
	require.Equal(t, 2+5, passed)
	require.Equal(t, c.Line()+"\n", report.String())
}
