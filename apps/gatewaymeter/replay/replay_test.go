package replay_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/weir/apps/gatewaymeter/gateway"
	"example.com/weir/apps/gatewaymeter/replay"
	"example.com/weir/apps/gatewaymeter/truebill"
)

func sampleTrace(t testing.TB) []replay.Row {
	t.Helper()
	file, err := os.Open("../sample/trace.csv")
	require.NoError(t, err)
	defer file.Close()
	rows, err := replay.ReadTrace(file)
	require.NoError(t, err)
	return rows
}

func sampleBook(t testing.TB) []byte {
	t.Helper()
	book, err := os.ReadFile("../sample/prices.json")
	require.NoError(t, err)
	return book
}

func sampleConfig(t testing.TB) replay.Config {
	t.Helper()
	models, err := replay.ModelsOf(sampleBook(t))
	require.NoError(t, err)
	return replay.Config{Seed: 7, Trace: sampleTrace(t), Models: models, Shares: replay.Usual()}
}

func generate(t testing.TB, cfg replay.Config) []replay.Record {
	t.Helper()
	g, err := replay.New(cfg)
	require.NoError(t, err)
	var records []replay.Record
	for r := range g.All() {
		records = append(records, r)
	}
	return records
}

// events decodes the records, all of which must be events.
func events(t testing.TB, records []replay.Record) []gateway.Event {
	t.Helper()
	all := make([]gateway.Event, len(records))
	for i, r := range records {
		require.NoError(t, gateway.Decode(r.Value, &all[i]), string(r.Value))
		require.Equal(t, all[i].RequestID, string(r.Key))
	}
	return all
}

// topic makes the records of a partition, as a consumer reads them.
func topic(records []replay.Record) []truebill.Record {
	offsets := map[int32]int64{}
	var all []truebill.Record
	for _, r := range records {
		all = append(all, truebill.Record{
			Partition: r.Partition, Offset: offsets[r.Partition], Timestamp: r.At, Key: r.Key, Value: r.Value,
		})
		offsets[r.Partition]++
	}
	return all
}

func TestTheSameConfigGivesTheSameRecords(t *testing.T) {
	cfg := sampleConfig(t)
	cfg.Requests = 1000
	first := generate(t, cfg)
	require.Equal(t, first, generate(t, cfg))
	require.Greater(t, len(first), 1900)
	cfg.Seed++
	require.NotEqual(t, first, generate(t, cfg))
}

func TestRecordsAreInOrderAndAllowed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := sampleConfig(t)
		cfg.Seed = rapid.Uint64().Draw(rt, "seed")
		cfg.Requests = 60
		cfg.Partitions = rapid.IntRange(0, 4).Draw(rt, "partitions")
		share := func(name string) float64 { return float64(rapid.IntRange(0, 30).Draw(rt, name)) / 100 }
		cfg.Shares = replay.Shares{
			Cancelled: share("cancelled"), Failed: share("failed"), NoUsage: share("no usage"), Cached: share("cached"),
			UnknownModel: share("unknown"), Fallback: share("fallback"), StartedAlone: share("started"),
			CompletedAlone: share("completed"), Unmatched: share("unmatched"), CompletedFirst: share("first"),
			Spread: share("spread"), Late: share("late"), LateCompleted: share("late completed"),
			TooLate: share("too late"), Repeated: share("repeated"), Conflicting: share("conflicting"),
		}
		records := generate(t, cfg)
		for i, e := range events(t, records) {
			require.False(t, e.EventTime().After(records[i].At), "an event is not ahead of its record")
			if i > 0 {
				require.False(t, records[i].At.Before(records[i-1].At))
			}
			require.Less(t, records[i].Partition, int32(max(cfg.Partitions, 0)))
		}
	})
}

