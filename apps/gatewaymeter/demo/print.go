package demo

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.com/weir/apps/gatewaymeter/rig"
	"example.com/weir/internal/terminal"
)

// printer prints what happens, line by line, each with the time since the beginning. On a terminal there
// is a panel below, and what the panel tells has no line.
type printer struct {
	mu     sync.Mutex
	screen *terminal.Screen
	began  time.Time
	kills  int
	down   bool // killed, and not back yet
}

func newPrinter(to io.Writer) *printer { return &printer{screen: terminal.Open(to), began: time.Now()} }

func (p *printer) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.screen.Close()
}

func (p *printer) paint(panel *panel) {
	p.mu.Lock()
	defer p.mu.Unlock()
	panel.Since, panel.Kills, panel.Down = time.Since(p.began), p.kills, p.down
	p.screen.Paint(panel.lines())
}

func (p *printer) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.screen.Paint(nil)
}

func (p *printer) linef(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.screen.Print(fmt.Sprintf("%6.1fs  %s", time.Since(p.began).Seconds(), fmt.Sprintf(format, args...)))
}

// noteKill notes whether the job is down.
func (p *printer) noteKill(kills int, down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kills, p.down = max(p.kills, kills), down
}

// textf prints without the time.
func (p *printer) textf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.screen.Print(fmt.Sprintf(format, args...))
}

func (p *printer) opening(d *demo) {
	c := &d.cfg
	p.textf("broker      %s", d.broker.Name)
	p.textf("trace       %s (%d requests)", d.input.TraceName, len(d.input.Trace))
	p.textf("price book  %s (%d models)", d.input.PricesName, len(d.input.Models))
	p.textf("replay      seed %d, %.0f requests/s for %s; event time %.0f times as fast; %d partitions",
		c.Seed, c.Rate, c.Duration, c.Speedup, eventPartitions(c))
	p.textf("job         %s, parallelism %d, a checkpoint every %s", c.Guarantee, c.Parallelism, c.Interval)
	for i, k := range d.plan {
		p.textf("kill %d      from %.1fs on: %s", i+1, k.After.Seconds(), k)
	}
	p.textf("")
}

// job prints a line of the job's log, if it matters. records is asked only then.
func (p *printer) job(l rig.Line, j *rig.Journal, sent int64, records func() int) {
	switch {
	case l.Msg == rig.GenerationStarted && j.Generations == 1:
		p.linef("the job has started: generation %d", l.Generation)
	case l.Msg == rig.CheckpointCompleted && !p.screen.Live():
		p.linef("checkpoint %-4d %s of %s events read, event time %s, %d transactions committed, %s records billed",
			l.Checkpoint, grouped(j.Read), grouped(sent), clock(j.Watermark), j.Committed, grouped(int64(records())))
	case l.Level == "WARN" || l.Level == "ERROR":
		p.linef("the job says: %s: %s %s", l.Level, l.Msg, l.Error)
	}
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "unknown"
	}
	return t.UTC().Format("15:04:05")
}

func (p *printer) killed(i, of int, k *kill) {
	p.noteKill(i+1, true)
	p.linef("KILL %d of %d (%s): %.2fs after checkpoint %d; %s",
		i+1, of, k.Planned, k.Since.Seconds(), k.Checkpoint, k.left())
}

// shownID is how much of a transactional ID is shown: the end, which has subtask and slot.
const shownID = 8

// left says what a kill left at the broker.
func (k *kill) left() string {
	var b strings.Builder
	switch len(k.Open) {
	case 0:
		b.WriteString("no transaction open")
	case 1:
		b.WriteString("1 transaction open")
	default:
		fmt.Fprintf(&b, "%d transactions open", len(k.Open))
	}
	for i, t := range k.Open {
		b.WriteString([]string{" (", ", "}[min(i, 1)] + t.ID[max(len(t.ID)-shownID, 0):] + " " + t.State)
	}
	if len(k.Open) > 0 {
		b.WriteString(")")
	}
	if k.Undecided > 0 {
		fmt.Fprintf(&b, ", %d records uncommitted on tenant-cost", k.Undecided)
	}
	if k.Fired > 0 && k.Undecided == 0 {
		fmt.Fprintf(&b, ", %d records on tenant-cost that no checkpoint covers", k.Fired)
	}
	return b.String()
}

func (p *printer) restarted(k *kill) {
	p.noteKill(0, false)
	p.linef("back after %.2fs: generation %d, from checkpoint %d; at least %s events are read again",
		k.Down.Seconds(), k.Generation, k.Restored, grouped(max(k.Again, 0)))
}

// grouped writes a number with commas between thousands.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for at := len(s) - 3; at > 0 && s[at-1] != '-'; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}
