package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/weir/apps/gatewaymeter/rig"
)

// The policies for a transaction that was lost, as the job knows them.
const (
	skip   = "skip"
	fail   = "fail"
	reemit = "reemit"
)

// exitRefused is the job's exit code where going on could lose an effect.
const exitRefused = 4

// runLost is lab 8.4. The network breaks as the commit of a checkpoint goes out, the job is killed, and comes back
// after the brokers have aborted the transaction that the checkpoint names. What then, the policy says.
func runLost(ctx context.Context, cfg *Config, t *timeline) (*verdict, error) {
	if cfg.Guarantee != "" && cfg.Guarantee != rig.ExactlyOnce {
		return nil, fmt.Errorf("%w: lab 8.4 is about transactions: its sink is exactly-once", ErrInvalid)
	}
	v := &verdict{}
	var outcomes []outcome
	for _, policies := range [][]string{{skip}, {fail, reemit}} {
		t.textf("\n--- %s", strings.Join(policies, ", then "))
		s := &stage{timeline: t, cfg: cfg, pace: cfg.outagePace(), guarantee: rig.ExactlyOnce}
		err := on(ctx, s, true, func(ctx context.Context, s *stage) error {
			all, err := s.throughOutage(ctx, policies)
			outcomes = append(outcomes, all...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	judgeLost(t, v, outcomes)
	return v, nil
}

// outcome is what a policy made of a lost transaction.
type outcome struct {
	Policy   string
	Outage   *outage
	ExitCode int    // of a job that refused
	Said     string // the line of the job's log that names the transaction
	Account  *account
	Lost     []lostMinute // those in the transaction
}

// lostMinute is a minute that was written into the transaction that was lost.
type lostMinute struct {
	Aborted line
	Billed  []line // of the ledger; none: it is missing
}

// outage is the time from a commit that did not get through to the start after it.
type outage struct {
	Commit     heldCommit
	Checkpoint uint64 // that is CURRENT, and names the transaction
	Killed     time.Time
	Aborted    time.Time // when the brokers were seen to have aborted it
}

// throughOutage lets the job bill up to the outage, and starts it under each policy: one after which it goes on ends
// the course.
func (s *stage) throughOutage(ctx context.Context, policies []string) ([]outcome, error) {
	s.feed(ctx)
	if _, err := s.start(ctx, lostTransaction(policies[0])...); err != nil {
		return nil, err
	}
	out, err := s.outage(ctx)
	if err != nil {
		return nil, err
	}
	var all []outcome
	for _, policy := range policies {
		o := outcome{Policy: policy, Outage: out}
		if policy == fail {
			err = s.refuses(ctx, &o)
		} else {
			err = s.goesOn(ctx, &o)
		}
		if err != nil {
			return nil, fmt.Errorf("policy %s: %w", policy, err)
		}
		all = append(all, o)
	}
	return all, nil
}

func lostTransaction(policy string) []string { return []string{"--lost-transaction", policy} }

// outage breaks the network as a commit goes out, kills the job, and waits until the brokers have aborted the
// transaction.
func (s *stage) outage(ctx context.Context) (*outage, error) {
	if err := s.completes(ctx, 2); err != nil { // windows have fired
		return nil, err
	}
	s.wire.breakAtCommit()
	commit, err := s.held(ctx)
	if err != nil {
		return nil, err
	}
	o := &outage{Commit: commit}
	s.note(o.Commit.At, network, "the connection to the brokers breaks as EndTxn(commit) of %s goes out: they never see it",
		o.Commit.TransactionID)
	// The commit goes out as the job logs that its checkpoint is CURRENT: leave it the time to.
	if err := s.job.Sleep(ctx, 100*time.Millisecond); err != nil {
		return nil, err
	}
	if _, err := s.job.Wait(ctx, func(j *rig.Journal) bool { return j.Checkpoint > j.Settled }); err != nil {
		return nil, err
	}
	o.Killed = time.Now()
	if err := s.job.Kill(); err != nil {
		return nil, err
	}
	o.Checkpoint = s.job.Now().Checkpoint
	s.note(o.Killed, lab, "SIGKILL: checkpoint %d is CURRENT, and its commit has not got through", o.Checkpoint)
	s.wire.mend()
	return o, s.awaitTimeout(ctx, o)
}

// held waits for the commit that does not get through.
func (s *stage) held(ctx context.Context) (heldCommit, error) {
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	select {
	case h := <-s.wire.held:
		return h, nil
	case <-timeout.C:
		return heldCommit{}, fmt.Errorf("no commit goes out within %s", startTimeout)
	case <-ctx.Done():
		return heldCommit{}, context.Cause(ctx)
	}
}

// awaitTimeout watches the coordinator until it has aborted the transaction.
func (s *stage) awaitTimeout(ctx context.Context, o *outage) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.pace.TransactionTimeout+time.Minute,
		fmt.Errorf("transaction %s is not aborted a minute after its timeout of %s", o.Commit.TransactionID, s.pace.TransactionTimeout))
	defer cancel()
	for last := ""; ; {
		state, err := s.broker.TransactionState(ctx, o.Commit.TransactionID)
		if err != nil {
			return err
		}
		if state != last {
			s.note(time.Now(), broker, "transaction %s is %s, %s after the kill", o.Commit.TransactionID, state,
				seconds(time.Since(o.Killed)))
		}
		switch {
		case last == "" && state != "Ongoing":
			return errors.New("the transaction was not open when the job had been killed")
		case state != "Ongoing" && state != "PrepareAbort":
			o.Aborted = time.Now()
			return nil
		}
		last = state
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// refuses starts the job under a policy with which it ends by itself.
func (s *stage) refuses(ctx context.Context, o *outcome) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errors.New("the job has not refused"))
	defer cancel()
	from := s.marks()
	if err := s.launch(lostTransaction(o.Policy)...); err != nil {
		return err
	}
	code, _, err := s.job.Exit(ctx)
	if err != nil {
		return err
	}
	s.note(time.Now(), lab, "the job has ended with exit code %d", code)
	o.ExitCode, o.Said = code, s.named(from, o.Outage.Commit.TransactionID)
	return s.lookAt(ctx, o)
}

// goesOn starts the job under a policy with which it goes on, to the end of the requests.
func (s *stage) goesOn(ctx context.Context, o *outcome) error {
	from := s.marks()
	if _, err := s.start(ctx, lostTransaction(o.Policy)...); err != nil {
		return err
	}
	if err := s.completes(ctx, 1); err != nil {
		return err
	}
	if err := s.finish(ctx); err != nil {
		return err
	}
	o.Said = s.named(from, o.Outage.Commit.TransactionID)
	var err error
	if o.Account, err = s.account(ctx); err != nil {
		return err
	}
	return s.lookAt(ctx, o)
}

// marks is how many moments there are.
func (t *timeline) marks() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.all)
}

