package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"example.com/weir/apps/gatewaymeter/truebill"
)

// Report is what a ledger has against the true bill. Its lists are in the order of tenants, then
// of minutes.
type Report struct {
	Records int // read
	Minutes int // in the true bill

	Missing    []Entry      // minutes of the true bill that were not read
	Unexpected []Entry      // minutes that were read and are not in the true bill
	Different  []Difference // minutes whose highest revision says something else
	Doubled    []Repeat     // revisions of a minute that were read more than once
	Backward   []Repeat     // revisions that were read after a higher one, in the order of reading

	Tenants []TenantDifference // tenants whose sums differ

	TrueUSD string // the sum of the true bill
	ReadUSD string // the sum of what was read, of each minute its highest revision
}

// Entry is a minute.
type Entry struct {
	Key     truebill.Key
	Amounts truebill.Amounts
}

// Difference is a minute of which something else was read than the true bill says.
type Difference struct {
	Key  truebill.Key
	Want truebill.Amounts
	Got  truebill.Amounts
}

// Repeat is a revision of a minute that should not have been read.
type Repeat struct {
	Key      truebill.Key
	Revision int64
	Times    int64  // how often it was read in all; 0 for one read backwards
	USD      string // what each of them says
}

// TenantDifference is a tenant's sum over all minutes that is not what the true bill says.
type TenantDifference struct {
	Tenant string
	Want   truebill.Amounts
	Got    truebill.Amounts
	Off    string // dollars read above the true sum, negative below it
}

// OK reports whether what was read is the true bill, each value once.
func (r *Report) OK() bool {
	return len(r.Missing)+len(r.Unexpected)+len(r.Different)+len(r.Doubled)+len(r.Backward)+len(r.Tenants) == 0
}

// String tells the outcome in one line, and under it at most ten findings of each kind.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d records read for %d minutes: "+
		"%d missing, %d unexpected, %d different, %d doubled, %d backward; USD %s read, %s true\n",
		r.Records, r.Minutes, len(r.Missing), len(r.Unexpected), len(r.Different), len(r.Doubled), len(r.Backward),
		r.ReadUSD, r.TrueUSD)
	entry := func(e Entry) string { return fmt.Sprintf("%s: %s", name(e.Key), say(e.Amounts)) }
	list(&b, "missing", r.Missing, entry)
	list(&b, "unexpected", r.Unexpected, entry)
	list(&b, "different", r.Different, func(d Difference) string {
		return fmt.Sprintf("%s: read %s, true %s", name(d.Key), say(d.Got), say(d.Want))
	})
	list(&b, "doubled", r.Doubled, func(d Repeat) string {
		return fmt.Sprintf("%s: revision %d read %d times, USD %s", name(d.Key), d.Revision, d.Times, d.USD)
	})
	list(&b, "backward", r.Backward, func(d Repeat) string {
		return fmt.Sprintf("%s: revision %d read after a higher one, USD %s", name(d.Key), d.Revision, d.USD)
	})
	list(&b, "tenant", r.Tenants, func(d TenantDifference) string {
		return fmt.Sprintf("%s: USD %s off: read %s, true %s", d.Tenant, d.Off, say(d.Got), say(d.Want))
	})
	return b.String()
}

func name(k truebill.Key) string { return k.Tenant + "|" + k.WindowEnd }

func say(a truebill.Amounts) string {
	return fmt.Sprintf("USD %s for %d requests (%d tokens in, %d out)",
		a.USD, a.Requests, a.InputTokens, a.OutputTokens)
}

func list[T any](b *strings.Builder, kind string, findings []T, say func(T) string) {
	const most = 10
	for i, f := range findings {
		if i == most {
			fmt.Fprintf(b, "  %s: %d more\n", kind, len(findings)-most)
			return
		}
		fmt.Fprintf(b, "  %s %s\n", kind, say(f))
	}
}

// Compare holds the ledger against the true bill.
func (l *Ledger) Compare(bill *truebill.Bill) *Report {
	r := &Report{Records: l.records, Minutes: len(bill.Minutes), Backward: l.backward, TrueUSD: bill.Total.USD}
	got := map[string]*sum{}
	all := &sum{}
	for _, key := range sorted(l.minutes) {
		m := l.minutes[key]
		if got[key.Tenant] == nil {
			got[key.Tenant] = &sum{}
		}
		got[key.Tenant].add(m.amounts)
		all.add(m.amounts)
		switch want, ok := bill.Minutes[key]; {
		case !ok:
			r.Unexpected = append(r.Unexpected, Entry{key, m.amounts})
		case m.amounts != want:
			r.Different = append(r.Different, Difference{Key: key, Want: want, Got: m.amounts})
		}
		for _, revision := range slices.Sorted(maps.Keys(m.times)) {
			if n := m.times[revision]; n > 1 {
				r.Doubled = append(r.Doubled, Repeat{Key: key, Revision: revision, Times: n, USD: m.usd[revision]})
			}
		}
	}
	for _, key := range sorted(bill.Minutes) {
		if l.minutes[key] == nil {
			r.Missing = append(r.Missing, Entry{key, bill.Minutes[key]})
		}
	}
	r.ReadUSD = decimal(&all.usd)
	r.compareTenants(bill.Tenants, got)
	return r
}

// compareTenants lists the tenants whose sums differ.
func (r *Report) compareTenants(want map[string]truebill.Amounts, got map[string]*sum) {
	tenants := map[string]bool{}
	for tenant := range want {
		tenants[tenant] = true
	}
	for tenant := range got {
		tenants[tenant] = true
	}
	for _, tenant := range slices.Sorted(maps.Keys(tenants)) {
		due, read := &sum{}, got[tenant]
		if w, ok := want[tenant]; ok {
			due.add(w)
		}
		if read == nil {
			read = &sum{}
		}
		if due.amounts() == read.amounts() {
			continue
		}
		off := new(big.Rat).Sub(&read.usd, &due.usd)
		r.Tenants = append(r.Tenants, TenantDifference{
			Tenant: tenant, Want: due.amounts(), Got: read.amounts(), Off: decimal(off),
		})
	}
}

// sum adds amounts up.
type sum struct {
	usd                     big.Rat
	requests, input, output int64
}

func (s *sum) add(a truebill.Amounts) {
	s.usd.Add(&s.usd, dollars(a.USD))
	s.requests += a.Requests
	s.input += a.InputTokens
	s.output += a.OutputTokens
}

func (s *sum) amounts() truebill.Amounts {
	return truebill.Amounts{
		USD: decimal(&s.usd), Requests: s.requests, InputTokens: s.input, OutputTokens: s.output,
	}
}

// sorted returns the keys of m in the order of tenants, then of minutes.
func sorted[V any](m map[truebill.Key]V) []truebill.Key {
	return slices.SortedFunc(maps.Keys(m), func(a, b truebill.Key) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.WindowEnd, b.WindowEnd))
	})
}
