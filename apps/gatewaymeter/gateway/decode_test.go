package gateway_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir/apps/gatewaymeter/gateway"
)

// The two examples of the contract.
const (
	startedExample = `{"event_id":"e-17","type":"RequestStarted","event_time":"2026-03-02T10:00:59.250Z",` +
		`"tenant_id":"acme","request_id":"r-9","provider":"openai","model":"gpt-4o"}`
	completedExample = `{"event_id":"e-18","type":"RequestCompleted","event_time":"2026-03-02T10:01:02.75Z",` +
		`"tenant_id":"acme","request_id":"r-9","status":"ok",` +
		`"usage":{"input_tokens":4808,"output_tokens":10,"cache_read_tokens":1024}}`
)

func decode(t *testing.T, value string) gateway.Event {
	t.Helper()
	var e gateway.Event
	require.NoError(t, gateway.Decode([]byte(value), &e), value)
	require.Empty(t, compare([]byte(value)), value)
	return e
}

func TestDecodeReadsTheContractsExamples(t *testing.T) {
	require.Equal(t, gateway.Event{
		EventID: "e-17", TenantID: "acme", RequestID: "r-9", Provider: "openai", Model: "gpt-4o",
		Kind: gateway.Started,
		Time: time.Date(2026, 3, 2, 10, 0, 59, 250_000_000, time.UTC).UnixMicro(),
	}, decode(t, startedExample))

	e := decode(t, completedExample)
	require.Equal(t, gateway.Event{
		EventID: "e-18", TenantID: "acme", RequestID: "r-9",
		Kind: gateway.Completed, Status: gateway.OK,
		Time: time.Date(2026, 3, 2, 10, 1, 2, 750_000_000, time.UTC).UnixMicro(),
		Usage: gateway.Usage{
			InputTokens: 4808, OutputTokens: 10, CacheReadTokens: 1024,
			Given: gateway.GivenUsage | gateway.GivenInput | gateway.GivenOutput | gateway.GivenCacheRead,
		},
	}, e)
	require.Equal(t, time.Date(2026, 3, 2, 10, 1, 2, 750_000_000, time.UTC), e.EventTime())
}

// with returns the Completed example with one part of its text replaced.
func with(old, replacement string) string {
	if !strings.Contains(completedExample, old) {
		panic("the example does not contain " + old)
	}
	return strings.Replace(completedExample, old, replacement, 1)
}

// started returns the Started example with one part of its text replaced.
func started(old, replacement string) string {
	if !strings.Contains(startedExample, old) {
		panic("the example does not contain " + old)
	}
	return strings.Replace(startedExample, old, replacement, 1)
}

// at returns the Completed example with another event time.
func at(eventTime string) string { return with("2026-03-02T10:01:02.75Z", eventTime) }

// input returns the Completed example with another number of input tokens.
func input(number string) string { return with(`"input_tokens":4808`, `"input_tokens":`+number) }

