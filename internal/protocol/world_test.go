package protocol

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"example.com/weir/connector"
)

// world is everything outside a coordinator: a directory with CURRENT and manifests, an outside
// where commits become visible, and processes that can die between any two steps. Each sink
// subtask writes its own sequence of records 0, 1, 2, …; a committable is a range of them, and a
// snapshot is the position. So exactly-once has a meaning here: what is visible of each sequence
// is 0, 1, 2, … without a gap, a repetition or a step back.
type world struct {
	cfg   Config
	slots int // of each sink subtask; 0 is no limit

	current   Current
	manifests map[string]manifest
	exist     map[string]bool // files that a manifest names which CURRENT has named
	nonce     int

	visible map[string]int          // per sink subtask: records 0 … n-1 are visible
	txns    map[string]*transaction // by payload: each is one transaction outside
	wrong   []string                // what must never be, and was

	procs map[string]*process
}

type manifest struct {
	parent       Current
	finished     bool
	root         bool // made by going back to another one
	snapshots    []SubtaskSnapshot
	committables []connector.Committable
}

// transaction is one in the world outside, which may end it by itself as long as it is open.
type transaction struct {
	of        connector.Committable
	named     bool // CURRENT has named it, at some time
	committed bool
	lost      bool // ended unseen
}

// process is one process with the coordinator of its generation.
type process struct {
	name     string
	co       *Coordinator
	pending  []Action // that want an answer, in the order in which they came
	sinks    map[SubtaskID]*sinkTask
	passed   map[uint64]map[SubtaskID]Acknowledged // barriers that have passed a subtask
	open     uint64                                // the checkpoint in progress, or 0
	final    Outcome                               // of the last barrier
	asked    map[connector.CommittableID]bool      // to be committed
	settled  map[connector.CommittableID]bool      // answered to this process
	last     uint64                                // barrier
	restored uint64                                // the checkpoint it began with
	twin     *Coordinator                          // is given the same events
	restore  []connector.Committable               // what CURRENT names, while it is settled
	running  bool
	drained  bool // the sources take event time to the end
	ended    Action
}

// sinkTask writes one sequence.
type sinkTask struct {
	pos, cut int  // records written; records pre-committed
	last     bool // the last barrier has passed: nothing is written any more
	held     map[connector.CommittableID]bool
}

func newWorld(cfg Config) *world {
	return &world{
		cfg: cfg, manifests: map[string]manifest{}, exist: map[string]bool{}, visible: map[string]int{},
		txns: map[string]*transaction{}, procs: map[string]*process{},
	}
}

// start begins a generation in a process, from what is durable.
func (w *world) start(name string) *process {
	p := &process{
		name: name, co: New(w.cfg), twin: New(w.cfg),
		asked: map[connector.CommittableID]bool{}, settled: map[connector.CommittableID]bool{},
		sinks:  map[SubtaskID]*sinkTask{},
		passed: map[uint64]map[SubtaskID]Acknowledged{},
	}
	w.procs[name] = p
	m := w.manifests[w.current.Manifest]
	b := Begin{Current: w.current, Named: m.committables, Root: m.root}
	if !w.current.Exists() {
		b.Fresh = true
		b.Current = Current{Job: w.cfg.Job, Lineage: "00000000000000aa"}
	}
	w.step(p, b)
	return p
}

// step gives an event to the coordinator and notes what is to be answered.
func (w *world) step(p *process, e Event) []Action {
	if e, ok := e.(CommitSettled); ok {
		p.settled[e.ID] = true
	}
	out := p.co.Step(e)
	if !reflect.DeepEqual(out, p.twin.Step(e)) {
		w.wrongf("the same events gave other actions after %T", e)
	}
	if p.ended != nil && len(out) > 0 {
		w.wrongf("%s followed %s", describe(out[0]), describe(p.ended))
	}
	for _, a := range out {
		w.note(p, a)
	}
	return out
}

