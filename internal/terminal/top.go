package terminal

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/weir/internal/status"
)

// Room is how much there is to draw in. 0: as much as it takes.
type Room struct{ Width, Height int }

// Top draws a job. Rates are what happened between before and now; with a nil before, or one of
// another process, there are none. Where there is little room, what matters least is left out: nothing is cut within a
// number, and checkpoints and transactions stay in sight.
func Top(now, before *status.Status, room Room) []string {
	if before != nil && (!before.Started.Equal(now.Started) || !now.At.After(before.At)) {
		before = nil
	}
	head, table := title(now), operators(now, before, room.Width)
	foot := append(Waiting(now), "", Checkpoints(now))
	foot = append(foot, Transactions(now)...)
	head = append(head, "")
	if room.Height > 0 && len(head)+len(table)+len(foot) > room.Height {
		head = head[:1]
		foot = []string{Checkpoints(now), Transactions(now)[0]}
		table = shorten(table, room.Height-len(head)-len(foot))
	}
	return slices.Concat(head, table, foot)
}

// shorten leaves out the last lines of a table, and says how many.
func shorten(table []string, height int) []string {
	if len(table) <= height {
		return table
	}
	height = max(height, 2)
	return append(slices.Clip(table[:height-1]), fmt.Sprintf("… and %d more", len(table)-height+1))
}

func title(s *status.Status) []string {
	first := fmt.Sprintf("%s   %s   generation %d   up %s   parallelism %d", s.Job, s.State, s.Generation,
		short(s.At.Sub(s.Started)), s.Parallelism)
	if s.Restarts > 0 {
		first += fmt.Sprintf("   %s", plural(s.Restarts, "restart"))
	}
	lines := []string{first + "   " + s.At.UTC().Format("15:04:05") + " UTC"}
	if !s.Ready() {
		lines = append(lines, fmt.Sprintf("not ready: CURRENT is %s, the restore is %s",
			word(s.OwnsCurrent, "its own", "not its own"), word(s.Settled, "settled", "not settled")))
	}
	if s.LastFailure != "" {
		failure, _, _ := strings.Cut(s.LastFailure, "\n")
		lines = append(lines, "last failure: "+failure)
	}
	return lines
}

// Waiting names what holds event time back in silence.
func Waiting(s *status.Status) []string {
	var lines []string
	for _, p := range s.Held() {
		lines = append(lines, fmt.Sprintf("event time waits for %s, which is read to its end and stands at %s (leave quiet splits out "+
			"with IdleAfter)", p.ID, p.Watermark.Format(time.RFC3339)))
	}
	return lines
}

