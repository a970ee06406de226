// Package connector holds the contracts between the engine and the outside: what a
// source, a reader, a sink and a writer promise, and what the engine promises them.
//
// It is not an implementation of anything, and it knows no engine: a connector imports this
// package alone, and the engine imports no connector.
//
// Invariants that every implementation keeps (the numbers are cited where code enforces them):
//
//	C1. A position that a reader returns with a batch is the position after that batch. Reading
//	    again from it yields the records that follow, each once.
//	C2. A row is returned exactly once: either among the rows, or whole among the rejected.
//	C3. Flush returns nil only when everything written before it is acknowledged by the outside.
//	    A send error is sticky: once seen, every later Write, Flush and PrepareCommit returns it.
//	C4. A committable carries all that is needed to commit it again from nothing. Committing it
//	    twice changes nothing outside.
//	C5. Commit returns nil only when the outside shows that the commit happened.
//	C6. Close ends no transaction that a checkpoint may name.
//
// Event times are microseconds since 1970-01-01T00:00:00Z (type int64), rounded down, which
// covers every year an RFC 3339 date can name. Processing times are time.Time.
package connector
