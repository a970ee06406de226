package engine

import "fmt"

// SideOutput names an additional output of an operator, with its own type. A record emitted to
// a side output that no stream was taken from goes nowhere.
type SideOutput[S any] struct{ Name string }

// sideOutputs are the side outputs of an operator that streams were taken from.
type sideOutputs struct{ builders []sideBuilder }

type sideBuilder struct {
	tag   any // *SideOutput[S]
	build func(t *task) (sideOut, error)
}

// sideOut is an *Out[S], whatever S is.
type sideOut interface {
	done() error
	signal(s signal) error
}

// Side returns the stream of what the operator behind s emits to a side output.
func Side[T, S any](s Stream[T], tag *SideOutput[S]) Stream[S] {
	outs := &outputs[S]{}
	if s.side == nil {
		s.Plan.Reject("%s %s has no side outputs", s.From.Kind, s.From.UID)
		return streamOf(s.Plan, s.From, outs, nil)
	}
	for _, b := range s.side.builders {
		if b.tag == any(tag) {
			s.Plan.Reject("side output %q of %s is taken twice", tag.Name, s.From.UID)
		}
	}
	s.side.builders = append(s.side.builders, sideBuilder{tag: tag, build: func(t *task) (sideOut, error) {
		to, err := outs.collector(t)
		if err != nil {
			return nil, err
		}
		return newOut(t, to, t.stats.operator(s.From.UID)), nil
	}})
	out := streamOf(s.Plan, s.From, outs, nil)
	out.legs[0].side = tag.Name
	return out
}

// sides are the side outputs of one operator instance.
type sides struct {
	tags []any
	outs []sideOut
	time int64 // event time of what is being processed
	mark int64 // watermark before it
}

func (o *sideOutputs) build(t *task) (sides, error) {
	var s sides
	for _, b := range o.builders {
		out, err := b.build(t)
		if err != nil {
			return sides{}, fmt.Errorf("side output: %w", err)
		}
		s.tags = append(s.tags, b.tag)
		s.outs = append(s.outs, out)
	}
	return s, nil
}

// SideEmitter is a context that side outputs can be emitted from.
type SideEmitter interface{ emitter() *sides }

// EmitSide emits v to a side output, at the event time of the row or timer at work.
func EmitSide[S any](ctx SideEmitter, tag *SideOutput[S], v S) {
	s := ctx.emitter()
	for i, t := range s.tags {
		if t == any(tag) {
			out := s.outs[i].(*Out[S])
			out.mark = s.mark
			out.emitAt(v, s.time)
		}
	}
}

func (s *sides) done() error {
	for _, o := range s.outs {
		if err := o.done(); err != nil {
			return err
		}
	}
	return nil
}

func (s *sides) signal(sig signal) error {
	for _, o := range s.outs {
		if err := o.signal(sig); err != nil {
			return err
		}
	}
	return nil
}
