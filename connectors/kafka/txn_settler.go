package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/settle"
)

// markerGrace is how long the brokers may take from the end of a transaction at the coordinator to
// its markers in the log: half of the commit deadline at most. A marker that is not there then was
// lost.
const markerGrace = 10 * time.Second

// Pauses between two looks at a transaction.
const (
	firstPause = 2 * time.Millisecond
	longPause  = time.Second
)

// settler commits transactions and waits for the proof.
type settler struct {
	admin    *admin
	logger   *slog.Logger
	deadline time.Duration
	grace    time.Duration
}

// settle brings a transaction to its end: it looks, sends EndTxn where the coordinator waits for
// it, and looks again, until the log shows the commit in every partition (K4). answer is that of
// an EndTxn already sent, or NotAsked. It ends nothing: a transaction that is open at the deadline
// is left to the next generation.
func (s *settler) settle(
	ctx context.Context, id connector.CommittableID, h *settle.Handle, answer settle.Answer,
) error {
	ctx, cancel := context.WithTimeout(ctx, s.deadline)
	defer cancel()
	var patience patience
	var last settle.Verdict
	for try := 0; ; try++ {
		o := s.admin.observe(ctx, h, answer)
		if ctx.Err() == nil { // a look that was cut short says nothing
			o.Overdue = patience.over(o.Coordinator, time.Now(), s.grace)
			last = settle.Settle(h, answer, &o)
			switch last.Kind {
			case settle.Committed:
				return nil
			case settle.Aborted, settle.Unmarked, settle.Unknown:
				return connector.Stop(stopError(id, h, &o, last))
			case settle.Open:
				answer = s.admin.commit(ctx, h)
			case settle.Wait:
			}
			s.logger.Debug("transaction is not settled", "checkpoint", id.Checkpoint, "transaction", h.TransactionalID,
				"is", last.Kind.String(), "because", last.Reason, "EndTxn", answer.String())
		}
		if err := pause(ctx, try); err != nil {
			return fmt.Errorf("commit %s: transaction %s is not settled (%s: %s; EndTxn: %s); nothing was ended, and "+
				"the next generation goes on with it: %w", id, h.TransactionalID, last.Kind, last.Reason, answer, err)
		}
	}
}

// patience measures for how long the coordinator has been saying the same.
type patience struct {
	said  settle.Coordinator
	since time.Time
}

func (p *patience) over(said settle.Coordinator, now time.Time, grace time.Duration) bool {
	if p.since.IsZero() || said != p.said {
		p.said, p.since = said, now
	}
	return now.Sub(p.since) > grace
}

// pause waits longer at each try, with jitter, so that subtasks that wait for the same broker do
// not ask in step.
func pause(ctx context.Context, try int) error {
	d := longPause
	if try < 9 {
		d = firstPause << try
	}
	d = d/2 + rand.N(d)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stopError says what was lost, or what cannot be known, and what to do.
func stopError(id connector.CommittableID, h *settle.Handle, o *settle.Observation, v settle.Verdict) error {
	head := fmt.Sprintf("sink %s, subtask %d, checkpoint %d: %s", id.Sink, id.Subtask, id.Checkpoint, h.Describe())
	switch v.Kind {
	case settle.Aborted:
		return fmt.Errorf("%s: lost: %s. Somebody else ended the transaction (a timeout, or another producer with "+
			"its transactional ID) after its checkpoint was completed. No reader of committed records sees "+
			"these records, and they are not written again: that is the policy \"fail\"", head, v.Reason)
	case settle.Unmarked:
		return fmt.Errorf("%s: unmarked: %s. Readers of committed records wait in %s until a %s marker for "+
			"producer %d is written there (the request WriteTxnMarkers, by an administrator); no other one, and "+
			"nothing may use the transactional ID before. Then start the job again",
			head, v.Reason, undecided(h, o), v.Missing, h.ProducerID)
	case settle.Unknown, settle.Wait, settle.Open, settle.Committed:
	}
	return fmt.Errorf("%s: unknown: %s. Whether readers see these records has to be found out by reading the "+
		"topic; nothing was ended and nothing written again", head, v.Reason)
}

// undecided names the partitions that show no end.
func undecided(h *settle.Handle, o *settle.Observation) string {
	var names []string
	for i := range h.Parts {
		if s := &o.Parts[i]; s.Stable <= h.Parts[i].First && s.Marker == settle.NoMarker {
			names = append(names, fmt.Sprintf("%s/%d", h.Topic, h.Parts[i].Partition))
		}
	}
	return strings.Join(names, ", ")
}
