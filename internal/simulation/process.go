package simulation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/txn"
	"example.com/weir/internal/protocol"
)

const (
	sinkUID   = "sink"
	sourceUID = "source"
)

// process is one generation of the job: the real coordinator and the real course of transactions, with
// the shell of the engine around them. What is here mirrors internal/engine (generation.go, commit.go,
// sink.go and task.go): it carries out what the coordinator decides and reports what came of it.
type process struct {
	w        *world
	number   int
	alive    bool
	claimed  bool
	reading  bool             // its restore is done
	hang     time.Duration    // it stands still until then
	took     written          // the last ID that it has taken
	current  protocol.Current // as it was restored
	manifest manifest
	timeout  time.Duration // when the checkpoint in progress is late

	replaced  *protocol.Replaced // the restore waits for it
	rewritten manifest           // that CURRENT names then

	coordinator *protocol.Coordinator
	events      []protocol.Event
	work        []func()
	final       protocol.Action

	cfg      txn.Config
	subtasks []*subtask
	ctx      context.Context
	cancel   context.CancelFunc
}

// start begins a process, which claims CURRENT.
func (w *world) start() *process {
	p := &process{w: w, number: len(w.procs) + 1, alive: true}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.cfg = txn.Config{
		Topic: topic, Prefix: prefix, TransactionTimeout: transactionTimeout, CommitDeadline: commitDeadline,
		Grace: grace, LostTransaction: w.cfg.Lost, Cluster: client{w: w, p: p}, Clock: clock{w}, Reached: w.pass,
	}
	parallelism := 1 + w.tape.pick(w.cfg.Splits)
	if w.tape.calm() {
		parallelism = w.cfg.Splits
	}
	pc := protocol.Config{Job: "job", TolerableFailures: w.cfg.Tolerable, Retain: 2}
	for i := range parallelism {
		pc.Subtasks = append(pc.Subtasks, protocol.Subtask{ID: protocol.SubtaskID{Operator: sourceUID, Index: i}, Source: true})
	}
	p.coordinator = protocol.New(pc)
	p.subtasks = make([]*subtask, parallelism)
	w.procs = append(w.procs, p)
	w.say("%s starts, with %d subtasks", p, parallelism)
	w.spawn(p, "loop", p.run)
	w.spawn(p, "work", p.doWork)
	w.spawn(p, "timers", p.keepTime)
	return p
}

func (p *process) String() string { return fmt.Sprintf("p%d", p.number) }

// owns reports whether CURRENT is this process's.
func (p *process) owns() bool {
	return p.claimed && p.w.store.current.Generation == p.current.Generation &&
		p.w.store.current.Lineage == p.current.Lineage
}

// run carries the generation to its end.
func (p *process) run() {
	current, m, err := p.w.store.read()
	if err != nil {
		p.end(protocol.FailGeneration{Err: err})
		return
	}
	p.manifest = m
	begin := protocol.Begin{Current: current, Named: m.committables}
	if !current.Exists() {
		begin.Current = protocol.Current{Job: "job", Lineage: fmt.Sprintf("%016x", p.number)}
		begin.Fresh = true
	}
	p.step(begin)
	for p.final == nil {
		p.w.wait(func() bool { return len(p.events) > 0 })
		e := p.events[0]
		p.events = p.events[1:]
		p.step(e)
	}
	if s, ok := p.final.(protocol.Stop); ok && p.claimed {
		// What a zombie finds may be what its successor has done.
		if err := p.stillOwner(p.ctx); errors.Is(err, connector.ErrSuperseded) {
			p.final = protocol.Superseded{Err: fmt.Errorf("%w; before that: %w", err, s.Err)}
		}
	}
	p.end(p.final)
}

func (p *process) post(e protocol.Event) { p.events = append(p.events, e) }

func (p *process) step(e protocol.Event) {
	for _, a := range p.coordinator.Step(e) {
		if p.final == nil {
			p.perform(a)
		}
	}
}

