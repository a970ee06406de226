package main

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir"
	"example.com/weir/connector"
	"example.com/weir/connectors/kafka"
	"example.com/weir/weirtest"
)

// world is what is outside of the job. It lives on when the job is killed.
type world struct {
	calls       *weirtest.Source[Call]
	lines       *weirtest.Sink[Line]
	late        *weirtest.Sink[Call]
	rejected    *weirtest.Sink[weir.DeadLetter]
	checkpoints string
}

func newWorld(t *testing.T) *world {
	return &world{
		calls:       weirtest.NewSource[Call](2),
		lines:       weirtest.NewSink[Line](connector.ExactlyOnce),
		late:        weirtest.NewSink[Call](connector.ExactlyOnce),
		rejected:    weirtest.NewSink[weir.DeadLetter](connector.ExactlyOnce),
		checkpoints: "file://" + t.TempDir(),
	}
}

func (w *world) start(t *testing.T, parallelism int) *weirtest.Running {
	cfg := weir.Config{
		Parallelism: parallelism,
		Checkpoint:  weir.Checkpoint{Storage: w.checkpoints, Interval: time.Second},
		Logger:      slog.New(slog.DiscardHandler),
	}
	return weirtest.Start(t, newJob(cfg, w.calls, w.lines, w.late, w.rejected))
}

// at returns a time of the morning, like 10:59.
func at(clock string) time.Time {
	t, err := time.Parse("2006-01-02 15:04", "2026-03-02 "+clock)
	if err != nil {
		panic(err)
	}
	return t
}

func TestACallIsBilledByTheMinuteBegunInTheHourItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.calls.Add(0, Call{"ann", at("10:59"), 61}, Call{"ann", at("10:00"), 60}, Call{"ann", at("11:00"), 0})
		w.calls.AddBad(1, "not JSON")
		w.calls.End()
		_, err := w.start(t, 1).Wait()
		require.NoError(t, err)
		require.ElementsMatch(t, []Line{
			{Caller: "ann", Hour: at("10:00"), Calls: 2, Cents: 6, Revision: 1},
			{Caller: "ann", Hour: at("11:00"), Calls: 1, Cents: 0, Revision: 1},
		}, w.lines.Rows())
		require.Equal(t, "not JSON", w.rejected.Rows()[0].Reason)
	})
}

// A killed job leaves the window half full. The next one finds it in the checkpoint, at another
// parallelism, and the line is what it would have been.
func TestKilledAndRestoredTheLineIsTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		job := w.start(t, 1)
		for minute := range 30 {
			w.calls.Add(minute%2, Call{"ann", at(fmt.Sprintf("10:%02d", minute)), 30})
			time.Sleep(100 * time.Millisecond) // of the bubble: a checkpoint a second
			if minute%7 == 6 {
				job.Kill()
				job = w.start(t, 1+minute%3)
			}
		}
		w.calls.AdvanceTo(at("11:05")) // event time itself: no out-of-orderness is taken off
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		rows, err := w.lines.Await(ctx, 1)
		require.NoError(t, err)
		want := []Line{{Caller: "ann", Hour: at("10:00"), Calls: 30, Cents: 60, Revision: 1}}
		require.Equal(t, want, rows)

		job.Kill()
		job = w.start(t, 2)
		w.calls.Add(0, Call{"ann", at("10:30"), 600}) // late, and still billed
		w.calls.AdvanceTo(at("23:00").Add(24 * time.Hour))
		time.Sleep(time.Second)                      // of the bubble: every subtask has heard of it
		w.calls.Add(1, Call{"ann", at("10:31"), 60}) // too late
		_, err = w.late.Await(ctx, 1)
		require.NoError(t, err)
		_, err = job.Stop()
		require.NoError(t, err)
		want = append(want, Line{Caller: "ann", Hour: at("10:00"), Calls: 31, Cents: 80, Revision: 2})
		require.Equal(t, want, w.lines.Rows())
		require.Equal(t, []Call{{"ann", at("10:31"), 60}}, w.late.Rows())
	})
}

func TestACallWithoutACallerIsRejected(t *testing.T) {
	for value, wrong := range map[string]bool{
		`{"Caller":"ann","Began":"2026-03-02T10:59:00Z","Seconds":61}`: false,
		`{"Began":"2026-03-02T10:59:00Z","Seconds":61}`:                true,
		`{"Caller":"ann","Seconds":61}`:                                true,
		`{"Caller":"ann","Began":"2026-03-02T10:59:00Z","Seconds":-1}`: true,
		`ann`: true,
	} {
		require.Equal(t, wrong, decode(&kafka.Record{Value: []byte(value)}, new(Call)) != nil, value)
	}
}
