package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/weir/connector"
)

// fetching is what runs behind a reader: a fetcher for each broker, and the router, which finds the
// leader of each partition that no fetcher has.
//
//	                 lost: an error
//	router  <──────────────────────────  fetcher of broker 1  ──┐
//	   │                                                        │ chunks
//	   └── partitions, checked ────────>  fetcher of broker 2 ──┴────────>  Read
//
// Each time that a partition gets to a fetcher, the router has looked whether its position can still
// be read from the log as it is then: a topic that was made again, a log that was deleted or truncated
// always shows as an error of a fetch first, or as a new leader epoch, which is one.
type fetching struct {
	cfg       *SourceConfig
	client    *kgo.Client
	logger    *slog.Logger
	splitter  splitter
	isolation kgo.IsolationLevel // for the answers that it leaves to the library

	out    chan []chunk // what was fetched, in order for each partition
	failed chan error   // the first error that ends the reader
	lost   mailbox      // partitions without a fetcher: from the fetchers, and new ones

	running sync.WaitGroup
	stop    context.CancelFunc
}

// mailbox hands partitions over. Putting them in never waits: who looks after partitions must not be held
// up by who reads slowly.
type mailbox chan []*part

func newMailbox() mailbox { return make(mailbox, 1) }

func (m mailbox) put(parts ...*part) {
	for len(parts) > 0 {
		select {
		case m <- parts:
			return
		case earlier := <-m:
			parts = append(earlier, parts...)
		}
	}
}

func (r *fetching) fail(err error) {
	select {
	case r.failed <- err:
	default: // an earlier one is enough
	}
}

func (r *fetching) deliver(ctx context.Context, chunks []chunk) bool {
	select {
	case r.out <- chunks:
		return true
	case <-ctx.Done():
		return false
	}
}

// topicCheck is how often the router looks whether the topic is still the same one.
const topicCheck = 10 * time.Second

// router places partitions with the fetchers of their leaders.
type router struct {
	*fetching
	lookup   lookup
	fetchers map[int32]*fetcher
	pending  []*part   // those without a fetcher
	known    Position  // one of the positions: of which topic they are
	missing  time.Time // since when the topic, or a partition of it, does not show; or zero
}

// run places the partitions that come back, until ctx ends.
func (r *router) run(ctx context.Context) {
	check := time.NewTicker(topicCheck)
	defer check.Stop()
	for {
		var again <-chan time.Time
		if len(r.pending) > 0 {
			again = time.After(r.delay())
		}
		select {
		case parts := <-r.lost:
			r.pending = append(r.pending, parts...)
			continue
		case <-again:
		case <-check.C:
		case <-ctx.Done():
			return
		}
		if err := r.tolerate(r.place(ctx)); err != nil && ctx.Err() == nil {
			r.fail(err)
			return
		}
	}
}

// delay is how long to wait before the pending partitions are placed: not at all after the first failure
// of one of them, which most often is a leader that has moved, and its successor is known.
func (r *router) delay() time.Duration {
	fewest := r.pending[0].failures
	for _, p := range r.pending {
		fewest = min(fewest, p.failures)
	}
	if fewest < 2 {
		return 0
	}
	return backoff(fewest)
}

// place checks the topic and the pending partitions and gives those that can be read to the fetchers of
// their leaders. Its error is about the topic as a whole, or stops the job.
func (r *router) place(ctx context.Context) error {
	v, err := r.lookup.view(ctx)
	if err == nil {
		err = judgeTopic(r.cfg.accepted(), r.cfg.Topic, r.known, sighting{topicID: v.id, partitions: int32(len(v.leaders))})
	}
	if err != nil {
		for _, p := range r.pending {
			r.failedAgain(p, err)
		}
		return err
	}
	r.known.TopicID = v.id // it was accepted in place of the one before, if it is another
	return r.settle(ctx, v)
}

// settle looks at each pending partition. It returns the errors that end the reader, or else whether a
// partition is missing.
func (r *router) settle(ctx context.Context, v topicView) error {
	sightings, errs := r.look(ctx, v)
	var stay []*part
	var fatal []error
	var missing error
	for _, p := range r.pending {
		err := errs[p.partition]
		if err == nil {
			err = r.resume(p, sightings[p.partition])
		}
		switch {
		case connector.IsStop(err):
			fatal = append(fatal, err)
		case hopeless(err):
			fatal = append(fatal, fmt.Errorf("split %s: %w", p.id, err))
		case err != nil:
			if errors.Is(err, errMissing) {
				missing = err
			}
			r.failedAgain(p, err)
			stay = append(stay, p)
		default:
			p.lead = v.leaders[p.partition]
			r.fetcher(ctx, p.lead.node).in.put(p)
		}
	}
	r.pending = stay
	if len(fatal) > 0 {
		return errors.Join(fatal...)
	}
	return missing
}

