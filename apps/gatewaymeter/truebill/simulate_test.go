package truebill_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir/apps/gatewaymeter/truebill"
)

// tick is an event that only moves the watermark: to five seconds less than so long after noon.
// It is a failed request alone that names no model, so it ends as unmatched.
func tick(after time.Duration) string {
	return doneWith("c", "clock", fmt.Sprint("tick ", after), after, `"status":"failed"`)
}

func TestALateRequestIsBilledWithinTheAllowedLateness(t *testing.T) {
	// The window of noon ends at 12:01 and is closed for good once the watermark is 13:01.
	const closed = time.Hour + time.Minute + 5*time.Second
	for at, want := range map[time.Duration]truebill.Counts{
		closed - time.Microsecond: {Events: 3, Unmatched: 1},
		closed:                    {Events: 3, Unmatched: 1, Late: 1},
	} {
		bill := simulate(t, tick(at), begun("s", "acme", "r", 0), done("c", "acme", "r", 0))
		require.Equal(t, want, bill.Counts)
		require.Equal(t, int64(1-want.Late), bill.Total.Requests)
		require.Equal(t, int64(1), compute(t, tick(at), begun("s", "acme", "r", 0), done("c", "acme", "r", 0)).Total.Requests)
	}
}

func TestNothingSentAgainIsBilledTwice(t *testing.T) {
	first := []string{begun("s", "acme", "r", 0), done("c", "acme", "r", 0, named)}
	for _, at := range []time.Duration{
		0, time.Minute, 30 * time.Minute, time.Hour + time.Minute + 4*time.Second,
		time.Hour + time.Minute + 5*time.Second, 3 * time.Hour,
	} {
		bill := simulate(t, append(append(first, tick(at)), first...)...)
		require.Equal(t, int64(1), bill.Total.Requests, at)
		if at <= time.Hour+time.Minute+4*time.Second {
			require.Equal(t, 2, bill.Counts.Repeated, at)
		} else {
			require.Equal(t, 1, bill.Counts.Late, at)
		}
	}
}

func TestAnAbandonedRequestIsBilledWhenItsCompletedStillComes(t *testing.T) {
	// The timeout comes at 12:10, and the request is forgotten at 13:10.
	const forgotten = 70*time.Minute + 5*time.Second
	complete := func(at time.Duration) string { return done("c", "acme", "r", at-5*time.Second) }
	for at, want := range map[time.Duration]truebill.Counts{
		10*time.Minute + 5*time.Second - 1000: {Unmatched: 1},
		10*time.Minute + 5*time.Second:        {Unmatched: 1, Abandoned: 1},
		forgotten - time.Microsecond:          {Unmatched: 1, Abandoned: 1},
		forgotten:                             {Unmatched: 2, Abandoned: 1},
	} {
		want.Events = 3
		bill := simulate(t, begun("s", "acme", "r", 0), tick(at), complete(at))
		require.Equal(t, want, bill.Counts, at)
		require.Equal(t, int64(2-want.Unmatched), bill.Total.Requests, at)
	}
}

func TestAnAbandonedRequestThatWasBilledIsRememberedAsLongAsAnyOther(t *testing.T) {
	// As one that was abandoned it would be forgotten at 13:10; billed at 13:00, it is at 14:01.
	completed := done("c", "acme", "r", time.Hour, named)
	started := begun("s", "acme", "r", 0)
	bill := simulate(t, started, tick(20*time.Minute), completed, tick(90*time.Minute), completed, started)
	require.Equal(t, truebill.Counts{Events: 6, Abandoned: 1, Repeated: 2, Unmatched: 2}, bill.Counts)
	require.Equal(t, int64(1), bill.Total.Requests)
}

func TestTheTimeoutCountsFromTheWatermarkOfALateEvent(t *testing.T) {
	// The Started is half an hour late: it may wait until 12:40, not only until 12:10.
	late := []string{tick(30*time.Minute + 5*time.Second), begun("s", "acme", "r", 0)}
	bill := simulate(t, append(late, tick(40*time.Minute), done("c", "acme", "r", 39*time.Minute))...)
	require.Zero(t, bill.Counts.Abandoned)
	bill = simulate(t, append(late, tick(40*time.Minute+5*time.Second), done("c", "acme", "r", 39*time.Minute))...)
	require.Equal(t, 1, bill.Counts.Abandoned)
}