func TestDecodeRefusesWithTheReason(t *testing.T) {
	deep := strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001)
	for name, c := range map[string]struct{ value, reason string }{
		"nothing":                 {"", "not JSON: nothing there at byte 0"},
		"white space":             {" \n", "not JSON: unexpected end at byte 2"},
		"a word":                  {"hello", "not JSON: unexpected character at byte 0"},
		"byte order mark":         {"\ufeff{}", "not JSON: unexpected character at byte 0"},
		"cut off":                 {startedExample[:40], "not JSON: unexpected end at byte 40"},
		"trailing garbage":        {startedExample + "x", "not JSON: unexpected character at byte 158"},
		"two objects":             {startedExample + startedExample, "not JSON: unexpected character at byte 158"},
		"trailing comma":          {`{"a":1,}`, "not JSON: unexpected character at byte 7"},
		"unquoted name":           {`{a:1}`, "not JSON: unexpected character at byte 1"},
		"single quotes":           {`{'a':1}`, "not JSON: unexpected character at byte 1"},
		"leading zero":            {`{"a":01}`, "not JSON: unexpected character at byte 6"},
		"NaN":                     {input("NaN"), "not JSON: unexpected character at byte 160"},
		"plus sign":               {input("+1"), "not JSON: unexpected character at byte 160"},
		"point at the end":        {input("1.,"), "not JSON: unexpected character at byte 162"},
		"control character":       {with("acme", "ac\nme"), "not JSON: control character in a string at byte 99"},
		"NUL between":             {"{\x00}", "not JSON: unexpected character at byte 1"},
		"bad escape":              {with("acme", `ac\xme`), "not JSON: unexpected character at byte 100"},
		"bad escape, ignored":     {`{"x":"\u12g4"}`, "not JSON: unexpected character at byte 10"},
		"nested too deep":         {`{"x":` + deep + `}`, "not JSON: nested too deep at byte 10004"},
		"invalid UTF-8":           {with("acme", "ac\xffme"), "invalid UTF-8 at byte 99"},
		"invalid UTF-8, ignored":  {`{"x":"\xc0\x80"}`, "not JSON: unexpected character at byte 7"},
		"overlong, ignored":       {"{\"x\":\"\xc0\x80\"}", "invalid UTF-8 at byte 6"},
		"surrogate bytes":         {"{\"x\":\"\xed\xa0\x80\"}", "invalid UTF-8 at byte 6"},
		"invalid UTF-8 in a name": {"{\"\xff\":1}", "invalid UTF-8 at byte 2"},
		"invalid UTF-8 outside":   {"{\xff}", "invalid UTF-8 at byte 1"},
		"array":                   {"[" + startedExample + "]", "not an object"},
		"null":                    {" null ", "not an object"},
		"number":                  {"-1.5e3", "not an object"},
		"string":                  {`"{}"`, "not an object"},

		"no type":                    {"{}", "field type is missing"},
		"type null":                  {with(`"RequestCompleted"`, "null"), "field type is of the wrong JSON type"},
		"another type":               {with("RequestCompleted", "RequestFailed"), "field type is neither RequestStarted nor RequestCompleted"},
		"type in lower case":         {with("RequestCompleted", "requestcompleted"), "field type is neither RequestStarted nor RequestCompleted"},
		"name in another case":       {with("tenant_id", "Tenant_ID"), "field tenant_id is missing"},
		"no event_id":                {with(`"event_id":"e-18",`, ""), "field event_id is missing"},
		"event_id a number":          {with(`"e-18"`, "18"), "field event_id is of the wrong JSON type"},
		"no tenant":                  {with(`"tenant_id":"acme",`, ""), "field tenant_id is missing"},
		"empty tenant":               {with("acme", ""), "field tenant_id is empty"},
		"tenant an object":           {with(`"acme"`, "{}"), "field tenant_id is of the wrong JSON type"},
		"empty request":              {with("r-9", ""), "field request_id is empty"},
		"request true":               {with(`"r-9"`, "true"), "field request_id is of the wrong JSON type"},
		"Started without provider":   {started(`"provider":"openai",`, ""), "field provider is missing"},
		"Started with model null":    {started(`"gpt-4o"`, "null"), "field model is of the wrong JSON type"},
		"Completed, provider a list": {with(`"status"`, `"provider":[],"status"`), "field provider is of the wrong JSON type"},
		"no status":                  {with(`"status":"ok",`, ""), "field status is missing"},
		"another status":             {with(`"ok"`, `"OK"`), "field status is none of ok, cancelled and failed"},
		"usage a list":               {with(`"usage":{`, `"usage":[],"x":{`), "field usage is of the wrong JSON type"},
		"usage a string":             {with(`"usage":{`, `"usage":"{}","x":{`), "field usage is of the wrong JSON type"},

		"no event_time":          {with("event_time", "time"), "field event_time is missing"},
		"event_time a number":    {with(`"2026-03-02T10:01:02.75Z"`, "1772445662"), "field event_time is of the wrong JSON type"},
		"empty time":             {at(""), "field event_time is not an RFC 3339 time of the years 0000 to 9999"},
		"a date":                 {at("2026-03-02"), "field event_time is not an RFC 3339 time of the years 0000 to 9999"},
		"no zone":                {at("2026-03-02T10:01:02"), "field event_time is without a zone"},
		"no zone after digits":   {at("2026-03-02T10:01:02.75"), "field event_time is without a zone"},
		"ten digits":             {at("2026-03-02T10:01:02.1234567890Z"), "field event_time is with more than 9 digits of a second"},
		"space for T":            {at("2026-03-02 10:01:02Z"), "field event_time is not an RFC 3339 time of the years 0000 to 9999"},
		"comma":                  {at("2026-03-02T10:01:02,75Z"), "field event_time is not an RFC 3339 time of the years 0000 to 9999"},
		"no digit after point":   {at("2026-03-02T10:01:02.Z"), "field event_time is not an RFC 3339 time of the years 0000 to 9999"},
		"one-digit hour":         {at("2026-03-02T1:01:02Z"), "field event_time is not an RFC 3339 time of the years 0000 to 9999"},
		"leap second":            {at("2016-12-31T23:59:60Z"), "field event_time is not an RFC 3339 time of the years 0000 to 9999"},
		"hour 24":                {at("2026-03-02T24:00:00Z"), "field event_time is not an RFC 3339 time of the years 0000 to 9999"},
		"minute 60":              {at("2026-03-02T10:60:00Z"), "field event_time is not an RFC 3339 time of the years 0000 to 9999"},
		"month 13":               {at("2026-13-02T10:00:00Z"), "field event_time is not an RFC 3339 time of the years 0000 to 9999"},
		"day 0":                  {at("2026-03-00T10:00:00Z"), "field event_time is not an RFC 3339 time of the years 0000 to 9999"},
		"29 February 2026":       {at("2026-02-29T10:00:00Z"), "field event_time is not an RFC 3339 time of the years 0000 to 9999"},
		"29 February 1900":       {at("1900-02-29T10:00:00Z"), "field event_time is not an RFC 3339 time of the years 0000 to 9999"},
		"31 April":               {at("2026-04-31T10:00:00Z"), "field event_time is not an RFC 3339 time of the years 0000 to 9999"},
		"five-digit year":        {at("12026-03-02T10:00:00Z"), "field event_time is not an RFC 3339 time of the years 0000 to 9999"},
		"signed year":            {at("+026-03-02T10:00:00Z"), "field event_time is not an RFC 3339 time of the years 0000 to 9999"},
		"offset of 24 hours":     {at("2026-03-02T10:01:02+24:00"), "field event_time is not an RFC 3339 time of the years 0000 to 9999"},
		"offset minute 60":       {at("2026-03-02T10:01:02+01:60"), "field event_time is not an RFC 3339 time of the years 0000 to 9999"},
		"offset without colon":   {at("2026-03-02T10:01:02+0100"), "field event_time is not an RFC 3339 time of the years 0000 to 9999"},
		"offset of hours":        {at("2026-03-02T10:01:02+01"), "field event_time is not an RFC 3339 time of the years 0000 to 9999"},
		"zone name":              {at("2026-03-02T10:01:02CET"), "field event_time is not an RFC 3339 time of the years 0000 to 9999"},
		"after Z":                {at("2026-03-02T10:01:02Z "), "field event_time is not an RFC 3339 time of the years 0000 to 9999"},
		"before year 0 in UTC":   {at("0000-01-01T00:00:00+00:01"), "field event_time is not an RFC 3339 time of the years 0000 to 9999"},
		"after year 9999 in UTC": {at("9999-12-31T23:59:59-00:01"), "field event_time is not an RFC 3339 time of the years 0000 to 9999"},

		"negative":              {input("-1"), "field usage.input_tokens is negative"},
		"negative and too much": {input("-1e99"), "field usage.input_tokens is negative"},
		"negative fraction":     {input("-0.5"), "field usage.input_tokens is negative"},
		"fractional":            {input("1.5"), "field usage.input_tokens is fractional"},
		"fractional by e":       {input("15e-1"), "field usage.input_tokens is fractional"},
		"nearly zero":           {input("1e-999999999999"), "field usage.input_tokens is fractional"},
		"2^53 and a half":       {input("9007199254740992.5"), "field usage.input_tokens is fractional"},
		"2^53 + 1":              {input("9007199254740993"), "field usage.input_tokens is above 2^53"},
		"17 digits":             {input("10000000000000000"), "field usage.input_tokens is above 2^53"},
		"above 64 bits":         {input("18446744073709551617"), "field usage.input_tokens is above 2^53"},
		"1e16":                  {input("1e16"), "field usage.input_tokens is above 2^53"},
		"endless exponent":      {input("1e99999999999999999999"), "field usage.input_tokens is above 2^53"},
		"number in a string":    {input(`"4808"`), "field usage.input_tokens is of the wrong JSON type"},
		"true":                  {input("true"), "field usage.input_tokens is of the wrong JSON type"},
		"cached reads negative": {with("1024", "-1"), "field usage.cache_read_tokens is negative"},
		"the last one counts":   {input(`1,"input_tokens":-1`), "field usage.input_tokens is negative"},
	} {
		t.Run(name, func(t *testing.T) {
			var e gateway.Event
			err := gateway.Decode([]byte(c.value), &e)
			require.EqualError(t, err, c.reason)
			var de *gateway.DecodeError
			require.True(t, errors.As(err, &de))
			if !strings.Contains(c.value, "99999999999") { // the reference would count the zeros
				require.Empty(t, compare([]byte(c.value)))
			}
		})
	}
}

