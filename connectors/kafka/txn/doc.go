// Package txn is the course of Kafka transactions that follow checkpoints: how an ID is taken, a
// transaction committed and settled, and how a restore settles what CURRENT names, ends what nobody
// names and writes again what was lost.
//
// It knows no client. What it asks of Kafka is Cluster, and what it asks of time is Clock: the
// connector implements them for brokers, and the simulator for a world in which everything fails. How
// a transaction in doubt is judged is package settle's.
//
// It starts no goroutine, blocks in nothing but Cluster and Clock, and holds no lock while it does: the
// simulator runs many of it on one thread, and the same seed gives the same course.
//
// Invariants (the numbers are cited where code enforces them):
//
//	K1. A transactional ID is used again only once its last transaction is settled in the log and no
//	    CURRENT names it.
//	K2. Whatever could end somebody's transaction (an InitProducerID, an ABORT marker for what no CURRENT
//	    names) is sent only after asking whether this generation still owns CURRENT.
//	K3. Commits of a subtask go out one after the other: the next EndTxn only once the transaction
//	    before is settled in the log.
//	K4. Committed and aborted are what the log shows in every partition, never what was answered.
//	K5. Nothing that a CURRENT may name is ended, but in a restore, to write it again.
//	K6. A transaction is written again only in a restore, once the log shows it aborted, and is
//	    committed only once CURRENT names what was written in its place.
//	K7. A lost marker is written only where the brokers have had their time, and only as the
//	    coordinator decided: never COMMIT where it says CompleteAbort.
//	K8. A producer writes one transaction and does not end it. Every transaction begins with an
//	    InitProducerID, so what arrives late finds a later epoch.
package txn