func TestEachRowIsARequest(t *testing.T) {
	cfg := sampleConfig(t)
	cfg.Shares = replay.Shares{}
	all := events(t, generate(t, cfg))
	require.Len(t, all, 2*len(cfg.Trace))
	started, completed := map[string]gateway.Event{}, map[string]gateway.Event{}
	for _, e := range all {
		if e.Kind == gateway.Started {
			started[e.RequestID] = e
		} else {
			require.Contains(t, started, e.RequestID, "Started comes first")
			completed[e.RequestID] = e
		}
	}
	for i, row := range cfg.Trace {
		id := fmt.Sprintf("r7-%d", i)
		require.Equal(t, row.At.UnixMicro(), started[id].Time)
		require.Equal(t, row.ContextTokens, completed[id].Usage.InputTokens)
		require.Equal(t, row.GeneratedTokens, completed[id].Usage.OutputTokens)
		require.Greater(t, completed[id].Time, started[id].Time)
		require.Equal(t, gateway.OK, completed[id].Status)
	}
}

func TestAShortTraceIsRepeatedAndStretched(t *testing.T) {
	cfg := sampleConfig(t)
	cfg.Shares = replay.Shares{}
	cfg.Requests = 3 * len(cfg.Trace)
	cfg.Start = time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
	arrivals := func() []time.Time {
		var at []time.Time
		seen := map[string]bool{}
		for _, e := range events(t, generate(t, cfg)) {
			if e.Kind == gateway.Started {
				require.False(t, seen[e.RequestID])
				seen[e.RequestID] = true
				at = append(at, e.EventTime())
			}
		}
		require.Len(t, at, cfg.Requests)
		return at
	}
	own := arrivals()
	length := cfg.Trace[len(cfg.Trace)-1].At.Sub(cfg.Trace[0].At)
	require.WithinRange(t, own[0], cfg.Start, cfg.Start.Add(10*time.Second))
	require.Greater(t, own[len(own)-1].Sub(own[0]), 3*length-time.Minute)

	cfg.Rate = 100
	fast := arrivals()
	took := fast[len(fast)-1].Sub(fast[0])
	require.InDelta(t, float64(cfg.Requests)/100, took.Seconds(), 1)

	cfg.Requests, cfg.Duration = 0, 5*time.Second
	fastest := events(t, generate(t, cfg))
	require.InDelta(t, 500, len(fastest)/2, 60)
}

func TestTenantsAreSkewed(t *testing.T) {
	cfg := sampleConfig(t)
	cfg.Requests, cfg.Tenants, cfg.Shares = 5000, 5, replay.Shares{}
	count := map[string]int{}
	for _, e := range events(t, generate(t, cfg)) {
		count[e.TenantID]++
	}
	require.Len(t, count, 5)
	require.InDelta(t, 2, float64(count["tenant-001"])/float64(count["tenant-002"]), 0.3)
	require.InDelta(t, 5, float64(count["tenant-001"])/float64(count["tenant-005"]), 1)
}

func TestModelsAreDrawnByTheirWeights(t *testing.T) {
	cfg := sampleConfig(t)
	cfg.Requests, cfg.Shares = 4000, replay.Shares{}
	cfg.Models = []replay.Model{{Provider: "p", Model: "a"}, {Provider: "p", Model: "b", Weight: 3}, {Provider: "p", Model: "c"}}
	count := map[string]float64{}
	for _, e := range events(t, generate(t, cfg)) {
		count[e.Model]++
	}
	require.InDelta(t, 800, count["a"], 100)
	require.InDelta(t, 2400, count["b"], 150)
	require.InDelta(t, 800, count["c"], 100)
}

