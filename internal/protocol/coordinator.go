package protocol

import (
	"errors"
	"fmt"
	"math"

	"example.com/weir/connector"
)

// DefaultRetain is how many checkpoints are kept if the configuration does not say.
const DefaultRetain = 3

// retainAll deletes nothing that can be restored, and only what generations left behind.
const retainAll = math.MaxInt

// Config describes the generation that a Coordinator runs.
type Config struct {
	Job string
	// Subtasks are all that answer to barriers, in the order in which manifests list them.
	Subtasks []Subtask
	// Retain is how many completed checkpoints are kept. Zero is DefaultRetain.
	Retain int
	// TolerableFailures is how many checkpoints in a row may be aborted before the generation
	// fails. The last checkpoint of a generation is never tolerated to fail: no record follows
	// its barrier, so there is nothing to go on with.
	TolerableFailures int
}

// phase is where a generation stands; doc.go draws the way through them.
type phase int

const (
	starting  phase = iota // nothing has happened
	claiming               // the swap to this generation is out
	restoring              // sinks settle what CURRENT names, and write again what was lost
	freeing                // the swap that says so is out
	running
	ended // P9
)

// Coordinator runs the checkpoints of one generation. One goroutine at a time uses it.
type Coordinator struct {
	cfg   Config
	phase phase

	current Current                 // what CURRENT holds, as far as a swap has told
	swap    *SwapCurrent            // the swap that is out, if any (P6)
	named   []connector.Committable // by the manifest of the checkpoint to restore
	ledger  ledger                  // every committable between pre-commit and release
	open    *checkpoint             // the checkpoint in progress, if any
	// replacement is the one in progress, if any, while restoring
	replacement *replacement
	wasClean    bool   // CURRENT was clean before the claim
	fresh       bool   // the claim makes CURRENT: no generation was before this one
	root        bool   // CURRENT's checkpoint was not taken by its lineage
	lastID      uint64 // the highest checkpoint ID used (P7)
	answers     map[SubtaskID]answer
	files       files

	due       bool               // a checkpoint is wanted, and waits for its turn
	failures  int                // checkpoints aborted in a row
	inputs    map[SubtaskID]bool // source subtasks; true once the input has ended
	stopping  bool               // StopRequested was seen
	draining  bool               // … and asked to drain
	completed Outcome            // of the last checkpoint: anything but None once it exists

	out []Action
}

// New makes the coordinator of a generation that has not begun.
func New(cfg Config) *Coordinator {
	if cfg.Retain <= 0 {
		cfg.Retain = DefaultRetain
	}
	c := &Coordinator{
		cfg:     cfg,
		ledger:  ledger{},
		files:   newFiles(),
		answers: make(map[SubtaskID]answer, len(cfg.Subtasks)),
		inputs:  map[SubtaskID]bool{},
	}
	for _, s := range cfg.Subtasks {
		c.answers[s.ID] = answer{}
		if s.Source {
			c.inputs[s.ID] = false
		}
	}
	return c
}

// Step takes one event and returns what is to be done, in order. The slice is the caller's.
func (c *Coordinator) Step(e Event) []Action {
	if c.phase == ended {
		return nil // P9: an answer that was still out
	}
	c.take(e)
	c.advance()
	out := c.out
	c.out = nil
	return out
}

// take notes what happened.
func (c *Coordinator) take(e Event) {
	switch e := e.(type) {
	case Begin:
		c.begin(e)
	case Swapped:
		c.swapped(e)
	case SwapRefused:
		c.end(Superseded{Err: supersede(e.Err)})
	case SwapUnknown:
		c.fail(fmt.Errorf("swap CURRENT: %w", e.Err))
	case Reemitted:
		c.reemitted(e)
	case Restored:
		c.restored()
	case RestoreFailed:
		c.fail(fmt.Errorf("restore: %w", e.Err))
	case CheckpointDue:
		c.due = true
	case Acknowledged:
		c.acknowledged(e)
	case Declined:
		c.declined(e)
	case TimedOut:
		c.timedOut(e)
	case ManifestWritten:
		c.manifestWritten(e)
	case ManifestFailed:
		c.manifestFailed(e)
	case CommitSettled:
		c.commitSettled(e)
	case CommitFailed:
		c.fail(fmt.Errorf("commit %s: %w", e.ID, e.Err))
	case InputEnded:
		c.inputEnded(e)
	case StopRequested:
		c.stopRequested(e)
	case SubtaskFailed:
		c.fail(fmt.Errorf("subtask %s: %w", e.Subtask, e.Err))
	}
}

