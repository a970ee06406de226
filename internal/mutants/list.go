package mutants

// Files that several mutants change.
const (
	checkpointFile = "internal/protocol/checkpoint.go"
	settleFile     = "connectors/kafka/settle/settle.go"
	settlerFile    = "connectors/kafka/txn/settler.go"
	restoreFile    = "connectors/kafka/txn/restore.go"
	takeFile       = "connectors/kafka/txn/take.go"
)

// schedules is the suite of the coordinator that draws schedules, always the same ones.
func schedules() Suite {
	return Suite{
		Package: "internal/protocol", Run: "^TestEveryScheduleIsExactlyOnce$",
		Args: []string{"-rapid.seed=1", "-rapid.checks=2000", "-rapid.nofailfile", "-rapid.shrinktime=1ms"}, // nobody reads the failure
	}
}

func kafka(run string) Suite { return Suite{Package: "connectors/kafka", Run: run} }

// All returns the mutants that the suites must catch.
func All() []Mutant {
	return []Mutant{
		{
			Name: "commit before CURRENT", Harm: Double,
			How: "A crash between the commit and the swap restores a checkpoint that does not name what readers see; its " +
				"records are made again.",
			Edits: []Edit{{
				File: checkpointFile,
				Old:  "	o.state = swapping\n",
				New: "	o.state = swapping\n	if early := c.ledger.commit(o.named); len(early) > 0 {\n" +
					"		c.emit(Commit{Permit: c.newPermit(o.named), Committables: early})\n	}\n",
			}},
			Suite: schedules(),
		},
		{
			Name: "drop the committables of an aborted checkpoint", Harm: Loses,
			How: "The next snapshot lies after records whose transaction no manifest names: a restore ends it.",
			Edits: []Edit{{
				File: checkpointFile,
				Old:  "	final := c.open.final != None\n",
				New: "	final := c.open.final != None\n	for id := range c.ledger {\n		if id.Checkpoint == c.open.id {\n" +
					"			delete(c.ledger, id)\n		}\n	}\n",
			}},
			Suite: schedules(),
		},
		{
			Name: "re-emit without a swap", Harm: Double,
			How: "A crash after the commit restores a CURRENT that names the lost transaction, and it is written again.",
			Edits: []Edit{{
				File: "internal/protocol/reemit.go",
				Old:  "		c.emit(RewriteManifest{Current: c.current, Committables: named})\n",
				New:  "		c.replaced()\n",
			}},
			Suite: schedules(),
		},
		{
			Name: "assume committed when the answer is lost", Harm: Loses,
			How: "The EndTxn may not have arrived: the transaction stays open until its timeout, which aborts it.",
			Edits: []Edit{{
				File: settlerFile,
				Old:  "				answer = c.Cluster.Commit(ctx, h)\n",
				New: "				answer = c.Cluster.Commit(ctx, h)\n				if answer == settle.NoAnswer {\n" +
					"					return nil\n				}\n",
			}},
			Suite: kafka("^TestACommitThatIsNeverAnsweredFailsAndEndsNothing$"),
		},
		{
			Name: "take NONE for settled where the broker loses a marker", Harm: Loses,
			How: "The commit is decided and its marker never written; the next transaction of the ID decides the old " +
				"records, and its abort aborts them.",
			Edits: []Edit{{
				File: settlerFile,
				Old:  "	var patience patience\n",
				New:  "	if answer == settle.AnswerNone {\n		return nil\n	}\n	var patience patience\n",
			}},
			Suite: kafka("^TestAnAcknowledgedCommitWithoutItsMarkersIsNotSettled$"),
		},
		{
			Name: "take DescribeProducers for proof where an operator aborted one partition", Harm: Loses,
			How: "No open transaction (-1) says that a marker is there, and not which one.",
			Edits: []Edit{{
				File: settlerFile,
				Old:  "	o.Coordinator = coordinator\n",
				New: "	o.Coordinator = coordinator\n" +
					"	open, err := c.openOf(ctx, func(of int64) bool { return of == h.ProducerID })\n" +
					"	still := map[int32]bool{}\n" +
					"	for _, t := range open {\n		still[t.Partition] = true\n	}\n" +
					"	for i := range o.Parts {\n" +
					"		if err == nil && !still[h.Parts[i].Partition] {\n" +
					"			o.Parts[i] = settle.PartSeen{Answered: true, Stable: 1 << 62, First: settle.BatchOurs, OpenAt: -1}\n" +
					"		}\n	}\n",
			}},
			Suite: kafka("^TestAPartitionAbortedByAnOperatorStopsTheJob$"),
		},
		{
			Name: "treat an absent aborted entry of a missing batch as committed", Harm: Loses,
			How: "Compaction takes the batch of an aborted transaction and its entry in the list of aborted ones with it.",
			Edits: []Edit{{
				File: settleFile,
				Old:  "	case seen.First == BatchGone:\n",
				New:  "	case seen.First == BatchGone && seen.Aborted:\n",
			}},
			Suite: Suite{Package: "connectors/kafka/settle", Run: "^TestEveryRowOfTheTable$"},
		},
		{
			Name: "write COMMIT where the coordinator says CompleteAbort", Harm: Double,
			How: "One partition shows what the others never will, and what is written again shows it twice.",
			Edits: []Edit{{
				File: settleFile,
				Old:  "		return markerLost(h, a, o, Abort)\n",
				New:  "		return markerLost(h, a, o, Commit)\n",
			}},
			Suite: Suite{Package: "connectors/kafka/settle", Run: "^TestEveryRowOfTheTable$"},
		},
		{
			Name: "use an ID again after an abort that the log has not shown", Harm: Loses,
			How: "The marker of the next transaction decides the records of the one before, too.",
			Edits: []Edit{{
				File: takeFile,
				Old:  "		later, err := t.leftOpen(ctx, id, p)\n",
				New:  "		later, err := false, error(nil)\n",
			}},
			Suite: kafka("^TestALostAbortMarkerUnderAnIDStopsTheJob$"),
		},
		{
			Name: "send the next EndTxn before the one before is settled", Harm: Loses,
			How: "An earlier transaction that turns out lost cannot be written again: a later one is visible already, and " +
				"order is gone.",
			Edits: []Edit{{
				File: restoreFile,
				Old:  "	for _, n := range names {\n		if err := r.Settle(",
				New: "	for _, n := range names {\n		r.Cluster.Commit(ctx, n.handle)\n	}\n" +
					"	for _, n := range names {\n		if err := r.Settle(",
			}},
			Suite: kafka("^TestARestoreCommitsInOrder$"),
		},
		{
			Name: "InitProducerID before settling", Harm: Stops,
			How: "It aborts what CURRENT names. Under reemit the records are written again; under fail the job stops, and " +
				"nothing had failed.",
			Edits: []Edit{{
				File: restoreFile,
				Old:  "	// In the order of checkpoints within each subtask",
				New: "	if left, err := r.leftovers(ctx); err == nil {\n		if err := r.end(ctx, left); err != nil {\n" +
					"			return err\n		}\n	}\n	// In the order of checkpoints within each subtask",
			}},
			Suite: kafka("^TestARestoreCommitsWhatTheCheckpointNames$"),
		},
		{
			Name: "forget requests before their window is closed for good", Harm: Double,
			How: "An event that comes a second time within the allowed lateness is a new request, and is billed again.",
			Edits: []Edit{{
				File: "apps/gatewaymeter/assemble.go",
				Old:  "windowEnd(r.completed.at).Add(max(a.lateness, a.deduplication))",
				New:  "windowEnd(r.completed.at).Add(min(a.lateness, a.deduplication, 0))",
			}},
			Suite: Suite{Package: "apps/gatewaymeter", Run: "^TestARequestThatComesAgainBeforeItsMinuteIsClosedIsBilledOnce$"},
		},
		{
			Name: "call a split idle while it is behind", Harm: Late,
			How: "Event time goes on without it, and what it holds comes late to windows that are closed.",
			Edits: []Edit{{
				File: "internal/watermark/splits.go",
				Old:  "if !sp.caughtUp || sp.ended || sp.idle {",
				New:  "if sp.ended || sp.idle {",
			}},
			Suite: Suite{Package: "internal/watermark", Run: "."},
		},
	}
}
