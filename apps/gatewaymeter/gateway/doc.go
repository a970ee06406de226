// Package gateway holds the events that API gateways write to the topic gateway-events, and the
// values that GatewayMeter writes: their types, one decoder and the encoders.
//
// It is not the job: it keeps no state, prices nothing and knows no topic's name. Nothing in it
// does I/O, reads a clock or starts a goroutine.
//
// Invariants:
//
//	G1. Decode accepts exactly the values that the contract allows. Whether a value is JSON is
//	    judged as encoding/json judges the whole of it, except that a byte that is not UTF-8 is
//	    refused. A test holds Decode against a decoder built on encoding/json. Shapes give what Decode
//	    gives.
//	G2. Decode allocates nothing for a value without escape sequences in its strings and with its
//	    numbers written as plain digits. The strings of an Event are parts of the value where
//	    nothing in them is escaped: whoever hands a value to Decode never writes to it again, and
//	    whoever keeps an Event for long copies its strings (Event.Clone), or it keeps the whole
//	    value.
//	G3. What AppendEvent writes, Decode reads back as the same Event.
//	G4. Every encoder writes the fields in one fixed order, so equal values have equal bytes.
//
// # How a value is read
//
// A value is one JSON object. Names are case-sensitive, and an escaped name is the name it
// stands for. Of a name given twice the last counts, whatever the first one held; this holds
// inside usage too, and of two usages the last one counts whole. An unknown name is ignored,
// whatever JSON its value is. A name that the table of the contract does not give to the
// event's type (status and usage in RequestStarted) is unknown there.
//
//   - event_id, type, event_time, tenant_id and request_id are required strings; tenant_id and
//     request_id are not empty.
//   - provider and model are strings: required in RequestStarted, and in RequestCompleted absent
//     or null where they are not given. An empty one is allowed and names nothing, so in
//     RequestCompleted it does not win over the one of RequestStarted.
//   - status is required in RequestCompleted.
//   - usage is an object, or absent or null where none is reported. An empty object reports
//     usage: nothing used.
//   - A number of tokens is judged by its value: 1.0, 10e2 and -0 are the integers 1, 1000 and 0,
//     however they are written. 2^53 is the largest one.
//   - event_time follows the grammar of RFC 3339: exactly "2006-01-02T15:04:05", a fraction of
//     one to nine digits or none, and Z or an offset from -23:59 to +23:59 (-00:00 is UTC). As
//     the grammar says, t and z may be lower case. A comma, a space for T, the hour 24, a day
//     that its month does not have and second 60 are refused: microseconds since 1970 have no
//     place for a leap second. So is a time that lies outside the years 0000 to 9999 in UTC.
//     Digits after the microsecond are cut off, which rounds down before 1970 as well.
//   - An escape for half of a surrogate pair (\ud800) is read as U+FFFD, as encoding/json does.
//   - Nesting deeper than 10,000 is not read as JSON, as encoding/json does.
//
// Where a value has several faults, the reason is the first one found in JSON's syntax or
// encoding; else the first of type, event_id, event_time, tenant_id, request_id, provider,
// model, status and usage.
package gateway
