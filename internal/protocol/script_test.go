package protocol

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
)

// TestScripts runs the scenarios of testdata/scenarios. Each file is one world. The words:
//
//	job [tolerable=N] [slots=N] [single]   a source src[0] and sinks sink[0], sink[1] (or one)
//	start [p=NAME]              a process starts a generation from what is durable
//	crash [p=NAME]              it dies
//	swap [applied|lost]         the swap that is out is carried out, with a lost answer if said
//	restore [fail]              what is named is settled, up to the first that is lost, which is written again
//	goon [fail]                 … and the restore goes on behind that one
//	lose ID                     the outside ends the newest transaction of that committable
//	reemit ID [same] [digest]   a restore says that it has written the committable again
//	write SUBTASK N             a sink subtask writes N records
//	due | stop [drain] | input-ended   events from outside
//	ack N [SUBTASK] [digest]    the barrier passes and is acknowledged (by all, if not said)
//	pass N SUBTASK              it passes; the answer is not delivered yet
//	deliver N SUBTASK           it is now
//	decline N SUBTASK           it passes, and the snapshot could not be written
//	timeout N | subtask-failed  more events
//	manifest [fail]             the manifest is written
//	commit [unanswered] [fail]  the first commit that is out is carried out
//	settled ID                  … and is answered
//	auto                        all that is out is carried out, until nothing is
//	rewind MANIFEST             a new lineage begins with that checkpoint
//	state                       what is durable and visible
//	restarts N                  N times: start, claim, restore, and the process dies
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		s := &script{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return s.run(t, d)
		})
		require.Empty(t, s.w.wrong, "the world saw what must never be")
	})
}

type script struct {
	w   *world
	out strings.Builder
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	s.out.Reset()
	name := "a"
	d.MaybeScanArgs(t, "p", &name)
	if d.Cmd == "job" {
		s.job(t, d)
		return "ok\n"
	}
	p := s.w.procs[name]
	switch d.Cmd {
	case "start":
		s.start(name)
	case "crash":
		delete(s.w.procs, name)
	case "state":
		s.out.WriteString(s.w.state())
	case "rewind":
		s.w.rewind(d.CmdArgs[0].Key)
	case "restarts":
		s.restarts(t, d, name)
	case "auto":
		s.auto(p)
	case "lose":
		require.True(t, s.w.lose(s.newest(identity(d.CmdArgs[0].Key))), "it is committed")
	case "write":
		if said := s.w.write(p, subtask(d.CmdArgs[0].Key), number(d, 1)); said != "" {
			s.sayf("%s", said)
		}
	default:
		e := s.event(t, d, p)
		if e != nil {
			s.step(p, e)
		}
	}
	if s.out.Len() == 0 {
		return "ok\n"
	}
	return s.out.String()
}

func (s *script) job(t *testing.T, d *datadriven.TestData) {
	cfg := Config{Job: "job", Retain: 2, Subtasks: []Subtask{
		{ID: SubtaskID{"src", 0}, Source: true}, {ID: SubtaskID{"sink", 0}}, {ID: SubtaskID{"sink", 1}},
	}}
	if d.HasArg("single") {
		cfg.Subtasks = cfg.Subtasks[:2]
	}
	d.MaybeScanArgs(t, "tolerable", &cfg.TolerableFailures)
	s.w = newWorld(cfg)
	d.MaybeScanArgs(t, "slots", &s.w.slots)
}

// start shows what the first step asks for: the world takes that step itself.
func (s *script) start(name string) {
	p := s.w.start(name)
	for _, a := range p.pending {
		s.sayf("%s", describe(a))
	}
	if p.ended != nil {
		s.sayf("%s", describe(p.ended))
	}
}

func (s *script) sayf(format string, args ...any) { fmt.Fprintf(&s.out, format+"\n", args...) }

func (s *script) step(p *process, e Event) {
	for _, a := range s.w.step(p, e) {
		s.sayf("%s", describe(a))
	}
}

// event returns the event that a word stands for, and nil if the word has said all itself.
func (s *script) event(t *testing.T, d *datadriven.TestData, p *process) Event {
	switch d.Cmd {
	case "swap":
		return s.swap(t, d, p)
	case "restore":
		a, ok := take[Restore](p)
		require.True(t, ok, "no restore is out")
		if d.HasArg("fail") {
			return RestoreFailed{Err: errors.New("the sink does not answer")}
		}
		return s.w.perform(p, a)
	case "goon":
		a, ok := take[Replaced](p)
		require.True(t, ok, "the restore does not wait")
		if d.HasArg("fail") {
			return RestoreFailed{Err: errors.New("the sink does not answer")}
		}
		return s.w.perform(p, a)
	case "reemit":
		return s.reemit(d)
	case "manifest":
		return s.manifest(t, d, p)
	case "commit":
		return s.commit(t, d, p)
	case "settled":
		return CommitSettled{ID: identity(d.CmdArgs[0].Key)}
	case "due":
		return CheckpointDue{}
	case "stop":
		return StopRequested{Drain: d.HasArg("drain")}
	case "input-ended":
		return InputEnded{Subtask: SubtaskID{"src", 0}}
	case "timeout":
		return TimedOut{Checkpoint: uint64(number(d, 0))}
	case "subtask-failed":
		err := errors.New("panic in user code")
		if d.HasArg("stop") {
			err = connector.Stop(errors.New("the topic was deleted"))
		}
		return SubtaskFailed{Subtask: subtask(d.CmdArgs[0].Key), Err: err}
	case "ack", "pass", "deliver", "decline":
		return s.barrier(t, d, p)
	}
	t.Fatalf("%s: no such word: %s", d.Pos, d.Cmd)
	return nil
}

