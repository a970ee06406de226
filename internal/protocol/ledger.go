package protocol

import (
	"cmp"
	"slices"

	"example.com/weir/connector"
)

// ledger holds every committable of this generation from its pre-commit to its release.
type ledger map[connector.CommittableID]*entry

// entry is one committable and how far it has come:
//
//	pre-committed ─▶ committing (a permit was given) ─▶ settled ─▶ (released)
//
// It may be settled and still be named by CURRENT: until it is not, its slot is not free.
type entry struct {
	connector.Committable
	named      bool // by CURRENT
	committing bool
	settled    bool
}

func (l ledger) add(c connector.Committable) {
	if _, ok := l[c.ID()]; !ok {
		l[c.ID()] = &entry{Committable: c}
	}
}

// unsettled returns what the next manifest must name.
func (l ledger) unsettled() []connector.Committable {
	var cs []connector.Committable
	for _, e := range l {
		if !e.settled {
			cs = append(cs, e.Committable)
		}
	}
	return ordered(cs)
}

// allSettled reports whether all of cs are settled.
func (l ledger) allSettled(cs []connector.Committable) bool {
	for _, c := range cs {
		if !l[c.ID()].settled {
			return false
		}
	}
	return true
}

// unsettledCheckpoints counts the checkpoints of which CURRENT names something unsettled.
func (l ledger) unsettledCheckpoints() int {
	ids := map[uint64]struct{}{}
	for _, e := range l {
		if e.named && !e.settled {
			ids[e.Checkpoint] = struct{}{}
		}
	}
	return len(ids)
}

// leave notes that CURRENT names exactly these, and returns what is thereby released.
func (l ledger) leave(named []connector.Committable) []connector.Committable {
	for _, e := range l {
		e.named = false
	}
	for _, c := range named {
		l[c.ID()].named = true
	}
	var released []connector.Committable
	for id, e := range l {
		if e.settled && !e.named {
			released = append(released, e.Committable)
			delete(l, id)
		}
	}
	return ordered(released)
}

// commit returns those of cs whose commit is not out yet, and notes that it is now.
func (l ledger) commit(cs []connector.Committable) []connector.Committable {
	var out []connector.Committable
	for _, c := range cs {
		if e := l[c.ID()]; !e.committing {
			e.committing = true
			out = append(out, c)
		}
	}
	return out
}

// ordered returns cs in the order of checkpoints within (sink, subtask).
func ordered(cs []connector.Committable) []connector.Committable {
	cs = slices.Clone(cs)
	slices.SortFunc(cs, func(a, b connector.Committable) int {
		return cmp.Or(cmp.Compare(a.Sink, b.Sink), cmp.Compare(a.Subtask, b.Subtask),
			cmp.Compare(a.Checkpoint, b.Checkpoint))
	})
	return cs
}
