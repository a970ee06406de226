package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/weir/internal/protocol"
)

// Whatever is cut, written, aborted, timed out, completed, restored or killed, in whatever order: what can
// be restored is whole, what the next cut builds on is there, and nothing else stays on disk.
func TestAbortedCheckpointsLeaveOnlyWhatTheNextCutNeeds(t *testing.T) {
	seen := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		w := newAborting(rt, seen)
		w.begin()
		for range 250 {
			if w.move() {
				w.check()
			}
		}
	})
	for _, what := range []string{
		"completed", "aborted", "timed out", "written late", "discarded", "declined", "manifest failed",
		"swap failed", "killed", "killed amid an action", "restored", "discarded from a chain", "savepoint",
	} {
		require.Positive(t, seen[what], "%s: it never happened, in %v", what, seen)
	}
}

// aborting is a job as its store and its coordinator see it: one subtask without a chain, and two with
// chains of cuts, whose checkpoints fail most of the time.
type aborting struct {
	t     *rapid.T
	seen  map[string]int
	fs    *memFS
	store *dirStore
	co    *protocol.Coordinator

	work  []protocol.Action // to be carried out in order
	tasks []*chained
	open  uint64
	live  bool // subtasks run
	dead  bool // the generation has ended

	savepoints int
}

// chained is a subtask and the goroutine that writes its cuts.
type chained struct {
	id      protocol.SubtaskID
	groups  []uint64 // of each key group, the cut that holds its base; none: every cut is whole
	barrier uint64   // that waits for it, or 0
	cuts    uint64
	taken   []aCut // and not written
	links   []aLink
	lost    []aCut // could not be written: in front of the next one
	answers []protocol.Event
}

type aLink struct {
	number uint64
	handle protocol.Handle
}

// aCut is what a file says of a cut.
type aCut struct {
	Checkpoint, Number, Oldest uint64
}

func newAborting(t *rapid.T, seen map[string]int) *aborting {
	w := &aborting{t: t, seen: seen, fs: newMemFS()}
	w.openStore()
	return w
}

func (w *aborting) openStore() {
	var err error
	w.store, err = openMem(w.fs)
	require.NoError(w.t, err)
}

// begin begins a generation with what is durable.
func (w *aborting) begin() {
	cfg := protocol.Config{Job: "gatewaymeter", Retain: 2, TolerableFailures: 5}
	w.tasks, w.open, w.live, w.dead, w.work = nil, 0, false, false, nil
	for i, groups := range []int{0, 2, 3} {
		id := protocol.SubtaskID{Operator: "op", Index: i}
		cfg.Subtasks = append(cfg.Subtasks, protocol.Subtask{ID: id})
		w.tasks = append(w.tasks, &chained{id: id, groups: make([]uint64, groups)})
	}
	cur, m, err := Latest(context.Background(), w.store)
	require.NoError(w.t, err)
	begin := protocol.Begin{Current: cur, Named: m.Committables}
	if !cur.Exists() {
		begin.Fresh, begin.Current = true, protocol.Current{Job: "gatewaymeter", Lineage: testLineage}
	}
	w.co = protocol.New(cfg)
	w.step(begin)
}

func (w *aborting) step(e protocol.Event) {
	for _, a := range w.co.Step(e) {
		switch a := a.(type) {
		case protocol.InjectBarrier:
			w.open = a.Checkpoint
			for _, s := range w.tasks {
				s.barrier = a.Checkpoint
			}
		case protocol.AbortCheckpoint:
			w.open = 0
			w.seen["aborted"]++
		case protocol.CheckpointCompleted:
			w.open = 0
			w.seen["completed"]++
		case protocol.FailGeneration, protocol.Stop:
			w.dead = true
		case protocol.Commit, protocol.Release, protocol.ReleasePositions:
		default:
			w.work = append(w.work, a)
		}
	}
}

// pick returns one of 0 … n-1, each as likely as the others: integers that rapid draws favour the ends.
func (w *aborting) pick(n int) (i int) {
	for _, bit := range rapid.SliceOfN(rapid.Bool(), 10, 10).Draw(w.t, "pick") {
		i *= 2
		if bit {
			i++
		}
	}
	return i % n
}

// move does one thing, and reports whether files may have gone.
func (w *aborting) move() bool {
	switch n := w.pick(200); {
	case n == 0:
		w.kill()
	case w.dead:
		w.restart()
	case !w.live, len(w.work) > 0 && n < 100:
		w.carryOut()
	case n < 120:
		w.step(protocol.CheckpointDue{})
		return false
	case n < 122:
		if w.open != 0 {
			w.seen["timed out"]++
		}
		w.step(protocol.TimedOut{Checkpoint: w.open})
	case n < 124:
		w.savepoint()
	default:
		w.subtask(w.tasks[w.pick(len(w.tasks))])
		return false
	}
	return true
}

