package gatewaymeter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/weir"
	"example.com/weir/apps/gatewaymeter"
	"example.com/weir/apps/gatewaymeter/gateway"
	"example.com/weir/apps/gatewaymeter/ledger"
	"example.com/weir/apps/gatewaymeter/truebill"
	"example.com/weir/internal/kafkatest"
)

const pricesPath = "sample/prices.json"

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// history invents events of a few tenants and requests that do everything the rules speak of:
// repeats, conflicts, halves that come too late or never, stragglers, jumps of time, bad records.
func history(seed uint64, events int) []*kgo.Record {
	random := rand.New(rand.NewPCG(seed, 7))
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	now := noon
	var records []*kgo.Record
	for i := range events {
		switch random.IntN(30) {
		case 0:
			now = now.Add(time.Duration(random.IntN(70)) * time.Minute)
		case 1, 2, 3:
			now = now.Add(time.Duration(random.IntN(300)) * time.Second)
		default:
			now = now.Add(time.Duration(random.IntN(9000)) * time.Millisecond)
		}
		e := gateway.Event{
			EventID:   pick("e1", "e1", "e1", "e2"),
			TenantID:  pick("acme", "acme", "beta", "ga|ma \"x\""),
			RequestID: fmt.Sprint("r", (i/8)+random.IntN(4)),
			Kind:      gateway.Kind(1 + random.IntN(2)),
			Time:      now.Add(-time.Duration(random.ExpFloat64() * float64(20*time.Second))).UnixMicro(),
		}
		if (i/8)%3 == 0 { // IDs that are kept in other ways
			e.EventID = map[string]string{
				"e1": "0192f0c1-7b5e-7cc3-98c4-dc0c0c07398f", "e2": "0192f0c1-7b5e-7cc3-98c4-dc0c0c07398e",
			}[e.EventID]
			e.RequestID += "-0192f0c1-7b5e-7cc3-98c4-dc0c0c07398f"
		}
		if (i/8)%3 == 1 {
			e.EventID = strings.Repeat("long", 7) + e.EventID
			e.RequestID = strings.Repeat("long", 16) + e.RequestID
		}
		if random.IntN(40) == 0 {
			e.Time = now.Add(-time.Duration(random.IntN(200)) * time.Minute).UnixMicro()
		}
		if e.Kind == gateway.Started || random.IntN(2) == 0 {
			e.Provider = pick("openai", "OpenAI", "anthropic", "nobody")
			e.Model = pick("gpt-4o", "gpt-4o", "claude-sonnet-4", "gemini-2.5-pro", "unheard-of")
			if random.IntN(30) == 0 {
				e.Model = "gpt-4o-" + strings.Repeat("long", 200)
			}
		}
		if e.Kind == gateway.Completed {
			e.Status = gateway.Status(1 + random.IntN(3))
			if random.IntN(8) > 0 {
				e.Usage = gateway.Usage{
					InputTokens: random.Int64N(300_000), OutputTokens: random.Int64N(5000),
					CacheReadTokens: random.Int64N(3) * 500, Given: gateway.GivenUsage | gateway.GivenInput |
						gateway.GivenOutput | gateway.GivenCacheRead,
				}
			}
		}
		value := gateway.AppendEvent(nil, &e)
		switch random.IntN(60) {
		case 0:
			value = value[:len(value)-random.IntN(5)]
		case 1:
			value = []byte(`{"event_id":"x","type":"RequestStarted","event_time":"9999-01-01T00:00:00Z",` +
				`"tenant_id":"acme","request_id":"r1","provider":"openai","model":"gpt-4o"}`)
		}
		records = append(records, &kgo.Record{
			Key: []byte(e.RequestID), Value: value, Timestamp: now.Truncate(time.Millisecond),
		})
	}
	return records
}

// world is a topic of events, and the topics that a job writes.
type world struct {
	b       *kafkatest.Broker
	cfg     gatewaymeter.Config
	records []truebill.Record
	prices  []byte
}

func newWorld(t *testing.T, b *kafkatest.Broker, partitions int) *world {
	prices, err := os.ReadFile(pricesPath)
	require.NoError(t, err)
	w := &world{b: b, cfg: gatewaymeter.Default(), prices: prices}
	w.cfg.Brokers, w.cfg.Prices = b.Brokers, pricesPath
	// The events are dated months ago: a broker with the usual retention would delete them.
	w.cfg.Topics.Events = b.CreateTopic(t, partitions, "retention.ms=-1")
	w.cfg.UntilEnd = true
	w.cfg.CheckpointInterval = 200 * time.Millisecond
	w.outputs(t)
	return w
}