func TestACompletedAloneIsBilledWhenTheTimeoutComes(t *testing.T) {
	// o3 costs 0.0028 from midnight on and 0.014 before, when Started says it began.
	midnight := -12 * time.Hour
	completed := done("c", "acme", "r", midnight+time.Minute, `"provider":"openai","model":"o3"`)
	started := begunOn("s", "acme", "r", midnight-time.Minute, "openai", "o3")
	for at, want := range map[time.Duration]string{
		midnight + 11*time.Minute:                 "0.014",
		midnight + 11*time.Minute + 5*time.Second: "0.0028",
	} {
		bill := simulate(t, completed, tick(at), started, started)
		require.Equal(t, want, bill.Total.USD, at)
		require.Equal(t, 1, bill.Counts.Repeated)
		require.Equal(t, want == "0.0028", bill.Counts.Overdue == 1)
		require.Zero(t, bill.Counts.Abandoned)
	}
	// The timer comes before the window, even where one record passes both by hours.
	bill := simulate(t, completed, tick(midnight+5*time.Hour))
	require.Equal(t, "0.0028", bill.Total.USD)
	require.Zero(t, bill.Counts.Late)
}

func TestAnAlertIsJudgedAtTheFirstFiring(t *testing.T) {
	var values []string
	request := func(i int, status string) {
		id := fmt.Sprint("r", i)
		values = append(values, begun("s", "acme", id, 0), doneWith("c", "acme", id, 0, status, `"usage":{}`))
	}
	for i := range 8 {
		request(i, `"status":"ok"`)
	}
	request(8, `"status":"failed"`)
	require.Empty(t, simulate(t, values...).ErrorRates, "9 requests are too few")
	request(9, `"status":"failed"`)
	want := map[truebill.Key]truebill.ErrorRate{minuteKey("acme", time.Minute): {Requests: 10, Failed: 2}}
	require.Equal(t, want, simulate(t, values...).ErrorRates)
	require.Equal(t, want, compute(t, values...).ErrorRates)

	values = append(values, tick(2*time.Minute))
	request(10, `"status":"failed"`)
	require.Equal(t, want, simulate(t, values...).ErrorRates, "a late record does not change it")
	require.NotEqual(t, want, compute(t, values...).ErrorRates)
}

func TestThePartitionThatIsBehindHoldsEventTime(t *testing.T) {
	records := topic(tick(0), tick(5*time.Hour), begun("s", "acme", "r", 0), done("c", "acme", "r", 0), tick(5*time.Hour+1000),
		begun("s", "acme", "r2", 0), done("c", "acme", "r2", 0))
	for i, partition := range []int32{0, 0, 1, 1, 1, 1, 1} {
		records[i].Partition = partition
	}
	bill, err := truebill.Simulate(truebill.Config{}, sampleBook(t), records)
	require.NoError(t, err)
	require.Equal(t, truebill.Counts{Events: 7, Unmatched: 3, Late: 1}, bill.Counts)
}

func TestSimulateTakesEachPartitionInItsOrder(t *testing.T) {
	records := topic(tick(0), tick(time.Second), tick(2*time.Second))
	records[1].Partition, records[1].Offset = 1, 0
	_, err := truebill.Simulate(truebill.Config{}, sampleBook(t), records)
	require.NoError(t, err)
	records[2].Offset = 0
	_, err = truebill.Simulate(truebill.Config{}, sampleBook(t), records)
	require.EqualError(t, err, "record 2: offset 0 of partition 0 comes after offset 0")
	_, err = truebill.Compute(truebill.Config{}, sampleBook(t), records)
	require.NoError(t, err)
}

func TestSettingsReplaceTheDefaults(t *testing.T) {
	cfg := truebill.Config{
		OutOfOrderness: -1, AllowedLateness: time.Minute, Deduplication: time.Minute, CompletionTimeout: 30 * time.Second,
		MaxAhead: -1, ErrorShare: 100, ErrorRequests: 1,
	}
	run := func(values ...string) *truebill.Bill {
		bill, err := truebill.Simulate(cfg, sampleBook(t), topic(values...))
		require.NoError(t, err)
		return bill
	}
	require.Equal(t, 1, run(tick(2*time.Minute), begun("s", "acme", "r", 0), done("c", "acme", "r", 0)).Counts.Late)
	bill := run(tick(2*time.Minute-1000), begun("s", "acme", "r", 0), doneWith("c", "acme", "r", 0, `"status":"failed"`))
	require.Zero(t, bill.Counts.Late)
	require.Len(t, bill.ErrorRates, 1)
	records := topic(tick(0))
	records[0].Timestamp = noon.Add(-time.Microsecond)
	ahead, err := truebill.Compute(cfg, sampleBook(t), records)
	require.NoError(t, err)
	require.Len(t, ahead.DeadLetters, 1)
}
