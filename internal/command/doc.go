// Package command is the command line of every job: what weir.Main offers in a user's own program, and
// what the program weir offers for any job's checkpoints.
//
// It is a shell around others: a Job runs, package control reaches one that runs, package checkpoint
// knows what lies in the storage, package explain draws, and a sink that has transactions outside
// (connector.TransactionAdmin) looks at them and ends them.
//
// What a caller may rely on:
//
//	M1. An exit code says what happened, and each says one thing (see the Exit constants).
//	M2. The first SIGTERM or SIGINT takes a last checkpoint, commits it and ends; a second one, or the
//	    end of the grace period, ends at once. Neither loses or doubles anything.
//	M3. Standard output belongs to results; logs and errors go to standard error.
//	M4. A command that was told to wait returns once the job's process has let the checkpoints go, so
//	    that the next one can be started.
//	M5. The commands txn commit nothing but what CURRENT names, and end or repair nothing of CURRENT's
//	    lineage while a generation of it can run: they own the store meanwhile.
package command
