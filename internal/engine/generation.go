package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"example.com/weir/connector"
	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/fault"
	"example.com/weir/internal/protocol"
)

// generation is one execution of the job between restarts: it carries out what its coordinator
// decides, and reports what came of it.
type generation struct {
	plan   *Plan
	cfg    RunConfig
	store  checkpoint.Store
	logger *slog.Logger
	watch  *monitor

	coordinator *protocol.Coordinator
	current     protocol.Current // as it was claimed, then as it was restored; fixed before a subtask is built
	began       protocol.Begin
	settling    bool // it settles what CURRENT names, and ends
	lineage     lineage
	state       *restored
	quiet       quiet

	replaced  chan protocol.Replaced // the restore waits for it
	rewritten checkpoint.Manifest    // that CURRENT names then

	ctx    context.Context
	cancel context.CancelFunc
	events chan protocol.Event
	work   chan func() // input and output, one after the other
	wg     sync.WaitGroup

	tasks          []*task
	exchanges      []any // *channels[T]
	sourceControls []sourceControl
	committers     map[committerID]*commitQueue
	started        bool
	running        chan []*SubtaskStats // told once, when the subtasks have been started
	first          chan struct{}        // closed once this generation has completed a checkpoint
	firstExists    sync.Once

	asked  savepoints // every one that this generation was asked for
	wanted savepoints // to be made of the next checkpoint
	taking savepoints // to be made of the one in progress

	due      *time.Ticker
	pace     pace
	paused   *time.Timer // rings when a late checkpoint may begin
	timeout  *time.Timer
	injected time.Time // when the barrier of the checkpoint in progress was injected
	last     bool      // that barrier is the last one: no record follows it
	final    protocol.Action
}

// lineage is what the manifests of a lineage carry on.
type lineage struct {
	from      checkpoint.Restored // what was last asked for by name
	ancestors []string
	reopened  bool            // it begins with a checkpoint in which event time has come to its end
	knows     map[string]bool // uids of the operators that the checkpoint has
}

func lineageOf(m checkpoint.Manifest, from checkpoint.Restored) lineage {
	l := lineage{
		from: cmp.Or(from, m.Restored), ancestors: m.Ancestors, reopened: m.Root && m.Finished,
		knows: map[string]bool{},
	}
	for _, o := range m.Operators {
		l.knows[o.UID] = true
	}
	return l
}

// quiet says since which checkpoint sinks have shown nothing (checkpoint.Manifest.QuietSince): as CURRENT's
// manifest says, and as the next one will.
type quiet struct{ current, next uint64 }

// goOn is what follows a quiet CURRENT when the checkpoint that a describes is taken. It is quiet if all that the
// job shows is committed with a checkpoint, and there is nothing to commit that CURRENT did not name before. A
// checkpoint that was given up has left what it had to commit to this one.
func (q quiet) goOn(a protocol.WriteManifest, byCommits bool) quiet {
	shows := func(c connector.Committable) bool { return c.Checkpoint > a.Current.Checkpoint }
	if byCommits && !slices.ContainsFunc(a.Committables, shows) {
		return quiet{current: q.current, next: cmp.Or(q.current, a.Current.Checkpoint)}
	}
	return quiet{current: q.current}
}

// sourceControl is how the coordinator reaches a source subtask.
type sourceControl struct {
	uid      string
	subtask  int
	inject   chan signal
	grow     chan<- []connector.Split
	drain    chan struct{} // closed before stop, if it is to drain
	stop     chan struct{}
	releaser *releaser
}

