package mutants

// Files that several mutants change.
const (
	checkpointFile = "internal/protocol/checkpoint.go"
	settleFile     = "connectors/kafka/settle/settle.go"
	settlerFile    = "connectors/kafka/txn/settler.go"
	restoreFile    = "connectors/kafka/txn/restore.go"
	reemitFile     = "connectors/kafka/txn/reemit.go"
	takeFile       = "connectors/kafka/txn/take.go"
	poolFile       = "connectors/kafka/txn/pool.go"
	writerFile     = "connectors/kafka/txn_writer.go"
)

// schedules is the suite of the coordinator that draws schedules, always the same ones.
func schedules() Suite {
	return Suite{
		Package: "internal/protocol", Run: "^TestEveryScheduleIsExactlyOnce$",
		// Nobody reads the failure, so it is not made short.
		Args: []string{"-rapid.seed=1", "-rapid.checks=2000", "-rapid.nofailfile", "-rapid.shrinktime=1ms"},
	}
}

// worlds is the simulator's suite.
func worlds() Suite {
	return Suite{Package: "internal/simulation", Run: "^TestEveryWorldIsExactlyOnce$"}
}

func kafka(run string) Suite { return Suite{Package: "connectors/kafka", Run: run} }

// look is where the settler begins to look at a transaction, with the answer of the last EndTxn at hand.
const look = "	for try := 0; ; try++ {\n		o := c.observe(ctx, h, answer)\n"

// settleAgain is where a lost transaction is settled a second time, before it is written again.
const settleAgain = "		v, err := r.settle(ctx, t.of, t.handle, settle.NotAsked, r.endOpen)\n"