// TestEveryShareDoesWhatItSays turns one share on at a time and looks at the bill of the topic.
func TestEveryShareDoesWhatItSays(t *testing.T) {
	cfg := sampleConfig(t)
	cfg.Requests = 100
	book := sampleBook(t)
	bill := func(shares replay.Shares) *truebill.Bill {
		cfg.Shares = shares
		b, err := truebill.Simulate(truebill.Config{}, book, topic(generate(t, cfg)))
		require.NoError(t, err)
		return b
	}
	plain := bill(replay.Shares{})
	require.Equal(t, truebill.Counts{Events: 200}, plain.Counts)
	require.Equal(t, int64(100), plain.Total.Requests)
	for name, c := range map[string]struct {
		shares replay.Shares
		counts truebill.Counts
		billed int64
	}{
		"cancelled":       {replay.Shares{Cancelled: 1}, truebill.Counts{Events: 200}, 100},
		"failed":          {replay.Shares{Failed: 1}, truebill.Counts{Events: 200, Failed: 100}, 0},
		"no usage":        {replay.Shares{NoUsage: 1}, truebill.Counts{Events: 200, Unpriced: 100}, 0},
		"cached":          {replay.Shares{Cached: 1}, truebill.Counts{Events: 200}, 100},
		"unknown model":   {replay.Shares{UnknownModel: 1}, truebill.Counts{Events: 200, Unpriced: 100}, 0},
		"fallback":        {replay.Shares{Fallback: 1, UnknownModel: 1}, truebill.Counts{Events: 200}, 100},
		"started alone":   {replay.Shares{StartedAlone: 1}, truebill.Counts{Events: 100, Abandoned: 100}, 0},
		"completed alone": {replay.Shares{CompletedAlone: 1}, truebill.Counts{Events: 100}, 100},
		"unmatched":       {replay.Shares{Unmatched: 1}, truebill.Counts{Events: 100, Unmatched: 100}, 0},
		"completed first": {replay.Shares{CompletedFirst: 1}, truebill.Counts{Events: 200}, 100},
		"late":            {replay.Shares{Late: 1}, truebill.Counts{Events: 200}, 100},
		"repeated":        {replay.Shares{Repeated: 1}, truebill.Counts{Events: 400, Repeated: 200}, 100},
		"late, repeated":  {replay.Shares{Late: 1, Repeated: 1}, truebill.Counts{Events: 400, Repeated: 200}, 100},
		"conflicting":     {replay.Shares{Conflicting: 1}, truebill.Counts{Events: 300, Conflicts: 100}, 100},
	} {
		b := bill(c.shares)
		require.Equal(t, c.counts, b.Counts, name)
		require.Equal(t, c.billed, b.Total.Requests, name)
		require.Empty(t, b.DeadLetters, name)
	}
	require.Equal(t, plain.Total.InputTokens, bill(replay.Shares{Cached: 1}).Total.InputTokens)
	require.NotEqual(t, plain.Total.USD, bill(replay.Shares{Cached: 1}).Total.USD)
	require.Less(t, bill(replay.Shares{Cancelled: 1}).Total.OutputTokens, plain.Total.OutputTokens)

	// These need something beside them to be late for.
	cfg.Requests, cfg.Rate = 600, 0.06
	require.NotZero(t, bill(replay.Shares{TooLate: 0.1}).Counts.Late)
	straggling := bill(replay.Shares{LateCompleted: 0.1})
	require.NotZero(t, straggling.Counts.Abandoned)
	require.Equal(t, int64(600), straggling.Total.Requests)
}

func TestBadRecordsAreDeadLettersAndChangeNothing(t *testing.T) {
	cfg := sampleConfig(t)
	cfg.Shares = replay.Shares{Bad: 1}
	bill, err := truebill.Compute(truebill.Config{}, sampleBook(t), topic(generate(t, cfg)))
	require.NoError(t, err)
	require.Len(t, bill.DeadLetters, len(cfg.Trace))
	require.Equal(t, int64(len(cfg.Trace)), bill.Total.Requests)
	reasons := map[string]bool{}
	for _, d := range bill.DeadLetters {
		reasons[d.Reason] = true
	}
	require.GreaterOrEqual(t, len(reasons), 12)
}