// newGeneration prepares a generation that goes on from CURRENT as it was read.
func newGeneration(r *run, begin protocol.Begin, m checkpoint.Manifest) *generation {
	p, cfg := r.plan, r.cfg
	return &generation{
		plan: p, cfg: cfg, store: cfg.Store, logger: cfg.Logger, watch: r.watch, began: begin,
		settling: r.settling != nil, lineage: lineageOf(m, r.restored), quiet: quiet{current: m.QuietSince},
		coordinator: protocol.New(protocol.Config{
			Job: p.name, Subtasks: p.subtasks(), Retain: cfg.Retain,
			TolerableFailures: cfg.TolerableFailures,
		}),
		state:      &restored{manifest: m},
		pace:       pace{pause: cfg.MinPause},
		events:     make(chan protocol.Event, 64),
		work:       make(chan func(), 64),
		replaced:   make(chan protocol.Replaced, 1),
		first:      make(chan struct{}),
		running:    make(chan []*SubtaskStats, 1),
		exchanges:  make([]any, p.exchanges),
		committers: map[committerID]*commitQueue{},
	}
}

// run carries the generation to its end and returns the terminal action, or nil if ctx ended
// first. Nothing of the generation is left when it returns (E7).
func (g *generation) run(ctx context.Context) protocol.Action {
	g.ctx, g.cancel = context.WithCancel(ctx)
	defer g.teardown()
	g.due = time.NewTicker(max(g.cfg.Interval, time.Millisecond))
	g.timeout, g.paused = stoppedTimer(), stoppedTimer()
	if g.cfg.Interval <= 0 {
		g.due.Stop()
	}
	g.wg.Go(g.doWork)
	g.watch.begin(g.began, g.state.manifest.Created)
	g.step(g.began)
	if g.settling {
		g.step(protocol.StopRequested{})
	}
	stop := g.watch.control.stopping
	for g.final == nil {
		select {
		case e := <-g.events:
			g.step(e)
		case <-g.due.C:
			g.comeDue()
		case <-g.paused.C:
			g.comeDue()
		case <-g.timeout.C:
			g.step(protocol.TimedOut{Checkpoint: g.coordinator.Open()})
		case <-stop:
			stop = nil
			g.step(protocol.StopRequested{Drain: g.watch.control.drain})
		case g.watch.control.alive <- struct{}{}:
		case subtasks := <-g.running:
			g.watch.running(subtasks)
		case r := <-g.watch.control.savepoints:
			g.asked, g.wanted = append(g.asked, r), append(g.wanted, r)
			g.step(protocol.CheckpointDue{})
		case <-g.ctx.Done():
			return nil
		}
	}
	switch a := g.final.(type) {
	case protocol.Finish:
		g.awaitWork()
	case protocol.Stop:
		return g.stopOrSuperseded(a)
	}
	return g.final
}

