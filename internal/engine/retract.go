package engine

import "fmt"

// moving says of a session window that results which it has emitted can become those of other bounds, and
// that it takes none back.
type moving struct {
	late string // name of the side output that rows go to and no results; empty: there is none
}

// movingSessions describes a session window; nil: nothing that it emits goes out of date, or it takes it back.
// Without lateness a session fires once, behind its last row.
func movingSessions[K comparable, T, R any](cfg WindowConfig[T], agg any) *moving {
	if _, retracts := agg.(Retractor[K, R]); retracts || cfg.Gap == 0 || cfg.AllowedLateness == 0 {
		return nil
	}
	m := &moving{}
	if cfg.Late != nil {
		m.late = cfg.Late.Name
	}
	return m
}

// checkRetracted refuses a sink that replaces rows by key behind sessions that take nothing back: where two
// of them become one, the row of what is no more would stay.
func (p *Plan) checkRetracted(sink sinkNode) error {
	if !sink.idempotent {
		return nil
	}
	uid := p.movingBefore(p.operator(sink.uid), map[string]bool{})
	if uid == "" {
		return nil
	}
	return fmt.Errorf("sink %s replaces rows by key, and the results of session window %s come to it, which has an "+
		"allowed lateness: a session that a late record changes gets other bounds, and the row of the old ones would "+
		"stay. Give the aggregator a Retract method (weir.Retractor) that emits what deletes the row, or one that "+
		"emits nothing if no row is keyed by the bounds of a session; or take the allowed lateness away", sink.uid, uid)
}

// movingBefore finds a session window that takes nothing back and whose results come to an operator unkept:
// through exchanges, unions, maps and filters. What an operator with state makes of them is its own.
func (p *Plan) movingBefore(o *Operator, seen map[string]bool) string {
	for _, in := range o.Inputs {
		from := p.operator(in.From)
		switch {
		case seen[in.From]:
			continue
		case from.moving != nil && (in.Side == "" || in.Side != from.moving.late):
			return from.UID
		case from.Stateful:
			continue
		}
		seen[in.From] = true
		if uid := p.movingBefore(from, seen); uid != "" {
			return uid
		}
	}
	return ""
}