// advance does what has become possible. At most one swap or manifest write is out (P6), and a
// checkpoint goes before the settled swap, which it makes superfluous more often than not.
func (c *Coordinator) advance() {
	if c.phase != running {
		return
	}
	if c.idle() {
		switch {
		case c.open != nil && c.open.state == aligning && c.open.missing == 0:
			c.writeManifest()
		case c.open != nil && c.open.state == durable:
			c.swapCheckpoint()
		case c.settleable():
			c.swapSettled()
		}
	}
	if c.completed != None && c.current.Settled {
		c.end(Finish{Outcome: c.completed})
		return
	}
	if c.open == nil && c.completed == None {
		c.startCheckpoint()
	}
}

// idle reports whether no swap and no manifest write is out.
func (c *Coordinator) idle() bool {
	return c.swap == nil && (c.open == nil || c.open.state != writing)
}

// begin claims CURRENT for the next generation.
func (c *Coordinator) begin(e Begin) {
	if c.phase != starting {
		c.broken("Begin came twice")
		return
	}
	if e.Current.Job != c.cfg.Job || !e.Current.Exists() {
		c.broken("CURRENT (%s) is of job %q, not of %q", e.Current, e.Current.Job, c.cfg.Job)
		return
	}
	c.phase = claiming
	c.current, c.wasClean, c.root, c.fresh = e.Current, e.Current.Clean, e.Root, e.Fresh
	if !e.Current.Settled {
		c.named = ordered(e.Named)
	}
	old, next := e.Current, e.Current
	if e.Fresh {
		old = Current{}
		next = Current{Job: c.cfg.Job, Lineage: e.Current.Lineage}
	}
	next.Generation = max(e.Current.Generation, e.AboveGeneration) + 1
	next.Clean = false
	c.askSwap(old, next)
}

// askSwap sends a swap out.
func (c *Coordinator) askSwap(old, next Current) {
	next.Nonce = ""
	c.swap = &SwapCurrent{Old: old, New: next}
	c.emit(*c.swap)
}

// swapped is the branch that makes permits (P2).
func (c *Coordinator) swapped(e Swapped) {
	if c.swap == nil || !sameState(c.swap.New, e.Current) {
		c.broken("CURRENT was swapped to %s, which was not asked for", e.Current)
		return
	}
	c.current, c.swap = e.Current, nil
	switch {
	case c.phase == claiming:
		c.claimed()
	case c.phase == restoring:
		c.replaced()
	case c.phase == freeing:
		c.freed()
	case c.open != nil && c.open.state == swapping:
		c.completeCheckpoint()
	default:
		c.settled()
	}
}

// claimed restores what the checkpoint names, or ends at once if there is nothing to do at all. What a dead
// generation wrote for checkpoints that never came to exist goes first: a job that fails over and over
// would leave as much again each time.
func (c *Coordinator) claimed() {
	c.lastID = c.current.Checkpoint
	if c.current.Finished && c.current.Settled {
		c.end(Finish{Outcome: Finished})
		return
	}
	c.phase = restoring
	if !c.fresh {
		c.emit(Collect{Current: c.current, Retain: retainAll})
	}
	c.emit(Restore{
		Permit:  c.newPermit(c.named),
		Current: c.current,
		Named:   c.named,
		Clean:   c.wasClean,
		Fresh:   (c.current.Checkpoint == 0 || c.root) && !c.current.Settled,
	})
}

// restored says in CURRENT that everything is settled, before a subtask starts: every slot of
// every sink is then free. A job that has nothing to run says in the same swap that it is clean.
func (c *Coordinator) restored() {
	if c.phase != restoring {
		c.broken("Restored came without a restore")
		return
	}
	if c.replacement != nil {
		c.broken("Restored came before CURRENT names %s, which was written again", c.replacement.committable.ID())
		return
	}
	c.phase = freeing
	next := c.current
	next.Settled = true
	next.Clean = next.Finished || c.stopping && !c.draining // to drain takes subtasks
	if sameState(next, c.current) {
		c.freed()
		return
	}
	c.askSwap(c.current, next)
}

