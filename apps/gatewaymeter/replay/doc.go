// Package replay makes the records that gateways would have written, from a trace of requests to
// language models: when they came, and how many tokens went in and out.
//
// It is not a producer: it writes nowhere, waits for nothing and reads no clock. What it returns
// depends on its Config alone.
//
// Invariants:
//
//	R1. The same Config gives the same records, byte for byte.
//	R2. Records come in the order of their times (Record.At), and every record but the ones that
//	    Shares.Bad asks for is one that the contract of gateway-events allows.
//	R3. Of two events that conflict, the first one comes first, in the same partition, so every
//	    reader agrees which one counts.
//	R4. Unless Shares.TooLate or Shares.LateCompleted asks for it, both halves of a request come
//	    within the completion timeout of each other, every event within the allowed lateness and
//	    everything that is sent again while its request is remembered, all of these at their
//	    defaults. The bill then does not depend on how partitions are mixed.
//
// Each row of the trace is one request. Started is at its arrival; Completed follows after a
// time that grows with the tokens generated, five minutes at most. A record comes up to two
// seconds after its event, later where the Config says so. A trace that is shorter than what is
// asked for is repeated, with other request IDs.
package replay
