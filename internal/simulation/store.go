package simulation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"

	"example.com/weir/connector"
	"example.com/weir/internal/protocol"
)

// errRefused is the store's answer to a swap that came too late.
var errRefused = errors.New("CURRENT was something else")

// store is the storage of checkpoints that all processes share: CURRENT with its nonce, manifests,
// snapshots and kept records. What is in it is durable.
type store struct {
	w         *world
	current   protocol.Current
	swaps     int
	manifests map[string]manifest
	snapshots map[string]positions
	kept      map[string]kept
	files     int
}

// manifest describes a checkpoint.
type manifest struct {
	name         string
	of           protocol.Current
	checkpoint   uint64
	finished     bool
	snapshots    []protocol.SubtaskSnapshot
	committables []connector.Committable
}

// kept are the records of a committable.
type kept struct {
	generation uint64
	records    []byte
}

// positions are how far each split has been read: the number of the next record.
type positions map[int]int

func newStore(w *world) *store {
	return &store{w: w, manifests: map[string]manifest{}, snapshots: map[string]positions{}, kept: map[string]kept{}}
}

// read returns CURRENT, and the manifest that it names.
func (s *store) read() (current protocol.Current, m manifest, err error) {
	err = s.w.read("read CURRENT", func() string {
		current = s.current
		return current.String()
	})
	if err != nil || current.Manifest == "" {
		return current, m, err
	}
	err = s.w.read("read manifest "+current.Manifest, func() string {
		m = s.manifests[current.Manifest]
		return orNone(m.name)
	})
	if err == nil && m.name == "" {
		err = fmt.Errorf("manifest %s has been deleted: CURRENT has gone on", current.Manifest)
	}
	return current, m, err
}

// owner asks who owns CURRENT.
func (s *store) owner() (current protocol.Current, err error) {
	err = s.w.read("who owns CURRENT", func() string {
		current = s.current
		return fmt.Sprintf("generation %d", current.Generation)
	})
	return current, err
}

// swap replaces CURRENT. An answer that is lost leaves open whether it did.
func (s *store) swap(a protocol.SwapCurrent) protocol.Event {
	var got protocol.Event
	do := func() string {
		if s.current != a.Old {
			got = protocol.SwapRefused{Err: errRefused}
			s.w.counts.SwapsRefused++
			return "REFUSED: it is " + s.current.String()
		}
		s.swaps++
		s.current = a.New
		s.current.Nonce = fmt.Sprint(s.swaps)
		got = protocol.Swapped{Current: s.current}
		s.w.oracle.swapped(s.current)
		return "done"
	}
	switch s.w.ask(fmt.Sprintf("swap CURRENT from (%s) to (%s)", a.Old, a.New), do, do) {
	case answered:
		return got
	case lost, delayed, failed:
	}
	s.w.counts.SwapsUnknown++
	return protocol.SwapUnknown{Err: errNoAnswer}
}

// putManifest makes a manifest durable.
func (s *store) putManifest(m manifest) (name string, err error) {
	do := func() string {
		s.files++
		m.name = fmt.Sprintf("g%d-c%d-%d", m.of.Generation, m.checkpoint, s.files)
		name = m.name
		s.manifests[name] = m
		return name
	}
	if s.w.ask(fmt.Sprintf("write manifest of checkpoint %d%s", m.checkpoint, listed(m.committables)), do, nil) != answered {
		return "", errNoAnswer
	}
	return name, nil
}

// putSnapshot makes a subtask's snapshot durable.
func (s *store) putSnapshot(of protocol.SubtaskID, n uint64, at positions) (protocol.Handle, error) {
	s.files++
	h := protocol.Handle{Name: fmt.Sprintf("%s-c%d-%d", of, n, s.files)}
	do := func() string {
		s.snapshots[h.Name] = maps.Clone(at)
		return "durable"
	}
	if s.w.ask("write snapshot "+h.Name, do, nil) != answered {
		return protocol.Handle{}, errNoAnswer
	}
	return h, nil
}

