package simulation

import (
	"fmt"
	"time"

	"example.com/weir/connectors/kafka/settle"
)

// epoch is when a world begins.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	// calmSteps is how many steps a world may take once nothing fails any more: then it has to have ended.
	calmSteps = 30_000
	// mostProcesses bounds what starts beside a process that lives.
	mostProcesses = 12
)

// world is everything that is simulated, and the one thread that moves it. One step is one thing that
// happens: a request is performed, a task goes on to its next request, a marker is written, a late request
// arrives, something breaks.
type world struct {
	cfg    Config
	tape   *tape
	now    time.Duration // since the epoch
	ticks  uint64
	steps  int
	calmed int // steps since the last choice that could be another one than zero

	tasks     []*task
	running   *task
	procs     []*process
	broker    *broker
	store     *store
	net       []*message
	nextStart time.Duration
	oracle    *oracle

	counts    Counts
	trace     func(line string) // nil: nobody reads it
	violation string
	ended     Ending
	reason    string // of a stop by name

	sabotage func(*world) // in every step, for tests of the oracle
	actors   []actor      // of the step, kept for its memory
}

// Ending is how the job of a world came to its end.
type Ending uint8

const (
	goesOn Ending = iota
	finished
	stoppedByName
)

// String returns the words used in reports.
func (e Ending) String() string { return [...]string{"cut short", "finished", "stopped by name"}[e] }

// message is a request that its sender has given up and that arrives later.
type message struct {
	name  string
	do    func() string
	due   time.Duration
	since uint64
}

// actor is something that can happen next: one of the four.
type actor struct {
	since   uint64
	task    *task
	markers *transaction
	message int // index + 1
	start   bool
}

func newWorld(cfg Config, t *tape, trace func(string)) *world {
	w := &world{cfg: cfg, tape: t, trace: trace}
	w.oracle = newOracle(w)
	w.broker = newBroker(w, cfg.Partitions)
	w.store = newStore(w)
	return w
}

func (w *world) time() time.Time { return epoch.Add(w.now) }

func (w *world) tick() uint64 {
	w.ticks++
	return w.ticks
}

// say adds a line to the trace.
func (w *world) say(format string, args ...any) {
	if w.trace != nil {
		w.trace(fmt.Sprintf("%9.3fs  ", w.now.Seconds()) + fmt.Sprintf(format, args...))
	}
}

// wrong notes what must never be, and ends the world.
func (w *world) wrong(format string, args ...any) {
	if w.violation == "" {
		w.violation = fmt.Sprintf(format, args...)
		w.say("VIOLATION: %s", w.violation)
	}
}

// run moves the world to its end.
func (w *world) run() {
	for w.violation == "" && w.step() {
		w.steps++
		if w.tape.calm() {
			w.calmed++
		}
		if w.calmed > calmSteps {
			w.wrong("LIVENESS: nothing fails any more, and after %d steps the job has not ended", calmSteps)
		}
	}
	for _, p := range w.procs {
		if p.alive {
			p.die()
		}
	}
}

// step lets one thing happen, and reports whether there was one.
func (w *world) step() bool {
	if w.ended == goesOn && !w.tape.calm() {
		w.misfortune()
	}
	if w.sabotage != nil {
		w.sabotage(w)
	}
	for {
		next := w.possible()
		if len(w.actors) > 0 {
			break
		}
		if next < 0 {
			if w.ended == goesOn {
				w.wrong("DEADLOCK: nothing can happen any more")
			}
			return false
		}
		w.now = next
	}
	oldest := 0
	for i := range w.actors {
		if w.actors[i].since < w.actors[oldest].since {
			oldest = i
		}
	}
	w.actors[0], w.actors[oldest] = w.actors[oldest], w.actors[0]
	i := 0
	if len(w.actors) > 1 && w.tape.chance(w.cfg.Faults.Reorder) {
		i = w.tape.pick(len(w.actors))
	}
	w.act(w.actors[i])
	return true
}

