// Package state keeps keyed state and timers of one operator subtask on the heap, by key group,
// and encodes them into snapshots.
//
// It does no I/O and starts no goroutine; one goroutine owns everything in it. It does not know
// what the values mean, nor when a snapshot is taken.
//
// Invariants:
//
//  1. A key lives in exactly one key group, and a chain of cuts, read from Oldest on, holds all that
//     a group has: every named state, every timer that has not fired, and the watermark of the
//     last cut.
//  2. A pointer returned by Table.Get or Table.Put is good until the next Put or Delete of the
//     same table, or until Keyed.Work or Cut; what is written through it later, or through a
//     pointer from Peek, may be missing from the chain.
//  3. Keys lie in tables and timers as their canonical encodings, by which they are told apart: nothing
//     points into memory that the caller may use again. An encoding of the user's own is not taken
//     on trust: a key that does not come back from it is refused when it is first stored.
//  4. Encoding the same content gives the same bytes: iteration never follows a Go map's order.
//  5. What a restore cannot read in the shape that the job declares it refuses by state and field, before
//     anything is decoded.
//  6. What has expired is not seen, and is removed once event time has gone on: at a restore, too, no clock
//     but event time says what has.
//
// A cut is a header and records. Behind each field stands its size in bytes; (n) is a
// length as a varint with so many bytes behind it.
//
//	header   version 1, number of states 1, schema of the keys (n), of each state its name (n), kind 1,
//	         whether it has a time to live 1 and its schema (n), first and end of the key groups 8 + 8,
//	         of each group the watermark 8 and the wall clock 8
//	put      kind 1, group 2 (big-endian), state 1, key (n), length of the value 4, value: behind the time of its
//	         last write 8 where the state has a time to live, behind its deadline 8 where it has deadlines
//	delete   kind 1, group 2, state 1, key (n)
//	timer    kind 1 (set, set overdue, deleted; in event time or in processing time), group 2, time 8,
//	         key (n)
//	reset    kind 1, group 2: what the chain says of the group before this is void
package state
