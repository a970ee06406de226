package settle

import "fmt"

// Kind is what a transaction is found to be.
type Kind uint8

// The kinds, and what follows from each.
//
//	          EndTxn                marker in every partition
//	Open ───────────────▶ Wait ───────────────┬──▶ Committed   settled
//	 ▲                     │                  └──▶ Aborted     lost
//	 └── still Ongoing ────┤ a marker never comes
//	                       └─────────────────────▶ Unmarked    that marker is written
//	the log cannot tell any more ────────────────▶ Unknown     stop by name
const (
	// Wait says that nothing is decided yet and time will tell: look again.
	Wait Kind = iota
	// Open says that the coordinator waits for the end of the transaction: EndTxn again.
	Open
	// Committed says that every partition shows the records to a reader of committed ones.
	Committed
	// Aborted says that no partition shows them, and none ever will.
	Aborted
	// Unmarked says that the coordinator has ended the transaction and lost its marker in at
	// least one partition.
	Unmarked
	// Unknown says that the log is no proof any more.
	Unknown
)

// String returns the word used in errors and logs.
func (k Kind) String() string {
	return [...]string{"wait", "open", "committed", "aborted", "unmarked", "unknown"}[k]
}

// Verdict is the judgement over a transaction.
type Verdict struct {
	Kind Kind
	// Missing is the marker that was lost, for Unmarked, and MarkerEpoch the epoch that it was written
	// under: that of the EndTxn that the coordinator completed.
	Missing     Marker
	MarkerEpoch int16
	// Reason says what the verdict rests on, for people.
	Reason string
}

// Settle judges the transaction h by what was seen of it.
func Settle(h *Handle, a Answer, o *Observation) Verdict {
	if v, ok := samePlace(h, o); !ok {
		return v
	}
	t := count(h, o)
	switch {
	case t.broken != "":
		return unknown(a, "%s", t.broken)
	case t.committed > 0 && t.aborted > 0:
		return unknown(a, "committed in %d partitions and aborted in %d", t.committed, t.aborted)
	case t.silent > 0:
		return wait("%d partitions have not answered", t.silent)
	case t.undecided > 0:
		return byCoordinator(h, a, o, t)
	case t.aborted > 0:
		return Verdict{Kind: Aborted, Reason: fmt.Sprintf(
			"the log shows it aborted in all %d partitions; EndTxn: %s; coordinator: %s",
			t.aborted, a, o.Coordinator.State)}
	}
	return Verdict{Kind: Committed, Reason: fmt.Sprintf("the log shows it in all %d partitions", t.committed)}
}

// samePlace reports whether the observation is of the cluster and the topic that were written.
// Stale metadata can name an older topic or none for a moment, hence the wait.
func samePlace(h *Handle, o *Observation) (Verdict, bool) {
	switch {
	case o.ClusterID == "":
		return wait("no broker has answered"), false
	case o.ClusterID != h.ClusterID:
		return Verdict{Kind: Unknown, Reason: fmt.Sprintf(
			"it was written to cluster %s, and this is cluster %s", h.ClusterID, o.ClusterID)}, false
	case o.TopicID == h.TopicID:
		return Verdict{}, true
	case !o.Overdue:
		return wait("topic %s is not there, or not the one that was written", h.Topic), false
	}
	return Verdict{Kind: Unknown, Reason: fmt.Sprintf(
		"topic %s was deleted (topic ID %x, now %x)", h.Topic, h.TopicID, o.TopicID)}, false
}

// tally counts the partitions by what their logs show.
type tally struct {
	committed, aborted, undecided, silent int
	// broken says why a partition's log is no proof; empty if each of them is.
	broken string
}

func count(h *Handle, o *Observation) tally {
	var t tally
	for i := range h.Parts {
		p, seen := &h.Parts[i], &o.Parts[i]
		if !seen.Answered {
			t.silent++
			continue
		}
		if why := brokenLog(p, seen); why != "" {
			t.broken = fmt.Sprintf("%s/%d: %s", h.Topic, p.Partition, why)
			return t
		}
		switch {
		case seen.Stable > p.First && seen.Aborted, seen.Stable <= p.First && seen.Marker == Abort:
			t.aborted++
		case seen.Stable > p.First, seen.Marker == Commit:
			t.committed++
		default:
			t.undecided++
		}
	}
	return t
}