// perform carries out one action. What waits for the outside is done in order by doWork.
func (p *process) perform(a protocol.Action) {
	switch a := a.(type) {
	case protocol.SwapCurrent:
		p.do(func() { p.post(p.swap(a)) })
	case protocol.Restore:
		p.w.say("%s owns CURRENT: generation %d, checkpoint %d%s", p, a.Current.Generation, a.Current.Checkpoint, listed(a.Named))
		// Beside doWork, which writes the manifest and swaps CURRENT for what it writes again.
		p.w.spawn(p, "restore", func() { p.post(p.restore(a)) })
	case protocol.RewriteManifest:
		p.do(func() { p.post(p.rewriteManifest(a)) })
	case protocol.Replaced:
		p.replaced = &a
	case protocol.StartSubtasks:
		p.current = a.Current
		p.do(p.startSubtasks)
	case protocol.InjectBarrier:
		p.timeout = p.w.now + checkpointTimeout
		p.do(func() { p.inject(a) })
	case protocol.AbortCheckpoint:
		p.w.counts.CheckpointsAborted++
		p.w.say("%s: checkpoint %d aborted: %v", p, a.Checkpoint, a.Err)
	case protocol.WriteManifest:
		p.do(func() { p.post(p.writeManifest(a)) })
	case protocol.Commit:
		p.commit(a)
	case protocol.Release:
		p.release(a.Committables)
	case protocol.ReleasePositions:
	case protocol.CheckpointCompleted:
		p.w.counts.Checkpoints++
	case protocol.DiscardSnapshots:
		p.do(func() { p.w.store.deleteSnapshots(a.Handles) })
	case protocol.Collect:
		p.do(func() { p.w.store.collect(a.Retain) })
	case protocol.StopReading:
		p.do(func() {
			for _, s := range p.subtasks {
				s.stopped = true
			}
		})
	case protocol.Finish, protocol.FailGeneration, protocol.Stop, protocol.Superseded:
		p.final = a
	}
}

func (p *process) do(f func()) { p.work = append(p.work, f) }

func (p *process) doWork() {
	for {
		p.w.wait(func() bool { return len(p.work) > 0 })
		f := p.work[0]
		p.work = p.work[1:]
		f()
	}
}

func (p *process) swap(a protocol.SwapCurrent) protocol.Event {
	e := p.w.store.swap(a)
	if s, ok := e.(protocol.Swapped); ok && !p.claimed {
		p.current, p.claimed = s.Current, true
	}
	return e
}

func (p *process) writeManifest(a protocol.WriteManifest) protocol.Event {
	name, err := p.w.store.putManifest(manifest{
		of: a.Current, checkpoint: a.Checkpoint, finished: a.Finished, snapshots: a.Snapshots, committables: a.Committables,
	})
	if err != nil {
		return protocol.ManifestFailed{Checkpoint: a.Checkpoint, Err: err}
	}
	return protocol.ManifestWritten{Checkpoint: a.Checkpoint, Manifest: name}
}

// rewriteManifest writes another manifest of the checkpoint that is restored.
func (p *process) rewriteManifest(a protocol.RewriteManifest) protocol.Event {
	m := p.manifest
	m.of, m.committables = a.Current, a.Committables
	name, err := p.w.store.putManifest(m)
	if err != nil {
		return protocol.ManifestFailed{Checkpoint: m.checkpoint, Err: err}
	}
	m.name = name
	p.rewritten = m
	return protocol.ManifestWritten{Checkpoint: m.checkpoint, Manifest: name}
}

// replace is RestoreContext.Replace: it waits until CURRENT names c.
func (p *process) replace(_ context.Context, c connector.Committable) error {
	p.post(protocol.Reemitted{Committable: c})
	p.w.wait(func() bool { return p.replaced != nil })
	r := p.replaced
	p.replaced = nil
	if !r.Permit.Covers(c.ID()) || r.Committable.ID() != c.ID() {
		return connector.Stop(fmt.Errorf("%s does not cover %s, which was written again", r.Permit, c.ID()))
	}
	p.manifest = p.rewritten
	p.w.oracle.replaced(c)
	return nil
}

// restore settles what CURRENT names, and reads the positions to go on from.
func (p *process) restore(a protocol.Restore) protocol.Event {
	for _, c := range a.Named {
		if !a.Permit.Covers(c.ID()) {
			return protocol.RestoreFailed{Err: connector.Stop(fmt.Errorf("%s does not cover %s", a.Permit, c.ID()))}
		}
	}
	p.w.counts.Restores++
	began := p.w.tick()
	err := txn.Restore(p.ctx, p.cfg, p.restoreContext(a))
	if err != nil {
		return protocol.RestoreFailed{Err: fmt.Errorf("sink %s: %w", sinkUID, err)}
	}
	if !a.Clean {
		p.w.oracle.restored(p, began)
	}
	if a.Current.Finished {
		return protocol.Restored{}
	}
	at, err := p.w.store.readPositions(p.manifest)
	if err != nil {
		return protocol.RestoreFailed{Err: err}
	}
	for i := range p.subtasks {
		p.subtasks[i] = newSubtask(p, i, at)
	}
	p.reading = true
	return protocol.Restored{}
}

func (p *process) restoreContext(a protocol.Restore) connector.RestoreContext {
	return connector.RestoreContext{
		Job: "job", Lineage: a.Current.Lineage, Generation: a.Current.Generation, Operator: sinkUID,
		Parallelism: len(p.subtasks), Named: a.Named, Fresh: a.Fresh, Clean: a.Clean,
		StillOwner: p.stillOwner, Replace: p.replace, Kept: p.openKept, Reached: p.w.pass,
	}
}