func (w *world) note(p *process, a Action) {
	switch a := a.(type) {
	case SwapCurrent, WriteManifest:
		w.checkAlone(p)
		p.pending = append(p.pending, a)
	case RewriteManifest:
		w.checkAlone(p)
		w.checkReplacement(p, a)
		p.pending = append(p.pending, a)
	case Replaced:
		w.checkPermit(a.Permit, p.restore)
		p.pending = append(p.pending, a)
	case InjectBarrier:
		w.checkBarrier(p, a)
		p.open, p.final = a.Checkpoint, a.Final
		p.pending = append(p.pending, a)
	case Restore:
		w.checkPermit(a.Permit, a.Named)
		p.pending = append(p.pending, a)
	case Commit:
		w.checkPermit(a.Permit, a.Committables)
		for _, c := range a.Committables {
			if p.asked[c.ID()] {
				w.wrongf("the commit of %s was asked for twice", c.ID())
			}
			p.asked[c.ID()] = true
			p.pending = append(p.pending, Commit{Permit: a.Permit, Committables: []connector.Committable{c}})
		}
	case AbortCheckpoint:
		p.open = 0
		p.pending = slices.DeleteFunc(p.pending, func(t Action) bool {
			b, ok := t.(InjectBarrier)
			return ok && b.Checkpoint == a.Checkpoint
		})
	case StartSubtasks:
		if !a.Current.Settled {
			w.wrongf("subtasks start at %s: slots may not be free", a.Current)
		}
		p.running, p.restored = true, a.Current.Checkpoint
		w.load(p)
	case Release:
		for _, c := range a.Committables {
			if w.names(c.ID()) {
				w.wrongf("%s was released and CURRENT names it", c.ID())
			}
			delete(p.sinks[SubtaskID{c.Sink, c.Subtask}].held, c.ID())
		}
	case Finish:
		if !w.current.Settled || !w.current.Clean && !w.current.Finished {
			w.wrongf("finished with CURRENT %s", w.current)
		}
		p.ended = a
	case FailGeneration, Stop, Superseded:
		p.ended = a
	case CheckpointCompleted:
		p.open = 0
	case StopReading:
		p.drained = a.Drain
	case DiscardSnapshots:
		w.checkDiscard(p, a)
	case ReleasePositions, Collect:
	}
}

// checkAlone checks that no swap and no manifest write is out.
func (w *world) checkAlone(p *process) {
	for _, a := range p.pending {
		switch a.(type) {
		case SwapCurrent, WriteManifest, RewriteManifest:
			w.wrongf("two of them are out at once: %s", describe(a))
		}
	}
}

// checkReplacement checks that the manifest names what CURRENT names, but for one committable, which is
// lost and was written again.
func (w *world) checkReplacement(p *process, a RewriteManifest) {
	replaced := 0
	for i, old := range w.manifests[a.Current.Manifest].committables {
		now := a.Committables[i]
		if old.ID() != now.ID() || old.Digest != now.Digest {
			w.wrongf("%s stands where %s was", now.ID(), old.ID())
		}
		if string(old.Payload) == string(now.Payload) {
			continue
		}
		replaced++
		if !w.transaction(old).lost {
			w.wrongf("%s is replaced and is not lost", old.ID())
		}
	}
	if replaced != 1 || a.Current != p.co.current {
		w.wrongf("%d committables are replaced at %s", replaced, a.Current)
	}
}