func TestDecodeJudgesNumbersByTheirValue(t *testing.T) {
	for number, want := range map[string]int64{
		"0": 0, "-0": 0, "-0.0e5": 0, "0e99999": 0, "1.0": 1, "1e3": 1000, "1E+3": 1000, "1500e-2": 15, "0.5e1": 5,
		"9007199254740992": 1 << 53, "9007199254740992.000": 1 << 53, "9007199254.740992e6": 1 << 53,
		"00": -1, "123456789012345": 123456789012345, "1234567890123456": 1234567890123456,
		"0.00000000000000000000000000007e29": 7, "null": 0,
	} {
		if want < 0 {
			require.Empty(t, compare([]byte(input(number))))
			continue
		}
		require.Equal(t, want, decode(t, input(number)).Usage.InputTokens, number)
	}
}

func TestDecodeConvertsTimesToUTCRoundedDown(t *testing.T) {
	for text, want := range map[string]time.Time{
		"2026-03-02T10:01:02Z":                time.Date(2026, 3, 2, 10, 1, 2, 0, time.UTC),
		"2026-03-02t10:01:02z":                time.Date(2026, 3, 2, 10, 1, 2, 0, time.UTC),
		"2026-03-02T10:01:02.1Z":              time.Date(2026, 3, 2, 10, 1, 2, 100_000_000, time.UTC),
		"2026-03-02T10:01:02.123456789Z":      time.Date(2026, 3, 2, 10, 1, 2, 123_456_000, time.UTC),
		"2026-03-02T00:30:00+01:30":           time.Date(2026, 3, 1, 23, 0, 0, 0, time.UTC),
		"2026-03-02T23:30:00-00:45":           time.Date(2026, 3, 3, 0, 15, 0, 0, time.UTC),
		"2026-03-02T10:01:02-00:00":           time.Date(2026, 3, 2, 10, 1, 2, 0, time.UTC),
		"1969-12-31T23:59:59.9999999Z":        time.Date(1969, 12, 31, 23, 59, 59, 999_999_000, time.UTC),
		"1969-12-31T23:59:59.000000001Z":      time.Date(1969, 12, 31, 23, 59, 59, 0, time.UTC),
		"0000-01-01T00:00:00Z":                time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC),
		"0000-02-29T00:00:00-23:59":           time.Date(0, 2, 29, 23, 59, 0, 0, time.UTC),
		"9999-12-31T23:59:59.999999999Z":      time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC),
		"2000-02-29T12:00:00+23:59":           time.Date(2000, 2, 28, 12, 1, 0, 0, time.UTC),
		`2026\u002d03-02T10:01:02\u005a`:      time.Date(2026, 3, 2, 10, 1, 2, 0, time.UTC),
		"2024-12-31T23:59:59.000001234+00:00": time.Date(2024, 12, 31, 23, 59, 59, 1000, time.UTC),
	} {
		e := decode(t, at(text))
		require.Equal(t, want, e.EventTime(), text)
	}
}