func word(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

// row is an operator, its subtasks taken together.
type row struct {
	in, out, late, dead, behind, keys, timers int64
	busy, held                                time.Duration
	watermark                                 *time.Time // the earliest
	ended                                     bool
	subtasks                                  int
}

func sum(o *status.Operator) row {
	r := row{ended: len(o.Subtasks) > 0, subtasks: len(o.Subtasks)}
	for i := range o.Subtasks {
		t := &o.Subtasks[i]
		r.in, r.out, r.late, r.dead = r.in+t.RecordsIn, r.out+t.RecordsOut, r.late+t.Late, r.dead+t.DeadLetters
		r.keys, r.timers = r.keys+t.StateKeys, r.timers+t.Timers
		r.busy, r.held = r.busy+t.Busy, r.held+t.Backpressured
		r.ended = r.ended && t.EventTimeDone
		if t.Watermark != nil && (r.watermark == nil || t.Watermark.Before(*r.watermark)) {
			r.watermark = t.Watermark
		}
		for _, p := range t.Splits {
			r.behind += max(p.Behind, 0)
		}
	}
	return r
}

// The columns beside the operators' names.
const (
	inRate = iota + 1
	outRate
	inAll
	outAll
	busyShare
	heldShare
	behindBy
	unread
	keys
	timers
	late
	dead
)

func operators(now, before *status.Status, width int) []string {
	columns := []column{
		{head: "operator"},
		inRate: {head: "in/s", spare: 2}, outRate: {head: "out/s", spare: 8}, inAll: {head: "in", spare: 11},
		outAll: {head: "out", spare: 12}, busyShare: {head: "busy", spare: 4}, heldShare: {head: "held back", spare: 5},
		behindBy: {head: "behind by", spare: 1}, unread: {head: "unread", spare: 3}, keys: {head: "keys", spare: 9},
		timers: {head: "timers", spare: 10}, late: {head: "late", spare: 7}, dead: {head: "dead", spare: 6},
	}
	for i := range now.Operators {
		o := &now.Operators[i]
		is := sum(o)
		cells := [...]string{
			0: name(o), inRate: "-", outRate: "-", inAll: grouped(is.in), outAll: grouped(is.out),
			behindBy: lag(&is, now.At), unread: unlessZero(is.behind), keys: unlessZero(is.keys), timers: unlessZero(is.timers),
			late: unlessZero(is.late), dead: unlessZero(is.dead),
		}
		if before != nil && i < len(before.Operators) && before.Operators[i].UID == o.UID {
			was, passed := sum(&before.Operators[i]), now.At.Sub(before.At)
			cells[inRate], cells[outRate] = rate(is.in-was.in, passed), rate(is.out-was.out, passed)
			if o.UID == o.Chain && is.subtasks > 0 {
				cells[busyShare] = share(is.busy-was.busy, passed*time.Duration(is.subtasks))
				cells[heldShare] = share(is.held-was.held, passed*time.Duration(is.subtasks))
			}
		}
		for c := range columns {
			columns[c].cells = append(columns[c].cells, cells[c])
		}
	}
	if width > 0 && columns[0].width()+total(columns[1:]) > width {
		for i := range now.Operators {
			columns[0].cells[i] = indented(&now.Operators[i]) // what an operator is matters less than what it does
		}
	}
	return table(columns, width)
}

// name is an operator's, and what it is.
func name(o *status.Operator) string { return indented(o) + " (" + o.Kind + ")" }

// indented is the name of an operator, indented where it shares the goroutine of one above it.
func indented(o *status.Operator) string {
	if o.UID == o.Chain {
		return o.UID
	}
	return "› " + o.UID
}

func lag(r *row, at time.Time) string {
	switch {
	case r.ended:
		return "ended"
	case r.watermark == nil:
		return "unknown"
	}
	return short(at.Sub(*r.watermark))
}

// Checkpoints says in a line how the last checkpoint came to be, and why one did not.
func Checkpoints(s *status.Status) string {
	c := &s.Checkpoints
	if c.Last == 0 {
		return "checkpoints   none yet" + inProgress(c)
	}
	line := fmt.Sprintf("checkpoint %d   %s ago", c.Last, short(s.At.Sub(c.LastAt)))
	if c.Completed > 0 {
		line += fmt.Sprintf(", took %s; %s written, %s in all", short(c.LastDuration), size(c.LastSize), size(c.LastFullSize))
	}
	line += fmt.Sprintf("; %d completed, %d aborted", c.Completed, c.Aborted) + inProgress(c)
	if c.LastAborted != "" {
		line += "; the last aborted: " + c.LastAborted
	}
	return line
}

func inProgress(c *status.Checkpoints) string {
	if c.InProgress == 0 {
		return ""
	}
	return fmt.Sprintf("; %d is on its way", c.InProgress)
}

// shownTransactions is how many transactions have a line of their own.
const shownTransactions = 4

// Transactions names what sinks have open outside, as far as there is room.
func Transactions(s *status.Status) []string {
	lines := []string{fmt.Sprintf("transactions   %d open, %d committed", len(s.Transactions), s.Committed)}
	for i := range s.Transactions {
		if i == shownTransactions {
			return append(lines, fmt.Sprintf("  and %d more", len(s.Transactions)-i))
		}
		t := &s.Transactions[i]
		line := fmt.Sprintf("  %s   open for %s", t.ID, short(t.Age))
		if t.Timeout > 0 {
			line += " of " + short(t.Timeout)
		}
		if t.Kept > 0 {
			line += ", " + size(t.Kept) + " kept"
		}
		if t.Handle != "" {
			line += "   " + t.Handle
		}
		if t.Overdue() {
			line += "   PAST HALF OF ITS TIMEOUT"
		}
		lines = append(lines, line)
	}
	return lines
}

func rate(n int64, passed time.Duration) string {
	return grouped(int64(float64(n)/passed.Seconds() + 0.5))
}

func share(d, of time.Duration) string {
	return fmt.Sprintf("%.0f%%", min(100*float64(d)/float64(of), 100))
}

func unlessZero(n int64) string {
	if n == 0 {
		return "-"
	}
	return grouped(n)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// short is a duration with two or three digits that matter.
func short(d time.Duration) string {
	switch {
	case d >= 72*time.Hour:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func size(n int64) string {
	f, unit := float64(n), 0
	for f >= 1000 && unit < 4 {
		f, unit = f/1000, unit+1
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0") + " " + []string{"B", "kB", "MB", "GB", "TB"}[unit]
}

// grouped writes a number with commas between thousands.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for at := len(s) - 3; at > 0 && s[at-1] != '-'; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}