// checkBarrier checks that the barrier has its turn.
func (w *world) checkBarrier(p *process, b InjectBarrier) {
	if p.drained && b.Final == None && w.current.Checkpoint != 0 {
		w.wrongf("barrier %d lies behind the end of event time, with input left to read", b.Checkpoint)
	}
	if b.Checkpoint <= p.last || b.Checkpoint <= w.current.Checkpoint && w.owns(p) {
		w.wrongf("barrier %d after %d, with CURRENT %s", b.Checkpoint, p.last, w.current)
	}
	if p.open != 0 {
		w.wrongf("barrier %d while checkpoint %d is in progress", b.Checkpoint, p.last)
	}
	p.last = b.Checkpoint
	unsettled := map[uint64]bool{}
	for _, c := range w.manifests[p.co.current.Manifest].committables {
		if !p.co.current.Settled && !p.settled[c.ID()] && p.co.current.Checkpoint > p.restored {
			unsettled[c.Checkpoint] = true
		}
	}
	if len(unsettled) > 1 {
		w.wrongf("barrier %d while %d checkpoints are not settled", b.Checkpoint, len(unsettled))
	}
}

// checkDiscard checks that nothing names a file that is deleted, or is about to (P11).
func (w *world) checkDiscard(p *process, a DiscardSnapshots) {
	for _, h := range a.Handles {
		if w.exist[h.Name] {
			w.wrongf("%s is discarded, and a checkpoint names it", h.Name)
		}
		if p.co.open == nil {
			continue
		}
		for _, chain := range p.co.open.handles {
			if slices.Contains(chain, h) {
				w.wrongf("%s is discarded, and the checkpoint in progress names it", h.Name)
			}
		}
	}
}

// owns reports whether the process's generation is the one in CURRENT.
func (w *world) owns(p *process) bool { return p.co.current.Generation == w.current.Generation }