// outputs gives the job topics and checkpoints of its own, as for a job that never ran.
func (w *world) outputs(t *testing.T) {
	c := &w.cfg.Topics
	for _, topic := range []*string{
		&c.TenantCost, &c.Alerts, &c.DeadLetter, &c.Conflicts, &c.Abandoned, &c.Unmatched, &c.Unpriced, &c.Late,
	} {
		*topic = w.b.CreateTopic(t, 2)
	}
	w.cfg.Checkpoints = "file://" + t.TempDir()
}

// produce appends records to the partitions in turn, or to the partition that each names.
func (w *world) produce(t *testing.T, records []*kgo.Record, partition func(i int) int32) {
	next := map[int32]int64{}
	for _, r := range w.records {
		next[r.Partition] = r.Offset + 1
	}
	for i, r := range records {
		r.Topic, r.Partition = w.cfg.Topics.Events, partition(i)
		w.records = append(w.records, truebill.Record{
			Partition: r.Partition, Offset: next[r.Partition], Timestamp: r.Timestamp, Key: r.Key, Value: r.Value,
		})
		next[r.Partition]++
	}
	w.b.ProduceRecords(t, records...)
}

func (w *world) job(t *testing.T, parallelism int) *weir.Job {
	cfg := w.cfg
	cfg.Parallelism = parallelism
	j, err := gatewaymeter.New(cfg, slog.New(slog.DiscardHandler), weir.Observer{})
	require.NoError(t, err)
	return j
}

func (w *world) finish(t *testing.T, parallelism int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	outcome, err := w.job(t, parallelism).Run(ctx)
	require.NoError(t, err)
	require.Equal(t, weir.Finished, outcome)
}

func (w *world) requireBill(t *testing.T, bill *truebill.Bill) {
	t.Helper()
	var l ledger.Ledger
	for _, r := range w.b.ReadCommitted(t, w.cfg.Topics.TenantCost) {
		require.NoError(t, l.Add(r.Key, r.Value))
	}
	report := l.Compare(bill)
	require.True(t, report.OK(), "%s", report)
}

// The bill of one partition follows from the order of its records alone, to the last digit,
// whatever the parallelism: also what is late, conflicts, is abandoned or stays unmatched.
func TestBillOfOnePartitionIsWhatTheRulesSay(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		seeds := uint64(3)
		if b.Kind == kafkatest.Fake { // which is quicker
			seeds = 12
		}
		for seed := range seeds {
			w := newWorld(t, b, 1)
			w.produce(t, history(seed, 1500), func(int) int32 { return 0 })
			bill, err := truebill.Simulate(truebill.Config{}, w.prices, w.records)
			require.NoError(t, err)
			require.NotZero(t, bill.Counts.Late)
			require.NotZero(t, bill.Counts.Unmatched)
			for _, parallelism := range []int{1, 2, 4} {
				w.outputs(t)
				w.finish(t, parallelism)
				w.requireBill(t, bill)
				got := map[string]int{}
				for name, topic := range map[string]string{
					"dead letters": w.cfg.Topics.DeadLetter, "conflicts": w.cfg.Topics.Conflicts,
					"abandoned": w.cfg.Topics.Abandoned, "unmatched": w.cfg.Topics.Unmatched,
					"unpriced": w.cfg.Topics.Unpriced, "late": w.cfg.Topics.Late,
				} {
					got[name] = len(w.b.ReadCommitted(t, topic))
				}
				require.Equal(t, map[string]int{
					"dead letters": len(bill.DeadLetters), "conflicts": bill.Counts.Conflicts,
					"abandoned": bill.Counts.Abandoned, "unmatched": bill.Counts.Unmatched,
					"unpriced": bill.Counts.Unpriced, "late": bill.Counts.Late,
				}, got, "seed %d, parallelism %d", seed, parallelism)
			}
		}
	})
}

// completed is an event that has no Started.
func completed(request, tenant string, at time.Time, status gateway.Status, input int64) *kgo.Record {
	e := gateway.Event{
		EventID: "c", TenantID: tenant, RequestID: request, Kind: gateway.Completed, Time: at.UnixMicro(),
		Provider: "openai", Model: "gpt-4o", Status: status,
		Usage: gateway.Usage{InputTokens: input, OutputTokens: 10, Given: gateway.GivenUsage | gateway.GivenInput | gateway.GivenOutput},
	}
	return &kgo.Record{Key: []byte(request), Value: gateway.AppendEvent(nil, &e), Timestamp: at}
}

// started moves event time, and nothing else.
func started(request string, at time.Time) *kgo.Record {
	e := gateway.Event{
		EventID: "s", TenantID: "filler", RequestID: request, Kind: gateway.Started, Time: at.UnixMicro(),
		Provider: "openai", Model: "gpt-4o",
	}
	return &kgo.Record{Key: []byte(request), Value: gateway.AppendEvent(nil, &e), Timestamp: at}
}

