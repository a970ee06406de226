package lab

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"example.com/weir/apps/gatewaymeter/rig"
)

// runReadCommitted is lab 8.2. The sink writes into a transaction, which is committed once a checkpoint that names it
// is CURRENT. What it wrote before the kill is aborted; the windows fire again, and that is committed.
func runReadCommitted(ctx context.Context, cfg *Config, t *timeline) (v *verdict, err error) {
	guarantee, err := cfg.guarantee(rig.ExactlyOnce)
	if err != nil {
		return nil, err
	}
	s := &stage{timeline: t, cfg: cfg, pace: cfg.killPace(), guarantee: guarantee}
	err = on(ctx, s, false, func(ctx context.Context, s *stage) error {
		k, err := s.throughKill(ctx)
		if err != nil {
			return err
		}
		a, err := s.account(ctx)
		if err != nil {
			return err
		}
		log, err := s.readLog(ctx)
		if err == nil {
			v = judgeIsolation(t, k, a, log, s.pace.Interval)
		}
		return err
	})
	return v, err
}

// rewritten is a minute that lies on the topic more than once, and was committed once.
type rewritten struct {
	Aborted   line // the first copy
	Committed line // as the ledger has it
	Copies    int  // on the topic
	Billed    int  // lines of the ledger
}

// rewrittenMinutes finds the minutes with a copy that was aborted, in the order of the topic.
func rewrittenMinutes(log *logbook, ledger []line) []rewritten {
	var all []rewritten
	billed := byMinute(ledger)
	for _, copies := range byMinute(log.lines) {
		i := slices.IndexFunc(copies, func(l line) bool { return l.fate == aborted })
		if i < 0 {
			continue
		}
		r := rewritten{Aborted: copies[i], Copies: len(copies), Billed: len(billed[copies[i].Minute])}
		if r.Billed > 0 {
			r.Committed = billed[copies[i].Minute][0]
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b rewritten) int { return int(a.Aborted.At.Offset - b.Aborted.At.Offset) })
	return all
}

// judgeIsolation prints what is on the topic for each of two consumers, and says whether that was shown.
func judgeIsolation(t *timeline, k *killed, a *account, log *logbook, interval time.Duration) *verdict {
	all := rewrittenMinutes(log, a.lines)
	v := &verdict{}
	v.want(a.report.OK(), "the ledger is not the true bill: %s", a.report)
	v.want(len(all) > 0, "no minute has an aborted copy on the topic")
	var rows [][]string
	for _, r := range all {
		rows = append(rows, []string{
			r.Aborted.Minute.Tenant, r.Aborted.Minute.WindowEnd, r.Aborted.USD, r.Aborted.At.String(), r.Committed.At.String(),
			strconv.Itoa(r.Billed), strconv.Itoa(r.Copies), seconds(r.delay()),
		})
		v.want(r.Billed == 1, "the ledger has %d lines for %v", r.Billed, r.Aborted.Minute)
		v.want(r.Aborted.USD == r.Committed.USD, "%s and %s differ", r.Aborted.At, r.Committed.At)
		v.want(k.between(r.Aborted, r.Committed), "no kill lies between %s and %s", r.Aborted.At, r.Committed.At)
	}
	t.textf("\nTHE MINUTES THAT HAD BEEN WRITTEN WHEN THE JOB WAS KILLED")
	t.textf("%s", table([]string{
		"tenant", "minute until", "USD", "aborted copy", "committed copy", "read_committed", "read_uncommitted", "delay",
	}, rows))
	t.textf("\nDELAY, from the firing of a window to the line in the ledger; a checkpoint comes every %s", interval)
	t.textf("%s", table([]string{"minutes", "", "shortest", "median", "longest"}, delays(k, a, all)))
	t.textf("\nTWO CONSUMERS of the same topic")
	t.textf("%s", consumers(a, log))
	for _, r := range all[:min(len(all), 1)] {
		t.found(r.Aborted.Written, topic, "%s is written into a transaction: %s", r.Aborted.At, r.Aborted.name())
		t.follow(r.Committed)
	}
	v.is = fmt.Sprintf("the kill %s after checkpoint %d left %s in a transaction that was aborted; at read_committed each "+
		"has one record; at read_uncommitted they were billed again, USD %s too much", seconds(k.Since), k.Checkpoint,
		plural(len(all), "minute"), less(total(log.lines), a.report.TrueUSD))
	return v
}

func (r *rewritten) delay() time.Duration { return r.Committed.Read.Sub(r.Aborted.Written) }

func (l *line) name() string {
	return l.Minute.Tenant + ", minute until " + l.Minute.WindowEnd + ", USD " + l.USD
}

// delays are how long minutes took to become readable: those that were before the kill, and those it hit.
func delays(k *killed, a *account, hit []rewritten) [][]string {
	var before, through []time.Duration
	for _, l := range a.lines {
		if l.Read.Before(k.At) {
			before = append(before, l.Read.Sub(l.Written))
		}
	}
	for i := range hit {
		through = append(through, hit[i].delay())
	}
	return [][]string{spread("before the kill", before), spread("hit by the kill", through)}
}

func spread(name string, d []time.Duration) []string {
	if len(d) == 0 {
		return []string{name, "0", "", "", ""}
	}
	slices.Sort(d)
	return []string{name, strconv.Itoa(len(d)), seconds(d[0]), seconds(d[len(d)/2]), seconds(d[len(d)-1])}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2fs", d.Seconds()) }

// consumers is what the ledger reads, beside what a consumer reads that takes whatever lies on the topic.
func consumers(a *account, log *logbook) string {
	fates := map[fate]int{}
	for _, l := range log.lines {
		fates[l.fate]++
	}
	row := func(level string, lines []line) []string {
		return []string{level, strconv.Itoa(len(lines)), total(lines), less(total(lines), a.report.TrueUSD)}
	}
	text := table([]string{"isolation.level", "records", "USD billed", "USD too much"}, [][]string{
		row("read_committed", a.lines), row("read_uncommitted", log.lines),
	})
	for _, f := range slices.Sorted(maps.Keys(fates)) {
		text += fmt.Sprintf("\n%d records are %s, by the markers behind them", fates[f], f)
	}
	return text
}
