// Package simulation runs the commit protocol in a world in which everything fails, on one thread: the same
// seed gives the same course, to the letter.
//
// What is real: the coordinator (internal/protocol), how a transaction in doubt is judged
// (connectors/kafka/settle), and the whole course of transactions (connectors/kafka/txn): taking IDs,
// committing, settling, restoring and writing again.
//
// What is simulated: processes that carry out what the coordinator decides, as internal/engine does, with
// sources that read and sinks that write; the storage of the checkpoints; the brokers with their coordinator,
// their logs and the control records in them; the network; and time. Processes crash between any two things
// that they do, and before and after each request; they stand still, and live on after another one has taken
// over. A request fails, loses its answer, or arrives when nobody waits for it any more.
//
// Blocking code runs as coroutines, which give control away at each request and nowhere else. What happens
// next is a choice; all choices are on one tape, which is made from the seed or played again, and whose zeros
// are what would ordinarily happen. So a failure is made shorter by taking choices away (Shrink).
//
// It is not a model: it samples courses and does not go through all of them. And it proves nothing about
// what it simulates. Brokers are as they were measured; the connector's own requests, and the engine itself,
// are tried on brokers.
//
// Invariants:
//
//	W1. A task gives control away only where a request leaves its process, or where it waits within it.
//	W2. Nothing but the tape decides: no clock, no chance, no order of a map.
//	W3. A tape that has come to its end lets nothing fail, and what has waited longest goes first; every
//	    world then comes to its end within a bounded number of steps.
//	W4. The oracle looks at the logs alone, and believes no answer.
package simulation
