package demo

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/weir/apps/gatewaymeter/ledger"
	"example.com/weir/apps/gatewaymeter/rig"
)

// billing is the consumer of tenant-cost that bills: it reads while the job runs and is killed.
type billing struct {
	*rig.Reader
	ledger ledger.Ledger
}

func startBilling(b *rig.Broker) (*billing, error) {
	c := &billing{}
	var err error
	c.Reader, err = b.StartReader(b.Topics.TenantCost, kgo.ReadCommitted(), func(r *kgo.Record) error {
		if r.Attrs.IsControl() {
			return nil
		}
		return c.ledger.Add(r.Key, r.Value)
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// records returns how many records were read.
func (c *billing) records() (n int) {
	c.Look(func() { n = c.ledger.Records() })
	return n
}

// minutes returns how many minutes of event time somebody was billed for, and how many records were read.
func (c *billing) minutes() (minutes, records int) {
	c.Look(func() { minutes, records = c.ledger.Minutes(), c.ledger.Records() })
	return minutes, records
}
