package kafka

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAStartIsReadFromItsText(t *testing.T) {
	for text, want := range map[string]Start{
		"":                        Earliest(),
		"earliest":                Earliest(),
		"latest":                  Latest(),
		"2026-03-02T10:00:00Z":    Timestamp(time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)),
		"group:billing:earliest":  FromGroup("billing", OrEarliest),
		"group:billing:eu:latest": FromGroup("billing:eu", OrLatest),
		"group:billing:fail":      FromGroup("billing", OrFail),
		"offsets:0=120,1=0":       Offsets(map[int32]int64{0: 120, 1: 0}),
	} {
		got, err := ParseStart(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		require.NoError(t, got.check())
	}
	for _, text := range []string{
		"Earliest", "group:billing", "group::earliest", "group:billing:never", "offsets:", "offsets:0", "offsets:0=-1",
		"offsets:0=1,0=2", "offsets:x=1", "2026-03-02", "5",
	} {
		_, err := ParseStart(text)
		require.ErrorContains(t, err, "start ", text)
	}
}
