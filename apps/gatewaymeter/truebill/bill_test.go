package truebill_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir/apps/gatewaymeter/truebill"
)

// noon is the time that the tests' events are told from.
var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

func sampleBook(t *testing.T) []byte {
	t.Helper()
	book, err := os.ReadFile("../sample/prices.json")
	require.NoError(t, err)
	return book
}

// topic makes records of one partition from values; each record's timestamp is the end of time,
// so that no event is ahead of it.
func topic(values ...string) []truebill.Record {
	var records []truebill.Record
	for i, v := range values {
		records = append(records, truebill.Record{
			Offset: int64(i), Timestamp: noon.AddDate(1, 0, 0), Value: []byte(v),
		})
	}
	return records
}

// begun is a Started event so long after noon.
func begun(id, tenant, request string, after time.Duration) string {
	return begunOn(id, tenant, request, after, "openai", "gpt-4o")
}

func begunOn(id, tenant, request string, after time.Duration, provider, model string) string {
	return fmt.Sprintf(`{"event_id":%q,"type":"RequestStarted","event_time":%q,"tenant_id":%q,"request_id":%q,"provider":%q,"model":%q}`,
		id, noon.Add(after).Format(time.RFC3339Nano), tenant, request, provider, model)
}

// done is a Completed event so long after noon, of 1,000 input tokens and 100 output tokens: at
// gpt-4o's price 0.0035 dollars.
func done(id, tenant, request string, after time.Duration, more ...string) string {
	return doneWith(id, tenant, request, after,
		append([]string{`"status":"ok"`, `"usage":{"input_tokens":1000,"output_tokens":100}`}, more...)...)
}

func doneWith(id, tenant, request string, after time.Duration, fields ...string) string {
	return fmt.Sprintf(`{"event_id":%q,"type":"RequestCompleted","event_time":%q,"tenant_id":%q,"request_id":%q,%s}`,
		id, noon.Add(after).Format(time.RFC3339Nano), tenant, request, strings.Join(fields, ","))
}

const named = `"provider":"openai","model":"gpt-4o"`

func compute(t *testing.T, values ...string) *truebill.Bill {
	t.Helper()
	bill, err := truebill.Compute(truebill.Config{}, sampleBook(t), topic(values...))
	require.NoError(t, err)
	require.Empty(t, bill.DeadLetters)
	return bill
}

func simulate(t *testing.T, values ...string) *truebill.Bill {
	t.Helper()
	bill, err := truebill.Simulate(truebill.Config{}, sampleBook(t), topic(values...))
	require.NoError(t, err)
	require.Empty(t, bill.DeadLetters)
	return bill
}

func minuteKey(tenant string, after time.Duration) truebill.Key {
	return truebill.Key{Tenant: tenant, WindowEnd: noon.Add(after).Format(time.RFC3339)}
}

func TestTheContractsExampleCostsWhatTheContractSays(t *testing.T) {
	records := topic(
		`{"event_id":"e-17","type":"RequestStarted","event_time":"2026-03-02T10:00:59.250Z","tenant_id":"acme",`+
			`"request_id":"r-9","provider":"openai","model":"gpt-4o"}`,
		`{"event_id":"e-18","type":"RequestCompleted","event_time":"2026-03-02T10:01:02.75Z","tenant_id":"acme",`+
			`"request_id":"r-9","status":"ok","usage":{"input_tokens":4808,"output_tokens":10,"cache_read_tokens":1024}}`,
	)
	want := truebill.Amounts{USD: "0.01084", Requests: 1, InputTokens: 4808, OutputTokens: 10}
	for name, bill := range bothWays(t, records) {
		require.Equal(t, map[truebill.Key]truebill.Amounts{{Tenant: "acme", WindowEnd: "2026-03-02T10:02:00Z"}: want},
			bill.Minutes, name)
		require.Equal(t, map[string]truebill.Amounts{"acme": want}, bill.Tenants, name)
		require.Equal(t, want, bill.Total, name)
		require.Equal(t, truebill.Counts{Events: 2}, bill.Counts, name)
	}
}

