package simulation

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"example.com/weir/connectors/kafka/txn"
)

// Times of the simulated world. The brokers' and the job's are in the proportions that they have.
const (
	transactionTimeout = 15 * time.Minute
	commitDeadline     = time.Minute
	grace              = 10 * time.Second
	interval           = time.Second
	checkpointTimeout  = 10 * time.Second
	requestTimeout     = 2 * time.Second
	restartDelay       = time.Second
)

// Config is what a world is made of, and how much goes wrong in it.
type Config struct {
	Splits     int // each is read in order, and written in order within a partition
	Partitions int
	Records    int // of each split
	Tolerable  int // checkpoints in a row that may fail
	Version2   bool
	Lost       txn.LostTransaction
	Keep       bool // the checkpoints keep the records of open transactions
	// MarkerRight says that the job may write control records.
	MarkerRight bool
	// StrictMarkers says that brokers refuse a marker that has not a later epoch than the producer.
	StrictMarkers bool

	Faults Faults
	// Choices is how many choices are made at random before everything goes its ordinary way.
	Choices int
}

// Faults says of each thing that goes wrong how often it does, in a thousand chances.
type Faults struct {
	Reorder    int // something else goes on than what has waited longest
	Slow       int // a marker, or the arrival of something delayed, takes its time
	SlowAnswer int // an answer takes its time
	Network    int // a question is not answered
	Orders     int // an order fails, loses its answer or is delayed
	LostMarker int // a coordinator loses a marker
	Crash      int // a process dies
	CrashFirst int // … when it has just sent the first record of a transaction, which arrives later
	Takeover   int // another process starts while one lives
	Hang       int // a process stands still
	Timeout    int // a broker ends an open transaction
	Operator   int // somebody aborts one partition of a transaction
	Clean      int // retention or compaction
	Stop       int // somebody stops the job well; it is started again
	Due        int // a checkpoint comes due early
	Late       int // a checkpoint times out
}

func (c *Config) endTxnVersion() int16 {
	if c.Version2 {
		return 5
	}
	return 4
}

// String describes the world in one line.
func (c *Config) String() string {
	words := []string{fmt.Sprintf("%d splits of %d records, %d partitions", c.Splits, c.Records, c.Partitions)}
	words = append(words, map[bool]string{true: "transaction version 2", false: "transaction version 1"}[c.Version2])
	words = append(words, c.Lost.String())
	if !c.Keep {
		words = append(words, "no kept records")
	}
	if !c.MarkerRight {
		words = append(words, "no right to write markers")
	}
	if c.StrictMarkers {
		words = append(words, "strict markers")
	}
	if c.Tolerable > 0 {
		words = append(words, fmt.Sprintf("%d failed checkpoints tolerated", c.Tolerable))
	}
	return strings.Join(words, ", ")
}

// randomConfig makes the world of a seed. What goes wrong differs from world to world: one in which
// everything does never gets far.
func randomConfig(seed uint64) Config {
	r := rand.New(rand.NewPCG(seed, 0x636f6e66))
	some := func(rates ...int) int { return rates[r.IntN(len(rates))] }
	c := Config{
		Splits: 1 + r.IntN(2), Partitions: 1 + r.IntN(2), Records: some(1, 2, 3, 4, 12), Tolerable: some(0, 0, 1, 2),
		Version2: r.IntN(2) == 0, MarkerRight: r.IntN(3) > 0, Choices: some(100, 300, 1000, 3000),
	}
	c.Lost = [...]txn.LostTransaction{txn.Reemit, txn.Reemit, txn.Reemit, txn.Fail, txn.Skip}[r.IntN(5)]
	c.Keep = r.IntN(10) > 0
	c.StrictMarkers = c.Version2 && r.IntN(4) == 0
	c.Faults = Faults{
		Reorder: some(0, 50, 300, 600), Slow: some(0, 100, 400, 900), SlowAnswer: some(0, 0, 10, 50), Network: some(0, 0, 0, 5, 20, 100), Orders: some(0, 0, 20, 100, 250),

		LostMarker: some(0, 0, 50, 300), Crash: some(0, 0, 2, 5, 15), CrashFirst: some(0, 0, 20), Takeover: some(0, 0, 2, 5, 20),
		Hang: some(0, 0, 5, 20), Timeout: some(0, 0, 5, 20), Operator: some(0, 0, 0, 3),
		Clean: some(0, 0, 0, 3, 10), Stop: some(0, 0, 2), Due: some(0, 10, 50, 100), Late: some(0, 0, 5, 30),
	}
	c.theme(r.IntN(10))
	return c
}

// theme makes some worlds of one kind: what does harm only together is rarely together by chance.
func (c *Config) theme(n int) {
	f := &c.Faults
	switch n {
	case 0: // zombies write, and what they wrote is aborted without a marker
		f.Takeover, f.LostMarker, f.Crash, f.Orders, f.Network, f.Late = 20, 400, 0, 0, 0, 0
	case 1: // what CURRENT names is lost, and what was written again, too
		f.Timeout, f.Crash, f.Slow, f.Orders, f.Network = 40, 10, 400, 0, 0
	case 2: // restores do not know what became of what they asked for
		f.Crash, f.Orders, f.Network, f.Takeover = 10, 300, 0, 0
	case 3: // the proof is eaten
		f.Timeout, f.Clean, f.Crash, f.Orders, f.Network = 20, 20, 10, 0, 0
	case 4, 5: // the first write of a dead process arrives late, and is aborted without a marker
		c.Records, c.MarkerRight = 12, true
		f.CrashFirst, f.LostMarker, f.Due, f.Crash, f.Hang, f.Takeover, f.Orders, f.Network, f.Late = 200, 500, 50, 2, 0, 2, 0, 0, 0
		f.Timeout, f.Operator, f.Clean = 0, 0, 0
	}
}
