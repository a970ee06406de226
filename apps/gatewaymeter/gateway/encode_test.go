package gateway_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/weir/apps/gatewaymeter/gateway"
	"example.com/weir/connector"
)

var minuteEnd = time.Date(2026, 3, 2, 10, 2, 0, 0, time.UTC).UnixMicro()

// hostile is a tenant that every encoder must escape.
const hostile = "a\"b\\c|d\n\t\r\x00\x1f\x7f<&>é😀\u2028"

const hostileJSON = `"a\"b\\c|d\n\t\r\u0000\u001f` + "\x7f<&>é😀\u2028" + `"`

func TestEventsAreWrittenAsTheContractShows(t *testing.T) {
	e := decode(t, startedExample)
	require.Equal(t, strings.Replace(startedExample, "59.250Z", "59.25Z", 1), string(gateway.AppendEvent(nil, &e)))
	e = decode(t, completedExample)
	require.Equal(t, completedExample, string(gateway.AppendEvent(nil, &e)))
}

func TestTenantCostMinuteIsWrittenAsTheContractShows(t *testing.T) {
	m := gateway.TenantCostMinute{
		TenantID: "acme", WindowStart: minuteEnd - 60_000_000, WindowEnd: minuteEnd, USD: []byte("0.01084"),
		Requests: 1, InputTokens: 4808, OutputTokens: 10, Revision: 1,
	}
	require.Equal(t, `{"tenant_id":"acme","window_start":"2026-03-02T10:01:00Z","window_end":"2026-03-02T10:02:00Z",`+
		`"usd":"0.01084","currency":"USD","requests":1,"input_tokens":4808,"output_tokens":10,"revision":1}`,
		string(gateway.AppendTenantCostMinute(nil, &m)))
	require.Equal(t, "acme|2026-03-02T10:02:00Z", string(gateway.AppendTenantCostKey(nil, "acme", minuteEnd)))

	m.TenantID = hostile
	require.Contains(t, string(gateway.AppendTenantCostMinute(nil, &m)), `{"tenant_id":`+hostileJSON+`,`)
	require.Equal(t, hostile+"|2026-03-02T10:02:00Z", string(gateway.AppendTenantCostKey(nil, hostile, minuteEnd)))
}

func TestAlertsAreWrittenAsTheContractShows(t *testing.T) {
	require.Equal(t, `{"kind":"error_rate","tenant_id":"acme","window_end":"2026-03-02T10:02:00Z","requests":12,"failed":3,"rate":"0.25"}`,
		string(gateway.AppendErrorRate(nil, "acme", minuteEnd, 12, 3)))
	require.Equal(t, `{"kind":"unpriced","provider":"p","model":`+hostileJSON+`,"window_end":"2026-03-02T10:02:00Z","reason":"unknown model"}`,
		string(gateway.AppendUnpricedAlert(nil, "p", hostile, minuteEnd, "unknown model")))
}

func TestRatesAreExactWhereTheyEnd(t *testing.T) {
	for want, of := range map[string][2]int64{
		"0": {0, 10}, "1": {10, 10}, "0.2": {2, 10}, "0.25": {3, 12}, "0.203125": {13, 64}, "0.5": {6, 12},
		"0.3333": {1, 3}, "0.6667": {2, 3}, "0.1429": {1, 7}, "0.0001": {1, 16383}, "0.0909": {1, 11}, "0.3": {9001, 30000 + 3},
	} {
		require.Contains(t, string(gateway.AppendErrorRate(nil, "a", 0, of[1], of[0])), `"rate":"`+want+`"}`)
	}
	require.Contains(t, string(gateway.AppendErrorRate(nil, "a", 0, 0, 0)), `"rate":"0"}`)
}

func TestSideOutputsHoldTheWholeRecord(t *testing.T) {
	e := decode(t, completedExample)
	require.Equal(t, `{"output":"conflicts","reason":"another event_id","event":`+completedExample+`}`,
		string(gateway.AppendSideEvent(nil, gateway.Conflicts, "another event_id", &e)))

	r := gateway.RequestRecord{
		TenantID: "acme", RequestID: "r-9", Provider: "openai", Model: "gpt-4o", Status: gateway.OK,
		StartedAt: minuteEnd - 60_750_000, HasStarted: true, CompletedAt: e.Time, Usage: e.Usage,
	}
	require.Equal(t, `{"output":"unpriced","reason":"unknown model","request":{"tenant_id":"acme","request_id":"r-9",`+
		`"provider":"openai","model":"gpt-4o","status":"ok",`+
		`"started_at":"2026-03-02T10:00:59.25Z","completed_at":"2026-03-02T10:01:02.75Z",`+
		`"usage":{"input_tokens":4808,"output_tokens":10,"cache_read_tokens":1024}}}`,
		string(gateway.AppendSideRequest(nil, gateway.Unpriced, "unknown model", &r)))

	r = gateway.RequestRecord{TenantID: "acme", RequestID: "r-9", Status: gateway.Failed, CompletedAt: e.Time}
	require.Equal(t, `{"output":"late","reason":"r","request":{"tenant_id":"acme","request_id":"r-9",`+
		`"provider":"","model":"","status":"failed","started_at":null,"completed_at":"2026-03-02T10:01:02.75Z"}}`,
		string(gateway.AppendSideRequest(nil, gateway.Late, "r", &r)))
}

