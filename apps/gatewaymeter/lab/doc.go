// Package lab reproduces failures of exactly-once live, each in a run of its own: the billing job is killed
// where it hurts, and what its topic, its log and its consumers then show is laid out as a table, a
// verdict and a timeline.
//
// It is not a simulation, and nothing in it is told from memory: the job is the real program, the broker a
// Kafka cluster or one that speaks its protocol inside this process (package rig), and every offset, amount and
// time that is printed was read in this run.
//
//	replay ─▶ gateway-events ─▶ weir run gatewaymeter ─▶ tenant-cost ─▶ ledger, which appends
//	               │              ▲ kill, start  │ log        │
//	               ▼              │              ▼            ▼ read_committed, read_uncommitted
//	           true bill ─────▶ table, verdict, timeline ◀────┘
//
// Invariants:
//
//	V1. A lab that did not show what it is to show says so and why, and ErrNotShown is returned.
//	V2. A failure counts only where it was seen to hit: a kill that came too late is tried again.
//	V3. However a lab ends, no process of it runs on and its temporary folder is gone, unless it is to be kept.
package lab