// possible collects what can happen now. If that is nothing, next is when something can, or -1.
func (w *world) possible() (next time.Duration) {
	w.actors = w.actors[:0]
	next = -1
	at := func(due time.Duration, a actor) {
		switch {
		case due <= w.now:
			w.actors = append(w.actors, a)
		case next < 0 || due < next:
			next = due
		}
	}
	for _, t := range w.tasks {
		if t.state == done || t.state == waiting && !t.until() {
			continue
		}
		at(max(t.wake, t.p.hang), actor{since: t.since, task: t})
	}
	for _, t := range w.broker.txns {
		if t.pending() {
			at(t.due, actor{since: t.since, markers: t})
		}
	}
	for i, m := range w.net {
		at(m.due, actor{since: m.since, message: i + 1})
	}
	if w.ended == goesOn && !w.hasOwner() {
		at(w.nextStart, actor{since: 0, start: true})
	}
	return next
}

// hasOwner reports whether a process lives that owns CURRENT or is about to.
func (w *world) hasOwner() bool {
	for _, p := range w.procs {
		if p.alive && (p.owns() || !p.claimed) {
			return true
		}
	}
	return false
}

func (w *world) act(a actor) {
	switch {
	case a.start:
		w.start()
	case a.markers != nil:
		w.broker.writeNextMarker(a.markers, w.tape.chance(w.cfg.Faults.LostMarker))
	case a.message > 0:
		m := w.net[a.message-1]
		w.net = append(w.net[:a.message-1], w.net[a.message:]...)
		w.say("network: %s arrives late: %s", m.name, m.do())
	case a.task.state == asking && a.task.req.first && w.tape.chance(w.cfg.Faults.CrashFirst):
		w.crashSending(a.task)
	case a.task.state == asking:
		w.perform(a.task)
	default:
		a.task.run()
	}
}

// perform lets a request happen, or not.
func (w *world) perform(t *task) {
	r := t.req
	w.now += time.Millisecond
	r.got = w.outcome(r)
	answer := ""
	switch r.got {
	case answered:
		answer = r.do()
		t.wake = w.now + w.delay(w.cfg.Faults.SlowAnswer)
	case lost:
		answer = r.do()
		w.counts.AnswersLost++
		t.wake = w.now + requestTimeout
	case failed:
		w.counts.RequestsFailed++
		t.wake = w.now + 100*time.Millisecond
	case delayed:
		w.send(t, r, delays[w.tape.pick(len(delays))])
		t.wake = w.now + requestTimeout
	}
	switch {
	case r.name == "" && r.got == answered:
	case r.name == "":
		w.say("%s: Metadata: %s", t, r.got)
	case r.got == answered:
		w.say("%s: %s: %s", t, r.name, answer)
	case answer == "":
		w.say("%s: %s: %s", t, r.name, r.got)
	default:
		w.say("%s: %s: %s (%s)", t, r.name, r.got, answer)
	}
	t.state = ready
	t.since = w.tick()
}

func (w *world) outcome(r *request) outcome {
	f := &w.cfg.Faults
	switch {
	case r.question && w.tape.chance(f.Network):
		return failed
	case r.question || !w.tape.chance(f.Orders):
		return answered
	case r.late == nil:
		return [...]outcome{lost, failed}[w.tape.pick(2)]
	}
	return [...]outcome{lost, failed, delayed}[w.tape.pick(3)]
}

// send leaves a request to the network.
func (w *world) send(t *task, r *request, d time.Duration) {
	w.counts.Delayed++
	due := w.now + d
	w.net = append(w.net, &message{name: t.String() + ": " + r.name, do: r.late, due: due, since: w.tick()})
}

// crashSending lets a process die that has just sent a request, which arrives later.
func (w *world) crashSending(t *task) {
	w.counts.Crashes++
	w.say("%s CRASHES; %s is on its way", t.p, t.req.name)
	w.send(t, t.req, delays[w.tape.pick(5)])
	t.state = ready
	t.p.die()
}