// stopOrSuperseded tells a generation that no restart heals from one that has been superseded without
// knowing it: what that one finds outside can be what its successor has done, and its advice would do harm.
func (g *generation) stopOrSuperseded(a protocol.Stop) protocol.Action {
	if !g.current.Exists() || errors.Is(a.Err, connector.ErrSuperseded) {
		return a
	}
	err := g.stillOwner(g.ctx)
	if !errors.Is(err, connector.ErrSuperseded) {
		return a // if the store does not answer, what was found is all that is known
	}
	g.logger.Warn("superseded; what stopped this generation may be its successor's doing", "error", a.Err)
	g.final = protocol.Superseded{Err: err}
	return g.final
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// comeDue lets the checkpoint of the interval begin, or wait for the pause after the one before.
func (g *generation) comeDue() {
	if g.pace.due(g.now(), g.coordinator.Open() != 0) {
		g.step(protocol.CheckpointDue{})
	}
	g.resumePace()
}

// endPace notes that a checkpoint has ended.
func (g *generation) endPace() {
	g.pace.ended = g.now()
	g.resumePace()
}

func (g *generation) resumePace() {
	if d, ok := g.pace.wait(g.now(), g.coordinator.Open() != 0); ok {
		g.paused.Reset(d)
	}
}

// awaitWork waits until what was asked for before has been done: a savepoint of the last checkpoint.
func (g *generation) awaitWork() {
	done := make(chan struct{})
	g.work <- func() { close(done) }
	select {
	case <-done:
	case <-g.ctx.Done():
	}
}

func (g *generation) step(e protocol.Event) {
	now := g.now()
	g.watch.event(e, now)
	actions := g.coordinator.Step(e)
	if _, ok := e.(protocol.Acknowledged); ok {
		g.cfg.Reached(fault.AfterAck)
	}
	for _, a := range actions {
		g.watch.action(a, now)
		g.perform(a)
	}
	g.watch.publish()
}

// perform carries out one action. What waits for the outside is done in order by doWork.
func (g *generation) perform(a protocol.Action) {
	switch a := a.(type) {
	case protocol.SwapCurrent:
		g.work <- func() { g.post(g.swap(a)) }
	case protocol.Restore:
		g.current = a.Current
		g.logger = g.cfg.Logger.With("lineage", a.Current.Lineage, "generation", a.Current.Generation)
		// Beside doWork, which writes the manifest and swaps CURRENT for what it writes again.
		g.wg.Go(func() { g.guarded(func() { g.post(g.restore(a)) }) })
	case protocol.RewriteManifest:
		g.work <- func() { g.post(g.rewriteManifest(a)) }
	case protocol.Replaced:
		g.replaced <- a
	case protocol.StartSubtasks:
		g.current = a.Current
		g.work <- g.startSubtasks
	case protocol.InjectBarrier:
		g.injected, g.last = g.now(), a.Final != protocol.None
		g.taking, g.wanted = g.wanted, nil
		g.timeout.Reset(g.cfg.Timeout)
		g.work <- func() { g.inject(a) }
	case protocol.AbortCheckpoint:
		g.timeout.Stop()
		g.endPace()
		g.taking.fail(a.Err)
		g.taking = nil
		if f := g.cfg.Observer.CheckpointAborted; f != nil {
			f(a.Checkpoint, a.Err)
		}
		g.logger.Warn("checkpoint aborted", "checkpoint", a.Checkpoint, "error", a.Err)
	case protocol.WriteManifest:
		g.timeout.Stop()
		unaligned := g.plan.unaligned() && !g.last
		g.quiet = g.quiet.goOn(a, g.plan.showsByCommits())
		since := g.quiet.next
		g.work <- func() { g.post(g.writeManifest(a, unaligned, since)) }
	case protocol.Commit:
		g.commit(a)
	case protocol.Release:
		g.release(a.Committables)
	case protocol.ReleasePositions:
		g.releasePositions(a.Checkpoint)
	case protocol.CheckpointCompleted:
		g.quiet.current = g.quiet.next
		g.endPace()
		g.completed(a)
		g.keep(a.Current)
	case protocol.DiscardSnapshots:
		logger := g.logger // at the claim, Restore gives it more to say while this is done
		g.work <- func() { g.discard(a, logger) }
	case protocol.Collect:
		logger := g.logger
		g.work <- func() { g.collect(a, logger) }
	case protocol.StopReading:
		g.work <- func() { g.stopReading(a) }
	case protocol.Finish, protocol.FailGeneration, protocol.Stop, protocol.Superseded:
		g.final = a
	}
}

func (g *generation) doWork() {
	for {
		select {
		case f := <-g.work:
			g.guarded(f)
		case <-g.ctx.Done():
			return
		}
	}
}

// guarded does a piece of work. A panic in what a user or a connector brings (a processor's Open, a
// codec, a source's Discover) fails the generation, not the process.
func (g *generation) guarded(f func()) {
	defer func() {
		if p := recover(); p != nil {
			g.post(protocol.SubtaskFailed{Subtask: g.building(), Err: panicError(p)})
		}
	}()
	f()
}

func panicError(p any) error { return fmt.Errorf("panic: %v\n%s", p, debug.Stack()) }

// post reports an event, unless the generation has ended.
func (g *generation) post(e protocol.Event) {
	if e == nil {
		return
	}
	select {
	case g.events <- e:
	case <-g.ctx.Done():
	}
}

// swap asks the store. The question is never called back: whether CURRENT was swapped must be
// known, or known to be unknown.
func (g *generation) swap(a protocol.SwapCurrent) protocol.Event {
	got, err := g.store.Swap(context.WithoutCancel(g.ctx), a.Old, a.New)
	switch {
	case err == nil:
		if point := swappedPoint(a.Old, got); point != "" {
			g.cfg.Reached(point)
		}
		return protocol.Swapped{Current: got}
	case errors.Is(err, checkpoint.ErrSwapRefused):
		return protocol.SwapRefused{Err: err}
	}
	return protocol.SwapUnknown{Err: err}
}

// swappedPoint names what a swap has done, for tests.
func swappedPoint(old, now protocol.Current) string {
	switch {
	case old.Generation != now.Generation:
		return fault.AfterClaim
	case old.Checkpoint != now.Checkpoint:
		return fault.AfterCurrent
	case old.Manifest != now.Manifest:
		return fault.ReemitCurrent
	case !old.Settled && now.Settled:
		return fault.AfterSettled
	}
	return ""
}

// restore settles what CURRENT names, and reads the state to go on from.
func (g *generation) restore(a protocol.Restore) protocol.Event {
	began := g.now()
	if err := g.restoreSinks(a); err != nil {
		return protocol.RestoreFailed{Err: err}
	}
	g.cfg.Reached(fault.AfterRestore)
	if a.Current.Finished || g.settling {
		return protocol.Restored{}
	}
	state, err := readState(g.ctx, g.store, g.state.manifest)
	if err != nil {
		return protocol.RestoreFailed{Err: err}
	}
	if err := state.resolveSplits(g.ctx, g.plan, g.lineage.knows); err != nil {
		return protocol.RestoreFailed{Err: err}
	}
	g.state = state
	g.logger.Info("restored", "checkpoint", a.Current.Checkpoint, "settled", len(a.Named), "took", g.now().Sub(began))
	return protocol.Restored{}
}

func (g *generation) startSubtasks() {
	if err := g.build(); err != nil {
		g.post(protocol.SubtaskFailed{Subtask: g.building(), Err: err})
		return
	}
	g.watchSources()
	g.state = nil // it is in the subtasks now
	for _, q := range g.committers {
		g.wg.Go(func() { q.run(g) })
	}
	for _, t := range g.tasks {
		g.wg.Go(t.writeSnapshots)
		g.wg.Go(func() {
			if err := t.run(); err != nil && g.ctx.Err() == nil {
				g.post(protocol.SubtaskFailed{Subtask: t.id, Err: err})
			}
		})
	}
	g.started = true
	g.running <- g.stats()
	g.logger.Info("generation started", "checkpoint", g.current.Checkpoint)
	if f := g.cfg.Observer.GenerationStarted; f != nil {
		f(g.current, g.stats())
	}
}

// build builds every subtask before one of them starts.
func (g *generation) build() error {
	for _, h := range g.plan.heads {
		for i := range g.plan.parallelism {
			id := protocol.SubtaskID{Operator: h.uid, Index: i}
			t := &task{
				id: id, subtask: i, parallelism: g.plan.parallelism, gen: g, ctx: g.ctx,
				logger: g.logger.With("operator", h.uid, "subtask", i), operator: h.uid,
				written: make(chan *cut, 1), stats: newSubtaskStats(id, g.now()),
			}
			g.tasks = append(g.tasks, t)
			main, err := h.build(t)
			if err != nil {
				return err
			}
			t.main = main
		}
	}
	return nil
}

// building is the subtask that was built last, and the zero value before the first.
func (g *generation) building() protocol.SubtaskID {
	if len(g.tasks) == 0 {
		return protocol.SubtaskID{}
	}
	return g.tasks[len(g.tasks)-1].id
}

// inject hands the barrier to every source. One that has not taken the last barrier yet, because
// it is held back, gets this one in its place: the last one's checkpoint was aborted.
func (g *generation) inject(a protocol.InjectBarrier) {
	if !g.started {
		return
	}
	b := signal{
		kind: barrierSignal, checkpoint: a.Checkpoint,
		final: a.Final != protocol.None, endOfInput: a.Final == protocol.Finished,
	}
	for _, s := range g.sourceControls {
		for sent := false; !sent; {
			select {
			case s.inject <- b:
				sent = true
			default:
				select {
				case <-s.inject:
				default:
				}
			}
		}
	}
}

func (g *generation) stopReading(a protocol.StopReading) {
	for _, s := range g.sourceControls {
		if a.Drain {
			close(s.drain)
		}
		close(s.stop)
	}
}

func (g *generation) writeManifest(a protocol.WriteManifest, unaligned bool, quietSince uint64) protocol.Event {
	m := checkpoint.Manifest{
		Job: g.plan.name, Lineage: a.Current.Lineage, Generation: a.Current.Generation,
		Checkpoint: a.Checkpoint, Created: g.now(), Finished: a.Finished,
		Parent:         checkpoint.Ref{Name: a.Current.Manifest, Digest: a.Current.ManifestDigest},
		MaxParallelism: g.plan.maxParallelism, KeyHash: keyHashName, Operators: g.plan.describe(),
		Snapshots: a.Snapshots, Committables: a.Committables,
		Restored: g.lineage.from, Ancestors: g.lineage.ancestors, Unaligned: unaligned,
		QuietSince: quietSince,
	}
	ref, err := g.store.PutManifest(context.WithoutCancel(g.ctx), m)
	if err != nil {
		return protocol.ManifestFailed{Checkpoint: a.Checkpoint, Err: err}
	}
	g.cfg.Reached(fault.AfterManifest)
	return protocol.ManifestWritten{Checkpoint: a.Checkpoint, Manifest: ref.Name, Digest: ref.Digest}
}

func (g *generation) completed(a protocol.CheckpointCompleted) {
	g.firstExists.Do(func() { close(g.first) })
	took, c := g.now().Sub(g.injected), &g.watch.status.Checkpoints
	if f := g.cfg.Observer.CheckpointCompleted; f != nil {
		f(a.Current, took, g.stats())
	}
	g.logger.Info("checkpoint completed", "checkpoint", a.Current.Checkpoint, "took", took,
		"bytes", c.LastSize, "full_bytes", c.LastFullSize)
}

func (g *generation) discard(a protocol.DiscardSnapshots, logger *slog.Logger) {
	names := make([]string, len(a.Handles))
	for i, h := range a.Handles {
		names[i] = h.Name
	}
	if err := g.store.DeleteSnapshots(g.ctx, names); err != nil && g.ctx.Err() == nil {
		logger.Warn("snapshots of aborted checkpoints could not be deleted", "files", names, "error", err)
	}
}

func (g *generation) collect(a protocol.Collect, logger *slog.Logger) {
	if _, err := g.store.Collect(g.ctx, a.Retain); err != nil && g.ctx.Err() == nil {
		logger.Warn("old checkpoints could not be deleted", "error", err)
	}
}

// stillOwner asks the store whether this generation owns CURRENT.
func (g *generation) stillOwner(ctx context.Context) error {
	c, err := g.store.Current(ctx)
	if err != nil {
		return fmt.Errorf("who owns CURRENT: %w", err)
	}
	if c.Lineage != g.current.Lineage || c.Generation != g.current.Generation {
		return fmt.Errorf("CURRENT is %s: %w", c, connector.ErrSuperseded)
	}
	return nil
}

// teardown ends every goroutine and closes every reader and writer (E7).
func (g *generation) teardown() {
	if _, well := g.final.(protocol.Finish); well {
		g.finishReleases()
	}
	g.cancel()
	g.due.Stop()
	g.timeout.Stop()
	g.paused.Stop()
	g.wg.Wait()
	g.asked.fail(ErrNotRunning) // those that have no answer yet
	for _, t := range g.tasks {
		if err := t.close(); err != nil {
			t.logger.Warn("closing a subtask", "error", err)
		}
	}
}

func (g *generation) stats() []*SubtaskStats {
	all := make([]*SubtaskStats, len(g.tasks))
	for i, t := range g.tasks {
		all[i] = t.stats
	}
	return all
}

func (g *generation) observe() *Observer { return &g.cfg.Observer }

func (g *generation) now() time.Time { return g.cfg.Now() }
