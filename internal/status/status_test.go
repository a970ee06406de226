package status

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestASplitThatIsQuietAndFarBehindInEventTimeIsNamed(t *testing.T) {
	at := func(minute int) *time.Time {
		t := time.Date(2026, 3, 2, 10, minute, 0, 0, time.UTC)
		return &t
	}
	of := func(splits ...Split) *Status {
		return &Status{Operators: []Operator{{Subtasks: []Subtask{{Splits: splits[:1]}, {Splits: splits[1:]}}}}}
	}
	quiet, ahead := Split{ID: "t/0", Watermark: at(0)}, Split{ID: "t/1", Watermark: at(5)}
	require.Equal(t, []Split{quiet}, of(ahead, quiet).Held())
	require.Equal(t, []Split{quiet}, of(quiet, ahead).Held())

	require.Empty(t, of(quiet, Split{ID: "t/1", Watermark: at(1)}).Held(), "about as far")
	for why, change := range map[string]func(*Split){
		"it has records to read":    func(s *Split) { s.Behind = 7 },
		"nobody knows whether":      func(s *Split) { s.Behind = -1 },
		"it is left out":            func(s *Split) { s.Idle = true },
		"it has ended":              func(s *Split) { s.Ended = true },
		"it never had a record":     func(s *Split) { s.Watermark = nil },
		"it is the one that is far": func(s *Split) { s.Watermark = at(9) },
	} {
		other := quiet
		change(&other)
		require.NotContains(t, of(other, ahead).Held(), other, why)
	}
}
