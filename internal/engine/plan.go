package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"example.com/weir/connector"
	"example.com/weir/internal/protocol"
)

// Plan is the dataflow of a job: what every generation builds its subtasks from.
type Plan struct {
	name           string
	parallelism    int
	maxParallelism int

	operators []*Operator
	heads     []head
	sources   []sourceNode
	sinks     []sinkNode
	exchanges int
	mode      Mode
	errs      []error
}

// Operator describes an operator for manifests and messages.
type Operator struct {
	UID      string
	Kind     string // source, map, filter, flat-map, process, window, sink
	Stateful bool   // it has a part of its own in snapshots
	Inputs   []Edge
	// Chain is the uid of the operator at the head of its chain: those share a goroutine in each
	// subtask.
	Chain string

	sources []string // that its rows come from, in order
	// global says that the watermark of each of its subtasks is merged from all splits of its
	// sources: there is an exchange between that brings the word of all.
	global bool
	// moving is nil for all but session windows whose results can go out of date.
	moving *moving
}

// head builds the subtasks that begin with a source or behind an exchange.
type head struct {
	uid    string // names its subtasks
	source bool
	build  func(t *task) (runnable, error)
}

// runnable is a subtask's main loop.
type runnable interface {
	run(ctx context.Context) error
}

type sourceNode struct {
	uid        string
	replayable bool
	discover   func(ctx context.Context) ([]connector.Split, error)
	growing    connector.Growing // nil: its splits never get more
}

type sinkNode struct {
	uid       string
	guarantee connector.Guarantee
	exclusive string // what no other sink may own
	// idempotent: writing again what was written before shows nothing twice.
	idempotent bool
	// transactional is nil if nothing outside ends by itself what the sink has open.
	transactional connector.Transactional
	// administered is nil if it has no transactions outside that an operator could end.
	administered connector.Administered
	validate     func(checkpoints bool) error
	restore      func(ctx context.Context, rc connector.RestoreContext) error // nil: not two-phase
}

// showsByCommits reports whether everything that the outside sees twice when it is written twice becomes visible
// with the commit of a checkpoint, and not before.
func (p *Plan) showsByCommits() bool {
	return !slices.ContainsFunc(p.sinks, func(s sinkNode) bool {
		return !s.idempotent && (s.restore == nil || s.guarantee != connector.ExactlyOnce)
	})
}

// NewPlan returns an empty plan.
func NewPlan(name string, parallelism, maxParallelism int) *Plan {
	return &Plan{name: name, parallelism: parallelism, maxParallelism: maxParallelism}
}

// SetParallelism changes the number of subtasks of each operator, before the plan is run.
func (p *Plan) SetParallelism(n int) { p.parallelism = n }

// SetMode says how barriers are treated, before the plan is run.
func (p *Plan) SetMode(m Mode) { p.mode = m }

// AdministeredSink is a sink whose transactions can be looked at and ended from beside the job.
type AdministeredSink struct {
	UID string
	connector.Administered
}

// Administered lists the sinks that have transactions outside, in the order in which they were added.
func (p *Plan) Administered() []AdministeredSink {
	var all []AdministeredSink
	for _, s := range p.sinks {
		if s.administered != nil {
			all = append(all, AdministeredSink{UID: s.uid, Administered: s.administered})
		}
	}
	return all
}

// Operators lists the operators in the order in which they were added.
func (p *Plan) Operators() []*Operator { return p.operators }

// Reject notes a mistake in the job; Validate reports it.
func (p *Plan) Reject(format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf(format, args...))
}

