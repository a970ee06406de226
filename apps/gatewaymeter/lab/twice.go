package lab

import (
	"context"
	"fmt"
	"strconv"

	"example.com/weir/apps/gatewaymeter/ledger"
	"example.com/weir/apps/gatewaymeter/truebill"
)

// runBilledTwice is lab 8.1. The sink writes as soon as a window fires. What it writes between a checkpoint and a kill
// is there, and the job that goes on from the checkpoint does not know it: the windows fire again.
func runBilledTwice(ctx context.Context, cfg *Config, t *timeline) (v *verdict, err error) {
	guarantee, err := cfg.guarantee(atLeastOnce)
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
		again, err := k.readTwice(a.events)
		if err == nil {
			v = judgeTwice(t, k, a, again)
		}
		return err
	})
	return v, err
}

// throughKill lets the job bill, kills it between two checkpoints, and lets it bill on to the end.
func (s *stage) throughKill(ctx context.Context) (*killed, error) {
	s.feed(ctx)
	if _, err := s.start(ctx); err != nil {
		return nil, err
	}
	k, err := s.killBetween(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.completes(ctx, 1); err != nil {
		return nil, err
	}
	return k, s.finish(ctx)
}

// twice is a minute that a ledger which appends has billed twice.
type twice struct {
	First, Second line
	True          truebill.Amounts
	Again         int64 // of its requests so many were read twice
}

// billedTwice finds the minutes that the ledger has in two lines.
func billedTwice(a *account, again map[truebill.Key]int64) []twice {
	var all []twice
	minutes := byMinute(a.lines)
	for _, d := range a.report.Doubled {
		if lines := minutes[d.Key]; len(lines) == 2 {
			all = append(all, twice{lines[0], lines[1], a.bill.Minutes[d.Key], again[d.Key]})
		}
	}
	return all
}

// judgeTwice prints what the ledger has twice and what the state had once, and says whether that was shown.
func judgeTwice(t *timeline, k *killed, a *account, again map[truebill.Key]int64) *verdict {
	all := billedTwice(a, again)
	v := &verdict{}
	v.want(len(all) > 0, "no minute was billed twice")
	v.want(len(all) == len(a.report.Doubled), "a minute was billed more than twice")
	most := twice{}
	for _, w := range all {
		v.want(w.First.USD == w.Second.USD && w.First.Revision == w.Second.Revision,
			"%s holds something else than %s", w.Second.At, w.First.At)
		v.want(k.between(w.First, w.Second), "no kill lies between %s and %s", w.First.At, w.Second.At)
		if w.Again > most.Again {
			most = w
		}
	}
	v.want(len(all) == 0 || most.Again > 0, "no request of those minutes was read twice, so state had nothing to count twice")
	v.want(stateIsRight(a.report), "state itself is wrong: %s", a.report)
	tooMuch := less(total(a.lines), a.report.TrueUSD)
	t.textf("\nTHE LEDGER, which appends a line for every record that it reads from tenant-cost\n%s", twiceTable(all))
	t.textf("%d lines, USD %s billed; USD %s is true; USD %s too much", len(a.lines), total(a.lines), a.report.TrueUSD, tooMuch)
	t.textf("\nSTATE: %s", stateText(k, a.report))
	if most.Again > 0 {
		t.follow(most.First)
		t.follow(most.Second)
	}
	v.is = fmt.Sprintf("the kill %s after checkpoint %d billed %s twice, USD %s too much in a ledger that appends; state "+
		"counted each request once", seconds(k.Since), k.Checkpoint, plural(len(all), "minute"), tooMuch)
	return v
}

func twiceTable(all []twice) string {
	var rows [][]string
	for _, w := range all {
		rows = append(rows, []string{
			w.First.Minute.Tenant, w.First.Minute.WindowEnd, w.True.USD, total([]line{w.First, w.Second}),
			w.First.At.String(), w.Second.At.String(), strconv.FormatInt(w.True.Requests, 10), strconv.FormatInt(w.Again, 10),
			strconv.FormatInt(w.Second.Requests, 10),
		})
	}
	return table([]string{
		"tenant", "minute until", "USD true", "USD billed", "first copy", "second copy", "requests", "read twice", "counted",
	}, rows)
}

// stateText says what was read twice, and what state made of it.
func stateText(k *killed, r *ledger.Report) string {
	text := fmt.Sprintf("the cut of checkpoint %d lies before event %d of gateway-events; the events from there to %d at the\n"+
		"least were read before the kill and again after it. What windows came to from state is the true bill in %d of %d minutes",
		k.Restored, k.From, k.To-1, r.Minutes-len(r.Different)-len(r.Missing), r.Minutes)
	if !stateIsRight(r) {
		return text + "."
	}
	return text + ",\nthe ones above among them: it counted each request once."
}

// stateIsRight reports whether the last record of each minute is what the true bill says: what state held.
func stateIsRight(r *ledger.Report) bool {
	return len(r.Missing)+len(r.Unexpected)+len(r.Different)+len(r.Backward)+len(r.Tenants) == 0
}

// follow puts a record's times into the timeline.
func (t *timeline) follow(l line) {
	what := l.name()
	t.found(l.Written, topic, "%s is written: %s", l.At, what)
	t.found(l.Read, consumer, "reads %s and bills %s", l.At, what)
}
