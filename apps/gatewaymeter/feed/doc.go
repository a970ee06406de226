// Package feed writes a replay where gateways write: to a topic, or line by line to whoever reads
// them.
//
// It is not the generator: what is written, and which times it bears, package replay decides. It
// creates no topic.
//
// Invariants:
//
//	F1. Every record bears the replay's own time for its timestamp, whenever it is written.
//	F2. A topic gets each record once: the producer is idempotent and waits for all replicas, and the
//	    first record that cannot be written ends the feed with an error.
package feed
