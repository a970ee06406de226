package lab

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/weir/apps/gatewaymeter/truebill"
)

// place is where a record lies.
type place struct {
	Topic     string
	Partition int32
	Offset    int64
}

func (p place) String() string { return fmt.Sprintf("%s/%d@%d", p.Topic, p.Partition, p.Offset) }

// line is a record of tenant-cost, as a ledger that appends keeps it.
type line struct {
	At       place
	Minute   truebill.Key
	USD      string
	Requests int64
	Revision int64
	Written  time.Time // the record's own timestamp
	Read     time.Time // when a consumer had it

	producer int64 // the producer ID
	fate     fate
}

// fate is what became of a record, as the markers behind it in the log say.
type fate int

const (
	plain     fate = iota // not in a transaction
	open                  // nothing has ended its transaction
	committed             // a COMMIT marker came
	aborted               // an ABORT marker came
)

func (f fate) String() string { return [...]string{"plain", "open", "committed", "aborted"}[f] }

// minuteLine reads a record that is no marker.
func minuteLine(r *kgo.Record, now time.Time) (line, error) {
	var v struct {
		TenantID  string `json:"tenant_id"`
		WindowEnd string `json:"window_end"`
		USD       string `json:"usd"`
		Requests  int64  `json:"requests"`
		Revision  int64  `json:"revision"`
	}
	at := place{r.Topic, r.Partition, r.Offset}
	if err := json.Unmarshal(r.Value, &v); err != nil {
		return line{}, fmt.Errorf("%s: %w", at, err)
	}
	l := line{
		At: at, Minute: truebill.Key{Tenant: v.TenantID, WindowEnd: v.WindowEnd}, USD: v.USD, Requests: v.Requests,
		Revision: v.Revision, Written: r.Timestamp, Read: now, producer: r.ProducerID,
	}
	if r.Attrs.IsTransactional() {
		l.fate = open
	}
	return l, nil
}

// logbook is a topic as its log has it, read in order and markers included: what became of each record is
// what the next marker of its producer says.
type logbook struct {
	lines []line
	open  map[producer][]int // indexes of lines that wait for a marker
}

type producer struct {
	partition int32
	id        int64
}

// add takes the next record of a partition.
func (b *logbook) add(r *kgo.Record, now time.Time) error {
	if b.open == nil {
		b.open = map[producer][]int{}
	}
	by := producer{r.Partition, r.ProducerID}
	if r.Attrs.IsControl() {
		ended, err := marker(r.Key)
		if err != nil {
			return fmt.Errorf("%s: %w", place{r.Topic, r.Partition, r.Offset}, err)
		}
		for _, i := range b.open[by] {
			b.lines[i].fate = ended
		}
		delete(b.open, by)
		return nil
	}
	l, err := minuteLine(r, now)
	if err != nil {
		return err
	}
	if l.fate == open {
		b.open[by] = append(b.open[by], len(b.lines))
	}
	b.lines = append(b.lines, l)
	return nil
}

// marker reads the key of a control record: a version, then its type.
func marker(key []byte) (fate, error) {
	if len(key) >= 4 {
		switch binary.BigEndian.Uint16(key[2:]) {
		case 0:
			return aborted, nil
		case 1:
			return committed, nil
		}
	}
	return open, errors.New("a control record that is no marker of a transaction")
}

// byMinute groups lines by what they bill, each group in the order of lines.
func byMinute(lines []line) map[truebill.Key][]line {
	m := map[truebill.Key][]line{}
	for _, l := range lines {
		m[l.Minute] = append(m[l.Minute], l)
	}
	return m
}

// total adds up what lines say.
func total(lines []line) string {
	sum := new(big.Rat)
	for _, l := range lines {
		if usd, ok := new(big.Rat).SetString(l.USD); ok {
			sum.Add(sum, usd)
		}
	}
	return decimal(sum)
}

// less is a - b, as amounts.
func less(a, b string) string {
	x, okA := new(big.Rat).SetString(a)
	y, okB := new(big.Rat).SetString(b)
	if !okA || !okB {
		return "?"
	}
	return decimal(x.Sub(x, y))
}

func decimal(r *big.Rat) string {
	digits, _ := r.FloatPrec() // sums of decimal numbers end
	return r.FloatString(digits)
}
