// Package protocol decides how one generation of a job takes checkpoints and commits what they
// name. A Coordinator is a state machine: the shell performs the actions that Step returns and
// feeds what came of them back as events.
//
// It is not the shell: it does no I/O, reads no clock, starts no goroutine and makes nothing
// random, so the same events give the same actions, and its tests are scripts. It knows no
// storage and no connector; how a commit in doubt is settled is the connector's business.
//
// The course of a generation:
//
//	Begin ─▶ claiming ─▶ restoring ─▶ freeing ─▶ running ─▶ ended
//	             │             ▲ │                  ▲ │
//	             │             │ │                  └─┘ barrier, manifest, swap, commit, settled
//	             │             └─┘ what was lost outside: written again, manifest, swap, commit
//	             └─▶ ended (finished and settled)
//
// Invariants (the numbers are cited where code enforces them):
//
//	P1. A checkpoint exists once CURRENT has been swapped to it, and only then. Its manifest and
//	    snapshots are durable before the swap is asked for.
//	P2. Only the branch that saw a swap succeed makes a CommitPermit, and no Commit or Restore
//	    action, and no Replaced, goes out without one that covers what it names.
//	P3. A committable that a subtask handed over is named by the next checkpoint that completes,
//	    whatever became of its own, and by every later one until it is settled.
//	P4. CURRENT says settled only when everything it names is committed and known to be.
//	P5. A committable is released once it is settled and CURRENT no longer names it.
//	P6. Swaps and manifest writes go out one after the other. An answer in doubt ends the
//	    generation: it gives no permit and aborts nothing.
//	P7. Checkpoint IDs only rise. An ID is not used again within a generation.
//	P8. One identity has one digest, for ever.
//	P9. After a terminal action (Finish, FailGeneration, Stop, Superseded) nothing follows.
//	P10. A committable takes another one's place only while restoring, at the same checkpoint, with
//	    the same identity and digest, and by a swap of CURRENT: of two processes that have written
//	    the same records again, one gets a permit. One takes its place at a time.
//	P11. A snapshot's file is discarded only once no later cut builds on it and if no checkpoint that
//	    exists has named it. What is left of aborted checkpoints is what the next cut needs.
//
// What the shell promises:
//
//	S1. Events of one subtask arrive in the order of its checkpoints. An answer to checkpoint n
//	    therefore says that everything older of this subtask has arrived or will never exist: a
//	    subtask that skipped the barrier of an aborted checkpoint has its records in the next.
//	S2. Commits of one sink subtask are carried out one after the other, in the order given.
//	S3. Once a generation has ended, answers still out are awaited before the next one begins.
//	S4. Reemitted is said only of a committable whose loss the outside shows for good, so that what
//	    is replaced can never become visible.
//	S5. Of the files that an answer does not name, no later answer of its subtask names one that was
//	    written for the same checkpoint or an earlier one.
package protocol