func (w *aborting) restart() {
	if w.store.usable(context.Background()) != nil {
		w.fs = w.fs.crashed(killed)
		w.openStore()
	}
	w.begin()
}

func (w *aborting) kill() {
	w.seen["killed"]++
	w.fs = w.fs.crashed(crash(w.pick(2)))
	w.openStore()
	w.begin()
}

// subtask lets a subtask do one of the things that it has to do.
func (w *aborting) subtask(s *chained) {
	var can []func()
	if s.barrier != 0 {
		can = append(can, func() { s.cut(w) })
	}
	if len(s.taken) > 0 {
		can = append(can, func() { w.write(s) })
	}
	if len(s.answers) > 0 {
		can = append(can, func() {
			e := s.answers[0]
			s.answers = s.answers[1:]
			w.step(e)
		})
	}
	if len(can) > 0 {
		can[w.pick(len(can))]()
	}
}

// cut takes the barrier: some groups are written whole, and the first time all are.
func (s *chained) cut(w *aborting) {
	s.cuts++
	c := aCut{Checkpoint: s.barrier, Number: s.cuts, Oldest: s.cuts}
	for i := range s.groups {
		if s.cuts == 1 || w.pick(3) == 0 {
			s.groups[i] = s.cuts
		}
	}
	if len(s.groups) > 0 {
		c.Oldest = slices.Min(s.groups)
	}
	s.barrier, s.taken = 0, append(s.taken, c)
}

// write makes a cut durable with those that could not be written before it, or fails at that.
func (w *aborting) write(s *chained) {
	c := s.taken[0]
	s.taken, s.lost = s.taken[1:], append(s.lost, c)
	payload, err := json.Marshal(s.lost)
	require.NoError(w.t, err)
	w.mayFail(10, 2)
	cur := w.mustCurrent()
	h, err := w.store.PutSnapshot(context.Background(), SnapshotName{
		Lineage: cur.Lineage, Generation: cur.Generation, Checkpoint: c.Checkpoint, Subtask: s.id,
	}, payload)
	w.fs.failAt = 0
	if err == nil {
		s.lost, s.links = nil, append(s.links, aLink{number: c.Number, handle: h})
		if c.Checkpoint != w.open {
			w.seen["written late"]++
		}
	}
	for len(s.links) > 0 && s.links[0].number < c.Oldest {
		s.links = s.links[1:]
	}
	var handles []protocol.Handle
	for _, l := range s.links {
		handles = append(handles, l.handle)
	}
	if err == nil {
		s.answers = append(s.answers, protocol.Acknowledged{Checkpoint: c.Checkpoint, Subtask: s.id, Handles: handles})
		return
	}
	w.seen["declined"]++
	s.answers = append(s.answers, protocol.Declined{Checkpoint: c.Checkpoint, Subtask: s.id, Handles: handles, Err: err})
}

// mayFail has the disk full one time in n, at the given operation from now on.
func (w *aborting) mayFail(n, op int) {
	if w.pick(n) == 0 {
		w.fs.failAt = len(w.fs.ops) + op
	}
}

func (w *aborting) mustCurrent() protocol.Current {
	cur, err := w.store.Current(context.Background())
	require.NoError(w.t, err)
	return cur
}

// carryOut does the next of what the coordinator has asked for. The process may be killed amid it.
func (w *aborting) carryOut() {
	if len(w.work) == 0 {
		return
	}
	a := w.work[0]
	w.work = w.work[1:]
	var left *memFS
	if w.pick(30) == 0 {
		in, how := w.pick(6), crash(w.pick(2))
		w.fs.before = func() {
			if in--; in < 0 && left == nil {
				left = w.fs.crashed(how)
			}
		}
	}
	e := w.perform(a)
	w.fs.before, w.fs.failAt = nil, 0
	if left != nil {
		w.seen["killed amid an action"]++
		w.fs = left
		w.openStore()
		w.begin()
		return
	}
	if e != nil {
		w.step(e)
	}
}

