package kafka

import (
	"context"
	"math/rand/v2"
	"time"
)

// wallClock is the txn.Clock of brokers.
type wallClock struct{}

// Now implements txn.Clock.
func (wallClock) Now() time.Time { return time.Now() }

// Sleep implements txn.Clock, with jitter: between half of d and one and a half.
func (wallClock) Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d/2 + rand.N(d))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// WithTimeout implements txn.Clock.
func (wallClock) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}
