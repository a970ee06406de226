package simulation

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/weir/connectors/kafka/settle"
	"example.com/weir/connectors/kafka/txn"
	"example.com/weir/internal/proof"
)

// The seeds that every run of the tests takes. WEIR_SIM_FIRST and WEIR_SIM_SEEDS choose others; WEIR_SIM_SHRINK says how
// many worlds are tried to make a failure shorter.
const (
	firstSeed = 1
	someSeeds = 4000
)

// TestEveryWorldIsExactlyOnce runs the worlds of the seeds. Each record is visible once, in order, and a job
// that stops by name has a reason.
func TestEveryWorldIsExactlyOnce(t *testing.T) {
	first, seeds := number(t, "WEIR_SIM_FIRST", firstSeed), number(t, "WEIR_SIM_SEEDS", someSeeds/fewer)
	r := RunMany(first, seeds)
	t.Log(&r)
	for i := range r.Failures {
		t.Errorf("%s", &r.Failures[i])
	}
	if len(r.Failures) > 0 {
		tries := 20_000
		if testing.Short() { // that it failed is all that is wanted
			tries = 0
		}
		t.Fatal(Explain(r.Failures[0], tries))
	}
	if first != firstSeed || seeds < someSeeds {
		return
	}
	require.Empty(t, r.Never(), "what is never met proves nothing")
	for _, f := range r.Faults {
		proof.Note(t, proof.Count{
			Suite: proof.Simulator, Fault: f.Fault, Injected: int64(f.Hit), Hit: int64(f.Hit),
			Records: int64(f.Records), Missing: int64(f.Missing), Doubled: int64(f.Doubled),
		})
	}
}

func number(t *testing.T, name string, standard uint64) uint64 {
	text := os.Getenv(name)
	if text == "" {
		return standard
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, name)
	return n
}

func TestTheSameSeedHasTheSameCourse(t *testing.T) {
	for seed := uint64(firstSeed); seed < firstSeed+50; seed++ {
		first, again, played := course(seed), course(seed), &strings.Builder{}
		require.Equal(t, first.text.String(), again.text.String())
		Replay(first.result.Config, first.result.Choices, func(line string) { played.WriteString(line + "\n") })
		require.Equal(t, first.text.String(), played.String(), "choices that are played again")
	}
}

type told struct {
	result Result
	text   strings.Builder
}

func course(seed uint64) *told {
	c := &told{}
	c.result = Run(seed, func(line string) { c.text.WriteString(line + "\n") })
	return c
}

// sabotaged runs a world in which something is broken that no protocol can see.
func sabotaged(choices *tape, c Config, sabotage func(*world)) Result {
	w := newWorld(c, choices, nil)
	w.sabotage = sabotage
	return runWorld(w)
}

func calmWorld() Config {
	return Config{Splits: 2, Partitions: 2, Records: 3, Version2: true, MarkerRight: true, Keep: true}
}

func TestACalmWorldFinishes(t *testing.T) {
	r := Replay(calmWorld(), nil, nil)
	require.Empty(t, r.Violation)
	require.Equal(t, finished, r.Ended)
	require.Zero(t, r.Counts.GenerationsFailed)
}

// TestTheOracleSees breaks a world in each of the ways that the oracle is there to see.
func TestTheOracleSees(t *testing.T) {
	// once does something in the first step in which it can be done.
	once := func(do func(w *world, p *partition, at int) bool) func(*world) {
		done := false
		return func(w *world) {
			for _, p := range w.broker.logs {
				for at := range p.log {
					done = done || do(w, p, at)
				}
			}
		}
	}
	for want, sabotage := range map[string]func(*world){
		"DOUBLED": once(func(w *world, p *partition, at int) bool {
			e := p.log[at]
			if e.decided == settle.Commit {
				p.log = append(p.log, e)
				w.oracle.decided(p, int64(len(p.log)-1))
			}
			return e.decided == settle.Commit
		}),
		"OUT OF ORDER": once(func(_ *world, p *partition, at int) bool {
			later := at + 1
			for ; later < len(p.log) && p.log[later].control == settle.NoMarker; later++ {
				if p.log[at].control == settle.NoMarker && p.log[at].record.split == p.log[later].record.split {
					p.log[at].record, p.log[later].record = p.log[later].record, p.log[at].record
					return true
				}
			}
			return false
		}),
		"MISSING": once(func(w *world, p *partition, at int) bool {
			e := &p.log[at]
			if e.decided == settle.Commit {
				e.decided = settle.Abort
				delete(w.oracle.visible, e.record)
			}
			return e.decided == settle.Abort
		}),
		"TOO EARLY": once(func(w *world, p *partition, at int) bool {
			for _, t := range w.broker.txns {
				if t.state == settle.Ongoing {
					w.broker.endTxn(t.id, t.producerID, t.epoch, 5)
					return true
				}
			}
			return false
		}),
	} {
		t.Run(want, func(t *testing.T) {
			r := sabotaged(play(nil), calmWorld(), sabotage)
			require.Equal(t, want, Kind(r.Violation), r.Violation)
		})
	}
}

// TestAFailureIsMadeShort calls it wrong that two processes crash, and wants to be told two crashes and
// nothing else that fails.
func TestAFailureIsMadeShort(t *testing.T) {
	wrong := func(w *world) {
		if w.counts.Crashes == 2 {
			w.wrong("CRASHED: twice")
		}
	}
	found := 0
	for seed := uint64(firstSeed); found < 3; seed++ {
		c := randomConfig(seed)
		r := sabotaged(newTape(seed, c.Choices), c, wrong)
		if r.Violation == "" || r.Counts.RequestsFailed == 0 || c.Splits == 1 {
			continue
		}
		found++
		short := shrink(r, 20_000, func(c Config, choices []uint16) Result { return sabotaged(play(choices), c, wrong) })
		require.Equal(t, "CRASHED: twice", short.Violation)
		require.Equal(t, Counts{Crashes: 2}, Counts{Crashes: short.Counts.Crashes, RequestsFailed: short.Counts.RequestsFailed})
		require.Equal(t, 1, short.Config.Splits*short.Config.Partitions*short.Config.Records)
		require.Less(t, len(short.Choices), 12, "%v", short.Choices)
	}
}

func TestARecordIsKnownByAllOfIt(t *testing.T) {
	id := recordID{split: 1, at: 2}
	r := id.record(2)
	got, ok := recordOf(&r)
	require.True(t, ok)
	require.Equal(t, id, got)
	for name, spoil := range map[string]func(*txn.Record){
		"key":       func(r *txn.Record) { r.Key = nil },
		"value":     func(r *txn.Record) { r.Value = []byte("r1.3") },
		"timestamp": func(r *txn.Record) { r.Timestamp++ },
		"headers":   func(r *txn.Record) { r.Headers = nil },
	} {
		r := id.record(2)
		spoil(&r)
		_, ok := recordOf(&r)
		require.False(t, ok, name)
	}
}
