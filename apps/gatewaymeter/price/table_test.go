package price

import (
	"bufio"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// realBook is where the public price book lies when it is there, beside the repository.
const realBook = "../../../../shared/data/genai-prices/data.json"

// row is a line of a table that testdata/genai_table.py wrote.
type row struct {
	about, provider, model string
	at                     time.Time
	usage                  Usage
	bookProvider           string
	bookModel              string
	want                   string // dollars, or a reason
}

func (r row) String() string { return r.about + " " + r.provider + " " + r.model }

// readTable returns the rows of a table and the digest of the book that they are about.
func readTable(t *testing.T, path string) (digest string, rows []row) {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	in := bufio.NewReader(file)
	first, err := in.ReadString('\n')
	require.NoError(t, err)
	records, err := csv.NewReader(in).ReadAll()
	require.NoError(t, err)
	for _, f := range records[1:] {
		at, err := time.Parse(time.RFC3339, f[3])
		require.NoError(t, err)
		tokens := make([]int64, 4)
		for i := range tokens {
			tokens[i], err = strconv.ParseInt(f[4+i], 10, 64)
			require.NoError(t, err)
		}
		rows = append(rows, row{
			f[0], f[1], f[2], at, Usage{true, tokens[0], tokens[1], tokens[2], tokens[3]}, f[8], f[9], f[10],
		})
	}
	return strings.TrimSpace(strings.TrimPrefix(first, "# book ")), rows
}

// checkRow prices a row through the cache, as a job does.
func checkRow(t *testing.T, c *Cache, r row) {
	t.Helper()
	m, err := c.Find(r.provider, r.model)
	if err != nil {
		require.Empty(t, r.bookModel, "%v: %v", r, err)
		require.Equal(t, r.want, reasonOf(t, err), r)
		return
	}
	require.Equal(t, r.bookProvider+" / "+r.bookModel, m.Provider()+" / "+m.ID(), r)
	amount, err := m.Price(r.at, r.usage)
	if err != nil {
		require.True(t, amount.IsZero())
		require.Equal(t, r.want, reasonOf(t, err), "%v at %v: %+v", r, r.at, r.usage)
		return
	}
	require.Equal(t, r.want, amount.String(), "%v at %v: %+v", r, r.at, r.usage)
}

// reasonOf is an unpriced error as the tables write it.
func reasonOf(t require.TestingT, err error) string {
	unpriced, ok := errors.AsType[*UnpricedError](err)
	require.True(t, ok, "%v", err)
	if unpriced.Kind != "" {
		return string(unpriced.Reason) + ":" + unpriced.Kind
	}
	return string(unpriced.Reason)
}

func checkTable(t *testing.T, data []byte, rows []row) {
	t.Helper()
	b, err := Parse(data)
	require.NoError(t, err)
	c := b.NewCache()
	for range 2 { // the second time from the cache
		for _, r := range rows {
			checkRow(t, c, r)
		}
	}
}

func digestOf(t *testing.T, data []byte) string {
	t.Helper()
	b, err := Parse(data)
	require.NoError(t, err)
	digest := b.Digest()
	return hex.EncodeToString(digest[:])
}

func TestSampleBookIsPricedAsThePublicPackageDoes(t *testing.T) {
	data, err := os.ReadFile("../sample/prices.json")
	require.NoError(t, err)
	digest, rows := readTable(t, "testdata/sample_table.csv")
	require.Equal(t, digest, digestOf(t, data),
		"the sample book has changed; write the table again, see testdata/genai_table.py")
	require.Greater(t, len(rows), 200)
	checkTable(t, data, rows)
}

func TestPublicBookIsPricedAsThePublicPackageDoes(t *testing.T) {
	data, err := os.ReadFile(realBook)
	if errors.Is(err, os.ErrNotExist) {
		t.Skipf("the public price book is not beside the repository (%s)", realBook)
	}
	require.NoError(t, err)
	digest, rows := readTable(t, "testdata/genai_table.csv")
	if got := digestOf(t, data); got != digest {
		t.Skipf("the public price book (%s) is another edition, %s, than that of the table, %s", realBook, got, digest)
	}
	require.Greater(t, len(rows), 900)
	checkTable(t, data, rows)
}
