package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
	"example.com/weir/internal/engine"
	"example.com/weir/internal/protocol"
)

var errUnreachable = errors.New("brokers: connection refused")

// outage makes the job's outside unreachable, from one time up to another.
func (n *numbers) outage(from, until time.Time) {
	n.sink.flush = func() error {
		if now := time.Now(); !now.Before(from) && now.Before(until) {
			return errUnreachable
		}
		return nil
	}
	n.sink.restore = func(_ context.Context, rc connector.RestoreContext) error {
		if err := n.sink.flush(); err != nil {
			return err
		}
		n.sink.mu.Lock()
		defer n.sink.mu.Unlock()
		for _, c := range rc.Named {
			n.sink.settle(c)
		}
		return nil
	}
}

// A first start that does not get through ends, after as long as was said, with the reason. One that does in time
// goes on, and so does one that was told to try for ever.
func TestAFirstStartIsTriedForAsLongAsWasSaid(t *testing.T) {
	for name, c := range map[string]struct {
		timeout, outage time.Duration
		ends            time.Duration // 0: it goes on
	}{
		"an outage without end":                {0, 24 * time.Hour, time.Minute},
		"the same, and another time":           {10 * time.Second, 24 * time.Hour, 10 * time.Second},
		"an outage that is over in time":       {0, 59 * time.Second, 0},
		"for ever, over a long outage":         {-1, 3 * time.Hour, 0},
		"an outage that ends just at the time": {0, time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNumbers()
				n.cfg.Restart, n.cfg.StartTimeout = protocol.ExponentialDelay{}, c.timeout
				n.source.Add(0, 1, 2)
				began := time.Now()
				n.outage(began, began.Add(c.outage))
				err := n.runFor(t, min(c.outage, 4*time.Hour)+2*time.Minute)
				if c.ends == 0 {
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.Equal(t, []int{1, 2}, n.sink.rows())
					return
				}
				require.ErrorIs(t, err, engine.ErrNotBegun)
				require.ErrorIs(t, err, errUnreachable)
				require.ErrorContains(t, err, c.ends.String()+" (--start-timeout)")
				require.Equal(t, c.ends, time.Since(began))
			})
		})
	}
}

// A job that has a checkpoint waits for its outside as long as that takes: in the process that began, and in a new one.
func TestAJobThatHasBegunWaitsOutALongOutage(t *testing.T) {
	for name, anew := range map[string]bool{"the same process": false, "a process started into the outage": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNumbers()
				n.cfg.Restart = protocol.ExponentialDelay{}
				n.source.Add(0, 1)
				from := time.Now().Add(10 * time.Second)
				n.outage(from, from.Add(time.Hour))
				if anew {
					require.ErrorIs(t, n.runFor(t, 10*time.Second-time.Nanosecond), context.DeadlineExceeded)
					time.Sleep(time.Nanosecond)
				}
				n.source.Add(0, 2)
				require.ErrorIs(t, n.runFor(t, 62*time.Minute), context.DeadlineExceeded)
				require.Equal(t, []int{1, 2}, n.sink.rows())
				require.Greater(t, len(n.sink.restores), 10, "there was no outage")
			})
		})
	}
}
