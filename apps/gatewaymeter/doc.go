// Package gatewaymeter is the usage-billing job: events of an API gateway become a bill per tenant
// and minute.
//
// Its contract (what goes in, what comes out, the billing rules) is docs/GATEWAYMETER.md; the rule
// numbers in comments are that document's. The package says which operators make the rules true;
// how events are read and written is package gateway's, what a request costs package price's, and
// the exactly-once package weir's.
//
//	gateway-events ─▶ events ─▶ assemble ─▶ tenant-cost ─▶ sink-tenant-cost
//	                    │          │  by (tenant,   │  by tenant, minute
//	                    │          │   request)     ├─▶ error-rate alerts
//	                    │          │                └─▶ late
//	                    │          ├─▶ conflicts, abandoned, unmatched
//	                    │          └─▶ unpriced ─▶ alert-unpriced ─▶ unpriced alerts
//	                    └─▶ dead letters                by (model, minute)
//
// Invariants:
//
//	M1. No amount is rounded or a float, and an amount that cannot be computed is unpriced.
//	M2. A request is in the bill at most once, however often its events are sent again, for as
//	    long as its minute can still change.
//	M3. Whatever is not billed goes to a side output, and is counted if no topic is named for it.
package gatewaymeter
