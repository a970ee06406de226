package engine

import (
	"maps"
	"slices"
	"time"

	"example.com/weir/connector"
	"example.com/weir/internal/protocol"
	"example.com/weir/internal/status"
)

// view is the job as others may see it: it is never changed once it is published. What changes
// without the coordinator, the counters of subtasks, is behind atomics.
type view struct {
	now          func() time.Time
	status       status.Status
	operators    []*Operator
	carried      map[placeID]status.Subtask // by earlier generations
	subtasks     []*SubtaskStats
	transactions []transaction // those that the coordinator knows of and that are not settled
}

func (v *view) transactionsAt(now time.Time) []status.Transaction {
	opened := v.opened()
	all := make([]status.Transaction, len(opened))
	for i := range opened {
		all[i] = opened[i].at(now)
	}
	return all
}

// monitor follows a job through its generations and publishes views. It belongs to the goroutine
// that runs the coordinator.
type monitor struct {
	control  *Control
	plan     *Plan
	now      func() time.Time
	status   status.Status
	carried  map[placeID]status.Subtask
	subtasks []*SubtaskStats
	open     map[connector.CommittableID]transaction
	injected time.Time           // the barrier of the checkpoint in progress
	known    map[string]struct{} // files that the last manifest names
}

func newMonitor(p *Plan, control *Control, now func() time.Time) *monitor {
	return &monitor{control: control, plan: p, now: now, status: status.Status{
		Job: p.name, State: status.Starting, Started: now().UTC(), Parallelism: p.parallelism,
	}}
}

func (m *monitor) publish() {
	v := &view{
		now: m.now, status: m.status, operators: m.plan.operators, carried: m.carried, subtasks: m.subtasks,
	}
	ids := slices.SortedFunc(maps.Keys(m.open), connector.CommittableID.Compare)
	for _, id := range ids {
		v.transactions = append(v.transactions, m.open[id])
	}
	m.control.view.Store(v)
}

// begin notes a generation that is about to claim CURRENT.
func (m *monitor) begin(b protocol.Begin, named time.Time) {
	s := &m.status
	s.State, s.OwnsCurrent, s.Settled = status.Restoring, false, false
	s.Lineage, s.Checkpoints.InProgress = b.Current.Lineage, 0
	if c := &s.Checkpoints; c.Last != b.Current.Checkpoint {
		c.Last, c.LastAt = b.Current.Checkpoint, named.UTC()
	}
	m.carry()
	m.known = nil
	m.open = map[connector.CommittableID]transaction{}
	if !b.Current.Settled {
		m.opened(b.Named, named)
	}
	m.publish()
}

// carry keeps what the subtasks of a generation that has ended have counted.
func (m *monitor) carry() {
	m.carried = carry(m.carried, m.subtasks, m.now())
	m.subtasks = nil
}

func (m *monitor) opened(cs []connector.Committable, at time.Time) {
	for _, c := range cs {
		m.open[c.ID()] = m.plan.transactionOf(c, at)
		m.arrived(c.ID())
	}
}

// arrived notes that a committable has come to the coordinator.
func (m *monitor) arrived(id connector.CommittableID) {
	for _, s := range m.subtasks {
		for _, o := range s.operators {
			if t := o.prepared.Load(); t != nil && o.uid == id.Sink && t.subtask == id.Subtask && t.checkpoint <= id.Checkpoint {
				o.prepared.CompareAndSwap(t, nil)
			}
		}
	}
}

// event notes what the coordinator has been told.
func (m *monitor) event(e protocol.Event, now time.Time) {
	switch e := e.(type) {
	case protocol.Swapped:
		m.status.OwnsCurrent = true
		m.status.Generation, m.status.Settled = e.Current.Generation, m.status.Settled || e.Current.Settled
	case protocol.Restored:
		m.status.Committed += len(m.open)
		m.open = map[connector.CommittableID]transaction{}
	case protocol.Acknowledged:
		m.opened(e.Committables, now)
	case protocol.Declined:
		m.opened(e.Committables, now)
	case protocol.CommitSettled:
		m.status.Committed++
		delete(m.open, e.ID)
	case protocol.StopRequested:
		m.status.State = status.Stopping
	}
}

// action notes what the coordinator has asked for.
func (m *monitor) action(a protocol.Action, now time.Time) {
	c := &m.status.Checkpoints
	switch a := a.(type) {
	case protocol.InjectBarrier:
		c.InProgress, m.injected = a.Checkpoint, now
	case protocol.AbortCheckpoint:
		c.InProgress, c.LastAborted = 0, a.Err.Error()
		c.Aborted++
	case protocol.Replaced:
		m.opened([]connector.Committable{a.Committable}, now)
	case protocol.WriteManifest:
		m.sizes(a.Snapshots)
	case protocol.CheckpointCompleted:
		c.InProgress, c.Last = 0, a.Current.Checkpoint
		c.LastAt, c.LastDuration = now.UTC(), now.Sub(m.injected)
		c.Completed++
	}
}

// sizes adds up what the manifest names, and what of it the one before did not.
func (m *monitor) sizes(snapshots []protocol.SubtaskSnapshot) {
	c, names := &m.status.Checkpoints, map[string]struct{}{}
	c.LastSize, c.LastFullSize = 0, 0
	for _, s := range snapshots {
		for _, h := range s.Handles {
			names[h.Name] = struct{}{}
			c.LastFullSize += h.Size
			if _, old := m.known[h.Name]; !old {
				c.LastSize += h.Size
			}
		}
	}
	m.known = names
}

// running notes that the subtasks have been started.
func (m *monitor) running(subtasks []*SubtaskStats) {
	m.subtasks = subtasks
	if m.status.State == status.Restoring {
		m.status.State = status.Running
	}
	m.publish()
}

// failed notes that a generation has failed and the next one is waited for.
func (m *monitor) failed(err error) {
	m.status.State, m.status.OwnsCurrent, m.status.Settled = status.Restarting, false, false
	m.status.LastFailure = err.Error()
	m.status.Restarts++
	m.carry()
	m.publish()
}

// neverCut reports whether there is no checkpoint yet, of this process or of one before it.
func (m *monitor) neverCut() bool { return m.status.Checkpoints.Last == 0 }

// ended notes that the job has.
func (m *monitor) ended(err error) {
	m.status.State, m.status.OwnsCurrent = status.Ended, false
	if err != nil {
		m.status.LastFailure = err.Error()
	}
	m.publish()
	close(m.control.ended)
}
