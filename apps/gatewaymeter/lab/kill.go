package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/weir/apps/gatewaymeter/gateway"
	"example.com/weir/apps/gatewaymeter/rig"
	"example.com/weir/apps/gatewaymeter/truebill"
)

// killed is a kill between a checkpoint and the next barrier, and the start after it.
type killed struct {
	At         time.Time
	Checkpoint uint64 // the last one that had completed
	Since      time.Duration
	there      bool        // records had been written since, and no barrier had come behind them
	Earlier    []time.Time // kills that were not where they were to be: they are kills all the same

	Restored uint64
	// The events of gateway-events that were read before the kill and again after it lie from offset From up to To, at
	// the least.
	From, To int64
}

// errMissed reports a kill that never came in time.
var errMissed = errors.New("the job passed the next barrier before each kill")

// killBetween kills the job some time after a checkpoint, when minutes have been written since it and no barrier has
// come behind them; and starts it again.
func (s *stage) killBetween(ctx context.Context) (*killed, error) {
	if err := s.completes(ctx, 2); err != nil { // something has been billed
		return nil, err
	}
	var earlier []time.Time
	for try := 0; try < 5; try++ {
		k, before, err := s.kill(ctx)
		if err != nil {
			return nil, err
		}
		n, err := s.start(ctx)
		if err != nil {
			return nil, err
		}
		if k.there {
			k.Earlier = earlier
			k.Restored, k.From, k.To = n.Restored, n.Cut(n.Restored), before.Read
			if k.Restored != k.Checkpoint {
				return nil, fmt.Errorf("killed after checkpoint %d, and restored from checkpoint %d", k.Checkpoint, k.Restored)
			}
			return k, nil
		}
		earlier = append(earlier, k.At)
		s.note(time.Now(), lab, "the kill came behind the next barrier, or found nothing written: once more")
	}
	return nil, errMissed
}

// kill waits for the next checkpoint, then for the moment, and kills. before is how far the job had come.
func (s *stage) kill(ctx context.Context) (k *killed, before rig.Journal, err error) {
	if err := s.completes(ctx, 1); err != nil {
		return nil, before, err
	}
	n := s.job.Now()
	since, err := s.broker.Ends(ctx, s.broker.Topics.TenantCost)
	if err != nil {
		return nil, before, err
	}
	if err := s.job.Sleep(ctx, time.Until(n.CompletedAt.Add(s.pace.KillAfter))); err != nil {
		return nil, before, err
	}
	at := time.Now()
	if err := s.job.Kill(); err != nil {
		return nil, before, err
	}
	before = s.job.Now()
	k = &killed{At: at, Checkpoint: n.Checkpoint, Since: at.Sub(n.CompletedAt)}
	s.note(at, lab, "SIGKILL, %.2fs after checkpoint %d", k.Since.Seconds(), k.Checkpoint)
	ends, err := s.broker.Ends(ctx, s.broker.Topics.TenantCost)
	if err != nil {
		return nil, before, err
	}
	left, err := s.broker.Open(ctx)
	if err != nil {
		return nil, before, err
	}
	for _, t := range left {
		s.note(time.Now(), broker, "transaction %s is %s: the job has left it open", t.ID, t.State)
	}
	k.there = ends.Beyond(since) > 0 && before.Barrier == k.Checkpoint
	return k, before, nil
}

// between reports whether the job was killed after one line had been written, and before another was.
func (k *killed) between(first, second line) bool {
	return slices.ContainsFunc(append(k.Earlier, k.At), func(at time.Time) bool {
		return first.Written.Before(at) && second.Written.After(at)
	})
}

// readTwice counts the requests of each minute that were completed by an event that the job has read twice.
func (k *killed) readTwice(events []truebill.Record) (map[truebill.Key]int64, error) {
	n := map[truebill.Key]int64{}
	for _, r := range events {
		if r.Offset < k.From || r.Offset >= k.To {
			continue
		}
		var e gateway.Event
		if err := gateway.Decode(r.Value, &e); err != nil {
			return nil, fmt.Errorf("gateway-events@%d: %w", r.Offset, err)
		}
		if e.Kind == gateway.Completed {
			end := time.UnixMicro(e.Time).UTC().Truncate(time.Minute).Add(time.Minute)
			n[truebill.Key{Tenant: e.TenantID, WindowEnd: end.Format(time.RFC3339)}]++
		}
	}
	return n, nil
}