// resume sets the partition to where it is read on.
func (r *router) resume(p *part, seen sighting) error {
	accepted := r.cfg.accepted()
	if err := judgeTopic(accepted, r.cfg.Topic, p.pos, seen); err != nil {
		return err
	}
	at, err := judgePosition(accepted, p.id, p.pos, seen)
	if err != nil || at.accepted == "" {
		return err
	}
	r.logger.Warn("kafka source: going on as accepted: "+at.accepted, "split", p.id,
		"position", p.pos.String(), "going_on_at", at.pos.String())
	p.pos, p.reset = at.pos, &at.pos
	return nil
}

// hopeless reports whether the broker's error says that asking again changes nothing: no right to read,
// most often. An offset out of range is for judgePosition.
func hopeless(err error) bool {
	var code *kerr.Error
	return errors.As(err, &code) && !code.Retriable && !errors.Is(code, kerr.OffsetOutOfRange)
}

// askedAgain is how long the client asks again by itself, before the router learns of it, looks for another
// leader, and says so.
const askedAgain = 5 * time.Second

// failedAgain counts a failure, and says so in the log once it lasts longer than a leader needs to move, and
// then once a minute.
func (r *router) failedAgain(p *part, err error) {
	p.failures++
	now := time.Now()
	if p.tellAt.IsZero() {
		p.tellAt = now.Add(askedAgain)
	}
	if now.Before(p.tellAt) {
		return
	}
	p.tellAt, p.told = now.Add(time.Minute), true
	r.logger.Warn("kafka source: a partition cannot be read at the moment, and holds event time back",
		"split", p.id, "offset", p.pos.Next, "failures", p.failures, "error", r.cfg.explain(err), "fetch_error", p.lastErr)
}

// answered notes that a partition is read, and says so where the log was told that it was not.
func (r *fetching) answered(p *part) {
	if p.told {
		r.logger.Info("kafka source: the partition is read again", "split", p.id, "offset", p.pos.Next, "failures", p.failures)
	}
	p.failures, p.lastErr, p.tellAt, p.told = 0, nil, time.Time{}, false
}

// tolerate lets through what ends the reader. A topic may be missing for a while, for a broker may not
// have heard of it yet; and brokers may not answer for as long as it takes.
func (r *router) tolerate(err error) error {
	switch {
	case err == nil:
	case connector.IsStop(err), hopeless(err):
		return err
	case errors.Is(err, errMissing):
		if r.missing.IsZero() {
			r.missing = time.Now()
		}
		if time.Since(r.missing) >= r.cfg.TopicWait {
			return stopIfMissing(err, r.cfg.Topic)
		}
		return nil
	}
	r.missing = time.Time{}
	return nil
}

// look asks the leaders of the pending partitions about their logs.
func (r *router) look(ctx context.Context, v topicView) (map[int32]sighting, map[int32]error) {
	sightings, errs := map[int32]sighting{}, map[int32]error{}
	if len(r.pending) == 0 {
		return sightings, errs
	}
	earliest, latest := make(map[int32]int64, len(r.pending)), make(map[int32]int64, len(r.pending))
	epochs := map[int32]int32{}
	for _, p := range r.pending {
		earliest[p.partition], latest[p.partition] = timestampEarliest, timestampLatest
		if p.pos.LeaderEpoch >= 0 && p.pos.TopicID == v.id {
			epochs[p.partition] = p.pos.LeaderEpoch
		}
	}
	starts := r.lookup.offsets(ctx, v, earliest, ReadUncommitted)
	epochEnds := r.lookup.epochEnds(ctx, v, epochs)
	ends := r.lookup.offsets(ctx, v, latest, ReadUncommitted)
	for _, p := range r.pending {
		start, end := starts[p.partition], ends[p.partition]
		epochEnd, asked := epochEnds[p.partition]
		if !asked {
			epochEnd.offset = unknown
		}
		if err := errors.Join(start.err, end.err, epochEnd.err); err != nil {
			errs[p.partition] = err
			continue
		}
		sightings[p.partition] = sighting{
			topicID: v.id, partitions: int32(len(v.leaders)),
			logStart: start.offset, logEnd: end.offset, epochEnd: epochEnd.offset,
		}
	}
	return sightings, errs
}

func (r *router) fetcher(ctx context.Context, node int32) *fetcher {
	f, ok := r.fetchers[node]
	if !ok {
		f = &fetcher{r: r.fetching, node: node, in: newMailbox()}
		r.fetchers[node] = f
		r.running.Go(func() { f.run(ctx) })
	}
	return f
}

// open makes the first placement, so that a position that can no longer be read fails the reader's
// opening. Partitions without a leader stay pending: they do not stop the others.
func (r *router) open(ctx context.Context) error {
	err := retry(ctx, r.cfg.TopicWait, func() error { return r.place(ctx) })
	return stopIfMissing(err, r.cfg.Topic)
}
