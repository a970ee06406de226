package gateway_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// FuzzDecode holds Decode against the reference for any bytes at all.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		startedExample, completedExample, "", "{}", "[]", `{"a":{"b":[1,2.5e-3,"\u00e9"]}}`,
		with("acme", "\xff"), at("2026-03-02t10:01:02.123456789+05:45"), input("1e3"), input("-0"),
		with("acme", `\ud83d\ude00`), with("acme", "東京"), with(`"usage":{`, `"usage":null,"usage":{`),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		if hugeExponent(value) {
			return // math/big would build the number
		}
		if diff := compare(value); diff != "" {
			t.Fatalf("%q: %s", value, diff)
		}
	})
}

// hugeExponent reports whether value may hold an exponent of more than five digits.
func hugeExponent(value []byte) bool {
	digits, exponent := 0, false
	for _, c := range value {
		switch {
		case c|0x20 == 'e':
			digits, exponent = 0, true
		case '0' <= c && c <= '9' && exponent:
			if digits++; digits > 5 {
				return true
			}
		case c != '+' && c != '-':
			exponent = false
		}
	}
	return false
}

// TestDecodeAgreesWithEncodingJSON draws values near the contract: names given twice, wrong
// types, times and numbers at the edges, and bytes changed at random.
func TestDecodeAgreesWithEncodingJSON(t *testing.T) {
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		value := []byte(drawObject(t))
		if rapid.IntRange(0, 3).Draw(t, "damage") == 0 {
			i := rapid.IntRange(0, len(value)-1).Draw(t, "at")
			value[i] = rapid.SampledFrom([]byte("\"\\{}[],:0-eEtnu \xff\x80\xc3\x00\n")).Draw(t, "byte")
		}
		if hugeExponent(value) {
			return
		}
		if diff := compare(value); diff != "" {
			t.Fatalf("%q: %s", value, diff)
		}
		if _, refused := reference(value); refused == nil {
			accepted++
		}
	})
	if accepted == 0 {
		t.Fatal("no value was accepted: the test compares refusals only")
	}
}

func drawObject(t *rapid.T) string {
	text := rapid.SampledFrom([]string{`"acme"`, `"r-1"`, `""`, `"é\u00e9\n"`, `"\ud800"`, `"a|b"`, `null`, `1`, `{}`, `[true]`})
	fields := map[string]*rapid.Generator[string]{
		"event_id":   text,
		"tenant_id":  text,
		"request_id": text,
		"provider":   text,
		"model":      text,
		"type":       rapid.SampledFrom([]string{`"RequestStarted"`, `"RequestCompleted"`, `"RequestCompleted"`, `"x"`, `null`}),
		"status":     rapid.SampledFrom([]string{`"ok"`, `"cancelled"`, `"failed"`, `"Failed"`, `null`, `0`}),
		"event_time": rapid.Custom(drawTime),
		"usage":      rapid.Custom(drawUsage),
	}
	good := map[string]string{
		"event_id": `"e"`, "tenant_id": `"acme"`, "request_id": `"r"`, "provider": `"openai"`, "model": `"m"`,
		"type": `"RequestCompleted"`, "status": `"ok"`, "event_time": `"2026-03-02T10:01:02Z"`, "usage": `{"input_tokens":5}`,
	}
	names := []string{"event_id", "tenant_id", "request_id", "provider", "model", "type", "status", "event_time", "usage"}
	var parts []string
	for _, name := range rapid.Permutation(names).Draw(t, "order") {
		times := rapid.SampledFrom([]int{1, 1, 1, 1, 1, 1, 1, 1, 2, 0}).Draw(t, "times")
		for range times {
			value := good[name]
			if rapid.IntRange(0, 5).Draw(t, "good") == 0 {
				value = fields[name].Draw(t, name)
			}
			parts = append(parts, fmt.Sprintf("%s:%s", rapid.SampledFrom(spellings(name)).Draw(t, "spelling"), value))
		}
	}
	space := rapid.SampledFrom([]string{"", "", " ", "\n\t"}).Draw(t, "space")
	return space + "{" + space + strings.Join(parts, space+","+space) + "}" + space
}

// spellings are ways of writing a name: most of them its own.
func spellings(name string) []string {
	plain := `"` + name + `"`
	escaped := fmt.Sprintf(`"\u%04x%s"`, name[0], name[1:])
	return []string{plain, plain, plain, plain, plain, plain, escaped, `"` + strings.ToUpper(name) + `"`}
}

func drawTime(t *rapid.T) string {
	pick := func(label string, options ...string) string { return rapid.SampledFrom(options).Draw(t, label) }
	return `"` + pick("year", "2026", "0000", "9999", "1969", "1900", "2000", "202") + "-" +
		pick("month", "01", "02", "12", "00", "13", "4") + "-" + pick("day", "01", "28", "29", "30", "31", "32", "00") +
		pick("t", "T", "T", "T", "t", " ") + pick("hour", "00", "23", "24", "10", "1x") + ":" +
		pick("minute", "00", "59", "60") + ":" + pick("second", "00", "59", "60") +
		pick("fraction", "", "", ".", ".5", ".123456", ".999999999", ".0000000001", ",5") +
		pick("zone", "Z", "Z", "z", "+00:00", "-00:00", "+23:59", "-23:59", "+24:00", "+01:60", "", "+0100", "ZZ") + `"`
}

func drawUsage(t *rapid.T) string {
	names := []string{"input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "Input_Tokens", "other"}
	number := rapid.OneOf(
		rapid.SampledFrom([]string{
			"null", `"1"`, "{}", "[]", "true", "-0", "-1", "1.0", "1.5", "9007199254740992",
			"9007199254740993", "90071992547409.92e2", "1e15", "1e16", "1e-3", "1000e-3", "-1e-5", "0e5000", "1E+2",
		}),
		rapid.StringMatching(`-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,4})?(e[+-]?[0-9]{1,2})?`),
	)
	var parts []string
	for range rapid.IntRange(0, 5).Draw(t, "names") {
		name := rapid.SampledFrom(names).Draw(t, "name")
		parts = append(parts, rapid.SampledFrom(spellings(name)).Draw(t, "spelling")+":"+number.Draw(t, "number"))
	}
	if rapid.IntRange(0, 9).Draw(t, "type") == 0 {
		return rapid.SampledFrom([]string{"null", "5", `"x"`, "[]"}).Draw(t, "usage")
	}
	return "{" + strings.Join(parts, ",") + "}"
}