// freed starts the subtasks. A lineage without a checkpoint takes one at once, its barrier in
// front of every record: it fixes the start positions and the ends of bounded input.
func (c *Coordinator) freed() {
	c.named = nil
	switch {
	case c.current.Finished:
		c.end(Finish{Outcome: Finished})
	case c.current.Clean:
		c.end(Finish{Outcome: Stopped})
	default:
		c.phase = running
		c.due = c.due || c.current.Checkpoint == 0
		c.emit(StartSubtasks{Current: c.current})
		if c.stopping { // asked for while the swap was out
			c.emit(StopReading{Drain: c.draining})
		}
	}
}

// settleable reports whether CURRENT may say settled (P4). A committable of the barrier that is
// on its way does not stand against it: a sink that waits for a slot gets one even if its own
// barrier is behind the wait. One of an aborted checkpoint does: it is to be named first.
func (c *Coordinator) settleable() bool {
	if c.current.Settled {
		return false
	}
	for _, e := range c.ledger {
		inProgress := c.open != nil && e.Checkpoint == c.open.id
		if e.named && !e.settled || !e.named && !inProgress {
			return false
		}
	}
	return true
}

func (c *Coordinator) swapSettled() {
	next := c.current
	next.Settled = true
	next.Clean = c.completed != None
	c.askSwap(c.current, next)
}

// settled releases what CURRENT named until now (P5).
func (c *Coordinator) settled() {
	c.release(c.ledger.leave(nil))
}

func (c *Coordinator) commitSettled(e CommitSettled) {
	entry, ok := c.ledger[e.ID]
	if !ok || !entry.committing {
		c.broken("%s was reported as settled, and no commit of it is out", e.ID)
		return
	}
	entry.settled = true
}

func (c *Coordinator) inputEnded(e InputEnded) {
	if _, ok := c.inputs[e.Subtask]; !ok {
		c.broken("the input of %s ended, which is no source subtask", e.Subtask)
		return
	}
	c.inputs[e.Subtask] = true
}

// finishing reports whether all input has ended.
func (c *Coordinator) finishing() bool {
	for _, ended := range c.inputs {
		if !ended {
			return false
		}
	}
	return len(c.inputs) > 0
}

func (c *Coordinator) stopRequested(e StopRequested) {
	if c.stopping {
		return
	}
	c.stopping, c.draining = true, e.Drain
	if c.phase == running {
		c.emit(StopReading{Drain: c.draining})
	}
}

// newPermit is called where a swap has just succeeded, and nowhere else (P2).
func (c *Coordinator) newPermit(named []connector.Committable) CommitPermit {
	p := CommitPermit{
		current: c.current,
		named:   make(map[connector.CommittableID]struct{}, len(named)),
	}
	for _, n := range named {
		p.named[n.ID()] = struct{}{}
	}
	return p
}

// discard deletes files that nothing will name.
func (c *Coordinator) discard(waste []Handle) {
	if len(waste) > 0 {
		c.emit(DiscardSnapshots{Handles: waste})
	}
}

func (c *Coordinator) release(cs []connector.Committable) {
	if len(cs) > 0 {
		c.emit(Release{Committables: cs})
	}
}

func (c *Coordinator) emit(a Action) { c.out = append(c.out, a) }

// end emits a terminal action.
func (c *Coordinator) end(a Action) {
	c.phase = ended
	c.emit(a)
}

// fail ends the generation the way the error asks for.
func (c *Coordinator) fail(err error) {
	switch {
	case errors.Is(err, connector.ErrSuperseded):
		c.end(Superseded{Err: err}) // whatever else it says: the job goes on elsewhere
	case connector.IsStop(err):
		c.end(Stop{Err: err})
	default:
		c.end(FailGeneration{Err: err})
	}
}

// broken stops the job over an event that cannot be: to go on would be to guess.
func (c *Coordinator) broken(format string, args ...any) {
	c.fail(connector.Stop(fmt.Errorf("checkpoint protocol: "+format, args...)))
}

// supersede makes sure that the error says what a refused swap means.
func supersede(err error) error {
	if errors.Is(err, connector.ErrSuperseded) {
		return err
	}
	return fmt.Errorf("%w: %w", connector.ErrSuperseded, err)
}

// sameState reports whether a and b differ in nothing but the nonce.
func sameState(a, b Current) bool {
	a.Nonce, b.Nonce = "", ""
	return a == b
}
