package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
)

// replacing is a sink whose rows replace others by key, if idempotent is set.
type replacing struct{ idempotent bool }

func (replacing) Guarantee() connector.Guarantee { return connector.ExactlyOnce }
func (replacing) Validate(bool) error            { return nil }
func (s replacing) Idempotent() bool             { return s.idempotent }
func (replacing) Writer(context.Context, connector.WriterContext) (connector.Writer[int], error) {
	return nil, errors.New("not of this test")
}

// retracting takes its results back.
type retracting struct{ summing }

func (retracting) Retract(*WindowContext[int], *Out[int]) error { return nil }

// Sessions that can change what they have emitted, and take nothing back, are refused in front of a sink that
// replaces rows by key, whatever stateless lies between.
func TestSessionsThatTakeNothingBackAreRefusedInFrontOfAnUpsert(t *testing.T) {
	upsert := replacing{idempotent: true}
	late := &SideOutput[int]{Name: "late"}
	revised := WindowConfig[int]{Gap: time.Second, AllowedLateness: time.Minute, Late: late}
	sessions := func(in Stream[int], cfg WindowConfig[int]) Stream[int] {
		return Aggregate(KeyBy(in, same), "visits", cfg, summing{})
	}
	refused := map[string]func(in Stream[int]){
		"at once": func(in Stream[int]) { Sink(sessions(in, revised), "sink", upsert) },
		"behind a map and a filter": func(in Stream[int]) {
			Sink(FlatMap(FlatMap(sessions(in, revised), "m", "map", pass), "f", "filter", pass), "sink", upsert)
		},
		"behind a union and exchanges": func(in Stream[int]) {
			both := Union(FlatMap(in, "other", "map", pass), sessions(in, revised).WithExchange(Rebalance))
			Sink(KeyBy(FlatMap(both, "m", "map", pass), same).Stream, "sink", upsert)
		},
		"from a side output": func(in Stream[int]) {
			Sink(Side(sessions(in, revised), &SideOutput[int]{Name: "large"}), "sink", upsert)
		},
		"beside a sink that appends": func(in Stream[int]) {
			s := sessions(in, revised)
			Sink(s, "log", replacing{})
			Sink(s, "sink", upsert)
		},
	}
	for name, build := range refused {
		p := NewPlan("test", 2, 8)
		build(numbersIn(p, "numbers"))
		p.sources = append(p.sources, sourceNode{uid: "numbers"})
		err := p.Validate(true)
		require.ErrorIs(t, err, ErrInvalid, name)
		require.ErrorContains(t, err, "sink sink replaces rows by key, and the results of session window visits come to it", name)
		require.ErrorContains(t, err, "weir.Retractor", name)
		require.NotContains(t, err.Error(), "sink log", name)
	}
	taken := map[string]func(in Stream[int]){
		"with a way back": func(in Stream[int]) {
			Sink(Aggregate(KeyBy(in, same), "visits", revised, retracting{}), "sink", upsert)
		},
		"without lateness": func(in Stream[int]) {
			Sink(sessions(in, WindowConfig[int]{Gap: time.Second}), "sink", upsert)
		},
		"in front of a sink that appends": func(in Stream[int]) { Sink(sessions(in, revised), "sink", replacing{}) },
		"windows whose bounds are fixed": func(in Stream[int]) {
			Sink(sessions(in, WindowConfig[int]{Size: time.Second, AllowedLateness: time.Minute}), "sink", upsert)
		},
		"the records that were late": func(in Stream[int]) { Sink(Side(sessions(in, revised), late), "sink", upsert) },
		"what another window makes of them": func(in Stream[int]) {
			Sink(Aggregate(KeyBy(sessions(in, revised), same), "hours", WindowConfig[int]{Size: time.Hour}, summing{}), "sink", upsert)
		},
	}
	for name, build := range taken {
		p := NewPlan("test", 2, 8)
		build(numbersIn(p, "numbers"))
		p.sources = append(p.sources, sourceNode{uid: "numbers"})
		require.NoError(t, p.Validate(true), name)
	}
}