// orphan decides about the request of a task that dies: it was never sent, or arrives all the same.
func (w *world) orphan(t *task) {
	if t.req.late != nil && w.tape.pick(2) == 1 {
		w.send(t, t.req, delays[w.tape.pick(len(delays))])
	}
}

var delays = [...]time.Duration{
	50 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 3 * time.Second, 12 * time.Second,
	30 * time.Second, 70 * time.Second, 16 * time.Minute,
}

// delay returns how long something takes that takes its time now and then.
func (w *world) delay(perMille int) time.Duration {
	if !w.tape.chance(perMille) {
		return 0
	}
	return delays[w.tape.pick(len(delays))]
}

// misfortune lets something break, now and then.
func (w *world) misfortune() {
	f := &w.cfg.Faults
	switch w.tape.weigh([]int{
		f.Crash, f.Takeover, f.Hang, f.Timeout, f.Operator, f.Clean, f.Stop, f.Due, f.Late,
	}) {
	case 1:
		if p := w.somebody(); p != nil {
			w.counts.Crashes++
			w.say("%s CRASHES", p)
			p.die()
		}
	case 2:
		if p := w.somebody(); p != nil {
			w.takeOver(p)
		}
	case 3:
		if p := w.somebody(); p != nil {
			w.standStill(p)
		}
	case 4:
		w.timeOutOne()
	case 5:
		w.operate()
	case 6:
		w.clean()
	case 7:
		w.tell(stopRequested)
	case 8:
		w.tell(checkpointDue)
	case 9:
		w.tell(checkpointLate)
	}
}

// takeOver starts a process beside one that lives.
func (w *world) takeOver(p *process) {
	if len(w.procs) < mostProcesses {
		w.counts.Takeovers++
		w.say("another process takes over, and %s lives on", p)
		w.start()
	}
}

// standStill stops a process for a while. If that is long, another one may take over.
func (w *world) standStill(p *process) {
	d := delays[w.tape.pick(len(delays))]
	p.hang = w.now + d
	w.counts.Hangs++
	w.say("%s stands still until %.3fs", p, p.hang.Seconds())
	if d > checkpointTimeout && w.tape.pick(2) == 1 {
		w.takeOver(p)
	}
}

// somebody returns one of the processes that live, or nil.
func (w *world) somebody() *process {
	var alive []*process
	for _, p := range w.procs {
		if p.alive {
			alive = append(alive, p)
		}
	}
	if len(alive) == 0 {
		return nil
	}
	return alive[len(alive)-1-w.tape.pick(len(alive))]
}

// timeOutOne ends one of the open transactions, as the broker does once they are too old. The others may be
// younger.
func (w *world) timeOutOne() {
	var open []*transaction
	for _, t := range w.broker.txns {
		if t.state == settle.Ongoing {
			open = append(open, t)
		}
	}
	if len(open) > 0 {
		w.broker.timeOut(open[w.tape.pick(len(open))])
	}
}

func (w *world) operate() {
	type place struct {
		p *partition
		s *producerState
	}
	var open []place
	for _, p := range w.broker.logs {
		for _, s := range p.producers {
			if s.open >= 0 {
				open = append(open, place{p, s})
			}
		}
	}
	if len(open) > 0 {
		x := open[w.tape.pick(len(open))]
		w.broker.abortPart(x.p, x.s)
	}
}

func (w *world) clean() {
	p := w.broker.logs[w.tape.pick(len(w.broker.logs))]
	upTo := p.stable()
	if upTo == 0 {
		return
	}
	upTo -= int64(w.tape.pick(int(upTo)))
	compact := w.tape.pick(2) == 1
	w.counts.Cleaned++
	w.say("partition %d is cleaned up to offset %d (compaction: %t)", p.number, upTo, compact)
	p.clean(upTo, compact)
}