// named is what the job's log said first since then that names a transaction.
func (t *timeline) named(from int, id string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range t.all[from:] {
		if m.Who == jobLog && strings.Contains(m.What, id) {
			return m.What
		}
	}
	return ""
}

// lookAt finds the minutes that were written into the transaction, and what the ledger has of them.
func (s *stage) lookAt(ctx context.Context, o *outcome) error {
	log, err := s.readLog(ctx)
	if err != nil {
		return err
	}
	var billed []line
	s.book.Look(func() { billed = slices.Clone(s.book.lines) })
	minutes := byMinute(billed)
	for _, l := range log.lines {
		// By this producer, which takes the ID again once all is settled, before its commit went out.
		if l.fate == aborted && l.producer == o.Outage.Commit.ProducerID && l.Written.Before(o.Outage.Commit.At) {
			o.Lost = append(o.Lost, lostMinute{Aborted: l, Billed: minutes[l.Minute]})
		}
	}
	return nil
}

// judgeLost prints what each policy made of it, and says whether all was shown.
func judgeLost(t *timeline, v *verdict, outcomes []outcome) {
	var rows, minutes [][]string
	for i := range outcomes {
		o := &outcomes[i]
		rows = append(rows, o.row())
		for _, m := range o.Lost {
			at := "missing"
			if len(m.Billed) > 0 {
				at = m.Billed[0].At.String()
			}
			minutes = append(minutes, []string{o.Policy, m.Aborted.Minute.Tenant, m.Aborted.Minute.WindowEnd, m.Aborted.USD, m.Aborted.At.String(), at})
		}
		o.judge(v)
		o.follow(t)
	}
	t.textf("\nWHAT THE JOB DID with the transaction that was lost")
	t.textf("%s", table([]string{"policy", "job", "minutes in it", "missing in the ledger", "USD missing", "outage"}, rows))
	t.textf("\nTHE MINUTES IN IT")
	t.textf("%s", table([]string{"policy", "tenant", "minute until", "USD", "aborted copy", "read by the ledger"}, minutes))
	for _, o := range outcomes {
		t.textf("\n%s: %s", o.Policy, o.Said)
	}
	v.is = "skip went on without " + plural(len(outcomes[0].missing()), "minute") + " and said so; fail refused to go on; " +
		"reemit wrote them again, and nothing is missing"
}

