package demo

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/weir/apps/gatewaymeter/ledger"
	"example.com/weir/apps/gatewaymeter/rig"
	"example.com/weir/apps/gatewaymeter/truebill"
)

// oneMinute is a true bill of one minute.
func oneMinute() *truebill.Bill {
	a := truebill.Amounts{USD: "1.25", Requests: 2000, InputTokens: 30, OutputTokens: 4}
	return &truebill.Bill{
		Minutes: map[truebill.Key]truebill.Amounts{{Tenant: "acme", WindowEnd: "2026-03-02T10:01:00Z"}: a},
		Tenants: map[string]truebill.Amounts{"acme": a}, Total: a,
	}
}

// readBack is the report on a consumer that read values of that minute with these amounts.
func readBack(t *testing.T, usd ...string) *ledger.Report {
	t.Helper()
	var l ledger.Ledger
	for _, amount := range usd {
		require.NoError(t, l.Add([]byte("acme|2026-03-02T10:01:00Z"), fmt.Appendf(nil, `{"tenant_id":"acme",`+
			`"window_start":"2026-03-02T10:00:00Z","window_end":"2026-03-02T10:01:00Z","usd":%q,"currency":"USD",`+
			`"requests":2000,"input_tokens":30,"output_tokens":4,"revision":1}`, amount)))
	}
	return l.Compare(oneMinute())
}

func TestTheVerdictNamesWhatIsWrong(t *testing.T) {
	j := &rig.Journal{Generations: 3}
	killed := []kill{{Again: 1200}, {Again: -3}}
	for _, c := range []struct {
		read []string
		want string
	}{
		{[]string{"1.25"}, "VERDICT: right: 1 minutes, USD 1.25, none missing, doubled or different; " +
			"2 kills, 3 generations, at least 1,200 events read again"},
		{nil, "VERDICT: WRONG: of 1 minutes 1 missing, 0 unexpected, 0 different, 0 doubled (USD 0)"},
		{[]string{"1.25", "1.25", "1.25"}, "0 different, 1 doubled (USD 2.5)"},
		{[]string{"1.5"}, "1 different"},
	} {
		require.Contains(t, verdict(readBack(t, c.read...), j, killed), c.want)
	}
}

func TestTheTableHasTheBillBesideTheTrueOne(t *testing.T) {
	lines := func(usd ...string) []string {
		var all []string
		for line := range strings.Lines(table(oneMinute(), readBack(t, usd...))) {
			all = append(all, strings.Join(strings.Fields(line), " "))
		}
		return all
	}
	require.Equal(t, []string{
		"tenant requests tokens in tokens out USD billed USD true off doubled",
		"acme 2,000 30 4 1.25 1.25 0 0", "all 2,000 30 4 1.25 1.25 0 0",
	}, lines("1.25"))
	require.Equal(t, []string{"acme 2,000 30 4 1.5 1.25 0.25 1.5", "all 2,000 30 4 1.5 1.25 0.25 1.5"}, lines("1.5", "1.5")[1:])
	require.Equal(t, []string{"acme 0 0 0 0 1.25 -1.25 0", "all 0 0 0 0 1.25 -1.25 0"}, lines()[1:])
}

func TestAKillSaysWhatItLeftBehind(t *testing.T) {
	k := kill{Open: []rig.OpenTransaction{
		{ID: "demo-00ff00ff00ff00ff-0-1", State: "Ongoing"},
		{ID: "demo-00ff00ff00ff00ff-1-2", State: "PrepareCommit"},
	}, Undecided: 7, Fired: 3}
	require.Equal(t, "2 transactions open (00ff-0-1 Ongoing, 00ff-1-2 PrepareCommit), 7 records uncommitted on tenant-cost",
		k.left())
	require.Equal(t, "no transaction open, 3 records on tenant-cost that no checkpoint covers", (&kill{Fired: 3}).left())
	require.Equal(t, "no transaction open", (&kill{}).left())
}

func TestAKillThatCostNothingHitAnIdleJob(t *testing.T) {
	require.True(t, (&kill{}).idle())
	require.True(t, (&kill{Again: -1, Open: []rig.OpenTransaction{{ID: "empty"}}}).idle())
	for _, k := range []kill{{Again: 1}, {Undecided: 1}, {Fired: 1}} {
		require.False(t, k.idle())
	}
}

func TestNumbersAreGroupedByThousands(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 999: "999", 1000: "1,000", -1000: "-1,000", -100: "-100", 1234567: "1,234,567",
	} {
		require.Equal(t, want, grouped(n))
	}
}
