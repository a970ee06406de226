package price

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/weir/apps/gatewaymeter/money"
)

func parse(t require.TestingT, doc string) *Book {
	b, err := Parse([]byte(doc))
	require.NoError(t, err)
	return b
}

// findLine is what Find says, in one line.
func findLine(
	t require.TestingT, find func(provider, model string) (*Model, error), provider, model string,
) string {
	m, err := find(provider, model)
	if err != nil {
		require.Nil(t, m)
		return reasonOf(t, err)
	}
	return m.Provider() + "/" + m.ID()
}

const lookUpBook = `[
	{"id": "Bravo", "provider_match": {"contains": "Alpha"}, "models": [
		{"id": "any", "match": {"starts_with": ""}, "prices": {}}
	]},
	{"id": "alpha", "fallback_model_providers": ["delta", "ECHO", "absent"], "models": [
		{"id": "first", "match": {"starts_with": "Mod"}, "prices": {}},
		{"id": "second", "match": {"equals": "model"}, "prices": {}},
		{"id": "dated", "match": {"equals": "x-2025-12-11"}, "prices": {}},
		{"id": "leap", "match": {"equals": "x-2024-02-29"}, "prices": {}},
		{"id": "old", "match": {"equals": "x-1999-12-31"}, "prices": {}},
		{"id": "both", "match": {"and": [{"starts_with": "a"}, {"ends_with": "Z"}, {"contains": "--"}]}, "prices": {}},
		{"id": "pattern", "match": {"regex": "^GLM-\\d+(\\.\\D)?$|^never"}, "prices": {}},
		{"id": "either", "match": {"or": [{"equals": "e1"}, {"equals": "E2"}]}, "prices": {}}
	]},
	{"id": "delta", "fallback_model_providers": ["foxtrot"], "models": [
		{"id": "d", "match": {"equals": "lent"}, "prices": {}},
		{"id": "d-dated", "match": {"equals": "lent-2025-12-11"}, "prices": {}}
	]},
	{"id": "echo", "models": [
		{"id": "e", "match": {"starts_with": "lent"}, "prices": {}}
	]},
	{"id": "foxtrot", "provider_match": {"regex": "^fox"}, "models": [
		{"id": "f", "match": {"equals": "two-steps"}, "prices": {}}
	]}
]`

func TestLookUp(t *testing.T) {
	b := parse(t, lookUpBook)
	c := b.NewCache()
	for _, q := range []struct{ provider, model, want string }{
		{"alpha", "model", "alpha/first"}, // book order, not the better match
		{"ALPHA", "MODEL", "alpha/first"},
		{" \tAlpha\n", "model", "alpha/first"},        // an id wins over a match of an earlier provider
		{"alphabet", "model", "Bravo/any"},            // no id: the first that matches
		{"bravo", "", "Bravo/any"},                    // the id of the book has a case, too
		{"fo x", "two-steps", "unknown_provider"},     // white space inside is part of the name
		{"foxes", "two-steps", "foxtrot/f"},           //
		{"", "model", "unknown_provider"},             //
		{"alpha", " model", "unknown_model"},          // only the provider is trimmed
		{"alpha", "lent", "delta/d"},                  // fallbacks in their order
		{"alpha", "LENT-ish", "echo/e"},               //
		{"alpha", "two-steps", "unknown_model"},       // one step only
		{"delta", "two-steps", "foxtrot/f"},           //
		{"alpha", "x-20251211", "alpha/dated"},        //
		{"alpha", "X-2025-12-11", "alpha/dated"},      //
		{"alpha", "lent-20251211", "echo/e"},          // as written, all fallbacks come before the dashed name
		{"delta", "lent-20251211", "delta/d-dated"},   //
		{"alpha", "x-20251311", "unknown_model"},      // no such month
		{"alpha", "x-20240229", "alpha/leap"},         //
		{"alpha", "x-20250229", "unknown_model"},      // no such day
		{"alpha", "x-20251211:free", "unknown_model"}, // not at the end
		{"alpha", "x20251211", "unknown_model"},       // no dash before it
		{"alpha", "x-19991231", "unknown_model"},      // of another century
		{"alpha", "-20251211", "unknown_model"},       //
		{"alpha", "a--z", "alpha/both"},               //
		{"alpha", "a-z", "unknown_model"},             //
		{"alpha", "glm-4", "alpha/pattern"},           // a pattern ignores case,
		{"alpha", "GLM-4.x", "alpha/pattern"},         // its classes keep theirs
		{"alpha", "glm-4.4", "unknown_model"},         //
		{"alpha", "NEVERMORE", "alpha/pattern"},       //
		{"alpha", "e2", "alpha/either"},               //
	} {
		require.Equal(t, q.want, findLine(t, b.Find, q.provider, q.model), "%+v", q)
		for range 2 {
			require.Equal(t, q.want, findLine(t, c.Find, q.provider, q.model), "%+v", q)
		}
	}
	_, err := b.Find("alpha", "no such")
	require.EqualError(t, err, `price: unpriced: unknown_model (provider "alpha", model "no such")`)
}