func bothWays(t *testing.T, records []truebill.Record) map[string]*truebill.Bill {
	t.Helper()
	computed, err := truebill.Compute(truebill.Config{}, sampleBook(t), records)
	require.NoError(t, err)
	simulated, err := truebill.Simulate(truebill.Config{}, sampleBook(t), records)
	require.NoError(t, err)
	return map[string]*truebill.Bill{"Compute": computed, "Simulate": simulated}
}

func TestTheFirstOfEachHalfCounts(t *testing.T) {
	bill := compute(
		t,
		begun("s", "acme", "r", 0),
		begun("s", "acme", "r", 0), // repeated
		begunOn("s2", "acme", "r", 0, "openai", "o3"),             // conflict
		begunOn("s2", "acme", "r", 0, "openai", "o3"),             // the conflict, repeated
		doneWith("c", "acme", "r", 0, `"status":"failed"`),        // counts, though it failed
		done("c2", "acme", "r", 0),                                // conflict
		begun("s", "other", "r", 0),                               // another tenant's request
		done("c", "other", "r", 0),                                //
		done("s", "acme", "r-2", 0), begun("s", "acme", "r-2", 0), // one id for both types
	)
	require.Equal(t, truebill.Counts{Events: 10, Repeated: 2, Conflicts: 2, Failed: 1}, bill.Counts)
	require.Equal(t, "0.0035", bill.Tenants["acme"].USD)
	require.Equal(t, "0.0035", bill.Tenants["other"].USD)
	require.Equal(t, truebill.Amounts{USD: "0.007", Requests: 2, InputTokens: 2000, OutputTokens: 200}, bill.Total)
}

func TestTheMinuteIsCompletedsAndThePriceStarteds(t *testing.T) {
	// o3 becomes cheaper on 2026-03-02: 10 and 40 dollars before, 2 and 8 from then on.
	midnight := -12 * time.Hour
	bill := compute(t,
		begunOn("s", "acme", "r", midnight-time.Microsecond, "openai", "o3"), done("c", "acme", "r", midnight),
		begunOn("s", "acme", "r2", midnight, "openai", "o3"), done("c", "acme", "r2", midnight-time.Microsecond),
		done("c", "acme", "r3", midnight+59999999*time.Microsecond), begunOn("s", "acme", "r3", midnight, "openai", "o3"),
	)
	require.Equal(t, map[truebill.Key]truebill.Amounts{
		minuteKey("acme", midnight):             {USD: "0.0028", Requests: 1, InputTokens: 1000, OutputTokens: 100},
		minuteKey("acme", midnight+time.Minute): {USD: "0.0168", Requests: 2, InputTokens: 2000, OutputTokens: 200},
	}, bill.Minutes)
}

func TestEachNameInCompletedWins(t *testing.T) {
	for fields, want := range map[string]string{
		`"provider":"perplexity","model":"sonar"`: "0.0131", // 1,100 tokens at 1, and 12 for a thousand requests
		`"model":"gpt-4o-mini"`:                   "0.00021",
		`"provider":"azure"`:                      "0.0035", // falls back to openai's model
		`"provider":null,"model":""`:              "0.0035",
	} {
		bill := compute(t, begun("s", "acme", "r", 0), done("c", "acme", "r", 0, fields))
		require.Equal(t, want, bill.Total.USD, fields)
	}
}

func TestWhatStandsAloneIsBilledOnlyWhereItNamesItsModel(t *testing.T) {
	bill := compute(t,
		begun("s", "acme", "started only", 0),
		done("c", "acme", "named", 0, named),
		done("c", "acme", "provider only", 0, `"provider":"openai"`),
		done("c", "acme", "nothing", 0),
		done("c", "acme", "empty model", 0, `"provider":"openai","model":""`),
	)
	require.Equal(t, truebill.Counts{Events: 5, Abandoned: 1, Unmatched: 3}, bill.Counts)
	require.Equal(t, truebill.Amounts{USD: "0.0035", Requests: 1, InputTokens: 1000, OutputTokens: 100}, bill.Total)
}

