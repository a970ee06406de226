// Package engine runs the dataflow of a job: subtasks, chains, exchanges, barriers, and the
// generations between restarts.
//
// It decides nothing about checkpoints: protocol does, and this package carries out its actions.
// It knows no connector, only the contracts in package connector, and no storage beyond what
// package checkpoint offers.
//
// A Plan is built once, from typed operators. Each generation builds its subtasks from the plan:
// operators with no exchange between them share a goroutine (a chain) and call each other with
// batches; an exchange hands batches from every subtask before it to every subtask behind it.
//
// Invariants:
//
//	E1. One goroutine owns a subtask: its operators, their state and their outputs. At a barrier a sink's
//	    writer goes to another one for a while, and comes back. Nothing on the record path takes a lock.
//	E2. A subtask passes barrier n on only after everything before it on every input, and takes
//	    its snapshot between the two: after the last record before, before the first one after.
//	E3. An input that has delivered barrier n is not read until every input has; in at-least-once
//	    mode it is, and E2 holds for what comes before the barrier alone.
//	E4. Records before a signal leave an operator before the signal does. A barrier is acknowledged once
//	    what is before it is outside, and nothing behind it is written sooner.
//	E5. A blocked subtask holds back nothing: before it waits for input, it flushes its outputs.
//	E6. Commit is called in one place, and only with a permit that covers the committable.
//	E7. When Generation.run returns, every goroutine, reader and writer of it is gone.
package engine