// deleteSnapshots deletes snapshots that nothing names.
func (s *store) deleteSnapshots(handles []protocol.Handle) {
	_ = s.w.ask("delete snapshots of aborted checkpoints", func() string {
		for _, h := range handles {
			delete(s.snapshots, h.Name)
		}
		return fmt.Sprint(len(handles))
	}, nil)
}

// readPositions reads the snapshots of a manifest.
func (s *store) readPositions(m manifest) (positions, error) {
	all := positions{}
	for _, sub := range m.snapshots {
		for _, h := range sub.Handles {
			err := s.w.read("read snapshot "+h.Name, func() string {
				at, ok := s.snapshots[h.Name]
				if !ok {
					s.w.wrong("DELETED: snapshot %s, which manifest %s names", h.Name, m.name)
				}
				maps.Copy(all, at)
				return "ok"
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// putKept makes the records of a committable durable.
func (s *store) putKept(name string, records []byte) error {
	do := func() string {
		s.kept[name] = kept{generation: s.current.Generation, records: records}
		return fmt.Sprintf("%d bytes", len(records))
	}
	if s.w.ask("keep records "+name, do, nil) != answered {
		return errNoAnswer
	}
	return nil
}

// openKept is RestoreContext.Kept.
func (p *process) openKept(_ context.Context, k connector.Kept) (r io.ReadCloser, err error) {
	gone := false
	err = p.w.read("read kept records "+k.Name, func() string {
		x, ok := p.w.store.kept[k.Name]
		if !ok && p.owns() {
			p.w.wrong("DELETED: kept records %s, which CURRENT names", k.Name)
		}
		gone = !ok
		r = io.NopCloser(bytes.NewReader(x.records))
		return fmt.Sprintf("%d bytes", len(x.records))
	})
	if err == nil && gone {
		err = fs.ErrNotExist
	}
	return r, err
}

// deleteKept deletes kept records that a generation needs no more.
func (s *store) deleteKept(names []string) {
	_ = s.w.ask("delete kept records", func() string {
		for _, name := range names {
			delete(s.kept, name)
		}
		s.w.counts.KeptDeleted += len(names)
		return fmt.Sprint(names)
	}, nil)
}

// collect deletes what is older than the last checkpoints to be retained, and the kept records of dead
// generations that CURRENT does not wait for.
func (s *store) collect(retain int) {
	var current protocol.Current
	var named manifest
	err := s.w.read("collect: read CURRENT", func() string {
		current, named = s.current, s.manifests[s.current.Manifest]
		return current.String()
	})
	if err != nil {
		return
	}
	_ = s.w.ask("collect", func() string {
		deleted := s.deleteManifests(current, retain) + s.deleteDead(current, named)
		return fmt.Sprintf("%d files deleted", deleted)
	}, nil)
}

func (s *store) deleteManifests(current protocol.Current, retain int) (deleted int) {
	var checkpoints []uint64
	for _, m := range s.manifests {
		if m.checkpoint <= current.Checkpoint {
			checkpoints = append(checkpoints, m.checkpoint)
		}
	}
	slices.Sort(checkpoints)
	checkpoints = slices.Compact(checkpoints)
	if len(checkpoints) <= retain {
		return 0
	}
	oldest := checkpoints[len(checkpoints)-retain]
	for _, name := range slices.Sorted(maps.Keys(s.manifests)) {
		if s.manifests[name].checkpoint < oldest {
			delete(s.manifests, name)
			deleted++
		}
	}
	return deleted
}

func (s *store) deleteDead(current protocol.Current, named manifest) (deleted int) {
	needed := map[string]bool{}
	if !current.Settled {
		for _, c := range named.committables {
			needed[c.Kept.Name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.kept)) {
		if s.kept[name].generation < current.Generation && !needed[name] {
			delete(s.kept, name)
			deleted++
		}
	}
	s.w.counts.KeptDeleted += deleted
	return deleted
}

func listed(cs []connector.Committable) string {
	if len(cs) == 0 {
		return ""
	}
	text := ":"
	for _, c := range cs {
		text += " " + c.ID().String()
	}
	return text
}