func TestEveryMonthBeginsAndEndsWhereTheCalendarSays(t *testing.T) {
	for first := time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC); first.Year() <= 9999; first = first.AddDate(0, 1, 0) {
		for _, moment := range []time.Time{first, first.AddDate(0, 1, 0).Add(-time.Second)} {
			var e gateway.Event
			err := gateway.Decode([]byte(at(moment.Format(time.RFC3339))), &e)
			if err != nil || e.Time != moment.UnixMicro() {
				t.Fatal(moment, e.Time, err)
			}
		}
	}
}

func TestTheLastOfANameCounts(t *testing.T) {
	e := decode(t, with(`"tenant_id":"acme"`, `"tenant_id":7,"tenant_id":"acme","x":{"tenant_id":"y"}`))
	require.Equal(t, "acme", e.TenantID)

	e = decode(t, with(`"usage":{`, `"usage":{"output_tokens":-5},"usage":{"cache_write_tokens":"x","cache_write_tokens":3,`))
	require.Equal(t, int64(10), e.Usage.OutputTokens)
	require.Equal(t, int64(3), e.Usage.CacheWriteTokens)

	e = decode(t, with(`"usage":{`, `"usage":{"cache_write_tokens":4},"usage":{`))
	require.Zero(t, e.Usage.CacheWriteTokens, "the last usage counts whole")
	require.Zero(t, e.Usage.Given&gateway.GivenCacheWrite)

	e = decode(t, with(`"status":"ok"`, `"status":"failed","provider":"a","provider":null,"status":"ok"`))
	require.Equal(t, gateway.OK, e.Status)
	require.Empty(t, e.Provider)

	e = decode(t, with(`1024}`, `1024},"usage":null`))
	require.False(t, e.Usage.Reported())

	e = decode(t, with(`"type":"RequestCompleted"`, `"type":"RequestStarted","type":"RequestCompleted"`))
	require.Equal(t, gateway.Completed, e.Kind)
	require.Empty(t, compare([]byte(with(`"type":"RequestCompleted"`, `"type":"RequestCompleted","type":3`))))
}