func TestWhatIsBilledAndWhatIsNot(t *testing.T) {
	const (
		usage  = `"usage":{"input_tokens":1000,"output_tokens":100}`
		o, k   = `"status":"ok"`, `"status":"cancelled"`
		failed = `"status":"failed"`
	)
	for name, c := range map[string]struct {
		fields []string
		usd    string // empty: not billed
		counts truebill.Counts
	}{
		"ok":                  {[]string{o, usage}, "0.0035", truebill.Counts{}},
		"cancelled":           {[]string{k, usage}, "0.0035", truebill.Counts{}},
		"failed":              {[]string{failed, usage}, "", truebill.Counts{Failed: 1}},
		"failed, no model":    {[]string{failed, `"model":"none"`}, "", truebill.Counts{Failed: 1}},
		"zero tokens":         {[]string{o, `"usage":{"input_tokens":0,"output_tokens":null}`}, "0", truebill.Counts{}},
		"an empty usage":      {[]string{o, `"usage":{}`}, "0", truebill.Counts{}},
		"no usage":            {[]string{o}, "", truebill.Counts{Unpriced: 1}},
		"usage null":          {[]string{k, `"usage":null`}, "", truebill.Counts{Unpriced: 1}},
		"unknown model":       {[]string{o, usage, `"model":"gpt-4ox"`}, "", truebill.Counts{Unpriced: 1}},
		"unknown provider":    {[]string{o, usage, `"provider":"nobody"`}, "", truebill.Counts{Unpriced: 1}},
		"no output price":     {[]string{o, usage, `"model":"text-embedding-3-small"`}, "", truebill.Counts{Unpriced: 1}},
		"output price unused": {[]string{o, `"usage":{"input_tokens":1000}`, `"model":"text-embedding-3-small"`}, "0.00002", truebill.Counts{}},
		"empty price set":     {[]string{o, `"usage":{}`, `"provider":"mistral","model":"mistral-experimental"`}, "", truebill.Counts{Unpriced: 1}},
		"more cached":         {[]string{o, `"usage":{"input_tokens":9,"cache_read_tokens":5,"cache_write_tokens":5}`}, "", truebill.Counts{Unpriced: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			bill := compute(t, begun("s", "acme", "r", 0), doneWith("c", "acme", "r", 0, c.fields...))
			c.counts.Events = 2
			require.Equal(t, c.counts, bill.Counts)
			if c.usd == "" {
				require.Empty(t, bill.Minutes)
				require.Zero(t, bill.Total.Requests)
				return
			}
			require.Equal(t, c.usd, bill.Total.USD)
			require.Equal(t, int64(1), bill.Total.Requests)
		})
	}
}