func (s *script) swap(t *testing.T, d *datadriven.TestData, p *process) Event {
	a, ok := take[SwapCurrent](p)
	require.True(t, ok, "no swap is out")
	switch {
	case d.HasArg("applied"):
		return s.w.swap(p, a, false)
	case d.HasArg("lost"):
		return SwapUnknown{Err: errors.New("no answer")}
	}
	return s.w.swap(p, a, true)
}

// manifest writes the manifest that is out, of a new checkpoint or anew.
func (s *script) manifest(t *testing.T, d *datadriven.TestData, p *process) Event {
	a, n := Action(nil), uint64(0)
	if m, ok := take[WriteManifest](p); ok {
		a, n = m, m.Checkpoint
	} else {
		m, ok := take[RewriteManifest](p)
		require.True(t, ok, "no manifest is out")
		a, n = m, m.Current.Checkpoint
	}
	if d.HasArg("fail") {
		return ManifestFailed{Checkpoint: n, Err: errors.New("disk full")}
	}
	return s.w.perform(p, a)
}

// newest returns the committable as it was written last.
func (s *script) newest(id connector.CommittableID) (c connector.Committable) {
	last := -1
	for _, t := range s.w.txns {
		if n := transactionOf(t.of); t.of.ID() == id && n > last {
			c, last = t.of, n
		}
	}
	return c
}

func (s *script) reemit(d *datadriven.TestData) Event {
	id := identity(d.CmdArgs[0].Key)
	c := s.newest(id)
	switch {
	case c.Payload == nil:
		c = committable(SubtaskID{id.Sink, id.Subtask}, id.Checkpoint, span{0, 99}, len(s.w.txns))
	case d.HasArg("digest"):
		c.Digest[0]++
	}
	if !d.HasArg("same") {
		c = again(c, len(s.w.txns))
	}
	return Reemitted{Committable: c}
}

func transactionOf(c connector.Committable) (n int) {
	var r span
	if _, err := fmt.Sscanf(string(c.Payload), "%d %d in %d", &r.from, &r.to, &n); err != nil {
		panic(err)
	}
	return n
}

func (s *script) commit(t *testing.T, d *datadriven.TestData, p *process) Event {
	a, ok := take[Commit](p)
	require.True(t, ok, "no commit is out")
	c := a.Committables[0]
	s.sayf("(%s)", c.ID())
	if d.HasArg("fail") {
		return CommitFailed{ID: c.ID(), Err: errors.New("no broker")}
	}
	e := s.w.perform(p, a)
	if d.HasArg("unanswered") {
		return nil
	}
	return e
}

// barrier lets a barrier pass subtasks, and delivers their answers.
func (s *script) barrier(t *testing.T, d *datadriven.TestData, p *process) Event {
	n := uint64(number(d, 0))
	if len(d.CmdArgs) == 1 {
		for _, st := range s.w.cfg.Subtasks {
			if _, ok := p.passed[n][st.ID]; ok {
				continue
			}
			a, said := s.w.pass(p, n, st.ID)
			require.Empty(t, said)
			s.step(p, a)
		}
		return nil
	}
	id := subtask(d.CmdArgs[1].Key)
	a, passed := p.passed[n][id]
	if d.Cmd != "deliver" && !passed {
		if sink := p.sinks[id]; sink != nil && sink.pos == sink.cut && s.w.slots > 0 &&
			len(sink.held) >= s.w.slots && d.HasArg("behind-write") {
			s.sayf("the barrier is behind a write that waits for a slot")
			return nil
		}
		var said string
		a, said = s.w.pass(p, n, id)
		require.Empty(t, said)
	}
	switch {
	case d.Cmd == "pass":
		return nil
	case d.Cmd == "decline":
		return Declined{
			Checkpoint: n, Subtask: id, Committables: a.Committables, Err: errors.New("disk full"),
		}
	case d.HasArg("digest"):
		a.Committables = []connector.Committable{committable(id, n, span{0, 99}, len(s.w.txns))}
	}
	return a
}

// auto carries out what is out, in order, until nothing is.
func (s *script) auto(p *process) {
	for len(p.pending) > 0 {
		a := p.pending[0]
		p.pending = p.pending[1:]
		b, ok := a.(InjectBarrier)
		if !ok {
			s.step(p, s.w.perform(p, a))
			continue
		}
		for _, st := range s.w.cfg.Subtasks {
			if ack, said := s.w.pass(p, b.Checkpoint, st.ID); said == "" {
				s.step(p, ack)
			}
		}
	}
}

// restarts starts generation after generation, each of which dies before its settled swap.
func (s *script) restarts(t *testing.T, d *datadriven.TestData, name string) {
	for range number(d, 0) {
		p := s.w.start(name)
		for range 2 { // claim, restore
			s.step(p, s.w.perform(p, p.pending[0]))
			p.pending = p.pending[1:]
		}
		require.IsType(t, SwapCurrent{}, p.pending[0])
		delete(s.w.procs, name)
	}
}

func number(d *datadriven.TestData, i int) (n int) {
	if _, err := fmt.Sscan(d.CmdArgs[i].Key, &n); err != nil {
		panic(fmt.Sprintf("%s: %v", d.Pos, err))
	}
	return n
}

func subtask(s string) SubtaskID {
	name, index, _ := strings.Cut(strings.TrimSuffix(s, "]"), "[")
	id := SubtaskID{Operator: name}
	if _, err := fmt.Sscan(index, &id.Index); err != nil {
		panic(err)
	}
	return id
}

func identity(s string) connector.CommittableID {
	name, n, _ := strings.Cut(s, "@")
	st := subtask(name)
	id := connector.CommittableID{Sink: st.Operator, Subtask: st.Index}
	if _, err := fmt.Sscan(n, &id.Checkpoint); err != nil {
		panic(err)
	}
	return id
}