// A request that is billed by a timer is judged by the watermark before the one that passed the timer,
// also in subtasks that see none of the records which moved it there.
func TestTimersAreJudgedAlikeInEverySubtask(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		w := newWorld(t, b, 1)
		hour := func(h, m, s int) time.Time { return time.Date(2026, 3, 2, h, m, s, 0, time.UTC) }
		records := []*kgo.Record{started("f0", hour(11, 0, 50))}
		for i := range 8 {
			records = append(records, completed(fmt.Sprint("alone", i), fmt.Sprint("ten", i), hour(10, 0, 52), gateway.OK, 1000))
		}
		records = append(records, started("f1", hour(11, 5, 0)), started("f2", hour(11, 12, 0)))
		w.produce(t, records, func(int) int32 { return 0 })
		for _, parallelism := range []int{1, 2, 3, 4} {
			w.outputs(t)
			w.finish(t, parallelism)
			require.Empty(t, b.ReadCommitted(t, w.cfg.Topics.TenantCost), "parallelism %d", parallelism)
			require.Len(t, b.ReadCommitted(t, w.cfg.Topics.Late), 8)
		}
	})
}

// Timers fire in the order of their times: a failed request that times out before another one of its
// minute emits nothing, so the minute has one revision.
func TestTimersFireInTheOrderOfTheirTimes(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		w := newWorld(t, b, 1)
		at := func(m, s int) time.Time { return time.Date(2026, 3, 2, 10, m, s, 0, time.UTC) }
		var records []*kgo.Record
		for i := range 12 {
			tenant := fmt.Sprint("ten", i)
			records = append(records, completed(fmt.Sprint("failed", i), tenant, at(0, 49), gateway.Failed, 1),
				completed(fmt.Sprint("ok", i), tenant, at(0, 56), gateway.OK, 1))
		}
		records = append(records, started("f", at(20, 0)))
		w.produce(t, records, func(int) int32 { return 0 })
		w.finish(t, 1)
		minutes := b.ReadCommitted(t, w.cfg.Topics.TenantCost)
		require.Len(t, minutes, 12)
		for _, m := range minutes {
			require.Contains(t, string(m.Value), `"revision":1}`)
		}
	})
}

// A request whose events all come again while its minute can still change is remembered, and billed once.
func TestARequestThatComesAgainBeforeItsMinuteIsClosedIsBilledOnce(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		w := newWorld(t, b, 1)
		at := func(m, s int) time.Time { return time.Date(2026, 3, 2, 10, m, s, 0, time.UTC) }
		request := func() []*kgo.Record {
			return []*kgo.Record{started("r", at(0, 10)), completed("r", "filler", at(0, 20), gateway.OK, 1000)}
		}
		records := append(request(), started("f1", at(30, 0)), started("f2", at(31, 0)))
		records = append(records, request()...)
		w.produce(t, append(records, started("f3", at(32, 0))), func(int) int32 { return 0 })
		bill, err := truebill.Simulate(truebill.Config{}, w.prices, w.records)
		require.NoError(t, err)
		w.finish(t, 1)
		w.requireBill(t, bill)
		minutes := b.ReadCommitted(t, w.cfg.Topics.TenantCost)
		require.Len(t, minutes, 1)
		require.Contains(t, string(minutes[0].Value), `"revision":1}`)
	})
}

var errKilled = errors.New("killed")

// Killed at any moments and started again, while the topic grows, the job bills what was in the
// topic when it first started; started once more when it has finished, it changes nothing.
func TestBillSurvivesKillsWhileTheTopicGrows(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		for _, parallelism := range []int{1, 2, 4} {
			random := rand.New(rand.NewPCG(uint64(parallelism), 3))
			w := newWorld(t, b, 1)
			w.cfg.CheckpointInterval = 30 * time.Millisecond
			w.produce(t, history(100+uint64(parallelism), 3000), func(int) int32 { return 0 })
			bill, err := truebill.Simulate(truebill.Config{}, w.prices, w.records)
			require.NoError(t, err)
			finished := false
			for range 8 {
				ctx, kill := context.WithTimeoutCause(t.Context(),
					time.Duration(20+random.IntN(180))*time.Millisecond, errKilled)
				_, err := w.job(t, parallelism).Run(ctx)
				kill()
				if finished = err == nil; finished {
					break
				}
				require.ErrorIs(t, err, errKilled)
				w.produce(t, history(random.Uint64(), 50), func(int) int32 { return 0 })
			}
			w.finish(t, parallelism)
			w.requireBill(t, bill)
			before := len(w.b.ReadCommitted(t, w.cfg.Topics.TenantCost))
			w.finish(t, parallelism)
			require.Len(t, w.b.ReadCommitted(t, w.cfg.Topics.TenantCost), before)
		}
	})
}