func TestSpreadSendsHalvesToDifferentPartitions(t *testing.T) {
	cfg := sampleConfig(t)
	cfg.Partitions, cfg.Shares = 3, replay.Shares{Spread: 1}
	places := map[string]map[int32]bool{}
	for _, r := range generate(t, cfg) {
		if places[string(r.Key)] == nil {
			places[string(r.Key)] = map[int32]bool{}
		}
		places[string(r.Key)][r.Partition] = true
	}
	for _, p := range places {
		require.Len(t, p, 2)
	}
}

// TestTheBillDoesNotDependOnHowPartitionsAreMixed is R4: whatever order the partitions are read
// in, event time is the slowest one's, and the bill is the one that Compute says.
func TestTheBillDoesNotDependOnHowPartitionsAreMixed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := sampleConfig(t)
		cfg.Seed = rapid.Uint64().Draw(rt, "seed")
		cfg.Partitions = rapid.IntRange(1, 4).Draw(rt, "partitions")
		cfg.Requests, cfg.Rate = 60, 0.006 // nearly three hours
		cfg.Shares = replay.Usual()
		cfg.Shares.Late, cfg.Shares.Repeated, cfg.Shares.Conflicting, cfg.Shares.Spread = 0.2, 0.2, 0.1, 0.4
		cfg.Shares.CompletedAlone, cfg.Shares.Unmatched, cfg.Shares.CompletedFirst = 0.1, 0.1, 0.3
		records, book := topic(generate(t, cfg)), sampleBook(t)
		want, err := truebill.Compute(truebill.Config{}, book, records)
		require.NoError(rt, err)
		mixed := mix(records, cfg.Partitions, rapid.Uint64().Draw(rt, "mix"), rapid.SampledFrom([]int{2, 20, 500}).Draw(rt, "run"))
		got, err := truebill.Simulate(truebill.Config{}, book, mixed)
		require.NoError(rt, err)
		require.Equal(rt, want.Minutes, got.Minutes)

		// A late request may have been abandoned before it was billed; nothing else differs.
		got.Counts.Abandoned = want.Counts.Abandoned
		require.Equal(rt, want.Counts, got.Counts)
	})
}

// mix reads the partitions in runs of up to so many records, each in its own order.
func mix(records []truebill.Record, partitions int, seed uint64, run int) []truebill.Record {
	rng := rand.New(rand.NewPCG(seed, 1))
	queues := make([][]truebill.Record, partitions)
	for _, r := range records {
		queues[r.Partition] = append(queues[r.Partition], r)
	}
	var mixed []truebill.Record
	for len(mixed) < len(records) {
		p := rng.IntN(partitions)
		n := min(rng.IntN(run+1), len(queues[p]))
		mixed = append(mixed, queues[p][:n]...)
		queues[p] = queues[p][n:]
	}
	return mixed
}