func TestDeadLettersHoldTheWholeRecord(t *testing.T) {
	d := connector.DeadLetter{
		Topic: "gateway-events", Partition: 3, Offset: 17, Timestamp: minuteEnd + 1000,
		Key: []byte("r-9"), Value: []byte("{\xff"), Reason: `field "x"`,
		Headers: []connector.Header{{Key: "h", Value: []byte("v\"")}, {Key: "n"}, {Key: "b", Value: []byte{0xfe}}},
	}
	require.Equal(t, `{"topic":"gateway-events","partition":3,"offset":17,"timestamp":"2026-03-02T10:02:00.001Z",`+
		`"reason":"field \"x\"","key":"r-9","value_base64":"e/8=",`+
		`"headers":[{"key":"h","value":"v\""},{"key":"n","value":null},{"key":"b","value_base64":"/g=="}]}`,
		string(gateway.AppendDeadLetter(nil, &d)))

	d = connector.DeadLetter{Topic: "t", Key: []byte{}}
	require.Equal(t, `{"topic":"t","partition":0,"offset":0,"timestamp":"1970-01-01T00:00:00Z","reason":"","key":"","value":null,"headers":[]}`,
		string(gateway.AppendDeadLetter(nil, &d)))
}

// TestWhatIsWrittenIsReadBack holds the encoder against Decode (G3) and every encoder's output
// against encoding/json.
func TestWhatIsWrittenIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawEvent(t)
		value := gateway.AppendEvent([]byte("before "), &want)[len("before "):]
		var got gateway.Event
		require.NoError(t, gateway.Decode(value, &got), string(value))
		require.Equal(t, want, got)
		require.Empty(t, compare(value))

		m := gateway.TenantCostMinute{TenantID: want.TenantID, WindowStart: want.Time, WindowEnd: want.Time, USD: []byte("1.5")}
		tenant := struct {
			TenantID  string    `json:"tenant_id"`
			WindowEnd time.Time `json:"window_end"`
		}{}
		require.NoError(t, json.Unmarshal(gateway.AppendTenantCostMinute(nil, &m), &tenant))
		require.Equal(t, want.TenantID, tenant.TenantID)
		require.True(t, want.EventTime().Equal(tenant.WindowEnd))
	})
}

func drawEvent(t *rapid.T) gateway.Event {
	name := rapid.OneOf(rapid.StringN(1, 12, -1), rapid.StringMatching(`[a-z]{1,9}-[0-9]{1,9}`), rapid.Just(hostile))
	e := gateway.Event{
		EventID: rapid.String().Draw(t, "event"), TenantID: name.Draw(t, "tenant"), RequestID: name.Draw(t, "request"),
		Provider: name.Draw(t, "provider"), Model: name.Draw(t, "model"),
		Kind: rapid.SampledFrom([]gateway.Kind{gateway.Started, gateway.Completed}).Draw(t, "kind"),
		Time: rapid.Int64Range(-62_167_219_200_000_000, 253_402_300_799_999_999).Draw(t, "time"),
	}
	if e.Kind == gateway.Started {
		return e
	}
	if rapid.Bool().Draw(t, "no model") {
		e.Provider, e.Model = "", ""
	}
	e.Status = rapid.SampledFrom([]gateway.Status{gateway.OK, gateway.Cancelled, gateway.Failed}).Draw(t, "status")
	if !rapid.Bool().Draw(t, "usage") {
		return e
	}
	e.Usage.Given = gateway.GivenUsage
	for i, n := range []*int64{
		&e.Usage.InputTokens, &e.Usage.OutputTokens, &e.Usage.CacheReadTokens, &e.Usage.CacheWriteTokens,
	} {
		if rapid.Bool().Draw(t, "given") {
			*n = rapid.Int64Range(0, gateway.MaxTokens).Draw(t, "tokens")
			e.Usage.Given |= gateway.GivenInput << i
		}
	}
	return e
}