// All returns the mutants that the suites must catch.
func All() []Mutant {
	return []Mutant{
		{
			Name: "assume committed when the answer is lost", Harm: Loses,
			How: "The EndTxn may not have arrived. The transaction stays open until its timeout aborts it, and CURRENT says " +
				"settled.",
			Edits: []Edit{{
				File: settlerFile,
				Old:  look,
				New: "	for try := 0; ; try++ {\n		if answer == settle.NoAnswer {\n" +
					"			return settle.Verdict{Kind: settle.Committed}, nil\n		}\n		o := c.observe(ctx, h, answer)\n",
			}},
			Says:  "MISSING",
			Suite: worlds(),
		},
		{
			Name: "write again when the answer is lost", Harm: Doubles,
			How: "The EndTxn may have arrived: what is written again is there already.",
			Edits: []Edit{{
				File: settlerFile,
				Old:  look,
				New: "	for try := 0; ; try++ {\n		if answer == settle.NoAnswer {\n" +
					"			return settle.Verdict{Kind: settle.Aborted}, nil\n		}\n		o := c.observe(ctx, h, answer)\n",
			}, {
				File: reemitFile,
				Old:  settleAgain,
				New:  "		v, err := settle.Verdict{Kind: settle.Aborted}, error(nil)\n",
			}},
			Says:  "DOUBLED",
			Suite: worlds(),
		},
		{
			Name: "commit before CURRENT", Harm: Doubles,
			How: "A crash between the commit and the swap restores a checkpoint that does not name what readers see; its " +
				"records are made again.",
			Edits: []Edit{{
				File: checkpointFile,
				Old:  "	o.state = swapping\n",
				New: "	o.state = swapping\n	if early := c.ledger.commit(o.named); len(early) > 0 {\n" +
					"		c.emit(Commit{Permit: c.newPermit(o.named), Committables: early})\n	}\n",
			}},
			Says:  "was committed and CURRENT never named it",
			Suite: schedules(),
		},
		{
			Name: "drop the committables of an aborted checkpoint", Harm: Loses,
			How: "The next snapshot lies behind records whose transaction no manifest names: a restore ends it.",
			Edits: []Edit{{
				File: checkpointFile,
				Old:  "	final := c.open.final != None\n",
				New: "	final := c.open.final != None\n	for id := range c.ledger {\n		if id.Checkpoint == c.open.id {\n" +
					"			delete(c.ledger, id)\n		}\n	}\n",
			}},
			Suite: schedules(),
		},
		{
			Name: "re-emit without a swap, in the sink", Harm: Doubles,
			How: "A crash after the commit restores a CURRENT that names the lost transaction, and it is written again.",
			Edits: []Edit{{
				File: reemitFile,
				Old:  "	if err := r.rc.Replace(ctx, again); err != nil {\n",
				New:  "	if err := error(nil); err != nil {\n",
			}},
			Says:  "TOO EARLY",
			Suite: worlds(),
		},
		{
			Name: "re-emit without a swap, in the coordinator", Harm: Doubles,
			How: "As above: the permit is given without the proof that CURRENT names what is committed.",
			Edits: []Edit{{
				File: "internal/protocol/reemit.go",
				Old:  "		c.emit(RewriteManifest{Current: c.current, Committables: named})\n",
				New:  "		c.replaced()\n",
			}},
			Suite: schedules(),
		},
		{
			Name: "re-emit without settling again", Harm: Doubles,
			How: "Behind a loss, all that the job has open is ended and taken for lost without another look at the log. A " +
				"transaction of another subtask was committed already.",
			Edits: []Edit{{
				File: restoreFile,
				Old:  "		v, err := r.settle(ctx, n.of, n.handle, settle.NotAsked, end)\n",
				New: "		var v settle.Verdict\n		var err error\n		if len(behind) == 0 {\n" +
					"			v, err = r.settle(ctx, n.of, n.handle, settle.NotAsked, end)\n		} else {\n" +
					"			c, failed := r.Cluster.Describe(ctx, n.handle.TransactionalID)\n" +
					"			if failed == nil && c.State == settle.Ongoing && c.ProducerID == n.handle.ProducerID && c.Epoch == n.handle.Epoch {\n" +
					"				_, err = r.endOpen(ctx, n.handle)\n			}\n			v.Kind = settle.Aborted\n		}\n",
			}, {
				File: reemitFile,
				Old:  settleAgain,
				New:  "		v, err := settle.Verdict{Kind: settle.Aborted}, error(nil)\n",
			}},
			Says:  "DOUBLED",
			Suite: worlds(),
		},
		{
			Name: "take NONE for settled where the broker loses a marker", Harm: Loses,
			How: "The commit is decided and its marker never written; the next transaction of the ID decides the old " +
				"records, and its abort aborts them.",
			Edits: []Edit{{
				File: settlerFile,
				Old:  look,
				New: "	for try := 0; ; try++ {\n		if answer == settle.AnswerNone {\n" +
					"			return settle.Verdict{Kind: settle.Committed}, nil\n		}\n		o := c.observe(ctx, h, answer)\n",
			}},
			Says:  "MISSING",
			Suite: worlds(),
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
			Says:  "MISSING",
			Suite: worlds(),
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
			Name: "write COMMIT where the coordinator says CompleteAbort", Harm: Doubles,
			How: "One partition shows what the others never will, and what is written again shows it twice.",
			Edits: []Edit{{
				File: settleFile,
				Old:  "		return markerLost(h, a, o, Abort)\n",
				New:  "		return markerLost(h, a, o, Commit)\n",
			}},
			Says:  "WRONG MARKER",
			Suite: worlds(),
		},
		{
			Name: "use an ID again after an abort that the log has not shown", Harm: Doubles,
			How: "The COMMIT of the next transaction decides the records of the one before, too.",
			Edits: []Edit{{
				File: takeFile,
				Old:  "		lost, later, err := t.leftOpen(ctx, p)\n",
				New:  "		lost, later, err := []Open(nil), false, error(nil)\n",
			}},
			Says:  "DOUBLED",
			Suite: worlds(),
		},
		{
			Name: "keep the client whose transaction was repaired", Harm: Loses,
			How: "A client is kept, whether its transaction was repaired or not. The marker that was written for it arrives a " +
				"second time, late, and ends what the client has written since under the same epoch.",
			Edits: []Edit{
				{
					File: poolFile,
					Old:  "checkpoint uint64) {\n	s.discard()\n	p.mu.Lock()\n",
					New:  "checkpoint uint64) {\n	p.mu.Lock()\n",
				},
				{
					File: writerFile,
					Old:  "	if s.Producer, err = w.taker.Take(ctx, s.ID); err != nil {\n",
					New: "	if s.Producer != nil {\n		return s, nil\n	}\n" +
						"	if s.Producer, err = w.taker.Take(ctx, s.ID); err != nil {\n",
				},
			},
			Suite: kafka("^TestEveryTransactionHasAnEpochOfItsOwn$"),
		},
		{
			Name: "send the next EndTxn before the one before is settled", Harm: Reorders,
			How: "An earlier transaction that turns out lost is written again behind a later one that is visible already.",
			Edits: []Edit{{
				File: restoreFile,
				Old:  "	for i := range r.named {\n		n := &r.named[i]\n",
				New: "	for i := range r.named {\n		r.Cluster.Commit(ctx, r.named[i].handle)\n	}\n" +
					"	for i := range r.named {\n		n := &r.named[i]\n",
			}},
			Says:  "OUT OF ORDER",
			Suite: worlds(),
		},
		{
			Name: "InitProducerID before settling", Harm: Stops,
			How: "It aborts what CURRENT names. Under reemit the records are written again; under fail the job stops, and " +
				"nothing had failed.",
			Edits: []Edit{{
				File: restoreFile,
				Old:  "	lost, err := r.settleNamed(ctx)\n",
				New: "	if early, err := r.leftovers(ctx); err == nil {\n		if err := r.end(ctx, early); err != nil {\n" +
					"			return err\n		}\n	}\n	lost, err := r.settleNamed(ctx)\n",
			}},
			Says:  "STOPPED BY NAME WITHOUT A FAULT",
			Suite: worlds(),
		},
		{
			Name: "forget requests before their window is closed for good", Harm: Doubles,
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
