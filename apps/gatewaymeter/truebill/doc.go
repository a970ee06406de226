// Package truebill computes what GatewayMeter must have billed, from the records of
// gateway-events and the price book, so that a bill can be proved and not only repeated.
//
// It is not the job, and it shares nothing with it: it imports the standard library alone, and
// reads events, prices and amounts by code of its own, in the plainest way there is
// (encoding/json, math/big). It is slow, and keeps every request in memory.
//
// Invariants:
//
//	T1. No package of this module is imported. A test parses the files and says so.
//	T2. No float: prices are fractions made from the book's own digits.
//	T3. The same records in the same order make the same bill.
//
// # Two ways to compute
//
// Which event arrived first and what was too late depend on how partitions were interleaved,
// which the records do not tell. So there are two ways:
//
// Compute takes records of any number of partitions, and takes every one as in time: it holds
// the watermark until the end of input. What it says is what any interleaving must come to, if
//
//   - no request comes later than the allowed lateness, and nothing is sent again after its
//     request was forgotten;
//   - the halves of a request that lack a provider and model in Completed, or whose prices
//     differ between the times of Started and Completed, come within the completion timeout
//     (a Completed alone is billed or given up once it has passed);
//   - of two events that conflict, both lie in one partition, in which they keep their order.
//
// Abandoned then counts the Started events that nothing ever completed. A job counts one more
// for each request whose Completed came only after the timeout.
//
// Simulate takes records in the order in which they were read and applies every rule at the
// place where it applies: after each record the watermark is the smallest of the partitions'
// highest event times less the out-of-orderness. For one partition, the order of the offsets is
// the order in which they were read, and what Simulate says is the bill. (A job that moves its
// watermark once a batch sees a record that is late by less than a batch as in time.)
//
// # Where the contract leaves a choice
//
//   - A value is judged as the package gateway documents it, in every choice.
//   - A record is taken before the watermark that it moves. A time is passed once the watermark
//     has reached it. Times are cut to the microsecond.
//   - An event whose event_id equals that of any earlier event of its request and type is
//     repeated, also where that earlier one was a conflict.
//   - A request that was billed alone, or unmatched, is over: a Started that comes then changes
//     nothing. It is counted as Overdue.
//   - The timeout of a Completed that came alone emits it at the watermark before the one that
//     fired the timeout, as a timer before its window.
//   - An unpriced request that is late counts as both.
//   - A kind is used where its tokens are more than 0. Cached reads and writes together above the
//     input are "more cached than input", whether or not they have prices of their own.
//   - A compact date is rewritten only where it ends the name and is a day of the years 2000 to 2099. The
//     provider's name is trimmed for provider_match too; the model's never is.
package truebill
