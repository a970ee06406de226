// Package kafka connects jobs to Apache Kafka: a source that reads a topic, and a sink that writes
// one with the guarantee that it was asked for.
//
// It is not a Kafka client (it uses one), and it decides nothing about a commit in doubt: that is
// package settle. It knows no engine.
//
// Invariants of the source:
//
//	S1. Where to begin and where to end are offsets from before the first checkpoint on. No restart
//	    asks again what "latest" or "the end" is.
//	S2. A partition is given to a fetcher only after its position was held against the log as it is
//	    then. What can no longer be read stops the job by name: a topic that was deleted or made
//	    again, a log that was deleted before it was read, or truncated.
//	S3. A position moves over every offset that a broker has answered about: transaction markers,
//	    aborted records and gaps too. A bounded read ends by position, not by a last record.
//	S4. A split is caught up only where the broker's answer says that nothing lay behind the position,
//	    and no longer once its broker is silent.
//	S5. One goroutine at a time has a partition, and its chunks come to Read in order.
//
// The sink's transactions go by package txn, whose invariants (K1 to K7) are cited here, too. Of this package:
//
//	K8. A client writes one transaction and does not end it: EndTxn is sent by a neutral client, as
//	    after a restore.
//	K9. Before a restore ends or writes anything, what it needs is held against the cluster
//	    (checkStart), by asking alone.
package kafka