// stillOwner asks the store whether this generation owns CURRENT.
func (p *process) stillOwner(context.Context) error {
	c, err := p.w.store.owner()
	if err != nil {
		return fmt.Errorf("who owns CURRENT: %w", err)
	}
	if c.Lineage != p.current.Lineage || c.Generation != p.current.Generation {
		p.w.counts.ZombiesRefused++
		return fmt.Errorf("CURRENT is %s: %w", c, connector.ErrSuperseded)
	}
	return nil
}

func (p *process) startSubtasks() {
	for _, s := range p.subtasks {
		if err := s.open(); err != nil {
			p.post(protocol.SubtaskFailed{Subtask: s.id, Err: err})
			return
		}
	}
	for _, s := range p.subtasks {
		s.spawn()
	}
}

// inject hands the barrier to every source. One that has not taken the last barrier yet gets this one in
// its place.
func (p *process) inject(a protocol.InjectBarrier) {
	for _, s := range p.subtasks {
		s.barrier = &a
	}
}

// commit hands committables to the queues of their subtasks.
func (p *process) commit(a protocol.Commit) {
	for _, c := range a.Committables {
		s := p.subtasks[c.Subtask]
		s.commits = append(s.commits, permitted{permit: a.Permit, committable: c})
	}
}

// release tells writers what no CURRENT names any more, and deletes what was kept for it.
func (p *process) release(cs []connector.Committable) {
	var kept []string
	for _, c := range cs {
		if c.Subtask < len(p.subtasks) {
			p.subtasks[c.Subtask].committer.Release(c)
		}
		if c.Kept.Name != "" {
			kept = append(kept, c.Kept.Name)
		}
	}
	if len(kept) > 0 {
		p.do(func() { p.w.store.deleteKept(kept) })
	}
}

// end notes how the generation ended. Nothing of it runs on.
func (p *process) end(a protocol.Action) {
	w := p.w
	switch a := a.(type) {
	case protocol.Finish:
		w.say("%s FINISHES: %s", p, a.Outcome)
		if a.Outcome == protocol.Finished {
			w.oracle.finished()
		} else {
			w.counts.Stops++
		}
	case protocol.FailGeneration:
		w.counts.GenerationsFailed++
		w.say("%s FAILS: %v", p, a.Err)
	case protocol.Stop:
		w.say("%s STOPS BY NAME: %v", p, a.Err)
		w.oracle.stopped(p, a.Err)
	case protocol.Superseded:
		w.counts.Superseded++
		w.say("%s is SUPERSEDED: %v", p, a.Err)
	}
	p.die()
}

// die ends every task of the process. What it has asked for and not heard of may still happen.
func (p *process) die() {
	p.alive = false
	p.cancel()
	w := p.w
	kept := w.tasks[:0]
	for _, t := range w.tasks {
		if t.p != p {
			kept = append(kept, t)
			continue
		}
		if t.state == asking {
			w.orphan(t)
		}
		if t != w.running {
			t.kill()
		}
	}
	clear(w.tasks[len(kept):])
	w.tasks = kept
	w.nextStart = w.now + restartDelay
}

// word is something that a process is told from outside.
type word uint8

const (
	stopRequested word = iota
	checkpointDue
	checkpointLate
)

// tell tells one of the processes that run something.
func (w *world) tell(what word) {
	p := w.somebody()
	if p == nil || !p.reading {
		return
	}
	switch what {
	case stopRequested:
		w.say("%s is asked to stop", p)
		p.post(protocol.StopRequested{})
	case checkpointDue:
		p.post(protocol.CheckpointDue{})
	case checkpointLate:
		if n := p.coordinator.Open(); n != 0 {
			w.counts.Late++
			w.say("%s: checkpoint %d takes too long", p, n)
			p.post(protocol.TimedOut{Checkpoint: n})
		}
	}
}

// keepTime lets checkpoints come due, and time out.
func (p *process) keepTime() {
	for {
		p.w.sleep(interval)
		n := p.coordinator.Open()
		if n != 0 && p.w.now >= p.timeout {
			p.w.counts.Late++
			p.timeout = p.w.now + checkpointTimeout
			p.post(protocol.TimedOut{Checkpoint: n})
		}
		p.post(protocol.CheckpointDue{})
	}
}

// meet notes that somebody has taken an ID after this process did, and before it has looked.
func (p *process) meet(s *producerState) {
	if s.id == p.took.producerID && s.epoch > p.took.epoch {
		p.w.counts.BegunAgain++
	}
}