// follow puts the first minute of the lost transaction into the timeline. What is written again keeps its timestamp.
func (o *outcome) follow(t *timeline) {
	if len(o.Lost) == 0 || o.Policy == fail {
		return
	}
	m := o.Lost[0]
	t.found(m.Aborted.Written, topic, "%s is written into a transaction: %s", m.Aborted.At, m.Aborted.name())
	if len(m.Billed) > 0 {
		t.found(m.Billed[0].Read, consumer, "reads %s and bills %s", m.Billed[0].At, m.Billed[0].name())
	}
}

func (o *outcome) row() []string {
	did := "goes on"
	if o.Policy == fail {
		did = "refuses, exit code " + strconv.Itoa(o.ExitCode)
	}
	missing, usd := "not billed yet", ""
	if o.Account != nil {
		missing, usd = strconv.Itoa(len(o.Account.report.Missing)), less(o.Account.report.TrueUSD, o.Account.report.ReadUSD)
	}
	return []string{
		o.Policy, did, strconv.Itoa(len(o.Lost)), missing, usd, seconds(o.Outage.Aborted.Sub(o.Outage.Commit.At)),
	}
}

// missing are the minutes of the transaction that the ledger does not have.
func (o *outcome) missing() []lostMinute {
	return slices.DeleteFunc(slices.Clone(o.Lost), func(m lostMinute) bool { return len(m.Billed) > 0 })
}

// judge holds an outcome against what its policy promises.
func (o *outcome) judge(v *verdict) {
	v.want(len(o.Lost) > 0, "%s: no minute was in the transaction", o.Policy)
	v.want(o.Said != "" || o.Policy == reemit, "%s: the job's log does not name the transaction", o.Policy)
	switch o.Policy {
	case skip:
		r := o.Account.report
		v.want(len(o.missing()) == len(o.Lost), "skip: the ledger has a minute of the lost transaction")
		v.want(len(r.Missing) == len(o.Lost) && len(r.Unexpected)+len(r.Different)+len(r.Doubled) == 0,
			"skip: more is wrong than what was in the transaction: %s", r)
	case fail:
		v.want(o.ExitCode == exitRefused, "fail: the job ended with exit code %d", o.ExitCode)
		v.want(len(o.missing()) == len(o.Lost), "fail: the ledger has a minute of the lost transaction")
	case reemit:
		v.want(o.Account.report.OK(), "reemit: the ledger is not the true bill: %s", o.Account.report)
		v.want(len(o.missing()) == 0, "reemit: a minute of the lost transaction is missing")
	}
}