// Validate reports every mistake in the job that can be seen without running it.
func (p *Plan) Validate(checkpoints bool) error {
	errs := append([]error(nil), p.errs...)
	if p.name == "" {
		errs = append(errs, errors.New("the job has no name"))
	}
	if len(p.sources) == 0 {
		errs = append(errs, errors.New("the job has no source"))
	}
	if p.parallelism < 1 || p.parallelism > p.maxParallelism {
		errs = append(errs, fmt.Errorf("parallelism %d: want 1 to max parallelism, which is %d",
			p.parallelism, p.maxParallelism))
	}
	if p.maxParallelism > maxMaxParallelism {
		errs = append(errs, fmt.Errorf("max parallelism %d: want at most %d",
			p.maxParallelism, maxMaxParallelism))
	}
	owners := map[string]string{}
	for _, s := range p.sinks {
		if other, taken := owners[s.exclusive]; taken && s.exclusive != "" {
			errs = append(errs, fmt.Errorf("sinks %s and %s share %s: each needs its own", other, s.uid, s.exclusive))
		}
		owners[s.exclusive] = s.uid
		if s.guarantee == connector.Unstated {
			errs = append(errs, fmt.Errorf("sink %s states no guarantee: there is no default", s.uid))
		}
		if s.guarantee == connector.ExactlyOnce && p.mode != ExactlyOnce {
			errs = append(errs, fmt.Errorf("sink %s asks for exactly-once, and the job's checkpoints are %s: "+
				"after a restart a record may count twice, which no sink can undo", s.uid, p.mode))
		}
		if err := p.checkRetracted(s); err != nil {
			errs = append(errs, err)
		}
		if err := s.validate(checkpoints); err != nil {
			errs = append(errs, fmt.Errorf("sink %s: %w", s.uid, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("job %s: %w: %w", p.name, ErrInvalid, err)
	}
	return nil
}

// maxMaxParallelism is what fits where snapshots hold a key group.
const maxMaxParallelism = 1 << 15

// ErrInvalid reports a job that cannot be built as it is written.
var ErrInvalid = errors.New("the job is not valid")

// subtasks lists what answers to barriers.
func (p *Plan) subtasks() []protocol.Subtask {
	var all []protocol.Subtask
	for _, h := range p.heads {
		for i := range p.parallelism {
			id := protocol.SubtaskID{Operator: h.uid, Index: i}
			all = append(all, protocol.Subtask{ID: id, Source: h.source})
		}
	}
	return all
}

// add registers an operator; its uid must be new.
func (p *Plan) add(op Operator) *Operator {
	if op.UID == "" {
		p.Reject("a %s has no uid", op.Kind)
	}
	for _, other := range p.operators {
		if other.UID == op.UID {
			p.Reject("uid %q names a %s and a %s: every operator needs its own", op.UID, other.Kind, op.Kind)
		}
	}
	op.Chain = op.UID
	if len(op.Inputs) == 0 {
		op.sources = []string{op.UID}
	}
	op.global = len(op.Inputs) > 0
	for _, in := range op.Inputs {
		from := p.operator(in.From)
		if in.Exchange == Chained {
			op.Chain = from.Chain
		}
		op.sources = append(op.sources, from.sources...)
		op.global = op.global && (from.global || in.Exchange.toAll())
	}
	slices.Sort(op.sources)
	op.sources = slices.Compact(op.sources)
	p.operators = append(p.operators, &op)
	return &op
}

// operator returns the operator with a uid, or an empty one.
func (p *Plan) operator(uid string) *Operator {
	for _, o := range p.operators {
		if o.UID == uid {
			return o
		}
	}
	return &Operator{UID: uid, Chain: uid}
}

// outputs are the successors of an operator: how to build each in a subtask.
type outputs[T any] struct {
	attached []func(t *task) (Collector[T], error)
}

func (o *outputs[T]) attach(build func(t *task) (Collector[T], error)) {
	o.attached = append(o.attached, build)
}

// collector builds the successors of an operator in a subtask.
func (o *outputs[T]) collector(t *task) (Collector[T], error) {
	all := make(fanOut[T], 0, len(o.attached))
	for _, build := range o.attached {
		c, err := build(t)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	switch len(all) {
	case 0:
		return discard[T]{}, nil
	case 1:
		return all[0], nil
	}
	return all, nil
}
