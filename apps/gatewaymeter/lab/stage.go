package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/weir/apps/gatewaymeter/feed"
	"example.com/weir/apps/gatewaymeter/ledger"
	"example.com/weir/apps/gatewaymeter/rig"
	"example.com/weir/apps/gatewaymeter/truebill"
)

// tenants is how many there are. gateway-events and tenant-cost have one partition each, and the job one subtask
// of each operator: offsets tell the whole order.
const tenants = 3

// stage is what one course of the job needs: a broker with its topics, requests that come, the job and its log, and
// a consumer that bills.
type stage struct {
	*timeline
	cfg       *Config
	pace      pace
	guarantee string

	dir      string // temporary
	log      *os.File
	input    *feed.Input
	broker   *rig.Broker
	wire     *wire // nil: the job goes to the brokers by itself
	producer *rig.Producer
	endFeed  context.CancelFunc // nil: no requests have come
	job      *rig.Job
	book     *book
}

// book is the consumer that bills: it appends what it reads at read_committed while the job runs and is killed.
type book struct {
	*rig.Reader
	lines  []line
	ledger ledger.Ledger
}

// prepare opens all but the job's process. The job's way to the brokers leads over a wire if it is to break.
func (s *stage) prepare(ctx context.Context, breakable bool) (err error) {
	if s.input, err = feed.Load("", ""); err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp("", "weir-lab-"); err != nil {
		return err
	}
	if err = os.WriteFile(s.prices(), s.input.Prices, 0o600); err != nil {
		return err
	}
	if s.log, err = os.Create(filepath.Join(s.dir, "job.log")); err != nil {
		return err
	}
	s.broker, err = rig.OpenBroker(s.cfg.Brokers, "weir-lab", strconv.FormatInt(time.Now().UnixNano(), 36))
	if err != nil {
		return err
	}
	if err = s.broker.CreateTopics(ctx, 1, 1); err != nil {
		return err
	}
	addresses := s.broker.Addresses
	if breakable {
		if s.wire, addresses, err = openWire(addresses); err != nil {
			return err
		}
	}
	s.producer, err = s.broker.NewProducer(s.input, rig.Replay{
		Seed: s.cfg.Seed, Rate: s.pace.Rate, Duration: s.pace.Longest, Speedup: s.pace.speedup(), Tenants: tenants,
		Partitions: 1, LateMax: time.Minute,
	}, time.Now())
	if err != nil {
		return err
	}
	if err = s.openBook(); err != nil {
		return err
	}
	s.job = rig.NewJob(s.cfg.Binary, s.arguments(addresses), s.told)
	s.opening()
	return nil
}

func (s *stage) prices() string { return filepath.Join(s.dir, "prices.json") }

func (s *stage) opening() {
	s.textf("broker      %s", s.broker.Name)
	s.textf("topics      %s, %s", s.broker.Topics.Events, s.broker.Topics.TenantCost)
	s.textf("job         %s, a checkpoint every %s", s.guarantee, s.pace.Interval)
	s.textf("requests    %.0f a second from %d tenants; a minute of event time passes in %s", s.pace.Rate, tenants, s.pace.Minute)
	s.textf("")
}

// arguments are those of the job's command line.
func (s *stage) arguments(addresses []string) []string {
	args := append(s.broker.JobArguments(addresses, s.guarantee),
		"--prices", s.prices(), "--checkpoints", "file://"+filepath.Join(s.dir, "checkpoints"),
		"--checkpoint-interval", s.pace.Interval.String(), "--parallelism", "1", "--http", "off")
	if s.pace.TransactionTimeout > 0 {
		args = append(args, "--transaction-timeout", s.pace.TransactionTimeout.String())
	}
	return args
}

// told takes a line of the job's log.
func (s *stage) told(l rig.Line, _ *rig.Journal) {
	_, _ = s.log.WriteString(l.Text)
	if text := told(l); text != "" {
		s.note(l.Time, jobLog, "%s", text)
	}
}

func (s *stage) openBook() error {
	b := &book{}
	var err error
	b.Reader, err = s.broker.StartReader(s.broker.Topics.TenantCost, kgo.ReadCommitted(), func(r *kgo.Record) error {
		if r.Attrs.IsControl() {
			return nil
		}
		l, err := minuteLine(r, time.Now())
		if err != nil {
			return err
		}
		b.lines = append(b.lines, l)
		return b.ledger.Add(r.Key, r.Value)
	})
	if err != nil {
		return err
	}
	s.book = b
	return nil
}

// feed lets requests come.
func (s *stage) feed(ctx context.Context) {
	ctx, s.endFeed = context.WithCancel(ctx)
	s.note(time.Now(), lab, "requests begin to come")
	go s.producer.Run(ctx)
}

// startTimeout bounds how long the job takes to begin a generation.
const startTimeout = time.Minute

