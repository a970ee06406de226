package truebill

import (
	"fmt"
	"math"
	"math/big"
	"time"
)

// Config holds the settings of the job whose bill is computed. Zero is the default; a negative
// duration stands for none at all.
type Config struct {
	MaxAhead          time.Duration // how far an event may be ahead of its record; default 1 h
	OutOfOrderness    time.Duration // default 5 s
	CompletionTimeout time.Duration // default 10 min
	AllowedLateness   time.Duration // default 1 h
	Deduplication     time.Duration // default 1 h

	// ErrorShare is the share of failed requests, in percent, from which a minute is an alert,
	// and ErrorRequests how many requests it must have. Defaults 20 and 10.
	ErrorShare    int64
	ErrorRequests int64
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		value    *time.Duration
		byItself time.Duration
	}{
		{&c.MaxAhead, time.Hour},
		{&c.OutOfOrderness, 5 * time.Second},
		{&c.CompletionTimeout, 10 * time.Minute},
		{&c.AllowedLateness, time.Hour},
		{&c.Deduplication, time.Hour},
	} {
		if *d.value == 0 {
			*d.value = d.byItself
		}
		*d.value = max(*d.value, 0)
	}
	if c.ErrorShare == 0 {
		c.ErrorShare = 20
	}
	if c.ErrorRequests == 0 {
		c.ErrorRequests = 10
	}
	return c
}

// Key names a minute of a tenant.
type Key struct {
	Tenant    string
	WindowEnd string // RFC 3339 in UTC, as on tenant-cost
}

// Amounts are what is billed, of one minute or of many.
type Amounts struct {
	USD          string // a plain decimal number, exact
	Requests     int64
	InputTokens  int64
	OutputTokens int64
}

// ErrorRate is a minute with too many failed requests, as it was when its window first fired.
type ErrorRate struct{ Requests, Failed int64 }

// Rejected is a dead letter.
type Rejected struct {
	Partition int32
	Offset    int64
	Reason    string
}

// Counts tell what became of the events and requests that are not in the bill.
type Counts struct {
	Events    int // records that hold an event
	Repeated  int // events that were sent again
	Conflicts int // events with another event_id than the first of their kind
	Abandoned int // requests whose Started stood alone when the timeout came
	Unmatched int // requests whose Completed stood alone and does not name provider and model
	Overdue   int // Started events that came when their request was over
	Unpriced  int // assembled requests without a price
	Failed    int // assembled requests that failed
	Late      int // assembled requests that came after their window was closed for good
}

// Bill is the true bill.
type Bill struct {
	Minutes     map[Key]Amounts    // of every minute in which something was billed
	Tenants     map[string]Amounts // the sums over each tenant's minutes
	Total       Amounts
	ErrorRates  map[Key]ErrorRate
	DeadLetters []Rejected
	Counts      Counts
}

// Compute returns the bill of records of any number of partitions, all of them taken as in
// time. The records of one partition are in the order of their offsets; how partitions are mixed
// does not matter under the conditions that the package documents. It fails where the price
// book cannot be read.
func Compute(cfg Config, priceBook []byte, records []Record) (*Bill, error) {
	m, err := newMachine(cfg, priceBook)
	if err != nil {
		return nil, err
	}
	for _, rec := range records {
		m.take(rec)
	}
	return m.finish()
}

// Simulate returns the bill of records in the order in which they were read, with every rule
// about time applied where it applies. The watermark is the smallest of the partitions that the
// records name. Simulate fails where the price book cannot be read, or where the records of a
// partition are not in the order of their offsets.
func Simulate(cfg Config, priceBook []byte, records []Record) (*Bill, error) {
	m, err := newMachine(cfg, priceBook)
	if err != nil {
		return nil, err
	}
	parts := map[int32]*partition{}
	for _, rec := range records {
		if parts[rec.Partition] == nil {
			parts[rec.Partition] = &partition{offset: -1}
		}
	}
	for i, rec := range records {
		p := parts[rec.Partition]
		if rec.Offset <= p.offset {
			return nil, fmt.Errorf("record %d: offset %d of partition %d comes after offset %d",
				i, rec.Offset, rec.Partition, p.offset)
		}
		p.offset = rec.Offset
		e := m.take(rec)
		if e == nil || p.seen && !e.at.After(p.highest) {
			continue
		}
		p.highest, p.seen = e.at, true
		if lowest, ok := lowest(parts); ok {
			m.advance(lowest.Add(-m.cfg.OutOfOrderness))
		}
	}
	return m.finish()
}

// partition is how far a partition has been read.
type partition struct {
	offset  int64
	highest time.Time // event time
	seen    bool      // there is a highest event time
}

// lowest returns the smallest of the partitions' event times, once each of them has one.
func lowest(parts map[int32]*partition) (at time.Time, ok bool) {
	for _, p := range parts {
		if !p.seen {
			return time.Time{}, false
		}
		if !ok || p.highest.Before(at) {
			at, ok = p.highest, true
		}
	}
	return at, ok
}

// minute is a tenant's window while the bill is being computed.
type minute struct {
	end      time.Time
	usd      *big.Rat
	requests int64
	input    *big.Int
	output   *big.Int

	all, failed int64 // of every assembled request, for the alert
	fired       bool
}

// add takes an assembled request that was billed.
func (w *minute) add(cost *big.Rat, u *usage) {
	w.usd.Add(w.usd, cost)
	w.requests++
	w.input.Add(w.input, big.NewInt(u.input))
	w.output.Add(w.output, big.NewInt(u.output))
}

// plus adds the sums of another minute.
func (w *minute) plus(other *minute) {
	w.usd.Add(w.usd, other.usd)
	w.requests += other.requests
	w.input.Add(w.input, other.input)
	w.output.Add(w.output, other.output)
}

func newMinute(end time.Time) *minute {
	return &minute{end: end, usd: new(big.Rat), input: new(big.Int), output: new(big.Int)}
}

func (w *minute) amounts() (Amounts, error) {
	usd, err := formatUSD(w.usd)
	if err != nil {
		return Amounts{}, err
	}
	if !w.input.IsInt64() || !w.output.IsInt64() {
		return Amounts{}, fmt.Errorf("more than %d tokens", math.MaxInt64)
	}
	return Amounts{
		USD: usd, Requests: w.requests, InputTokens: w.input.Int64(), OutputTokens: w.output.Int64(),
	}, nil
}

// formatUSD writes an amount as a plain decimal number: exact, without an exponent, without
// zeros at the end of a fraction. An amount made from decimal prices always ends.
func formatUSD(amount *big.Rat) (string, error) {
	digits, exact := amount.FloatPrec()
	if !exact {
		return "", fmt.Errorf("%s is not a decimal number", amount)
	}
	return amount.FloatString(digits), nil
}
