// Command calls bills phone calls: one line for each caller and hour, two cents a minute begun.
//
// It reads the topic calls, {"Caller":"ann","Began":"2026-03-02T10:59:00Z","Seconds":61}, and writes
// the topic lines. Nothing in it is about failure: killed at any moment and started again, it goes on,
// and whoever reads lines with isolation.level=read_committed sees each one once. weir.Main gives it a
// command line: calls --help.
package main

import (
	"os"
	"time"

	"example.com/weir"
	"example.com/weir/connector"
)

type Call struct {
	Caller  string
	Began   time.Time
	Seconds int64
}

// Line is a caller's hour. A call that comes late makes it again, with the next revision.
type Line struct {
	Caller       string
	Hour         time.Time
	Calls, Cents int64
	Revision     int
}

// bill is what Weir keeps for each caller and hour, and tariff what is done to it.
type bill struct{ Calls, Minutes int64 }

type tariff struct{ centsPerMinute int64 }

func (tariff) Add(b *bill, c *Call) error {
	b.Calls++
	b.Minutes += (c.Seconds + 59) / 60
	return nil
}

func (t tariff) Fire(w *weir.WindowContext[string], b *bill, out *weir.Out[Line]) error {
	out.Emit(Line{w.Key, w.Start, b.Calls, b.Minutes * t.centsPerMinute, w.Revision})
	return nil
}

// newJob builds the job over any source and sinks: a test gives it some that are in memory. A call
// that cannot be billed goes to late or to rejected; none disappears.
func newJob(cfg weir.Config, source connector.Source[Call], lines connector.Sink[Line],
	late connector.Sink[Call], rejected connector.Sink[weir.DeadLetter],
) *weir.Job {
	job := weir.NewJob("calls", cfg)
	calls, bad := weir.FromWithDeadLetters(job, "calls", source,
		weir.EventTime(func(c *Call) time.Time { return c.Began }, 5*time.Minute))
	tooLate := weir.NewSideOutput[Call]("too late")
	hours := weir.Window(weir.KeyBy(calls, func(c *Call) string { return c.Caller }),
		weir.Tumbling(time.Hour), weir.AllowedLateness(24*time.Hour), weir.LateTo(tooLate))
	bills := weir.Aggregate(hours, "bill", tariff{centsPerMinute: 2})
	weir.SinkTo(bills, "lines", lines)
	weir.SinkTo(weir.Side(bills, tooLate), "late", late)
	weir.SinkTo(bad, "rejected", rejected)
	return job
}

func main() {
	cfg := weir.Config{Checkpoint: weir.Checkpoint{Storage: "file:///var/lib/weir/calls"}}
	os.Exit(weir.Main(newJob(cfg, calls(),
		topic("lines", func(l *Line) string { return l.Caller }),
		topic("late", func(c *Call) string { return c.Caller }),
		topic("rejected", func(d *weir.DeadLetter) string { return d.Topic }))))
}
