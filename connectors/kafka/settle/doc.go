// Package settle decides what became of a Kafka transaction whose commit is in doubt, and holds
// what is needed to decide it: the handle that a committable carries, and the grammar of
// transactional IDs.
//
// It is pure: it talks to no broker, reads no clock and starts no goroutine. The connector
// observes, this package judges.
//
// Invariants:
//
//	S1. Only the log proves. No answer to EndTxn and no state of the coordinator alone makes a
//	    transaction committed or aborted.
//	S2. A verdict of committed or aborted holds for every partition of the transaction at once;
//	    one partition that says otherwise makes it unknown.
//	S3. What an observation leaves out never counts as evidence: it is waited for.
//	S4. A transactional ID parses back to exactly the fields it was made of, whatever the prefix,
//	    so a sink never takes the transactions of another prefix for its own.
package settle