func TestDigestIsThatOfTheBytes(t *testing.T) {
	require.Equal(t, sha256.Sum256([]byte(lookUpBook)), parse(t, lookUpBook).Digest())
}

func TestUnusedKindsAreListed(t *testing.T) {
	b := parse(t, `[{"id":"p","models":[
		{"id":"m","match":{"equals":"m"},"prices":{"input_mtok":1,"output_audio_mtok":1,"cache_raed_mtok":{"x":1}}},
		{"id":"n","match":{"equals":"n"},"prices":[{"prices":{"input_audio_mtok":null,"output_audio_mtok":3}}]}]}]`)
	require.Equal(t, []string{"cache_raed_mtok", "output_audio_mtok"}, b.UnusedKinds())
}

// inModel is a book around one model with these fields.
func inModel(fields string) string {
	return `[{"id":"acme","models":[{"id":"m1","match":{"equals":"m1"},` + fields + `}]}]`
}

func TestErrorsInABookSayWhere(t *testing.T) {
	datadriven.RunTest(t, "testdata/errors", func(t *testing.T, d *datadriven.TestData) string {
		doc := d.Input
		if d.Cmd == "model" {
			doc = inModel(doc)
		}
		b, err := Parse([]byte(doc))
		require.Error(t, err)
		require.Nil(t, b)
		return err.Error()
	})
	_, err := Parse([]byte(inModel(`"prices":{"input_mtok":-1}`)))
	require.ErrorIs(t, err, money.ErrNegative)
	_, err = Parse([]byte("[{\"id\":\"\xff\"}]"))
	require.EqualError(t, err, "price: book: not UTF-8")
}

func TestCacheIsBoundedAndKeepsNamesInUse(t *testing.T) {
	c := parse(t, lookUpBook).NewCache()
	_, kept := c.Find("alpha", "in use")
	for i := range 5 * cacheGeneration {
		_, err := c.Find("alpha", "invented-"+strconv.Itoa(i))
		require.Error(t, err)
		if i%100 == 0 {
			_, again := c.Find("alpha", "in use")
			require.Same(t, kept, again, "a name in use is not looked up again")
		}
	}
	require.LessOrEqual(t, len(c.young), cacheGeneration)
	require.LessOrEqual(t, len(c.old), cacheGeneration)

	size := len(c.young)
	long := strings.Repeat("x", cacheName+1)
	require.Equal(t, "unknown_model", findLine(t, c.Find, "alpha", long))
	require.Len(t, c.young, size, "a huge name is looked up, but not kept")
}

func TestCacheAnswersLikeTheBook(t *testing.T) {
	b := parse(t, lookUpBook)
	rapid.Check(t, func(t *rapid.T) {
		c := b.NewCache()
		for range rapid.IntRange(1, 50).Draw(t, "look-ups") {
			p := rapid.SampledFrom([]string{"alpha", "ALPHA", "delta", "x", ""}).Draw(t, "provider")
			m := rapid.SampledFrom([]string{"model", "lent", "x-20251211", "a--z", "", "GLM-1"}).Draw(t, "model")
			require.Equal(t, findLine(t, b.Find, p, m), findLine(t, c.Find, p, m))
		}
	})
}

func TestPublicBookHoldsOnlyWhatIsUnderstood(t *testing.T) {
	data, err := os.ReadFile(realBook)
	if errors.Is(err, os.ErrNotExist) {
		t.Skipf("the public price book is not beside the repository (%s)", realBook)
	}
	require.NoError(t, err)
	b := parse(t, string(data))
	for _, kind := range b.UnusedKinds() {
		require.Contains(t, kind, "audio", "a kind of price that may have to be billed")
	}
	models := 0
	for _, p := range b.providers {
		models += len(p.models)
	}
	t.Logf("%d providers, %d models", len(b.providers), models)
	require.Positive(t, models)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(lookUpBook))
	f.Add([]byte(inModel(`"prices":{"input_mtok":{"base":1,"tiers":[{"start":7,"price":1}]},"requests_kcount":2}`)))
	f.Add([]byte(inModel(`"prices":[{"prices":{"output_mtok":1},"constraint":{"start_date":"2026-03-01"}}]`)))
	f.Add([]byte(inModel(`"prices":[{"prices":{},"constraint":{"start_time":"10:00","end_time":"23:00+01:00"}}]`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := Parse(data)
		if err != nil {
			require.Nil(t, b)
			require.True(t, strings.HasPrefix(err.Error(), "price: book: "))
			return
		}
		for _, p := range b.providers {
			_, err := b.Find(p.id, "m1")
			require.NotContains(t, fmt.Sprint(err), UnknownProvider)
			for _, m := range p.models {
				_, _ = m.Price(noon, Usage{true, 9, 8, 7, 1})
			}
		}
	})
}
