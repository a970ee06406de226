// Package demo shows on one machine what GatewayMeter promises: it lets the job bill a replay, kills
// it again and again at the worst moments, and holds what a billing consumer read against the true
// bill.
//
// It is not a test double of anything: what package rig gives it is the real program and a broker. Nor does
// it take the job's word: the bill comes from the topic, the true
// bill from the events by package truebill, and what was open at a kill from the broker.
//
//	producer ─▶ gateway-events ─▶ weir run gatewaymeter ─▶ tenant-cost ─▶ billing ─▶ ledger
//	                  │             ▲ kill, start   │ log                               │
//	                  │          schedule ◀──── journal                                 ▼
//	                  └─────────────────────────────────────▶ true bill ──────────▶ verdict
//
// Invariants:
//
//	D1. The demonstration fails unless every minute of the true bill was read once, as it should be.
//	D2. It fails where a planned kill did not happen, or not where it was planned, and where one hit
//	    a job that had nothing to lose.
//	D3. A job that ends by itself fails it.
//	D4. However it ends, the job's process has ended and its temporary folder is gone, unless it is
//	    to be kept.
package demo
