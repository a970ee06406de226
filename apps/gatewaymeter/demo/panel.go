package demo

import (
	"fmt"
	"strings"
	"time"
)

// panel is what the live display shows at one moment.
type panel struct {
	Since      time.Duration // since the beginning
	Start, End time.Time     // of the requests, in event time
	Sent       int64         // events that the broker has
	Read       int64         // events that the job has read, as far as it has told
	Watermark  time.Time

	Kills, Planned int
	Down           bool // killed, and not back yet
	Generation     uint64
	Checkpoint     uint64
	Age            time.Duration // of the checkpoint
	Committed      int           // transactions

	Minutes int // minutes of event time that somebody was billed for
	Records int // that the billing consumer has read
}

// due is how many minutes of event time have passed and are to be billed.
func (p *panel) due() int {
	until := p.Watermark
	if until.After(p.End) {
		until = p.End
	}
	return max(int(until.Sub(p.Start)/time.Minute), 0)
}

// lines draws the panel.
func (p *panel) lines() []string {
	done := 0.0
	if !p.Watermark.IsZero() {
		done = min(max(float64(p.Watermark.Sub(p.Start))/float64(p.End.Sub(p.Start)), 0), 1)
	}
	state := fmt.Sprintf("generation %d", p.Generation)
	if p.Down {
		state = "KILLED, and started again"
	} else if p.Generation == 0 {
		state = "starting"
	}
	checkpoint := "none yet"
	if p.Checkpoint > 0 {
		checkpoint = fmt.Sprintf("%d, %.1fs old; %d transactions committed", p.Checkpoint, p.Age.Seconds(), p.Committed)
	}
	return []string{
		"",
		fmt.Sprintf("%6.1fs  %s %3.0f%%  event time %s", p.Since.Seconds(), bar(done, 30), 100*done, clock(p.Watermark)),
		fmt.Sprintf("events      %s written, %s read", grouped(p.Sent), grouped(p.Read)),
		fmt.Sprintf("job         %s; %d of %d kills", state, p.Kills, p.Planned),
		fmt.Sprintf("checkpoint  %s", checkpoint),
		fmt.Sprintf("billed      %d of %d minutes that are due; %s records", min(p.Minutes, p.due()), p.due(), grouped(int64(p.Records))),
	}
}

// bar draws a share of 1.
func bar(share float64, width int) string {
	full := int(share * float64(width))
	return "[" + strings.Repeat("█", full) + strings.Repeat("░", width-full) + "]"
}

// drawEvery is how often the live display is painted.
const drawEvery = 100 * time.Millisecond

// live paints the panel until the function that it returns is called, which takes it away. Where the
// output is no terminal there is none.
func (d *demo) live() (end func()) {
	if !d.out.screen.Live() {
		return func() {}
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(drawEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				d.out.paint(d.panel(time.Now()))
			case <-stop:
				d.out.clear()
				return
			}
		}
	}()
	return func() { close(stop); <-done }
}

// panel gathers what is shown; how often the job was killed is the printer's to say.
func (d *demo) panel(now time.Time) *panel {
	j := d.job.Now()
	minutes, records := d.billing.minutes()
	p := &panel{
		Start: d.producer.Start, End: d.producer.End, Sent: d.producer.Sent(), Read: j.Read, Watermark: j.Watermark,
		Planned: len(d.plan), Generation: j.Generation, Checkpoint: max(j.Checkpoint, j.Restored), Committed: j.Committed,
		Minutes: minutes, Records: records,
	}
	if !j.CompletedAt.IsZero() {
		p.Age = max(now.Sub(j.CompletedAt), 0)
	}
	return p
}
