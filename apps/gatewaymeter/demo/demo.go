package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"example.com/weir/apps/gatewaymeter/feed"
	"example.com/weir/apps/gatewaymeter/rig"
	"example.com/weir/apps/gatewaymeter/truebill"
)

// demo is one demonstration.
type demo struct {
	cfg  Config
	plan []plannedKill
	out  *printer
	dir  string // temporary
	run  string // names the run's own things in a shared cluster

	input    *feed.Input
	broker   *rig.Broker
	producer *rig.Producer
	billing  *billing
	job      *rig.Job

	killed   []kill
	killedAt time.Time
	asked    context.Context // ends when the user asks for the end
}

// ErrWrong reports a demonstration whose bill is not the true one.
var ErrWrong = errors.New("the bill is not the true bill")

// Run runs a demonstration and prints what happens. It returns nil if the bill is right and everything
// went as planned; ending ctx ends it early, with the cause.
func Run(ctx context.Context, cfg Config, out io.Writer) (err error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return err
	}
	d := &demo{
		cfg: cfg, plan: schedule(cfg.Seed, cfg.Kills, cfg.Duration), out: newPrinter(out), asked: ctx,
		run: strconv.FormatInt(time.Now().UnixNano(), 36),
	}
	defer d.out.close()
	defer func() {
		err = errors.Join(err, d.close(err == nil))
		switch {
		case err == nil || errors.Is(err, ErrWrong): // it has been said
		case d.interrupted():
			d.out.linef("NO VERDICT: it was ended before there was one: %s", err)
		default:
			d.out.linef("VERDICT: failed: %s", err)
		}
	}()
	if err := d.open(ctx); err != nil {
		return err
	}
	end := d.live()
	err = d.perform(ctx)
	end()
	if err != nil {
		return err
	}
	return d.judge(ctx)
}

func (d *demo) interrupted() bool { return d.asked.Err() != nil }

// open prepares everything but the job's process.
func (d *demo) open(ctx context.Context) (err error) {
	if d.input, err = feed.Load(d.cfg.Trace, d.cfg.Prices); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if d.dir, err = os.MkdirTemp("", "weir-demo-"); err != nil {
		return err
	}
	prices := filepath.Join(d.dir, "prices.json")
	if err := os.WriteFile(prices, d.input.Prices, 0o600); err != nil {
		return err
	}
	if d.broker, err = rig.OpenBroker(d.cfg.Brokers, "weir-demo", d.run); err != nil {
		return err
	}
	if err := d.broker.CreateTopics(ctx, eventPartitions(&d.cfg), 2); err != nil {
		return err
	}
	if d.producer, err = d.broker.NewProducer(d.input, d.cfg.replay(), time.Now()); errors.Is(err, rig.ErrReplay) {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	} else if err != nil {
		return err
	}
	if d.billing, err = startBilling(d.broker); err != nil {
		return err
	}
	d.job = rig.NewJob(d.cfg.Binary, d.arguments(prices), func(l rig.Line, j *rig.Journal) {
		d.out.job(l, j, d.producer.Sent(), d.billing.records)
	})
	d.out.opening(d)
	return nil
}

// arguments are those of the job's command line.
func (d *demo) arguments(prices string) []string {
	return append(d.broker.JobArguments(d.broker.Addresses, d.cfg.Guarantee),
		"--prices", prices, "--checkpoints", "file://"+filepath.Join(d.dir, "checkpoints"),
		"--checkpoint-interval", d.cfg.Interval.String(), "--parallelism", strconv.Itoa(d.cfg.Parallelism))
}

// perform runs the job through the replay and its kills, until everything is billed.
func (d *demo) perform(ctx context.Context) error {
	if _, err := d.start(); err != nil {
		return err
	}
	feeding, stop := context.WithCancel(ctx)
	defer func() { stop(); <-d.producer.Done() }()
	go d.producer.Run(feeding)
	if err := d.kills(ctx, time.Now()); err != nil {
		return err
	}
	if _, err := d.job.Wait(ctx, func(*rig.Journal) bool { return isClosed(d.producer.Done()) }); err != nil {
		return err
	}
	if err := d.producer.Err(); err != nil {
		return err
	}
	watermark, err := d.producer.Finish(ctx)
	if err != nil {
		return err
	}
	d.out.linef("the replay has ended: %s events; event time goes on by one more in each partition",
		grouped(d.producer.Sent()))
	// It has then read all there is, and every window that the replay opened has fired.
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, fmt.Errorf("event time did not reach %s", watermark))
	defer cancel()
	if _, err := d.job.Wait(ctx, func(j *rig.Journal) bool { return !j.Watermark.Before(watermark) }); err != nil {
		return err
	}
	d.out.linef("event time has passed the last request's minute: the job is asked to stop")
	return d.job.Stop(ctx)
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// judge holds what the billing consumer read against the true bill.
func (d *demo) judge(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, errors.New("not within 2 minutes"))
	defer cancel()
	left, err := d.broker.Undecided(ctx, d.broker.Topics.TenantCost)
	if err != nil {
		return err
	}
	if left > 0 {
		return fmt.Errorf("the job has stopped, and %d offsets of tenant-cost are still held back by a transaction", left)
	}
	ends, err := d.broker.Ends(ctx, d.broker.Topics.TenantCost)
	if err != nil {
		return err
	}
	if err := d.billing.UpTo(ctx, ends); err != nil {
		return err
	}
	events, err := d.broker.ReadEvents(ctx)
	if err != nil {
		return err
	}
	if sent := d.producer.Sent(); sent != int64(len(events)) {
		return fmt.Errorf("gateway-events holds %d records, and %d were written", len(events), sent)
	}
	bill, err := truebill.Compute(truebill.Config{}, d.input.Prices, events)
	if err != nil {
		return err
	}
	report := d.billing.ledger.Compare(bill)
	journal := d.job.Now()
	d.out.report(bill, report, &journal, d.killed)
	if !report.OK() {
		return ErrWrong
	}
	return nil
}

// close ends what was opened. A cluster keeps the run's topics where not all was well.
func (d *demo) close(well bool) (err error) {
	if d.job != nil {
		d.job.End()
	}
	if d.billing != nil {
		d.billing.Close()
	}
	if d.producer != nil {
		d.producer.Close()
	}
	if d.broker != nil {
		if d.broker.Shared() {
			err = d.tidy(well)
		}
		d.broker.Close()
	}
	switch {
	case d.dir == "":
	case d.cfg.Keep:
		d.out.linef("kept: %s", d.dir)
	default:
		err = errors.Join(err, os.RemoveAll(d.dir))
	}
	return err
}

// tidy deletes the run's topics from a cluster if all was well.
func (d *demo) tidy(well bool) error {
	if !well {
		d.out.linef("kept on the cluster: topics %s", strings.Join(d.broker.AllTopics(), ", "))
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.asked), 10*time.Second)
	defer cancel()
	if err := d.broker.DeleteTopics(ctx); err != nil {
		return fmt.Errorf("delete the run's topics: %w", err)
	}
	return nil
}
