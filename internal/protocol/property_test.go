package protocol

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/weir/connector"
)

// TestEveryScheduleIsExactlyOnce drives processes through random schedules of everything that can
// happen, deaths and zombies included. The world looks on: what it calls wrong is written where
// it looks. Then one last generation runs to the end of input, and every record must be visible.
func TestEveryScheduleIsExactlyOnce(t *testing.T) {
	faults := newTally()
	rapid.Check(t, func(t *rapid.T) {
		clear(faults.seen)
		tolerable := rapid.IntRange(0, 2).Draw(t, "tolerable")
		w := newWorld(Config{Job: "job", TolerableFailures: tolerable, Subtasks: []Subtask{
			{ID: SubtaskID{"src", 0}, Source: true}, {ID: SubtaskID{"sink", 0}}, {ID: SubtaskID{"sink", 1}},
		}})
		w.slots = 4 + tolerable
		s := schedule{w: w, t: t, faults: faults}
		s.slow = s.pick(2, "slow commits") == 1
		s.rare = []int{1, 4, 16}[s.pick(3, "rare")]
		for range rapid.IntRange(100, 400).Draw(t, "steps") {
			s.step()
			require.Empty(t, w.wrong)
		}
		s.finish()
	})
	faults.note(t)
}

type schedule struct {
	w      *world
	t      *rapid.T
	faults *tally
	// slow lets commits wait, so that they travel through checkpoints
	slow bool
	// rare is by how much deaths, aborts and losses are rarer: a generation in which all goes wrong at once does not
	// come to commits
	rare int
	// undelivered answers of each process and subtask, in order (S1)
	answers map[*process]map[SubtaskID][]Event
}

// step does one thing in one process, which is started first if it is not alive.
func (s *schedule) step() {
	name := "a"
	if s.pick(12, "process") == 11 {
		name = "b"
	}
	p := s.w.procs[name]
	if s.pick(25*s.rare, "loss") == 24 {
		s.lose()
	}
	dead := p == nil || p.ended != nil
	if dead && name == "b" && s.pick(20, "takeover") != 19 {
		return // or nobody would come far
	}
	if dead || s.pick(60*s.rare, "death") == 59 {
		if p != nil && p.ended == nil {
			s.faults.put(aDeath, true)
		}
		if other := s.w.procs[map[string]string{"a": "b", "b": "a"}[name]]; other != nil && other.ended == nil {
			s.faults.put(aSecondProcess, s.w.owns(other))
		}
		s.w.start(name)
		return
	}
	words := []string{"pending", "pending", "pending", "pending"}
	if p.running {
		words = append(words, "write", "write", "due", "pass", "pass", "pass", "pass", "pass", "deliver", "deliver",
			"deliver", "deliver", "deliver", "abort", "end")
	}
	switch words[s.pick(len(words), "word")] {
	case "pending":
		s.pending(p)
	case "write":
		s.w.write(p, s.sink(), 1+s.pick(3, "records"))
	case "due":
		s.w.step(p, CheckpointDue{})
	case "pass":
		s.pass(p)
	case "deliver":
		s.deliver(p)
	case "abort":
		if s.pick(3*s.rare, "really") == 2 {
			s.faults.put(anAbort, slices.ContainsFunc(s.w.step(p, TimedOut{Checkpoint: p.last}), func(a Action) bool {
				_, ok := a.(AbortCheckpoint)
				return ok
			}))
		}
	case "end":
		s.end(p)
	}
}

// lose lets the outside end one of the transactions that are open, named or not.
func (s *schedule) lose() {
	var open []string
	for payload, t := range s.w.txns {
		if !t.committed && !t.lost {
			open = append(open, payload)
		}
	}
	if len(open) > 0 {
		slices.Sort(open)
		s.faults.put(aLoss, s.w.lose(s.w.txns[open[s.pick(len(open), "lost")]].of))
	}
}

// pick returns one of 0 … n-1, each as likely as the others: integers that rapid draws favour the
// ends, and processes would die before they had done anything.
func (s *schedule) pick(n int, label string) (i int) {
	for _, bit := range rapid.SliceOfN(rapid.Bool(), 10, 10).Draw(s.t, label) {
		i *= 2
		if bit {
			i++
		}
	}
	return i % n
}

func (s *schedule) subtask() SubtaskID {
	return s.w.cfg.Subtasks[s.pick(len(s.w.cfg.Subtasks), "subtask")].ID
}

func (s *schedule) sink() SubtaskID {
	return SubtaskID{"sink", s.pick(2, "sink")}
}

// pending carries out something that is out, well or badly. Commits of one sink subtask keep their
// order (S2).
func (s *schedule) pending(p *process) {
	var can []int
	seen := map[string]bool{}
	for i, a := range p.pending {
		c, isCommit := a.(Commit)
		_, isBarrier := a.(InjectBarrier)
		if isBarrier || isCommit && seen[sinkOf(c.Committables[0])] {
			continue
		}
		if isCommit {
			seen[sinkOf(c.Committables[0])] = true
		}
		can = append(can, i)
	}
	if len(can) == 0 {
		return
	}
	i := can[s.pick(len(can), "which")]
	a := p.pending[i]
	if _, ok := a.(Commit); ok && s.slow && s.pick(8, "now") != 7 {
		return
	}
	p.pending = slices.Delete(p.pending, i, i+1)
	luck := 39 - s.pick(40, "luck")
	if e := s.misfortune(p, a, luck); e != nil {
		s.w.step(p, e)
		return
	}
	s.w.step(p, s.w.perform(p, a))
}

