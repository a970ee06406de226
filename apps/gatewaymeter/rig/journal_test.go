package rig

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tell applies lines of a log as the job writes them.
func tell(t *testing.T, j *Journal, lines ...string) {
	t.Helper()
	for _, text := range lines {
		l, ok := ParseLine([]byte(text))
		require.True(t, ok, text)
		j.apply(l)
	}
}

func started(generation, checkpoint int) string {
	return fmt.Sprintf(`{"time":"2026-03-02T10:00:00Z","level":"INFO","msg":"generation started",`+
		`"lineage":"00ff","generation":%d,"checkpoint":%d}`, generation, checkpoint)
}

func passed(checkpoint, subtask, events int) string {
	return fmt.Sprintf(`{"level":"INFO","msg":"barrier passed","checkpoint":%d,"operator":"gateway-events","subtask":%d,"events":%d}`,
		checkpoint, subtask, events)
}

func completed(checkpoint, events int) string {
	return fmt.Sprintf(`{"time":"2026-03-02T10:00:01.5Z","level":"INFO","msg":"checkpoint completed","checkpoint":%d,`+
		`"took":1,"events":%d,"watermark":"2026-03-02T09:59:55Z"}`, checkpoint, events)
}

func read(events int) string {
	return fmt.Sprintf(`{"level":"INFO","msg":"progress","events":%d,"watermark":"none"}`, events)
}

func TestAGenerationCountsOnFromTheCutOfItsCheckpoint(t *testing.T) {
	var j Journal
	tell(t, &j, started(1, 0), read(60), passed(1, 0, 40), passed(1, 1, 30), read(90), completed(1, 95))
	require.EqualValues(t, 70, j.Cut(1))
	require.EqualValues(t, 95, j.Read)
	require.EqualValues(t, 25, j.Unsaved())
	require.EqualValues(t, 1, j.Checkpoint)
	require.Equal(t, time.Date(2026, 3, 2, 10, 0, 1, 5e8, time.UTC), j.CompletedAt)
	require.Equal(t, time.Date(2026, 3, 2, 9, 59, 55, 0, time.UTC), j.Watermark)

	tell(t, &j, read(120))
	before := j.clone()
	tell(t, &j, started(2, 1))
	require.EqualValues(t, 50, before.Read-j.Cut(j.Restored), "read again")
	require.EqualValues(t, 0, j.Checkpoint, "this generation has completed none")
	require.EqualValues(t, 0, j.Unsaved())
	tell(t, &j, read(10), passed(2, 0, 5), passed(2, 1, 6), completed(2, 11))
	require.EqualValues(t, 81, j.Cut(2))
	require.EqualValues(t, 0, j.Unsaved())
	require.Equal(t, 2, j.Generations)
}

func TestACheckpointThatCompletedUnseenHasACutAllTheSame(t *testing.T) {
	// barrier 2 → CURRENT swapped → SIGKILL before the line about it
	var j Journal
	tell(t, &j, started(1, 0), passed(1, 0, 10), completed(1, 10), passed(2, 0, 25))
	require.EqualValues(t, 2, j.Barrier)
	require.EqualValues(t, 1, j.Checkpoint)
	tell(t, &j, started(2, 2))
	require.EqualValues(t, 25, j.Read)
}

func TestACutThatWasLostIsForgotten(t *testing.T) {
	// checkpoint 2 was begun and lost: its number is used again, by other subtasks' counts
	var j Journal
	tell(t, &j, started(1, 0), passed(1, 0, 10), completed(1, 10), passed(2, 0, 20), passed(2, 1, 7),
		started(2, 1), passed(2, 0, 3))
	require.EqualValues(t, 13, j.Cut(2))
	require.EqualValues(t, 2, j.Barrier)
}

func TestLinesThatAreNotOfTheLogAreNoLines(t *testing.T) {
	for _, text := range []string{"panic: oh", "", "{}", `{"msg":3}`, `[1]`} {
		_, ok := ParseLine([]byte(text))
		require.False(t, ok, text)
	}
	var j Journal
	tell(t, &j, `{"level":"INFO","msg":"transaction committed","committable":"sink-tenant-cost[0]@7"}`, `{"msg":"something else","events":5}`)
	require.Equal(t, 1, j.Committed)
	require.EqualValues(t, 7, j.Settled)
	require.Zero(t, j.Read)
}
