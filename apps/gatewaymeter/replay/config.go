package replay

import (
	"errors"
	"fmt"
	"time"
)

// Config says what to generate. Trace and Models are required; everything else has a default.
type Config struct {
	Seed  uint64
	Trace []Row

	// Requests ends the replay after so many requests, and Duration before the first request
	// that comes so long after the first one. With neither, each row is replayed once.
	Requests int
	Duration time.Duration

	// Rate is how many requests come in a second, on average: the trace's gaps are stretched.
	// Zero keeps them as they are.
	Rate float64

	// Start is when the first request comes. Zero is when it came in the trace.
	Start time.Time

	// Tenants is how many tenants there are, from whom requests are drawn so that the n-th
	// sends 1/n of what the first one sends. Default 20.
	Tenants int

	Models []Model

	// Partitions is how many partitions Record.Partition tells apart. With zero it is -1, and
	// the producer decides by the key.
	Partitions int

	// LateMin and LateMax bound how long after its event a late record comes, and LateMax how
	// long after its event one is sent again. Defaults 1 min and 50 min.
	LateMin time.Duration
	LateMax time.Duration

	// IDPrefix begins every request ID. Two replays into one topic need two of them. Default
	// "r" and the seed in hexadecimal.
	IDPrefix string

	Shares Shares
}

// MaxLate is how long after its event a record comes at most.
func (c *Config) MaxLate() time.Duration {
	switch {
	case c.Shares.TooLate > 0:
		return max(c.LateMax, tooLateMax)
	case c.Shares.Late+c.Shares.LateCompleted > 0:
		return c.LateMax
	}
	return 0
}

// Shares are how many requests are out of the ordinary, each from 0 to 1 and drawn on its own
// unless it says otherwise.
type Shares struct {
	// Cancelled and Failed are ways to end; the sum of both is at most 1.
	Cancelled float64
	Failed    float64

	NoUsage      float64 // of those that did not fail: Completed reports no usage
	Cached       float64 // some input tokens came from or went to the cache, where the model has one
	UnknownModel float64 // the book does not have the model
	Fallback     float64 // Completed names provider and model, and another one than Started

	// StartedAlone, CompletedAlone and Unmatched lack a half; the sum of them is at most 1.
	StartedAlone   float64 // nothing completes it
	CompletedAlone float64 // only Completed, which names provider and model
	Unmatched      float64 // only Completed, which names neither

	CompletedFirst float64 // Completed comes before Started
	Spread         float64 // the halves lie in different partitions, where Partitions is above 1

	// Late, LateCompleted and TooLate exclude each other; the sum of them is at most 1.
	Late          float64 // the whole request comes between LateMin and LateMax after its time
	LateCompleted float64 // only Completed comes so late: its Started may be abandoned before
	TooLate       float64 // the whole request comes 2 to 3 hours after its time

	Repeated    float64 // each of its events is sent again with this share
	Conflicting float64 // one of its events comes a second time under another event_id

	Bad float64 // it is followed by a record that the contract does not allow
}

// Usual returns shares as a gateway may have them: everything the bill must come through, a
// little of each, and nothing whose effect depends on how partitions are mixed.
func Usual() Shares {
	return Shares{
		Cancelled: 0.03, Failed: 0.04, NoUsage: 0.002, Cached: 0.25, UnknownModel: 0.002, Fallback: 0.02,
		StartedAlone: 0.004, CompletedAlone: 0.004, Unmatched: 0.002,
		CompletedFirst: 0.01, Spread: 0.1, Late: 0.01, Repeated: 0.02, Conflicting: 0.003,
	}
}

func (c Config) withDefaults() (Config, error) {
	switch {
	case len(c.Trace) == 0:
		return c, errors.New("replay: the trace has no rows")
	case len(c.Models) == 0:
		return c, errors.New("replay: no models")
	case c.Requests < 0 || c.Duration < 0 || c.Tenants < 0 || c.Partitions < 0 || !(c.Rate >= 0):
		return c, errors.New("replay: requests, duration, tenants, partitions and rate are not negative")
	case c.LateMin < 0 || c.LateMax < 0:
		return c, errors.New("replay: lateness is not negative")
	}
	for _, m := range c.Models {
		if m.Weight < 0 || m.Provider == "" || m.Model == "" {
			return c, fmt.Errorf("replay: model %q of provider %q: want names, and a weight that is not negative",
				m.Model, m.Provider)
		}
	}
	if c.Requests == 0 && c.Duration == 0 {
		c.Requests = len(c.Trace)
	}
	if c.Start.IsZero() {
		c.Start = c.Trace[0].At
	}
	if c.Tenants == 0 {
		c.Tenants = 20
	}
	if c.LateMin == 0 {
		c.LateMin = time.Minute
	}
	if c.LateMax == 0 {
		c.LateMax = 50 * time.Minute
	}
	if c.LateMax < c.LateMin {
		return c, fmt.Errorf("replay: the longest lateness %s is below the shortest %s", c.LateMax, c.LateMin)
	}
	if c.IDPrefix == "" {
		c.IDPrefix = fmt.Sprintf("r%x", c.Seed)
	}
	return c, c.Shares.validate()
}

func (s Shares) validate() error {
	for _, sum := range []struct {
		names string
		share float64
	}{
		{"Cancelled and Failed", s.Cancelled + s.Failed},
		{"StartedAlone, CompletedAlone and Unmatched", s.StartedAlone + s.CompletedAlone + s.Unmatched},
		{"Late, LateCompleted and TooLate", s.Late + s.LateCompleted + s.TooLate},
	} {
		if sum.share > 1 {
			return fmt.Errorf("replay: the shares %s come to more than 1", sum.names)
		}
	}
	for _, share := range []float64{
		s.Cancelled, s.Failed, s.NoUsage, s.Cached, s.UnknownModel, s.Fallback, s.StartedAlone, s.CompletedAlone,
		s.Unmatched, s.CompletedFirst, s.Spread, s.Late, s.LateCompleted, s.TooLate, s.Repeated, s.Conflicting, s.Bad,
	} {
		if !(share >= 0 && share <= 1) {
			return fmt.Errorf("replay: share %v is not between 0 and 1", share)
		}
	}
	return nil
}
