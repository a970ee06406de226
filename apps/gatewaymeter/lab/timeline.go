package lab

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/weir/apps/gatewaymeter/rig"
)

// moment is something that happened, and who saw it.
type moment struct {
	At   time.Time
	Who  string
	What string
}

// Who sees what happens.
const (
	lab      = "lab"     // this process: what it did
	jobLog   = "job"     // a line of the job's log
	topic    = "topic"   // a record's own timestamp, by who wrote it
	consumer = "ledger"  // this process, as the consumer that bills
	broker   = "broker"  // what the cluster answered
	network  = "network" // between job and brokers
)

// timeline is what happened in a run. Each moment is printed as it is noted, and all of them in the order of their
// times at the end.
type timeline struct {
	out   io.Writer
	began time.Time

	mu  sync.Mutex
	all []moment
}

func newTimeline(out io.Writer, now time.Time) *timeline { return &timeline{out: out, began: now} }

// note adds a moment and prints it.
func (t *timeline) note(at time.Time, who, format string, args ...any) {
	m := moment{At: at, Who: who, What: fmt.Sprintf(format, args...)}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, m)
	fmt.Fprintf(t.out, "%7.2fs  %-8s %s\n", at.Sub(t.began).Seconds(), m.Who, m.What)
}

// found adds a moment that was found out afterwards.
func (t *timeline) found(at time.Time, who, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, moment{At: at, Who: who, What: fmt.Sprintf(format, args...)})
}

// textf prints what is no moment.
func (t *timeline) textf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.out, format+"\n", args...)
}

// text is the timeline in the order of times.
func (t *timeline) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := slices.Clone(t.all)
	slices.SortStableFunc(all, func(a, b moment) int { return a.At.Compare(b.At) })
	var b strings.Builder
	for _, m := range all {
		fmt.Fprintf(&b, "%s  %8.3fs  %-8s %s\n", m.At.Local().Format("15:04:05.000"), m.At.Sub(t.began).Seconds(), m.Who, m.What)
	}
	return b.String()
}

// told is what a line of the job's log says in a timeline, or nothing if it does not belong there.
func told(l rig.Line) string {
	switch l.Msg {
	case rig.GenerationStarted:
		return fmt.Sprintf("generation %d has started, from checkpoint %d", l.Generation, l.Checkpoint)
	case rig.BarrierPassed:
		return fmt.Sprintf("the barrier of checkpoint %d cuts behind %d events of this generation", l.Checkpoint, l.Events)
	case rig.CheckpointCompleted:
		return fmt.Sprintf("checkpoint %d is CURRENT", l.Checkpoint)
	case rig.TransactionCommitted:
		return "committed: " + l.Committable
	case "restored":
		if l.Checkpoint == 0 {
			return ""
		}
		return fmt.Sprintf("checkpoint %d is restored; %d committables of it are settled", l.Checkpoint, l.Settled)
	}
	if l.Level == "INFO" && l.Transaction == "" && l.Outcome == "" {
		return ""
	}
	text := l.Msg
	if l.Level != "INFO" {
		text = l.Level + ": " + text
	}
	for _, more := range []string{l.Outcome, l.Transaction, l.Lost, l.Again, l.Where, l.Because, l.Error} {
		if more != "" {
			text += ": " + more
		}
	}
	return text
}
