package ledger_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir/apps/gatewaymeter/gateway"
	"example.com/weir/apps/gatewaymeter/ledger"
	"example.com/weir/apps/gatewaymeter/replay"
	"example.com/weir/apps/gatewaymeter/truebill"
)

const (
	key   = "acme|2026-03-02T10:02:00Z"
	value = `{"tenant_id":"acme","window_start":"2026-03-02T10:01:00Z","window_end":"2026-03-02T10:02:00Z","usd":"0.01084",` +
		`"currency":"USD","requests":1,"input_tokens":4808,"output_tokens":10,"revision":1}`
)

// bill is a true bill of two minutes of one tenant and one of another.
func bill() *truebill.Bill {
	one := truebill.Amounts{USD: "0.01084", Requests: 1, InputTokens: 4808, OutputTokens: 10}
	return &truebill.Bill{
		Minutes: map[truebill.Key]truebill.Amounts{
			{Tenant: "acme", WindowEnd: "2026-03-02T10:02:00Z"}: one,
			{Tenant: "acme", WindowEnd: "2026-03-02T10:03:00Z"}: one,
			{Tenant: "b|c", WindowEnd: "2026-03-02T10:02:00Z"}:  one,
		},
		Tenants: map[string]truebill.Amounts{
			"acme": {USD: "0.02168", Requests: 2, InputTokens: 9616, OutputTokens: 20},
			"b|c":  one,
		},
		Total: truebill.Amounts{USD: "0.03252", Requests: 3, InputTokens: 14424, OutputTokens: 30},
	}
}

// minute returns a record of tenant-cost as the job writes it.
func minute(tenant, end, usd string, revision int64) (k, v []byte) {
	t, err := time.Parse(time.RFC3339, end)
	if err != nil {
		panic(err)
	}
	return gateway.AppendTenantCostKey(nil, tenant, t.UnixMicro()),
		gateway.AppendTenantCostMinute(nil, &gateway.TenantCostMinute{
			TenantID: tenant, WindowStart: t.Add(-time.Minute).UnixMicro(), WindowEnd: t.UnixMicro(), USD: []byte(usd),
			Requests: 1, InputTokens: 4808, OutputTokens: 10, Revision: revision,
		})
}

func TestWhatIsReadOnceIsTheTrueBill(t *testing.T) {
	var l ledger.Ledger
	require.NoError(t, l.Add([]byte(key), []byte(value)))
	require.NoError(t, l.Add(minute("b|c", "2026-03-02T10:02:00Z", "0.5", 1)))
	require.NoError(t, l.Add(minute("acme", "2026-03-02T10:03:00Z", "0.01084", 1)))
	require.NoError(t, l.Add(minute("b|c", "2026-03-02T10:02:00Z", "0.01084", 2)), "a correction")
	r := l.Compare(bill())
	require.True(t, r.OK(), r.String())
	require.Equal(t, 4, l.Records())
	require.Equal(t, "4 records read for 3 minutes: 0 missing, 0 unexpected, 0 different, 0 doubled, 0 backward; "+
		"USD 0.03252 read, 0.03252 true\n", r.String())
}

func TestEveryFaultHasAName(t *testing.T) {
	var l ledger.Ledger
	require.NoError(t, l.Add(minute("acme", "2026-03-02T10:02:00Z", "0.01084", 2)))
	require.NoError(t, l.Add(minute("acme", "2026-03-02T10:02:00Z", "0.01084", 2)), "doubled")
	require.NoError(t, l.Add(minute("acme", "2026-03-02T10:02:00Z", "0.5", 1)), "backward")
	require.NoError(t, l.Add(minute("b|c", "2026-03-02T10:02:00Z", "0.1", 1)), "different")
	require.NoError(t, l.Add(minute("d", "2026-03-02T10:02:00Z", "0.2", 1)), "unexpected")
	r := l.Compare(bill())
	require.False(t, r.OK())
	one := truebill.Amounts{USD: "0.01084", Requests: 1, InputTokens: 4808, OutputTokens: 10}
	first := truebill.Key{Tenant: "acme", WindowEnd: "2026-03-02T10:02:00Z"}
	require.Equal(t, []ledger.Entry{{Key: truebill.Key{Tenant: "acme", WindowEnd: "2026-03-02T10:03:00Z"}, Amounts: one}}, r.Missing)
	require.Equal(t, []ledger.Repeat{{Key: first, Revision: 2, Times: 2, USD: "0.01084"}}, r.Doubled)
	require.Equal(t, []ledger.Repeat{{Key: first, Revision: 1, USD: "0.5"}}, r.Backward)
	require.Len(t, r.Different, 1)
	require.Len(t, r.Unexpected, 1)
	require.Equal(t, []string{"-0.01084", "0.08916", "0.2"}, []string{r.Tenants[0].Off, r.Tenants[1].Off, r.Tenants[2].Off})
	require.Equal(t, strings.Join([]string{
		"5 records read for 3 minutes: 1 missing, 1 unexpected, 1 different, 1 doubled, 1 backward; USD 0.31084 read, 0.03252 true",
		"  missing acme|2026-03-02T10:03:00Z: USD 0.01084 for 1 requests (4808 tokens in, 10 out)",
		"  unexpected d|2026-03-02T10:02:00Z: USD 0.2 for 1 requests (4808 tokens in, 10 out)",
		"  different b|c|2026-03-02T10:02:00Z: read USD 0.1 for 1 requests (4808 tokens in, 10 out), true USD 0.01084 for 1 requests (4808 tokens in, 10 out)",
		"  doubled acme|2026-03-02T10:02:00Z: revision 2 read 2 times, USD 0.01084",
		"  backward acme|2026-03-02T10:02:00Z: revision 1 read after a higher one, USD 0.5",
		"  tenant acme: USD -0.01084 off: read USD 0.01084 for 1 requests (4808 tokens in, 10 out), true USD 0.02168 for 2 requests (9616 tokens in, 20 out)",
		"  tenant b|c: USD 0.08916 off: read USD 0.1 for 1 requests (4808 tokens in, 10 out), true USD 0.01084 for 1 requests (4808 tokens in, 10 out)",
		"  tenant d: USD 0.2 off: read USD 0.2 for 1 requests (4808 tokens in, 10 out), true USD 0 for 0 requests (0 tokens in, 0 out)",
		"",
	}, "\n"), r.String())
}

