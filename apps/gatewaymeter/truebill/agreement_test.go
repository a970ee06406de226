package truebill_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/weir/apps/gatewaymeter/gateway"
	"example.com/weir/apps/gatewaymeter/price"
	"example.com/weir/apps/gatewaymeter/truebill"
)

// TestTheJobsPricesAreTheTrueOnes holds the packages that the job is made of against this one:
// requests to models whose names lie near those of the book, at times near the changes of prices.
func TestTheJobsPricesAreTheTrueOnes(t *testing.T) {
	books := map[string]string{"sample": "../sample/prices.json", "real": "../../../../shared/data/genai-prices/data.json"}
	for name, path := range books {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil && name == "real" {
				t.Skip("the price book of genai-prices (data.json) is not beside the repository: ", err)
			}
			require.NoError(t, err)
			book, err := price.Parse(text)
			require.NoError(t, err)
			names := modelNames(t, text)
			var requests []priced
			rapid.Check(t, func(t *rapid.T) {
				for range 10 { // the book is read once for many requests
					requests = append(requests, drawPriced(t, names))
				}
			})
			comparePrices(t, text, book, requests)
		})
	}
}

// priced is a request that both sides price.
type priced struct{ started, completed gateway.Event }

func comparePrices(t *testing.T, text []byte, book *price.Book, requests []priced) {
	t.Helper()
	var values []string
	for i := range requests {
		r := &requests[i]
		r.started.TenantID, r.completed.TenantID = fmt.Sprint(i), fmt.Sprint(i)
		values = append(values, string(gateway.AppendEvent(nil, &r.started)), string(gateway.AppendEvent(nil, &r.completed)))
	}
	records := topic(values...)
	for i := range records {
		records[i].Timestamp = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	bill, err := truebill.Compute(truebill.Config{}, text, records)
	require.NoError(t, err)
	require.Empty(t, bill.DeadLetters)
	billed := 0
	for i, r := range requests {
		want, ok := bill.Tenants[fmt.Sprint(i)]
		got, err := jobsPrice(book, &r)
		if !ok {
			var unpriced *price.UnpricedError
			require.ErrorAs(t, err, &unpriced, "%+v", r)
			continue
		}
		require.NoError(t, err, "%+v", r)
		require.Equal(t, want.USD, got, "%+v", r)
		billed++
	}
	t.Logf("%d of %d requests have a price", billed, len(requests))
	require.Greater(t, billed, len(requests)/4)
	require.Less(t, billed, len(requests))
}

func jobsPrice(book *price.Book, r *priced) (string, error) {
	model, err := book.Find(r.started.Provider, r.started.Model)
	if err != nil {
		return "", err
	}
	u := r.completed.Usage
	amount, err := model.Price(r.started.EventTime(), price.Usage{
		Reported: u.Reported(), Input: u.InputTokens, Output: u.OutputTokens,
		CacheRead: u.CacheReadTokens, CacheWrite: u.CacheWriteTokens,
	})
	return amount.String(), err
}

// modelNames returns the names of a book: ids, and what its match clauses compare with.
func modelNames(t *testing.T, text []byte) (names [][2]string) {
	t.Helper()
	var providers []struct {
		ID     string `json:"id"`
		Models []struct {
			ID    string `json:"id"`
			Match any    `json:"match"`
		} `json:"models"`
	}
	require.NoError(t, json.Unmarshal(text, &providers))
	for _, p := range providers {
		for _, m := range p.Models {
			names = append(names, [2]string{p.ID, m.ID})
			for _, s := range stringsIn(m.Match) {
				names = append(names, [2]string{p.ID, s})
			}
		}
	}
	return names
}

func stringsIn(v any) (found []string) {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		for _, e := range v {
			found = append(found, stringsIn(e)...)
		}
	case map[string]any:
		for _, e := range v {
			found = append(found, stringsIn(e)...)
		}
	}
	return found
}