func (w *aborting) perform(a protocol.Action) protocol.Event {
	ctx := context.Background()
	switch a := a.(type) {
	case protocol.SwapCurrent:
		w.mayFail(20, 2)
		cur, err := w.store.Swap(ctx, a.Old, a.New)
		if err != nil {
			w.seen["swap failed"]++
			return protocol.SwapUnknown{Err: err}
		}
		return protocol.Swapped{Current: cur}
	case protocol.Restore:
		w.seen["restored"]++
		return protocol.Restored{}
	case protocol.StartSubtasks:
		w.live = true
	case protocol.WriteManifest:
		w.mayFail(6, 3) // behind the fsync of a directory
		r, err := w.store.PutManifest(ctx, Manifest{
			Job: "gatewaymeter", Lineage: a.Current.Lineage, Generation: a.Current.Generation, Checkpoint: a.Checkpoint,
			Parent: Ref{Name: a.Current.Manifest, Digest: a.Current.ManifestDigest}, Snapshots: a.Snapshots,
		})
		if err != nil {
			w.seen["manifest failed"]++
			return protocol.ManifestFailed{Checkpoint: a.Checkpoint, Err: err}
		}
		return protocol.ManifestWritten{Checkpoint: a.Checkpoint, Manifest: r.Name, Digest: r.Digest}
	case protocol.DiscardSnapshots:
		var names []string
		for _, h := range a.Handles {
			names = append(names, h.Name)
			if path.Base(h.Name)[len(path.Base(h.Name))-1] != '0' {
				w.seen["discarded from a chain"]++
			}
		}
		w.seen["discarded"]++
		require.NoError(w.t, w.store.DeleteSnapshots(ctx, names))
	case protocol.Collect:
		_, err := w.store.Collect(ctx, a.Retain)
		require.NoError(w.t, err)
	default:
		require.Fail(w.t, fmt.Sprintf("%T", a))
	}
	return nil
}

// savepoint keeps the checkpoint that CURRENT names, and forgets another one.
func (w *aborting) savepoint() {
	cur := w.mustCurrent()
	if cur.Manifest == "" {
		return
	}
	w.savepoints++
	w.seen["savepoint"]++
	_, err := w.store.PutSavepoint(context.Background(), fmt.Sprint("s", w.savepoints),
		Ref{Name: cur.Manifest, Digest: cur.ManifestDigest})
	require.NoError(w.t, err)
	if w.pick(2) == 0 {
		err := w.store.DeleteSavepoint(context.Background(), fmt.Sprint("s", 1+w.pick(w.savepoints)))
		require.True(w.t, err == nil || errors.Is(err, ErrNoSavepoint), "%v", err)
		_, err = w.store.Collect(context.Background(), 2)
		require.NoError(w.t, err)
	}
}

// check looks at every file that anything names, and then at those that nothing does.
func (w *aborting) check() {
	needed := map[string]bool{}
	all, err := Retained(context.Background(), w.store)
	require.NoError(w.t, err)
	savepoints, err := w.store.Savepoints(context.Background())
	require.NoError(w.t, err)
	for _, p := range savepoints {
		m, err := w.store.GetManifest(context.Background(), p.Manifest)
		require.NoError(w.t, err)
		all = append(all, m)
	}
	for _, m := range all {
		for _, s := range m.Snapshots {
			w.requireWhole(s.Handles, m.Checkpoint, needed)
		}
	}
	for _, s := range w.tasks {
		for _, l := range s.links {
			w.read(l.handle)
			needed[l.handle.Name] = true
		}
		for _, e := range s.answers { // they are about to be named, or to be let go
			for _, h := range handlesOf(e) {
				needed[h.Name] = true
			}
		}
	}
	if !w.live || w.dead || len(w.work) > 0 || len(w.undelivered()) > 0 {
		return
	}
	on, err := w.fs.List(snapshotsDir)
	require.NoError(w.t, err)
	for _, name := range on {
		require.Contains(w.t, needed, path.Join(snapshotsDir, name), "nothing needs it: %v", slices.Sorted(maps.Keys(needed)))
	}
}

func (w *aborting) undelivered() (all []protocol.Event) {
	for _, s := range w.tasks {
		all = append(all, s.answers...)
	}
	return all
}

func handlesOf(e protocol.Event) []protocol.Handle {
	if a, ok := e.(protocol.Acknowledged); ok {
		return a.Handles
	}
	return e.(protocol.Declined).Handles
}

// requireWhole checks that the files of a subtask hold every cut that a restore of the checkpoint needs.
func (w *aborting) requireWhole(handles []protocol.Handle, checkpoint uint64, needed map[string]bool) {
	var cuts []aCut
	for _, h := range handles {
		needed[h.Name] = true
		cuts = append(cuts, w.read(h)...)
	}
	last := cuts[len(cuts)-1]
	require.Equal(w.t, checkpoint, last.Checkpoint)
	for i, c := range cuts {
		require.Equal(w.t, last.Number, c.Number+uint64(len(cuts)-1-i), "a cut is missing: %v", cuts)
	}
	require.LessOrEqual(w.t, cuts[0].Number, last.Oldest, "a cut is missing: %v", cuts)
}

func (w *aborting) read(h protocol.Handle) (cuts []aCut) {
	payload, err := w.store.GetSnapshot(context.Background(), h)
	require.NoError(w.t, err)
	require.NoError(w.t, json.Unmarshal(payload, &cuts))
	return cuts
}