func (w *world) wrongf(format string, args ...any) {
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// names reports whether CURRENT names the committable now.
func (w *world) names(id connector.CommittableID) bool {
	return !w.current.Settled && slices.ContainsFunc(w.manifests[w.current.Manifest].committables,
		func(c connector.Committable) bool { return c.ID() == id })
}

func (w *world) checkPermit(p CommitPermit, cs []connector.Committable) {
	if !p.Valid() {
		w.wrongf("a permit that is not valid")
	}
	for _, c := range cs {
		if !p.Covers(c.ID()) {
			w.wrongf("%s does not cover %s", p, c.ID())
		}
	}
}

// load reads the snapshots that CURRENT names.
func (w *world) load(p *process) {
	for _, s := range w.cfg.Subtasks {
		if !s.Source {
			p.sinks[s.ID] = &sinkTask{held: map[connector.CommittableID]bool{}}
		}
	}
	for _, s := range w.manifests[w.current.Manifest].snapshots {
		if t := p.sinks[s.Subtask]; t != nil {
			t.pos = int(s.Handles[0].Size)
			t.cut = t.pos
		}
	}
}

// swap carries out the swap that is out. The answer may be lost; told reports it.
func (w *world) swap(p *process, a SwapCurrent, told bool) Event {
	if w.current != a.Old {
		if !told {
			return SwapUnknown{Err: errors.New("no answer")}
		}
		return SwapRefused{Err: fmt.Errorf("CURRENT is %s", w.current)}
	}
	if a.New.Clean {
		w.checkClean(p)
	}
	w.nonce++
	a.New.Nonce = fmt.Sprint(w.nonce)
	w.current = a.New
	for _, s := range w.manifests[a.New.Manifest].snapshots {
		for _, h := range s.Handles {
			w.exist[h.Name] = true
		}
	}
	for _, c := range w.manifests[a.New.Manifest].committables {
		if a.New.Settled {
			if w.visible[sinkOf(c)] < recordsOf(c).to {
				w.wrongf("CURRENT says settled and %s is not visible", c.ID())
			}
			continue
		}
		w.transaction(c).named = true
	}
	if !told {
		return SwapUnknown{Err: errors.New("no answer")}
	}
	return Swapped{Current: a.New}
}

// checkClean checks that the process leaves nothing open outside.
func (w *world) checkClean(p *process) {
	for id, t := range p.sinks {
		if t.pos > w.visible[id.String()] {
			w.wrongf("CURRENT says clean and %s has written up to %d", id, t.pos)
		}
	}
}

// writeManifest makes a manifest durable.
func (w *world) writeManifest(a WriteManifest) Event {
	name := fmt.Sprintf("g%d-c%d", a.Current.Generation, a.Checkpoint)
	if _, ok := w.manifests[name]; ok {
		w.wrongf("manifest %s was written twice", name)
	}
	w.manifests[name] = manifest{
		parent: a.Current, finished: a.Finished, snapshots: a.Snapshots, committables: a.Committables,
	}
	return ManifestWritten{
		Checkpoint: a.Checkpoint, Manifest: name, Digest: sha256.Sum256([]byte(name)),
	}
}

// rewriteManifest makes another manifest of the same checkpoint durable.
func (w *world) rewriteManifest(a RewriteManifest) Event {
	m := w.manifests[a.Current.Manifest]
	m.committables = a.Committables
	name := ""
	for n := 1; name == "" || w.written(name); n++ {
		name = fmt.Sprintf("g%d-c%d-r%d", a.Current.Generation, a.Current.Checkpoint, n)
	}
	w.manifests[name] = m
	return ManifestWritten{
		Checkpoint: a.Current.Checkpoint, Manifest: name, Digest: sha256.Sum256([]byte(name)),
	}
}

func (w *world) written(name string) bool {
	_, ok := w.manifests[name]
	return ok
}

// transaction returns the one that a committable stands for.
func (w *world) transaction(c connector.Committable) *transaction {
	t := w.txns[string(c.Payload)]
	if t == nil {
		t = &transaction{of: c}
		w.txns[string(c.Payload)] = t
	}
	return t
}

// lose lets the outside end a transaction, and reports whether it was open.
func (w *world) lose(c connector.Committable) bool {
	t := w.transaction(c)
	if !t.committed {
		t.lost = true
	}
	return t.lost
}

// commit makes a committable visible, and reports whether it is: again changes nothing, and out of
// order is wrong.
func (w *world) commit(c connector.Committable) bool {
	r, sink, t := recordsOf(c), sinkOf(c), w.transaction(c)
	switch {
	case !t.named:
		w.wrongf("%s was committed and CURRENT never named it", c.ID())
	case t.committed: // a commit that came again
	case t.lost:
		return false
	case r.from != w.visible[sink]:
		w.wrongf("%s makes records %s visible after record %d", c.ID(), r, w.visible[sink]-1)
	default:
		w.visible[sink], t.committed = r.to, true
	}
	return true
}

// settle goes on with the restore: it commits what is named, in order, up to the first that is lost, and
// writes that one again. What lies behind it in its sequence ends unseen too, for it comes behind it
// again. Everything else of the lineage ends unseen.
func (w *world) settle(p *process) Event {
	for i, c := range p.restore {
		if w.commit(c) {
			continue
		}
		for _, behind := range p.restore[i+1:] {
			if sinkOf(behind) == sinkOf(c) && w.owns(p) {
				w.lose(behind)
			}
		}
		p.restore = slices.Clone(p.restore)
		p.restore[i] = again(c, len(w.txns))
		w.transaction(p.restore[i])
		return Reemitted{Committable: p.restore[i]}
	}
	return Restored{}
}

// pass lets the barrier pass a subtask: what it wrote since the last one is pre-committed.
func (w *world) pass(p *process, n uint64, id SubtaskID) (Acknowledged, string) {
	if n == 0 || n > p.last {
		return Acknowledged{}, "no such barrier"
	}
	if _, ok := p.passed[n][id]; ok {
		return Acknowledged{}, "passed already"
	}
	a := Acknowledged{Checkpoint: n, Subtask: id}
	if t := p.sinks[id]; t != nil {
		t.last = n == p.last && p.final != None
		if t.pos > t.cut {
			c := committable(id, n, span{t.cut, t.pos}, len(w.txns))
			w.transaction(c)
			a.Committables = []connector.Committable{c}
			t.held[c.ID()] = true
			t.cut = t.pos
		}
		a.Handles = []Handle{{Name: fmt.Sprintf("%s-g%d-c%d", id, p.co.current.Generation, n), Size: int64(t.pos)}}
	}
	if p.passed[n] == nil {
		p.passed[n] = map[SubtaskID]Acknowledged{}
	}
	p.passed[n][id] = a
	return a, ""
}

// write lets a sink subtask write records. A new transaction needs a free slot.
func (w *world) write(p *process, id SubtaskID, n int) string {
	t := p.sinks[id]
	if t.last {
		return fmt.Sprintf("%s has seen the last barrier", id)
	}
	if t.pos == t.cut && w.slots > 0 && len(t.held) >= w.slots {
		return fmt.Sprintf("%s waits for a slot", id)
	}
	t.pos += n
	return ""
}

// perform carries out one action and returns the event that answers it.
func (w *world) perform(p *process, a Action) Event {
	switch a := a.(type) {
	case SwapCurrent:
		return w.swap(p, a, true)
	case Restore:
		p.restore = a.Named
		return w.settle(p)
	case Replaced:
		return w.settle(p)
	case WriteManifest:
		return w.writeManifest(a)
	case RewriteManifest:
		return w.rewriteManifest(a)
	case Commit:
		id := a.Committables[0].ID()
		if !w.commit(a.Committables[0]) {
			return CommitFailed{ID: id, Err: errors.New("the log shows it aborted")}
		}
		return CommitSettled{ID: id}
	}
	panic(fmt.Sprintf("%T has no answer of its own", a))
}

// take removes the first action of kind T from what is to be done.
func take[T Action](p *process) (T, bool) {
	for i, a := range p.pending {
		if t, ok := a.(T); ok {
			p.pending = slices.Delete(p.pending, i, i+1)
			return t, true
		}
	}
	var none T
	return none, false
}

// span is a run of records [from, to).
type span struct{ from, to int }

func (s span) String() string { return fmt.Sprintf("%d…%d", s.from, s.to-1) }

// committable returns one of a transaction. Its digest covers the records alone.
func committable(id SubtaskID, n uint64, r span, transaction int) connector.Committable {
	records := fmt.Sprintf("%d %d", r.from, r.to)
	return connector.Committable{
		Sink: id.Operator, Subtask: id.Index, Checkpoint: n,
		Digest: sha256.Sum256([]byte(records)), Payload: fmt.Appendf(nil, "%s in %d", records, transaction),
	}
}

// again returns the same records in another transaction.
func again(c connector.Committable, transaction int) connector.Committable {
	r := recordsOf(c)
	c.Payload = fmt.Appendf(nil, "%d %d in %d again", r.from, r.to, transaction)
	return c
}

func recordsOf(c connector.Committable) (r span) {
	if _, err := fmt.Sscan(string(c.Payload), &r.from, &r.to); err != nil {
		panic(err)
	}
	return r
}

func sinkOf(c connector.Committable) string {
	return SubtaskID{Operator: c.Sink, Index: c.Subtask}.String()
}

// state prints what is durable and what is visible.
func (w *world) state() string {
	var b strings.Builder
	fmt.Fprintf(&b, "CURRENT   %s\n", w.current)
	for _, name := range slices.Sorted(maps.Keys(w.manifests)) {
		fmt.Fprintf(&b, "manifest  %s%s\n", name, listed(w.manifests[name].committables))
	}
	for _, sink := range slices.Sorted(maps.Keys(w.visible)) {
		fmt.Fprintf(&b, "visible   %s: %s\n", sink, span{0, w.visible[sink]})
	}
	for _, s := range w.wrong {
		fmt.Fprintf(&b, "WRONG     %s\n", s)
	}
	return b.String()
}

func listed(cs []connector.Committable) string {
	var b strings.Builder
	for _, c := range cs {
		fmt.Fprintf(&b, " %s(%s%s)", c.ID(), recordsOf(c), wordAgain(c))
	}
	return b.String()
}

func wordAgain(c connector.Committable) string {
	if strings.HasSuffix(string(c.Payload), "again") {
		return " again"
	}
	return ""
}

// rewind begins a new lineage with a checkpoint, as the shell does between two generations. What is
// visible behind it is made again, which somebody has accepted.
func (w *world) rewind(name string) {
	if !w.current.Settled {
		w.wrongf("going back from %s, which is not settled", w.current)
	}
	m := w.manifests[name]
	m.root, m.committables = true, nil
	w.manifests[name+"-root"] = m
	w.nonce++
	var n uint64
	if _, err := fmt.Sscanf(name[strings.Index(name, "-c"):], "-c%d", &n); err != nil {
		panic(err)
	}
	w.current = Current{
		Job: w.cfg.Job, Lineage: "00000000000000bb", Generation: w.current.Generation, Checkpoint: n,
		Manifest: name + "-root", ManifestDigest: sha256.Sum256([]byte(name)), Nonce: fmt.Sprint(w.nonce),
	}
	for _, s := range m.snapshots {
		if s.Subtask.Operator == "sink" {
			w.visible[s.Subtask.String()] = int(s.Handles[0].Size)
		}
	}
}

// describe prints an action as the scripts show it.
func describe(a Action) string {
	switch a := a.(type) {
	case SwapCurrent:
		return fmt.Sprintf("swap CURRENT from %s to %s", a.Old, a.New)
	case Restore:
		s := fmt.Sprintf("restore c%d under %s", a.Current.Checkpoint, a.Permit)
		for word, set := range map[string]bool{" clean": a.Clean, " fresh": a.Fresh} {
			if set {
				s += word
			}
		}
		return s + listed(a.Named)
	case StartSubtasks:
		return fmt.Sprintf("start subtasks at c%d", a.Current.Checkpoint)
	case InjectBarrier:
		if a.Final != None {
			return fmt.Sprintf("inject barrier %d, the last one: %s", a.Checkpoint, a.Final)
		}
		return fmt.Sprintf("inject barrier %d", a.Checkpoint)
	case AbortCheckpoint:
		return fmt.Sprintf("abort checkpoint %d: %v", a.Checkpoint, a.Err)
	case WriteManifest:
		s := fmt.Sprintf("write manifest %d", a.Checkpoint)
		if a.Finished {
			s += " finished"
		}
		return s + listed(a.Committables)
	case RewriteManifest:
		return fmt.Sprintf("write manifest %d anew%s", a.Current.Checkpoint, listed(a.Committables))
	case Replaced:
		return fmt.Sprintf("replaced under %s%s", a.Permit, listed([]connector.Committable{a.Committable}))
	case Commit:
		return fmt.Sprintf("commit under %s%s", a.Permit, listed(a.Committables))
	case Release:
		return "release" + listed(a.Committables)
	case ReleasePositions:
		return fmt.Sprintf("release positions of c%d", a.Checkpoint)
	case CheckpointCompleted:
		return fmt.Sprintf("completed c%d", a.Current.Checkpoint)
	case DiscardSnapshots:
		s := "discard"
		for _, h := range a.Handles {
			s += " " + h.Name
		}
		return s
	case Collect:
		if a.Retain == retainAll {
			return fmt.Sprintf("collect what is left behind, up to c%d", a.Current.Checkpoint)
		}
		return fmt.Sprintf("collect, keep %d up to c%d", a.Retain, a.Current.Checkpoint)
	case StopReading:
		if a.Drain {
			return "stop reading, drain"
		}
		return "stop reading"
	case Finish:
		return fmt.Sprintf("FINISH: %s", a.Outcome)
	case FailGeneration:
		return fmt.Sprintf("FAIL GENERATION: %v", a.Err)
	case Stop:
		return fmt.Sprintf("STOP: %v", a.Err)
	case Superseded:
		return fmt.Sprintf("SUPERSEDED: %v", a.Err)
	}
	return fmt.Sprintf("%T", a)
}
