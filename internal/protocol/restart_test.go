package protocol

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const noJitter = 0.5 // the middle of [0, 1)

func TestExponentialDelayGrowsToItsLimitAndStartsOver(t *testing.T) {
	e := ExponentialDelay{}.Strategy()
	now := time.Unix(0, 0)
	fail := func(after time.Duration) time.Duration {
		now = now.Add(after)
		d, ok := e.Next(now, noJitter)
		require.True(t, ok)
		return d
	}
	require.Equal(t, time.Second, fail(0))
	require.Equal(t, 1500*time.Millisecond, fail(time.Minute))
	require.Equal(t, 2250*time.Millisecond, fail(time.Minute))
	for range 20 {
		fail(time.Minute)
	}
	require.Equal(t, time.Minute, fail(time.Minute))
	require.Equal(t, time.Minute, fail(time.Hour+time.Minute-1), "it has not run for an hour")
	require.Equal(t, time.Second, fail(time.Hour+time.Minute))
	require.Equal(t, 1500*time.Millisecond, fail(time.Minute))
}

func TestExponentialDelayGivesUpWhereItIsTold(t *testing.T) {
	e := ExponentialDelay{MaxRestarts: 2}.Strategy()
	now := time.Unix(0, 0)
	for _, want := range []bool{true, true, false, false} {
		_, ok := e.Next(now, noJitter)
		require.Equal(t, want, ok)
		now = now.Add(time.Minute)
	}
	_, ok := e.Next(now.Add(3*time.Hour), noJitter)
	require.True(t, ok, "a generation that ran well for an hour starts the count over")
}

func TestExponentialDelayStaysWithinItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := ExponentialDelay{}.Strategy()
		now := time.Unix(0, 0)
		plain := float64(0)
		for range rapid.IntRange(1, 40).Draw(t, "failures") {
			r := rapid.Float64Range(0, 0.999).Draw(t, "r")
			d, ok := e.Next(now, r)
			require.True(t, ok)
			plain = min(max(plain*DefaultMultiplier, float64(DefaultInitialDelay)), float64(DefaultMaxDelay))
			require.LessOrEqual(t, d, DefaultMaxDelay)
			require.InDelta(t, plain, float64(d), DefaultJitter*plain+2)
			now = now.Add(d + time.Second)
		}
	})
}

func TestExponentialDelayConfig(t *testing.T) {
	e := ExponentialDelay{
		InitialDelay: time.Minute, MaxDelay: time.Second, Jitter: -1, Multiplier: 2,
	}.Strategy()
	d, ok := e.Next(time.Unix(0, 0), 0)
	require.True(t, ok)
	require.Equal(t, time.Second, d, "no delay is longer than the longest")

	e = ExponentialDelay{InitialDelay: 10 * time.Second}.Strategy()
	d, _ = e.Next(time.Unix(0, 0), 0)
	require.Equal(t, 9*time.Second, d, "the jitter takes a tenth away at most")
}

func TestFixedDelay(t *testing.T) {
	f := FixedDelay{Delay: 3 * time.Second, MaxRestarts: 2}.Strategy()
	for _, want := range []bool{true, true, false} {
		d, ok := f.Next(time.Unix(0, 0), 0.9)
		require.Equal(t, want, ok)
		if ok {
			require.Equal(t, 3*time.Second, d)
		}
	}
	f = FixedDelay{}.Strategy()
	for range 100 {
		d, ok := f.Next(time.Unix(0, 0), 0)
		require.True(t, ok)
		require.Equal(t, time.Second, d)
	}
}

func TestFailureRateGivesUpWhenFailuresComeTooOften(t *testing.T) {
	f := FailureRate{MaxFailures: 2, Interval: time.Minute, Delay: 5 * time.Second}.Strategy()
	for _, step := range []struct {
		second int64
		want   bool
	}{{0, true}, {30, true}, {61, true}, {91, true}, {121, false}} {
		d, ok := f.Next(time.Unix(step.second, 0), 0)
		require.Equal(t, step.want, ok, "at %d s", step.second)
		if ok {
			require.Equal(t, 5*time.Second, d)
		}
	}
	f = FailureRate{}.Strategy()
	_, ok := f.Next(time.Unix(0, 0), 0)
	require.True(t, ok)
	_, ok = f.Next(time.Unix(60, 0), 0)
	require.False(t, ok, "one failure a minute is the default")
}

func TestNoRestart(t *testing.T) {
	_, ok := NoRestart{}.Strategy().Next(time.Unix(0, 0), 0)
	require.False(t, ok)
}