// start starts the job, with more flags if there are any, and waits until it has begun a generation.
func (s *stage) start(ctx context.Context, flags ...string) (rig.Journal, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("no generation within %s", startTimeout))
	defer cancel()
	before := s.job.Now()
	if err := s.launch(flags...); err != nil {
		return before, err
	}
	n, err := s.job.Wait(ctx, func(j *rig.Journal) bool { return j.Generations > before.Generations })
	if err != nil {
		return n, fmt.Errorf("start the job: %w", err)
	}
	return n, nil
}

// launch starts the job's process.
func (s *stage) launch(flags ...string) error {
	at := time.Now()
	if err := s.job.Start(flags...); err != nil {
		return err
	}
	s.note(at, lab, "%s", strings.Join(append([]string{"starts the job"}, flags...), " "))
	return nil
}

// completes waits until a generation has completed so many checkpoints more.
func (s *stage) completes(ctx context.Context, more uint64) error {
	from := uint64(0)
	first := true
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout+time.Duration(more)*s.pace.Interval,
		errors.New("the job completes no checkpoint"))
	defer cancel()
	_, err := s.job.Wait(ctx, func(j *rig.Journal) bool {
		if first {
			from, first = max(j.Checkpoint, j.Restored), false
		}
		return j.Checkpoint >= from+more
	})
	return err
}

// finish lets the requests end, event time pass the last of them, and the job stop; and the ledger read on to the end
// of tenant-cost.
func (s *stage) finish(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, errors.New("the job did not come to the end of the requests"))
	defer cancel()
	s.producer.Enough()
	if _, err := s.job.Wait(ctx, func(*rig.Journal) bool { return isClosed(s.producer.Done()) }); err != nil {
		return err
	}
	if err := s.producer.Err(); err != nil {
		return err
	}
	watermark, err := s.producer.Finish(ctx)
	if err != nil {
		return err
	}
	s.note(time.Now(), lab, "requests end, %d events in all; one more takes event time past the last minute", s.producer.Sent()-1)
	if _, err := s.job.Wait(ctx, func(j *rig.Journal) bool { return !j.Watermark.Before(watermark) }); err != nil {
		return err
	}
	if err := s.job.Stop(ctx); err != nil {
		return err
	}
	return s.readToTheEnd(ctx)
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

func (s *stage) readToTheEnd(ctx context.Context) error {
	held, err := s.broker.Undecided(ctx, s.broker.Topics.TenantCost)
	if err != nil {
		return err
	}
	if held > 0 {
		return fmt.Errorf("the job has stopped, and %d offsets of tenant-cost are still held back by a transaction", held)
	}
	ends, err := s.broker.Ends(ctx, s.broker.Topics.TenantCost)
	if err != nil {
		return err
	}
	return s.book.UpTo(ctx, ends)
}

// account is what the ledger holds, beside the true bill.
type account struct {
	events []truebill.Record
	bill   *truebill.Bill
	report *ledger.Report
	lines  []line // of the ledger
}

// account computes the true bill from gateway-events, and compares.
func (s *stage) account(ctx context.Context) (*account, error) {
	events, err := s.broker.ReadEvents(ctx)
	if err != nil {
		return nil, err
	}
	if sent := s.producer.Sent(); sent != int64(len(events)) {
		return nil, fmt.Errorf("gateway-events holds %d records, and %d were written", len(events), sent)
	}
	bill, err := truebill.Compute(truebill.Config{}, s.input.Prices, events)
	if err != nil {
		return nil, err
	}
	a := &account{events: events, bill: bill}
	s.book.Look(func() { a.report, a.lines = s.book.ledger.Compare(bill), s.book.lines })
	return a, nil
}

// readLog reads all that lies on tenant-cost, whatever became of it: as a consumer does that leaves
// isolation.level at its default.
func (s *stage) readLog(ctx context.Context) (*logbook, error) {
	b := &logbook{}
	err := s.broker.ReadAll(ctx, s.broker.Topics.TenantCost, kgo.ReadUncommitted(), func(r *kgo.Record) error {
		return b.add(r, time.Now())
	})
	return b, err
}

// close ends what was opened. A cluster keeps the topics where not all was well.
func (s *stage) close(well bool) (err error) {
	if s.job != nil {
		s.job.End()
	}
	if s.endFeed != nil {
		s.endFeed()
		<-s.producer.Done()
	}
	if s.producer != nil {
		s.producer.Close()
	}
	if s.book != nil {
		s.book.Close()
	}
	if s.wire != nil {
		s.wire.close()
	}
	if s.broker != nil {
		if s.broker.Shared() {
			err = s.tidy(well)
		}
		s.broker.Close()
	}
	if s.log != nil {
		err = errors.Join(err, s.log.Close())
	}
	switch {
	case s.dir == "":
	case s.cfg.Keep:
		s.textf("kept: %s", s.dir)
	default:
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}

// tidy deletes the topics from a cluster if all was well.
func (s *stage) tidy(well bool) error {
	if !well || s.cfg.Keep {
		s.textf("kept on the cluster: topics %s", strings.Join(s.broker.AllTopics(), ", "))
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.broker.DeleteTopics(ctx); err != nil {
		return fmt.Errorf("delete the topics of the lab: %w", err)
	}
	return nil
}
