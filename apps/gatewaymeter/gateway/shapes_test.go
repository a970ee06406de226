package gateway_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/weir/apps/gatewaymeter/gateway"
)

// shapes are values that look different, each of which can be learnt from.
func shapes() []string {
	return []string{
		startedExample, completedExample,
		`{"model":"gpt-4o","provider":"openai","tenant_id":"acme","event_time":"2026-03-02T10:00:59.250Z",` +
			`"request_id":"r-9","type":"RequestStarted","event_id":"e-17"}`,
		` { "event_id" : "e" , "type" : "RequestStarted", "event_time": "2026-03-02T10:00:59Z", "tenant_id":"acme",` +
			"\n" + `"request_id":"r","provider":"p","model":"m","more":{"a":[1,"\u00e9"]},"region":"eu"} `,
		`{"event_id":"e","type":"RequestCompleted","event_time":"2026-03-02T10:00:59Z","tenant_id":"acme",` +
			`"request_id":"r","provider":null,"model":"m","status":"failed","usage":null}`,
		`{"event_id":"e","type":"RequestCompleted","event_time":"2026-03-02T10:00:59Z","tenant_id":"acme",` +
			`"request_id":"r","status":"ok","usage":{"input_tokens":null,"output_tokens":1,"other":5}}`,
		`{"event_id":"e","type":"RequestCompleted","event_time":"2026-03-02T10:00:59Z","tenant_id":"acme",` +
			`"request_id":"r","status":"ok","usage":{}}`,
	}
}

// What has been learnt from is known from then on: its names are not read again.
func TestShapesKnowWhatTheyHaveLearnt(t *testing.T) {
	d := learnt(shapes()...)
	require.Equal(t, len(shapes()), d.misses)
	for _, s := range shapes() {
		other := strings.NewReplacer("acme", "another tenant", "2026-03-02", "2027-12-31", `"failed"`, `"ok"`,
			"4808", "1", ":1,", ":4711,", `"e"`, `""`).Replace(s)
		want := decode(t, other)
		require.Empty(t, compareLearner(d, []byte(other), want, nil), other)
	}
	require.Equal(t, len(shapes()), d.misses)
}

// Shapes that have learnt from values agree with Decode on every value that is near those: what differs may
// be anything.
func TestShapesAgreeWithDecodeNearWhatTheyKnow(t *testing.T) {
	known := learnt(shapes()...)
	rapid.Check(t, func(t *rapid.T) {
		value := []byte(rapid.SampledFrom(shapes()).Draw(t, "shape"))
		for range rapid.IntRange(0, 3).Draw(t, "changes") {
			i := rapid.IntRange(0, len(value)-1).Draw(t, "at")
			with := rapid.SampledFrom([]string{
				"", "\"", "\\", "\\\"", "{", "}", ",", ":", "0", "00", "7", "1234567890123456", "-", ".", "e", " ", "\n",
				"\x00", "\xff", "é", `\u00e9`, "null", `"x":1,`, `"tenant_id":"b",`, "T", "Z", "\x7f",
			}).Draw(t, "with")
			cut := min(rapid.IntRange(0, 2).Draw(t, "cut"), len(value)-i)
			value = append(append(append([]byte(nil), value[:i]...), with...), value[i+cut:]...)
			if len(value) == 0 {
				return
			}
		}
		var want gateway.Event
		err := gateway.Decode(value, &want)
		if diff := compareLearner(known, value, want, err); diff != "" {
			t.Fatalf("%q: %s", value, diff)
		}
	})
}

// What stands where a number or a string stood is judged as Decode judges it.
func TestWhatDiffersIsJudgedAlike(t *testing.T) {
	for _, number := range []string{
		"", "0", "00", "07", "-1", "-0", "1.0", "1e3", "999999999999999", "9007199254740992", "9007199254740993",
		"99999999999999999999", `"1"`, "null", "{}", " 1", "1 ", "1 2", "+1", "1x",
	} {
		requireAlike(t, input(number))
	}
	for _, text := range []string{
		"", `\"`, `\`, "é", "\xff", "\x00", "\x7f", "\n", `","tenant_id":"b`, `","x":"`, `"`, strings.Repeat("long", 100),
	} {
		requireAlike(t, with("acme", text))
		requireAlike(t, with("e-18", text))
		requireAlike(t, with(`"ok"`, `"`+text+`"`))
	}
	for _, cut := range []string{completedExample[:len(completedExample)-1], completedExample + " ", completedExample + "}"} {
		requireAlike(t, cut)
	}
}

func requireAlike(t *testing.T, value string) {
	var want gateway.Event
	err := gateway.Decode([]byte(value), &want)
	require.Empty(t, compareLearner(learnt(shapes()...), []byte(value), want, err), value)
}

// Learning has a bound, and goes on behind it.
func TestSoManyShapesAreKnown(t *testing.T) {
	d := &learner{}
	for i := range 200 {
		value := strings.Replace(startedExample, "{", fmt.Sprintf(`{"new%d":true,`, i), 1)
		for range 2 {
			require.Empty(t, compareLearner(d, []byte(value), decode(t, value), nil))
		}
		require.Equal(t, i+1, d.misses)
	}
}

// A value from which nothing can be learnt is decoded all the same.
func TestShapesLearnFromPlainValuesAlone(t *testing.T) {
	for _, value := range []string{
		with(`"acme"`, `"\u0061cme"`), with("acme", "東京"), input("1e3"), with("{", `{"tenant_id":"first",`),
		strings.Replace(startedExample, "{", `{"status":"ok",`, 1),
	} {
		d := &learner{}
		for i := range 3 {
			require.Empty(t, compareLearner(d, []byte(value), decode(t, value), nil), value)
			require.Equal(t, i+1, d.misses, value)
		}
	}
}

func TestDecodingAllocatesNothing(t *testing.T) {
	values := [][]byte{[]byte(startedExample), []byte(completedExample)}
	d := learnt(startedExample, completedExample)
	var e gateway.Event
	for _, decode := range []func([]byte, *gateway.Event) error{gateway.Decode, d.Decode} {
		require.Zero(t, testing.AllocsPerRun(100, func() {
			for _, v := range values {
				_ = decode(v, &e)
			}
		}))
	}
}