func TestPricesAreTheBooksOwnDigits(t *testing.T) {
	at := func(clock string) time.Duration {
		c, err := time.Parse("15:04:05", clock)
		require.NoError(t, err)
		return c.Sub(c.Truncate(24*time.Hour)) - 12*time.Hour
	}
	for _, c := range []struct {
		provider, model string
		at              string
		usage           string
		usd             string
	}{
		{"openai", "gpt-4o", "12:00:00", `"input_tokens":1`, "0.0000025"},
		{" OpenAI ", "GPT-4o", "12:00:00", `"input_tokens":1`, "0.0000025"},
		{"my-openai-proxy", "gpt-4o-2024-08-06", "12:00:00", `"input_tokens":1`, "0.0000025"},
		{"openai", "gpt-4o-20240806", "12:00:00", `"input_tokens":1`, "0.0000025"},
		{"azure", "GPT-4O-20241120", "12:00:00", `"input_tokens":1`, "0.0000025"},
		{"mistral", "ministral-3b-x", "12:00:00", `"input_tokens":1`, "0.000000000000040054321"},
		{"mistral", "ministral-3b", "12:00:00", `"input_tokens":1000000,"output_tokens":1000000`, "0.000000160054321"},
		// Gemini flash has a price for both kinds of cache.
		{
			"vertex", "gemini-2.5-flash-preview-09-25", "12:00:00", `"input_tokens":100,"cache_read_tokens":30,"cache_write_tokens":20`,
			"0.00001756666666666666",
		}, // 50 × 0.3 + 30 × 0.03 + 20 × 0.083333333333333 = 17.56666666666666
		{"VERTEX", "GEMINI-2.5-FLASH-PREVIEW-09-25", "12:00:00", `"input_tokens":1`, "0.0000003"},
		// The fallback is one step, and cached writes have a price there.
		{"google", "claude-haiku-4.5", "12:00:00", `"input_tokens":10,"cache_write_tokens":10`, "0.0000125"},
		// gpt-4o has no price for cached writes: they are input.
		{"openai", "gpt-4o", "12:00:00", `"input_tokens":10,"cache_write_tokens":10`, "0.000025"},
		// A tier applies above its start, to every kind, by the whole input.
		{"anthropic", "claude-sonnet-4-5", "12:00:00", `"input_tokens":200000,"output_tokens":1`, "0.600015"},
		{"anthropic", "claude-sonnet-4-5", "12:00:00", `"input_tokens":200001,"cache_read_tokens":200001,"output_tokens":1`, "0.1200231"},
		// Half-open, every day, and over midnight.
		{"deepseek", "deepseek-chat", "00:29:59", `"input_tokens":1000000`, "0.135"},
		{"deepseek", "deepseek-chat", "00:30:00", `"input_tokens":1000000`, "0.27"},
		{"deepseek", "deepseek-chat", "16:29:59", `"input_tokens":1000000`, "0.27"},
		{"deepseek", "deepseek-chat", "16:30:00", `"input_tokens":1000000`, "0.135"},
		{"deepseek", "deepseek-x-night", "21:59:59", `"input_tokens":1000000`, "0.4"},
		{"deepseek", "deepseek-x-night", "22:00:00", `"input_tokens":1000000`, "0.1"},
		{"deepseek", "deepseek-x-night", "05:59:59", `"input_tokens":1000000`, "0.1"},
		{"deepseek", "deepseek-x-night", "06:00:00", `"input_tokens":1000000`, "0.4"},
		{"perplexity", "sonar", "12:00:00", `"input_tokens":0`, "0.012"},
	} {
		bill := compute(t, begunOn("s", "acme", "r", at(c.at), c.provider, c.model),
			doneWith("c", "acme", "r", at(c.at), `"status":"ok"`, `"usage":{`+c.usage+`}`))
		require.Equal(t, c.usd, bill.Total.USD, "%+v", c)
	}
}

func TestDatesInsideANameStayAsTheyAre(t *testing.T) {
	for _, model := range []string{"gpt-4o-20240806-x", "gpt-4o-20240230", "gpt-4o-19240806", "gpt-4o-2024080", "gpt-4o20240806"} {
		bill := compute(t, begunOn("s", "acme", "r", 0, "openai", model), done("c", "acme", "r", 0))
		require.Equal(t, 1, bill.Counts.Unpriced, model)
	}
}