// misfortune is how an action may end badly, and nil if it ends well.
func (s *schedule) misfortune(p *process, a Action, luck int) Event {
	switch a := a.(type) {
	case SwapCurrent:
		if luck == 0 {
			s.faults.put(aLostSwap, s.w.current == a.Old)
			return s.w.swap(p, a, false)
		}
		if luck == 1 {
			s.faults.put(aSwapNotApplied, s.w.current == a.Old)
			return SwapUnknown{Err: errors.New("not applied")}
		}
	case RewriteManifest:
		if luck == 0 {
			s.faults.put(aFailedManifest, true)
			return ManifestFailed{Checkpoint: a.Current.Checkpoint, Err: errors.New("disk full")}
		}
	case Replaced:
		if luck == 0 {
			s.faults.put(aFailedRestore, true)
			return RestoreFailed{Err: errors.New("no answer")}
		}
	case WriteManifest:
		if luck < 4 {
			s.faults.put(aFailedManifest, true)
			return ManifestFailed{Checkpoint: a.Checkpoint, Err: errors.New("disk full")}
		}
	case Restore:
		if luck == 0 {
			s.faults.put(aFailedRestore, true)
			return RestoreFailed{Err: errors.New("no answer")}
		}
	case Commit:
		if luck == 0 {
			s.faults.put(aCommitNotSent, true)
			return CommitFailed{ID: a.Committables[0].ID(), Err: errors.New("not sent")}
		}
		if luck == 1 { // sent, and the answer is lost
			s.faults.put(aCommitInDoubt, true)
			s.w.commit(a.Committables[0])
			return CommitFailed{ID: a.Committables[0].ID(), Err: errors.New("no answer")}
		}
	}
	return nil
}

// pass lets a barrier pass a subtask, unless it is behind a write that waits for a slot. The
// barrier of an aborted checkpoint may still pass: an abort takes time to get around.
func (s *schedule) pass(p *process) {
	id := s.subtask()
	n := p.last
	if p.passed[n][id].Checkpoint != 0 || n == 0 {
		return
	}
	a, said := s.w.pass(p, n, id)
	require.Empty(s.t, said)
	var e Event = a
	if s.pick(20*s.rare, "declines") == 19 {
		s.faults.put(aDeclined, true)
		e = Declined{
			Checkpoint: n, Subtask: id, Committables: a.Committables, Err: errors.New("disk full"),
		}
	}
	if s.answers == nil {
		s.answers = map[*process]map[SubtaskID][]Event{}
	}
	if s.answers[p] == nil {
		s.answers[p] = map[SubtaskID][]Event{}
	}
	s.answers[p][id] = append(s.answers[p][id], e)
}

func (s *schedule) deliver(p *process) {
	id := s.subtask()
	if q := s.answers[p][id]; len(q) > 0 {
		s.answers[p][id] = q[1:]
		s.w.step(p, q[0])
	}
}

func (s *schedule) end(p *process) {
	switch s.pick(40, "how") {
	case 38:
		s.w.step(p, StopRequested{Drain: s.pick(2, "drain") == 1})
	case 39:
		s.faults.put(aPanic, true)
		s.w.step(p, SubtaskFailed{Subtask: s.sink(), Err: errors.New("panic")})
	}
}

// finish runs one more generation to the end of input, and looks for what was lost.
func (s *schedule) finish() {
	p := s.w.start("a")
	sinks := map[SubtaskID]int{}
	for len(p.pending) > 0 {
		a := p.pending[0]
		p.pending = p.pending[1:]
		if b, ok := a.(InjectBarrier); ok {
			for _, st := range s.w.cfg.Subtasks {
				ack, said := s.w.pass(p, b.Checkpoint, st.ID)
				require.Empty(s.t, said)
				s.w.step(p, ack)
			}
			continue
		}
		s.w.step(p, s.w.perform(p, a))
		if len(p.pending) > 0 || !p.running || p.ended != nil {
			continue
		}
		for id := range p.sinks {
			require.Empty(s.t, s.w.write(p, id, 5), "every slot is free")
		}
		s.w.step(p, InputEnded{Subtask: SubtaskID{"src", 0}})
	}
	require.Empty(s.t, s.w.wrong)
	require.Equal(s.t, Finish{Outcome: Finished}, p.ended)
	for id, sink := range p.sinks {
		sinks[id] = sink.pos
		require.Equal(s.t, sink.pos, s.w.visible[id.String()], "records of %s are lost", id)
		require.Empty(s.t, sink.held, "slots of %s are still held", id)
	}
	require.Len(s.t, sinks, 2)
	s.faults.end(sinks[SubtaskID{"sink", 0}] + sinks[SubtaskID{"sink", 1}])
	require.True(s.t, s.w.current.Settled && s.w.current.Finished && s.w.current.Clean)
}

// TestPermit pins what a permit is good for.
func TestPermit(t *testing.T) {
	id := connector.CommittableID{Sink: "sink", Checkpoint: 2}
	require.False(t, CommitPermit{}.Valid())
	require.False(t, CommitPermit{named: map[connector.CommittableID]struct{}{id: {}}}.Covers(id),
		"a permit that no swap stands behind covers nothing")
	p := CommitPermit{
		current: Current{Lineage: "00000000000000aa", Generation: 1, Checkpoint: 2},
		named:   map[connector.CommittableID]struct{}{id: {}},
	}
	require.True(t, p.Covers(id))
	id.Subtask = 1
	require.False(t, p.Covers(id))
	require.Len(t, slices.Collect(maps.Keys(p.named)), 1)
}
