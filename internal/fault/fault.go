// Package fault names the points of a commit at which tests end a process, and does it: the points are part
// of every program, and nothing happens at them unless a program was told to crash at one by name.
//
// It is not a schedule of faults, and it chooses nothing at random: a test names one point, sees that it was
// reached, and compares what is outside with what must be there. Which point is told by whoever carries a
// step out: the engine, or a connector (connector.WriterContext.Reached, RestoreContext.Reached).
//
// Invariants:
//
//	F1. Without a Crash nothing is counted, written or held.
//	F2. What says that a point was reached is written before the process dies, and only then: a test that
//	    sees no such line has tested nothing.
//	F3. The process ends by SIGKILL: no deferred function, no flush and no last word of its own.
package fault

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// Variable is the environment variable that tells a program where to crash; Parse says how.
const Variable = "WEIR_CRASH"

// The points at which the engine can be ended, in the order of a checkpoint and of a restore.
const (
	AfterFlush     = "after-flush"     // a sink has flushed at a barrier
	AfterPrepare   = "after-prepare"   // … and has pre-committed; its transaction stays open
	AfterSnapshot  = "after-snapshot"  // a subtask's snapshot and kept records are durable
	AfterAck       = "after-ack"       // … and the coordinator knows
	AfterManifest  = "after-manifest"  // the manifest is durable; CURRENT does not name it
	AfterCurrent   = "after-current"   // CURRENT names the checkpoint; nothing of it is committed
	BeforeCommit   = "before-commit"   // a committable is about to be committed
	AfterCommit    = "after-commit"    // … and has been
	AfterSettled   = "after-settled"   // CURRENT says that everything it names is committed
	AfterClaim     = "after-claim"     // a new generation owns CURRENT, and has settled nothing
	ReemitManifest = "reemit-manifest" // the manifest that names what was written again is durable
	ReemitCurrent  = "reemit-current"  // CURRENT names what was written again
	AfterRestore   = "after-restore"   // sinks have settled all that CURRENT names; it does not say so
)

// The points at which a sink with transactions can be ended. The connector tells them by these names.
const (
	BeforeEndTxn       = "before-end-txn"        // EndTxn is about to be sent
	AfterEndTxn        = "after-end-txn"         // it was answered, or will not be
	LostFound          = "lost-found"            // the log shows that a transaction is lost
	ReemitTaken        = "reemit-taken"          // an ID and a producer to write it again are there
	ReemitWritten      = "reemit-written"        // its records are in the log again, in an open transaction
	ReemitReplaced     = "reemit-replaced"       // CURRENT names that one, and the sink knows
	ReemitBeforeEndTxn = "reemit-before-end-txn" // EndTxn of what was written again is about to be sent
	ReemitSettled      = "reemit-settled"        // the log shows it committed
)

// Points lists all points.
func Points() []string {
	return []string{
		AfterFlush, AfterPrepare, AfterSnapshot, AfterAck, AfterManifest, AfterCurrent, BeforeCommit, AfterCommit,
		AfterSettled, AfterClaim, ReemitManifest, ReemitCurrent, AfterRestore,
		BeforeEndTxn, AfterEndTxn, LostFound, ReemitTaken, ReemitWritten, ReemitReplaced, ReemitBeforeEndTxn, ReemitSettled,
	}
}

// Crash says where a process ends.
type Crash struct {
	Point string
	Nth   int // it ends when it comes there for the nth time, from 1
	// Hold lets whoever reaches the point wait there for ever, so that another process can kill this one
	// just there.
	Hold bool
}

// Parse reads [hold:]POINT[:N].
func Parse(text string) (Crash, error) {
	c := Crash{Nth: 1}
	rest, hold := strings.CutPrefix(text, "hold:")
	c.Hold = hold
	point, nth, counted := strings.Cut(rest, ":")
	if c.Point = point; !slices.Contains(Points(), point) {
		return Crash{}, fmt.Errorf("crash point %q: want [hold:]POINT[:N], where POINT is one of %s", text,
			strings.Join(Points(), ", "))
	}
	if counted {
		var err error
		if c.Nth, err = strconv.Atoi(nth); err != nil || c.Nth < 1 {
			return Crash{}, fmt.Errorf("crash point %q: %q is not how many times it is reached", text, nth)
		}
	}
	return c, nil
}

// String is what Parse reads.
func (c Crash) String() string {
	s := fmt.Sprintf("%s:%d", c.Point, c.Nth)
	if c.Hold {
		return "hold:" + s
	}
	return s
}

// Line is what is written when the point is reached (F2).
func (c Crash) Line() string { return "crash point reached: " + c.String() }

// Reached returns what is to be told each point that is reached, by any goroutine. At the one of the crash
// it writes its line to report, and does not return.
func (c Crash) Reached(report io.Writer) func(point string) { return c.reached(report, c.end) }

func (c Crash) reached(report io.Writer, end func()) func(point string) {
	var times atomic.Int64
	return func(point string) {
		if point == c.Point && times.Add(1) == int64(c.Nth) {
			fmt.Fprintln(report, c.Line())
			end()
		}
	}
}

// end kills the process, or leaves that to another one.
func (c Crash) end() {
	if self, err := os.FindProcess(os.Getpid()); err == nil && !c.Hold {
		_ = self.Kill() // F3
	}
	select {} // a signal takes a moment
}
