package settle

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const lineageA = "0123456789abcdef"

// drawPrefix makes prefixes that look like the rest of an ID.
func drawPrefix(t *rapid.T, label string) string {
	return rapid.OneOf(
		rapid.StringN(1, 40, -1),
		rapid.StringMatching(`[a-z0-9-]{1,40}`),
		rapid.StringMatching(`orders(-eu|-0|-0123456789abcdef|-[0-9]{1,2}){0,4}`),
	).Draw(t, label)
}

func drawID(t *rapid.T, label string) ID {
	return ID{
		Prefix:  drawPrefix(t, label+" prefix"),
		Lineage: rapid.StringMatching(`[0-9a-f]{16}`).Draw(t, label+" lineage"),
		Subtask: rapid.IntRange(0, 300).Draw(t, label+" subtask"),
		Slot:    rapid.IntRange(0, 20).Draw(t, label+" slot"),
	}
}

func TestAnIDParsesBackExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := drawID(t, "id")
		back, ok := ParseID(id.String())
		if !ok || back != id {
			t.Fatalf("%q parsed to %+v", id.String(), back)
		}
		if !regexp.MustCompile(`(?s)` + Pattern(id.Prefix)).MatchString(id.String()) {
			t.Fatalf("pattern %q misses %q", Pattern(id.Prefix), id)
		}
	})
}

func TestTwoIDsAreNeverSpelledAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawID(t, "a"), drawID(t, "b")
		if a != b && a.String() == b.String() {
			t.Fatalf("%+v and %+v are both %q", a, b, a)
		}
	})
}

func TestWhatParsesIsSpelledTheOneWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching(`[a-z-]{0,4}-[0-9a-f]{15,17}-[0-9+]{1,3}-[0-9]{1,3}`).Draw(t, "s")
		if id, ok := ParseID(s); ok && id.String() != s {
			t.Fatalf("%q parsed to %q", s, id)
		}
	})
}

func TestThePrefixOrdersNeverTouchesOrdersEU(t *testing.T) {
	for s, prefix := range map[string]string{
		"orders-" + lineageA + "-1-2":                          "orders",
		"orders-eu-" + lineageA + "-1-2":                       "orders-eu",
		"orders-" + lineageA + "-1-2-" + lineageA + "-3-4":     "orders-" + lineageA + "-1-2",
		"orders-" + lineageA + "-" + lineageA + "-3-4":         "orders-" + lineageA,
		"-" + lineageA + "-3-4":                                "",
		"orders-" + lineageA + "-1":                            "",
		"orders-" + lineageA + "-01-2":                         "",
		"orders-" + lineageA + "-1--2":                         "",
		"orders-" + lineageA + "-1-+2":                         "",
		"orders-0123456789ABCDEF-1-2":                          "",
		"orders-0123456789abcde-1-2":                           "",
		"orders_" + lineageA + "-1-2":                          "",
		"orders-" + lineageA + "-1-99999999999999999999999999": "",
	} {
		id, ok := ParseID(s)
		require.Equal(t, prefix != "", ok, s)
		require.Equal(t, prefix, id.Prefix, s)
	}
}

func TestAnIDThatCannotBeParsedIsRefused(t *testing.T) {
	good := ID{Prefix: "p", Lineage: lineageA, Subtask: 0, Slot: 3}
	require.NoError(t, good.Check())
	for _, bad := range []ID{
		{Lineage: lineageA},
		{Prefix: "p", Lineage: "abc"},
		{Prefix: "p", Lineage: lineageA, Subtask: -1},
		{Prefix: "p", Lineage: lineageA, Slot: -1},
		{Prefix: "p", Lineage: "0123456789ABCDEF"},
	} {
		require.Error(t, bad.Check(), bad)
	}
}