func TestATraceIsReadStrictly(t *testing.T) {
	const header = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
	rows, err := replay.ReadTrace(strings.NewReader(header + "2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04,0,9007199254740992\n"))
	require.NoError(t, err)
	require.Equal(t, []replay.Row{
		{At: time.Date(2023, 11, 16, 18, 17, 3, 979_960_000, time.UTC), ContextTokens: 4808, GeneratedTokens: 10},
		{At: time.Date(2023, 11, 16, 18, 17, 4, 0, time.UTC), GeneratedTokens: 1 << 53},
	}, rows)
	for text, want := range map[string]string{
		"":                                     "trace: no header",
		header:                                 "trace: no rows",
		"a,b,c\n":                              `trace: line 1: header "a,b,c", want TIMESTAMP,ContextTokens,GeneratedTokens`,
		header + "2023-11-16 18:17:03,1\n":     "trace: record on line 2: wrong number of fields",
		header + "2023-11-16T18:17:03Z,1,1\n":  `trace: line 2: TIMESTAMP "2023-11-16T18:17:03Z" is not a time like 2023-11-16 18:17:03.9799600`,
		header + "2023-11-16 18:17:03,-1,1\n":  `trace: line 2: ContextTokens "-1": not an integer from 0 to 2^53`,
		header + "2023-11-16 18:17:03,1,1.5\n": `trace: line 2: GeneratedTokens "1.5": not an integer from 0 to 2^53`,
		header + "2023-11-16 18:17:03,1,9007199254740993\n":             `trace: line 2: GeneratedTokens "9007199254740993": not an integer from 0 to 2^53`,
		header + "2023-11-16 18:17:03,1,1\n2023-11-16 18:17:02.9,1,1\n": `trace: line 3: 2023-11-16 18:17:02.9 is before the line above`,
		header + "\"2023-11-16 18:17:03,5\",1,1\n":                      `trace: line 2: TIMESTAMP "2023-11-16 18:17:03,5" is not a time like 2023-11-16 18:17:03.9799600`,
	} {
		_, err := replay.ReadTrace(strings.NewReader(text))
		require.EqualError(t, err, want)
	}
}

func TestTheAzureTraceIsRead(t *testing.T) {
	const path = "../../../../shared/data/azure-llm-2023/code.csv"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Skip("the Azure LLM inference trace 2023 (code.csv) is not beside the repository: ", err)
	}
	rows, err := replay.ReadTrace(bytes.NewReader(text))
	require.NoError(t, err)
	require.Len(t, rows, 8819)
	cfg := sampleConfig(t)
	cfg.Trace = rows
	events(t, generate(t, cfg))
}

func TestModelsOfABookCanBeBilled(t *testing.T) {
	models, err := replay.ModelsOf(sampleBook(t))
	require.NoError(t, err)
	require.Contains(t, models, replay.Model{Provider: "openai", Model: "gpt-4o", CacheRead: true})
	require.Contains(t, models, replay.Model{Provider: "anthropic", Model: "claude-haiku-4-5", CacheRead: true, CacheWrite: true})
	for _, m := range models {
		require.NotEqual(t, "text-embedding-3-small", m.Model, "it has no price for output")
		require.NotEqual(t, "mistral-experimental", m.Model, "it has no price at all")
	}
	_, err = replay.ModelsOf([]byte(`[{"id":"p","models":[{"id":"m","prices":5}]}]`))
	require.ErrorContains(t, err, `models of the price book: provider "p": model "m": prices`)
}

func TestAConfigThatMakesNoSenseIsRefused(t *testing.T) {
	for want, change := range map[string]func(*replay.Config){
		"replay: the trace has no rows": func(c *replay.Config) { c.Trace = nil },
		"replay: no models":             func(c *replay.Config) { c.Models = nil },
		"replay: requests, duration, tenants, partitions and rate are not negative": func(c *replay.Config) { c.Rate = -1 },
		"replay: the shares Cancelled and Failed come to more than 1": func(c *replay.Config) {
			c.Shares = replay.Shares{Cancelled: 0.6, Failed: 0.6}
		},
		"replay: share -0.1 is not between 0 and 1":                  func(c *replay.Config) { c.Shares = replay.Shares{Bad: -0.1} },
		"replay: the longest lateness 1s is below the shortest 1m0s": func(c *replay.Config) { c.LateMax = time.Second },
		`replay: model "" of provider "p": want names, and a weight that is not negative`: func(c *replay.Config) {
			c.Models = []replay.Model{{Provider: "p"}}
		},
	} {
		cfg := sampleConfig(t)
		change(&cfg)
		_, err := replay.New(cfg)
		require.EqualError(t, err, want)
	}
}

func BenchmarkNext(b *testing.B) {
	cfg := sampleConfig(b)
	cfg.Requests = 1 << 40
	g, err := replay.New(cfg)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := g.Next(); !ok {
			b.Fatal("no record")
		}
	}
}