func drawPriced(t *rapid.T, names [][2]string) priced {
	pick := func(label string, options ...string) string { return rapid.SampledFrom(options).Draw(t, label) }
	drawn := rapid.SampledFrom(names).Draw(t, "names")
	provider, model := drawn[0], drawn[1]
	if rapid.IntRange(0, 9).Draw(t, "change") == 0 {
		provider = pick("provider", "azure", "Google ", " vertex", "xai", "bedrock", "my-openai", "nobody", "MISTRAL-x", "together_ai")
	}
	model = pick("before", "", "", "", "", "x") + model + pick("after", "", "", "", "", "-20251211", "-20240806", "-20250230", "-preview", " ")
	if rapid.Bool().Draw(t, "upper") {
		model = strings.ToUpper(model)
	}
	at := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	days := rapid.IntRange(-300, 300).Draw(t, "days")
	clock := rapid.SampledFrom([]time.Duration{
		0, 30 * time.Minute, 16*time.Hour + 30*time.Minute, 22 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	}).Draw(t, "clock") + time.Duration(rapid.IntRange(-1, 1).Draw(t, "hair"))*time.Microsecond
	at = at.AddDate(0, 0, days).Add(clock)

	r := priced{
		started: gateway.Event{
			Kind: gateway.Started, EventID: "s", RequestID: "r", Provider: provider, Model: model, Time: at.UnixMicro(),
		},
		completed: gateway.Event{
			Kind: gateway.Completed, EventID: "c", RequestID: "r", Status: gateway.OK, Time: at.UnixMicro(),
		},
	}
	if rapid.IntRange(0, 19).Draw(t, "reported") == 0 {
		return r
	}
	tokens := rapid.OneOf(rapid.SampledFrom([]int64{0, 0, 1, 128_000, 128_001, 200_000, 200_001, 1 << 43}), rapid.Int64Range(0, 300_000))
	u := gateway.Usage{InputTokens: tokens.Draw(t, "input"), OutputTokens: tokens.Draw(t, "output")}
	u.Given = gateway.GivenUsage | gateway.GivenInput | gateway.GivenOutput | gateway.GivenCacheRead | gateway.GivenCacheWrite
	if rapid.Bool().Draw(t, "cached") {
		u.CacheReadTokens = rapid.Int64Range(0, u.InputTokens).Draw(t, "read")
		u.CacheWriteTokens = rapid.Int64Range(0, u.InputTokens-u.CacheReadTokens+1).Draw(t, "write")
	}
	r.completed.Usage = u
	return r
}

// TestTheJobReadsTheSameEvents spoils values at random and asks both readers whether they hold
// an event.
func TestTheJobReadsTheSameEvents(t *testing.T) {
	book := sampleBook(t)
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.SampledFrom([]string{
			begun("s", "acme", "r", 0), done("c", "acme", "r", 0, named),
			doneWith("c", "acme", "r", 1500*time.Millisecond, `"status":"failed"`, `"usage":null`),
		}).Draw(t, "value")
		for range rapid.IntRange(0, 2).Draw(t, "changes") {
			from := rapid.IntRange(0, len(value)-1).Draw(t, "from")
			to := rapid.IntRange(from, min(from+8, len(value))).Draw(t, "to")
			value = value[:from] + rapid.SampledFrom([]string{
				"", "null", "1e3", "-0", "-1", "1.5", "9007199254740993", `"`, `\u00e9`, `\`, "\xff", "é", "{}", ",", " ", "z", "+01:00",
				`","tenant_id":"`, `,"usage":{"input_tokens":2e0},`, `"type":"RequestStarted",`, ".123456789", ".0000000001",
			}).Draw(t, "with") + value[to:]
		}
		var e gateway.Event
		err := gateway.Decode([]byte(value), &e)
		records := topic(value)
		records[0].Timestamp = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
		bill, computeErr := truebill.Compute(truebill.Config{}, book, records)
		require.NoError(t, computeErr)
		if (err == nil) != (len(bill.DeadLetters) == 0) {
			t.Fatalf("%s: the job says %v, the true bill %v", value, err, bill.DeadLetters)
		}
		if err == nil {
			accepted++
		}
	})
	require.NotZero(t, accepted)
}