// brokenLog reports why a partition's log cannot tell what became of the transaction.
func brokenLog(p *Part, seen *PartSeen) string {
	switch {
	case seen.Truncated:
		return fmt.Sprintf("the log was truncated below offset %d", p.Last)
	case seen.LogStart > p.First:
		return fmt.Sprintf("retention has removed offset %d: the log starts at %d", p.First, seen.LogStart)
	case seen.First == BatchGone:
		return fmt.Sprintf("the batch at offset %d is gone (compaction)", p.First)
	case seen.First == BatchForeign:
		return fmt.Sprintf("the batch at offset %d is not of this transaction", p.First)
	case seen.Marker != NoMarker && seen.MarkerAt < p.Last:
		return fmt.Sprintf("a %s marker at offset %d ended a part of it", seen.Marker, seen.MarkerAt)
	case seen.AbortedInside:
		return "an ABORT marker ended a part of it"
	}
	return ""
}

// byCoordinator judges where at least one partition's log shows no end: the coordinator says
// whether one is still to come.
func byCoordinator(h *Handle, a Answer, o *Observation, t tally) Verdict {
	c := o.Coordinator
	ours := c.ProducerID == h.ProducerID
	switch c.State {
	case Unreached:
		return wait("the coordinator has not answered")
	case PrepareCommit, PrepareAbort:
		return wait("the coordinator is in %s", c.State)
	case Ongoing:
		if !ours || c.Epoch != h.Epoch {
			break
		}
		switch {
		case t.aborted > 0 && !o.Overdue:
			// The coordinator is asked first: it said Ongoing, timed the transaction out, and its marker was in one
			// log when that was read and not yet in the other.
			return wait("Ongoing at the coordinator, and aborted in %d partitions since", t.aborted)
		case t.aborted > 0:
			return unknown(a, "Ongoing at the coordinator, and aborted in %d partitions", t.aborted)
		}
		return Verdict{Kind: Open, Reason: "the coordinator waits for its end"}
	case CompleteCommit:
		if !ours || !endedUnder(h, c.Epoch, h.EndTxnVersion >= 5) {
			break
		}
		if t.aborted > 0 {
			return unknown(a, "CompleteCommit at the coordinator, and aborted in %d partitions", t.aborted)
		}
		return markerLost(h, a, o, Commit)
	case CompleteAbort:
		// A transaction that timed out ends under the next epoch, whatever the version.
		if !ours || !endedUnder(h, c.Epoch, true) {
			break
		}
		if t.committed > 0 {
			return unknown(a, "CompleteAbort at the coordinator, and committed in %d partitions", t.committed)
		}
		return markerLost(h, a, o, Abort)
	case NoHistory:
	}
	// Somebody has taken the ID since. That ended this transaction first, so its markers are
	// on their way, unless they were lost; but then nobody knows any more which ones.
	return stillOpen(h, a, o, unknown(a, "the log shows it open, and the coordinator's history is gone: "+
		"%s of producer %d, epoch %d", c.State, c.ProducerID, c.Epoch))
}

// endedUnder reports whether a completed transaction at this epoch can be ours.
func endedUnder(h *Handle, epoch int16, bumps bool) bool {
	return epoch == h.Epoch || bumps && epoch == h.Epoch+1
}

// markerLost judges a transaction that the coordinator has completed and a log has not.
func markerLost(h *Handle, a Answer, o *Observation, m Marker) Verdict {
	epoch := h.Epoch
	if m == Abort || h.EndTxnVersion >= 5 {
		epoch++ // both bump it: a timeout and an InitProducerID whatever the version
	}
	return stillOpen(h, a, o, Verdict{Kind: Unmarked, Missing: m, MarkerEpoch: epoch, Reason: fmt.Sprintf(
		"%s at the coordinator, and a partition is still open: its %s marker was lost",
		o.Coordinator.State, m)})
}

// stillOpen returns lost if the brokers have had their time and every undecided partition says
// that the transaction is still open in it; and waits otherwise.
func stillOpen(h *Handle, a Answer, o *Observation, lost Verdict) Verdict {
	if !o.Overdue {
		return wait("%s at the coordinator, and markers may be on their way", o.Coordinator.State)
	}
	for i := range h.Parts {
		p, seen := &h.Parts[i], &o.Parts[i]
		if seen.Stable > p.First || seen.Marker != NoMarker {
			continue
		}
		switch seen.OpenAt {
		case p.First:
		case -1, StartUnknown:
			// A marker was appended, and is not replicated yet.
			return wait("%s/%d: a marker is there, and not visible yet", h.Topic, p.Partition)
		default:
			return unknown(a, "%s/%d: the producer's open transaction starts at %d, not at %d",
				h.Topic, p.Partition, seen.OpenAt, p.First)
		}
	}
	return lost
}

func wait(format string, args ...any) Verdict {
	return Verdict{Kind: Wait, Reason: fmt.Sprintf(format, args...)}
}

func unknown(a Answer, format string, args ...any) Verdict {
	return Verdict{Kind: Unknown, Reason: fmt.Sprintf(format, args...) + fmt.Sprintf(" (EndTxn: %s)", a)}
}
