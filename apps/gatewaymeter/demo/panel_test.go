package demo

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestThePanelShowsHowFarTheBillIs(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	p := &panel{
		Since: 12340 * time.Millisecond, Start: start, End: start.Add(30 * time.Minute), Sent: 12345, Read: 11999,
		Watermark: start.Add(15*time.Minute + 20*time.Second), Kills: 2, Planned: 5, Generation: 3, Checkpoint: 17,
		Age: 600 * time.Millisecond, Committed: 41, Minutes: 14, Records: 1280,
	}
	require.Equal(t, strings.Join([]string{
		"",
		"  12.3s  [███████████████░░░░░░░░░░░░░░░]  51%  event time 12:15:20",
		"events      12,345 written, 11,999 read",
		"job         generation 3; 2 of 5 kills",
		"checkpoint  17, 0.6s old; 41 transactions committed",
		"billed      14 of 15 minutes that are due; 1,280 records",
	}, "\n"), strings.Join(p.lines(), "\n"))

	p.Down = true
	require.Contains(t, p.lines()[3], "KILLED")
	p.Watermark = p.End.Add(time.Hour)
	require.Equal(t, 30, p.due(), "what comes behind the replay is billed to nobody")

	empty := (&panel{Start: start, End: start.Add(time.Minute)}).lines()
	require.Contains(t, empty[1], "  0%  event time unknown")
	require.Contains(t, empty[3], "starting")
	require.Contains(t, empty[4], "none yet")
	require.Contains(t, empty[5], "0 of 0 minutes")
}