func TestALostTopicIsMissingWhole(t *testing.T) {
	var l ledger.Ledger
	r := l.Compare(bill())
	require.Len(t, r.Missing, 3)
	require.Len(t, r.Tenants, 2)
	require.Equal(t, "0", r.ReadUSD)
}

func TestARecordThatBreaksTheContractIsAnError(t *testing.T) {
	for change, want := range map[[2]string]string{
		{value, "{"}:                       "unexpected end of JSON input",
		{value, value + "{}"}:              "invalid character '{' after top-level value",
		{`"usd"`, `"USD"`}:                 `unknown field "USD"`,
		{`"requests":1`, `"requests":"1"`}: "cannot unmarshal string",
		{"acme", "ac\xff"}:                 "invalid UTF-8",
		{`"usd":"0.01084",`, ""}:           "usd is missing",
		{`"usd"`, `"eur"`}:                 `unknown field "eur"`,
		{`"0.01084"`, `0.01084`}:           "cannot unmarshal number",
		{`0.01084`, `0.010840`}:            "not a plain decimal number",
		{`0.01084`, `1.084e-2`}:            "not a plain decimal number",
		{`0.01084`, `.01084`}:              "not a plain decimal number",
		{`0.01084`, `-0.01084`}:            "not a plain decimal number",
		{`0.01084`, `00.1`}:                "not a plain decimal number",
		{`0.01084`, `1.`}:                  "not a plain decimal number",
		{`"USD"`, `"EUR"`}:                 `currency is "EUR"`,
		{`"acme"`, `""`}:                   "tenant_id is empty",
		{`"acme"`, `"b"`}:                  `its key should be "b|2026-03-02T10:02:00Z"`,
		{`"requests":1`, `"requests":0`}:   "requests 0 is below 1",
		{`4808`, `-1`}:                     "input_tokens -1 is below 0",
		{`:10,`, `:1.5,`}:                  "cannot unmarshal number 1.5",
		{`"revision":1`, `"revision":0`}:   "revision 0 is below 1",
		{"10:01:00Z", "10:00:00Z"}:         "is not a minute in UTC",
		{"10:01:00Z", "yesterday"}:         "window_start: parsing time",
		{"10:02:00Z", "11:02:00+01:00"}:    "is not a minute in UTC",
		{"10:02:00Z", "soon"}:              "window_end: parsing time",
		{"10:01:00Z", "10:01:00.0Z"}:       "is not a minute in UTC",
	} {
		broken := strings.Replace(value, change[0], change[1], 1)
		require.NotEqual(t, value, broken)
		var l ledger.Ledger
		require.ErrorContains(t, l.Add([]byte(key), []byte(broken)), want, broken)
		require.Zero(t, l.Records())
	}
}

// TestATrueBillWrittenByTheEncodersIsComplete takes a replay's true bill through the job's own
// encoders and back.
func TestATrueBillWrittenByTheEncodersIsComplete(t *testing.T) {
	book, err := os.ReadFile("../sample/prices.json")
	require.NoError(t, err)
	trace, err := os.Open("../sample/trace.csv")
	require.NoError(t, err)
	defer trace.Close()
	rows, err := replay.ReadTrace(trace)
	require.NoError(t, err)
	models, err := replay.ModelsOf(book)
	require.NoError(t, err)
	g, err := replay.New(replay.Config{Trace: rows, Models: models, Shares: replay.Usual()})
	require.NoError(t, err)
	var records []truebill.Record
	for r := range g.All() {
		records = append(records, truebill.Record{Offset: int64(len(records)), Timestamp: r.At, Value: r.Value})
	}
	want, err := truebill.Compute(truebill.Config{}, book, records)
	require.NoError(t, err)

	var l ledger.Ledger
	for k, a := range want.Minutes {
		end, err := time.Parse(time.RFC3339, k.WindowEnd)
		require.NoError(t, err)
		m := gateway.TenantCostMinute{
			TenantID: k.Tenant, WindowStart: end.Add(-time.Minute).UnixMicro(), WindowEnd: end.UnixMicro(), USD: []byte(a.USD),
			Requests: a.Requests, InputTokens: a.InputTokens, OutputTokens: a.OutputTokens, Revision: 1,
		}
		require.NoError(t, l.Add(gateway.AppendTenantCostKey(nil, k.Tenant, m.WindowEnd), gateway.AppendTenantCostMinute(nil, &m)))
	}
	r := l.Compare(want)
	require.True(t, r.OK(), r.String())
	require.Greater(t, r.Minutes, 30)
}