func TestDeadLettersAreNamed(t *testing.T) {
	good := done("c", "acme", "r", 0, named)
	for value, reason := range map[string]string{
		"{":                                      "not JSON",
		"[]":                                     "not an object",
		"\xff":                                   "invalid UTF-8",
		strings.Replace(good, `"acme"`, `""`, 1): "tenant_id is empty",
		strings.Replace(good, `"acme"`, `5`, 1):  "tenant_id is not a string",
		strings.Replace(good, "tenant_id", "TENANT_ID", 1):       "tenant_id is missing",
		strings.Replace(good, "RequestCompleted", "Request", 1):  `another type: "Request"`,
		strings.Replace(good, `"ok"`, `"done"`, 1):               `another status: "done"`,
		strings.Replace(good, `":1000`, `":-1`, 1):               "usage: input_tokens: negative",
		strings.Replace(good, `":1000`, `":1.5`, 1):              "usage: input_tokens: fractional",
		strings.Replace(good, `":1000`, `":9007199254740993`, 1): "usage: input_tokens: above 2^53",
		strings.Replace(good, `":1000`, `":1e999999999999`, 1):   "usage: input_tokens: out of range: 1e999999999999",
		strings.Replace(good, `":1000`, `":"1"`, 1):              "usage: input_tokens: not a number",
		strings.Replace(good, "12:00:00Z", "12:00:00", 1):        `event_time is not RFC 3339 with a zone and at most 9 digits: "2026-03-02T12:00:00"`,
		strings.Replace(good, "2026-03-02", "2028-03-02", 1):     "event_time is 8784h0m0s ahead of the record's timestamp",
	} {
		bill, err := truebill.Compute(truebill.Config{}, sampleBook(t), topic(value, good))
		require.NoError(t, err)
		require.Equal(t, []truebill.Rejected{{Reason: reason}}, bill.DeadLetters)
		require.Equal(t, "0.0035", bill.Total.USD)
	}
}

func TestAnEventIsDeadMoreThanAnHourAheadOfItsRecord(t *testing.T) {
	for ahead, dead := range map[time.Duration]int{time.Hour: 0, time.Hour + time.Microsecond: 1} {
		records := topic(done("c", "acme", "r", ahead, named))
		records[0].Timestamp = noon
		bill, err := truebill.Compute(truebill.Config{}, sampleBook(t), records)
		require.NoError(t, err)
		require.Len(t, bill.DeadLetters, dead)
	}
}

func TestTheBillIsTheSameInEveryOrder(t *testing.T) {
	values := []string{
		begun("s", "acme", "r", 0), done("c", "acme", "r", 2*time.Second), done("c", "acme", "r", 2*time.Second),
		begun("s", "acme", "r2", 0), done("c", "acme", "r2", 70*time.Second), done("c", "other", "r3", 0, named),
	}
	want := compute(t, values...)
	for range len(values) {
		values = append(values[1:], values[0])
		require.Equal(t, want, compute(t, values...))
	}
}

func TestABookThatCannotBeReadIsNamed(t *testing.T) {
	for book, want := range map[string]string{
		`{}`: "price book: json: cannot unmarshal",
		`[{"id":"p","models":[{"id":"m","match":{"like":"x"},"prices":{}}]}]`:                                                `price book: provider "p": model "m": match: unknown clause "like"`,
		`[{"id":"p","models":[{"id":"m","match":{"regex":"("},"prices":{}}]}]`:                                               `price book: provider "p": model "m": match: error parsing regexp`,
		`[{"id":"p","models":[{"id":"m","match":{"equals":"x"},"prices":{"input_mtok":"1"}}]}]`:                              `prices: input_mtok: not a number`,
		`[{"id":"p","models":[{"id":"m","match":{"equals":"x"},"prices":{"input_mtok":{"tiers":[]}}}]}]`:                     `prices: input_mtok: not a number: missing`,
		`[{"id":"p","models":[{"id":"m","match":{"equals":"x"},"prices":[{"constraint":{"until":"x"},"prices":{}}]}]}]`:      `constraint: unknown name "until"`,
		`[{"id":"p","models":[{"id":"m","match":{"equals":"x"},"prices":[{"constraint":{"start_time":"8"},"prices":{}}]}]}]`: `constraint: not a time of day: "8"`,
	} {
		_, err := truebill.Compute(truebill.Config{}, []byte(book), nil)
		require.ErrorContains(t, err, want)
	}
}

func TestMoreTokensThanFitAreAnErrorAndNotAWrongSum(t *testing.T) {
	var values []string
	for i := range 1025 {
		values = append(values, doneWith("c", "acme", fmt.Sprint(i), 0, `"status":"ok"`, named, `"usage":{"input_tokens":9007199254740992}`))
	}
	_, err := truebill.Compute(truebill.Config{}, sampleBook(t), topic(values...))
	require.ErrorContains(t, err, "more than 9223372036854775807 tokens")
}
