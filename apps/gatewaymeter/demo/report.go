package demo

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"text/tabwriter"

	"example.com/weir/apps/gatewaymeter/ledger"
	"example.com/weir/apps/gatewaymeter/rig"
	"example.com/weir/apps/gatewaymeter/truebill"
)

// report prints the bill beside the true one, and the verdict.
func (p *printer) report(bill *truebill.Bill, r *ledger.Report, j *rig.Journal, killed []kill) {
	p.textf("\n%s", table(bill, r))
	p.textf("%s", strings.TrimRight(r.String(), "\n"))
	c := &bill.Counts
	p.textf("%s events: %d repeated, %d conflicts; requests: %d abandoned, %d unmatched, %d unpriced, %d failed; "+
		"%d dead letters", grouped(int64(c.Events)), c.Repeated, c.Conflicts, c.Abandoned, c.Unmatched, c.Unpriced,
		c.Failed, len(bill.DeadLetters))
	p.textf("%s", verdict(r, j, killed))
}

// verdict is the last line.
func verdict(r *ledger.Report, j *rig.Journal, killed []kill) string {
	again := int64(0)
	for _, k := range killed {
		again += max(k.Again, 0)
	}
	through := fmt.Sprintf("%d kills, %d generations, at least %s events read again",
		len(killed), j.Generations, grouped(again))
	if r.OK() {
		return fmt.Sprintf("VERDICT: right: %s minutes, USD %s, none missing, doubled or different; %s",
			grouped(int64(r.Minutes)), r.ReadUSD, through)
	}
	return fmt.Sprintf("VERDICT: WRONG: of %s minutes %d missing, %d unexpected, %d different, %d doubled (USD %s), "+
		"%d backward; %s", grouped(int64(r.Minutes)), len(r.Missing), len(r.Unexpected), len(r.Different),
		len(r.Doubled), decimal(doubled(r)[allTenants]), len(r.Backward), through)
}

// allTenants stands for the sum over tenants, none of which has an empty name.
const allTenants = ""

// doubled sums what a consumer that adds up every record bills too much, by tenant.
func doubled(r *ledger.Report) map[string]*big.Rat {
	sums := map[string]*big.Rat{allTenants: new(big.Rat)}
	for _, d := range r.Doubled {
		usd, ok := new(big.Rat).SetString(d.USD)
		if !ok {
			continue // the ledger takes no such record
		}
		usd.Mul(usd, big.NewRat(d.Times-1, 1))
		for _, tenant := range []string{d.Key.Tenant, allTenants} {
			if sums[tenant] == nil {
				sums[tenant] = new(big.Rat)
			}
			sums[tenant].Add(sums[tenant], usd)
		}
	}
	return sums
}

func decimal(r *big.Rat) string {
	if r == nil {
		return "0"
	}
	digits, _ := r.FloatPrec() // sums of decimal numbers end
	return r.FloatString(digits)
}

// table is the bill of each tenant: what was read of the highest revision of each minute, what the true
// bill says, how far one is off the other, and what was read more than once.
func table(bill *truebill.Bill, r *ledger.Report) string {
	off := map[string]ledger.TenantDifference{}
	tenants := maps.Clone(bill.Tenants)
	for _, t := range r.Tenants {
		off[t.Tenant] = t
		tenants[t.Tenant] = t.Want
	}
	twice := doubled(r)
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	var all truebill.Amounts
	fmt.Fprintln(w, "tenant\trequests\ttokens in\ttokens out\tUSD billed\tUSD true\toff\tdoubled\t")
	for _, tenant := range slices.Sorted(maps.Keys(tenants)) {
		want := tenants[tenant]
		got, difference := want, "0"
		if d, ok := off[tenant]; ok {
			got, difference = d.Got, d.Off
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", tenant, grouped(got.Requests), grouped(got.InputTokens),
			grouped(got.OutputTokens), got.USD, want.USD, difference, decimal(twice[tenant]))
		all.Requests += got.Requests
		all.InputTokens += got.InputTokens
		all.OutputTokens += got.OutputTokens
	}
	fmt.Fprintf(w, "all\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", grouped(all.Requests), grouped(all.InputTokens),
		grouped(all.OutputTokens), r.ReadUSD, r.TrueUSD, difference(r), decimal(twice[allTenants]))
	w.Flush()
	return b.String()
}

// difference is how much was read above the true sum.
func difference(r *ledger.Report) string {
	read, ok1 := new(big.Rat).SetString(r.ReadUSD)
	due, ok2 := new(big.Rat).SetString(r.TrueUSD)
	if !ok1 || !ok2 {
		return "?"
	}
	return decimal(read.Sub(read, due))
}