func TestWhatTheTypeDoesNotHaveIsIgnored(t *testing.T) {
	e := decode(t, started(`"provider"`, `"status":17,"usage":{"input_tokens":-1},"extra":[{"a":[1e5,true,null,"x"]}],"provider"`))
	require.Equal(t, gateway.Started, e.Kind)
	require.Zero(t, e.Status)
	require.Zero(t, e.Usage)

	e = decode(t, started(`"provider"`, `"status":"ok","usage":{"input_tokens":1},"provider"`))
	require.Zero(t, e.Status)
	require.Zero(t, e.Usage)

	e = decode(t, with(`"status"`, `"provider":null,"model":"m","EVENT_ID":5,"status"`))
	require.Empty(t, e.Provider)
	require.Equal(t, "m", e.Model)
}

func TestUsageIsReportedOrNot(t *testing.T) {
	whole := `"usage":{"input_tokens":4808,"output_tokens":10,"cache_read_tokens":1024}`
	none, null, empty := decode(t, with(","+whole, "")), decode(t, with(whole, `"usage":null`)), decode(t, with(whole, `"usage":{}`))
	require.False(t, none.Usage.Reported())
	require.False(t, null.Usage.Reported())
	require.True(t, empty.Usage.Reported())
	nulls := decode(t, with(whole, `"usage":{"input_tokens":null}`))
	require.Equal(t, gateway.GivenUsage, nulls.Usage.Given)
}

