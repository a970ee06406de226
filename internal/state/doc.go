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
//  3. Nothing in a table points into memory that the caller may use again: keys are rebuilt from
//     their encoding when they are first stored.
//  4. Encoding the same content gives the same bytes: iteration never follows a Go map's order.
package state
