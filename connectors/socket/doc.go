// Package socket is a source of lines that come over a TCP connection, and that nobody keeps.
//
// It is not replayable, and says so: what was sent cannot be asked for again. A crash loses what was read
// and is in no checkpoint yet; a lost connection loses what was sent meanwhile; and nobody can tell how
// much that was. State and sinks are exact about what was read, and no more can be had of a socket. Where
// every record counts, put a log in front (Kafka, or files that are followed).
//
// Invariants:
//
//	N1. A line is a record once its line end is there. What a connection leaves of a line when it ends
//	    is a dead letter.
//	N2. The source is caught up only while it is connected and nothing comes. Without a connection it
//	    holds event time back: what is sent meanwhile may yet come.
package socket