func TestEscapesAreResolved(t *testing.T) {
	e := decode(t, with(`"tenant_id":"acme"`, `"tenant\u005Fid":"\"a\\c\/m\b\f\n\r\t\u00e9\ud83d\ude00\ud800x\udc00\ud800\u0041"`))
	require.Equal(t, "\"a\\c/m\b\f\n\r\té😀\ufffdx\ufffd\ufffdA", e.TenantID)
	e = decode(t, with(`"input_tokens"`, `"input\u005ftokens"`))
	require.Equal(t, int64(4808), e.Usage.InputTokens)
	e = decode(t, with(`"ok"`, `"\u006fk"`))
	require.Equal(t, gateway.OK, e.Status)
	e = decode(t, with("acme", "Žižkov — 東京 🜁 and a long tail of plain text"))
	require.Equal(t, "Žižkov — 東京 🜁 and a long tail of plain text", e.TenantID)
}

func TestWhiteSpaceIsAllowedBetween(t *testing.T) {
	spaced := strings.NewReplacer(`{`, " {\t", `}`, "\n}\r ", `:"`, ` : "`, `,`, " ,\n").Replace(completedExample)
	require.Equal(t, decode(t, completedExample), decode(t, spaced))
}

func TestNestingIsReadAsDeepAsEncodingJSONDoes(t *testing.T) {
	for depth := 9_997; depth <= 10_002; depth++ {
		nested := `{"x":` + strings.Repeat("[", depth) + strings.Repeat("]", depth) + `,` + startedExample[1:]
		require.Empty(t, compare([]byte(nested)), depth)
	}
	many := `{"x":[` + strings.Repeat("[],{},", 10_001) + `1],` + startedExample[1:]
	decode(t, many)
	empty := `{"x":` + strings.Repeat("[", 9_998) + "{}" + strings.Repeat("]", 9_998) + `,` + startedExample[1:]
	decode(t, empty)
}

func TestACloneSharesNothingWithTheValue(t *testing.T) {
	value := []byte(startedExample)
	var e gateway.Event
	require.NoError(t, gateway.Decode(value, &e))
	c := e.Clone()
	require.Equal(t, e, c)
	clear(value)
	require.Equal(t, "acme", c.TenantID)
	require.NotEqual(t, "acme", e.TenantID, "an Event's strings are parts of the value (G2)")
}

func TestDecodeAllocatesNothing(t *testing.T) {
	values := [][]byte{[]byte(startedExample), []byte(completedExample)}
	var e gateway.Event
	require.Zero(t, testing.AllocsPerRun(100, func() {
		for _, v := range values {
			if gateway.Decode(v, &e) != nil {
				t.Fail()
			}
		}
	}))
}

func BenchmarkDecode(b *testing.B) {
	for name, text := range map[string]string{
		"started": startedExample, "completed": completedExample,
		"reordered": `{"model":"gpt-4o","provider":"openai","tenant_id":"acme","event_time":"2026-03-02T10:00:59.250Z",` +
			`"request_id":"r-9","type":"RequestStarted","event_id":"e-17"}`,
	} {
		b.Run(name, func(b *testing.B) {
			benchmarkDecode(b, text, gateway.Decode)
		})
		b.Run(name+" learnt", func(b *testing.B) {
			benchmarkDecode(b, text, learnt(startedExample, completedExample, text).Decode)
		})
	}
}

func benchmarkDecode(b *testing.B, text string, decode func([]byte, *gateway.Event) error) {
	value := []byte(text)
	var e gateway.Event
	b.ReportAllocs()
	b.SetBytes(int64(len(value)))
	for b.Loop() {
		if err := decode(value, &e); err != nil {
			b.Fatal(err)
		}
	}
}
