package simulation

import "reflect"

// Counts says how often what happened: a fault that never hits, and a branch that is never taken, prove
// nothing.
type Counts struct {
	// Faults.
	Crashes        int
	Takeovers      int // another process has started beside one that lives
	Hangs          int
	RequestsFailed int
	AnswersLost    int
	Delayed        int // requests that were given up, and arrived later
	Timeouts       int
	LateInits      int // an InitProducerID of somebody who does not own CURRENT has aborted a transaction
	MarkersLost    int
	PartialAborts  int
	Cleaned        int
	SwapsUnknown   int
	Late           int // checkpoints that timed out
	NotKept        int // records that could not be kept

	// What followed.
	Restores           int
	Checkpoints        int
	CheckpointsAborted int
	Declined           int
	Commits            int
	PoolFull           int
	GenerationsFailed  int
	Stops              int
	SwapsRefused       int
	Superseded         int
	ZombiesRefused     int // a process has asked whether it still owns CURRENT, and did not
	BegunAgain         int // an ID was taken by somebody else in between
	LostFound          int // a transaction that a CURRENT names turned out to be lost
	WrittenAgain       int // … and was written again, and CURRENT names it in the other one's place
	LostAgain          int // what had been written again was lost, too
	AgainCommitted     int
	Skipped            int // records that no reader sees: the policy is skip
	CommitsWritten     int // markers that the brokers had lost
	AbortsWritten      int
	// … and that were found under an ID for a new transaction.
	AbortsWrittenTaking int
	NoRight             int // a lost marker was found and could not be written
	KeptDeleted         int
}

// add adds another world's.
func (c *Counts) add(o *Counts) {
	sum, more := reflect.ValueOf(c).Elem(), reflect.ValueOf(o).Elem()
	for i := range sum.NumField() {
		sum.Field(i).SetInt(sum.Field(i).Int() + more.Field(i).Int())
	}
}

// fault is one of the things that go wrong, in the words of reports.
type fault struct {
	words string
	of    func(*Counts) int
}

func faults() []fault {
	return []fault{
		{"a process crashes between two of its actions", func(c *Counts) int { return c.Crashes }},
		{"another process takes over, and the one before lives on", func(c *Counts) int { return c.Takeovers }},
		{"a process stands still", func(c *Counts) int { return c.Hangs }},
		{"a request does not arrive", func(c *Counts) int { return c.RequestsFailed }},
		{"a request's answer is lost", func(c *Counts) int { return c.AnswersLost }},
		{"a request arrives after it was given up", func(c *Counts) int { return c.Delayed }},
		{"it is not known whether CURRENT was swapped", func(c *Counts) int { return c.SwapsUnknown }},
		{"a checkpoint times out", func(c *Counts) int { return c.Late }},
		{"the brokers abort a transaction that times out", func(c *Counts) int { return c.Timeouts }},
		{"a late InitProducerID aborts a transaction", func(c *Counts) int { return c.LateInits }},
		{"the brokers lose a marker", func(c *Counts) int { return c.MarkersLost }},
		{"an operator aborts one partition of a transaction", func(c *Counts) int { return c.PartialAborts }},
		{"the storage does not keep the records of a transaction", func(c *Counts) int { return c.NotKept }},
		{"retention or compaction eats the proof", func(c *Counts) int { return c.Cleaned }},
	}
}
