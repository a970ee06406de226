package kafka

import (
	"time"

	"example.com/weir/connector"
)

// Header is a record header.
type Header = connector.Header

// Record is a record of a topic. A decoder is given one, which the source reads into again for the
// next record; an encoder fills one.
//
// In a source, the bytes of Key, Value and the headers' values lie in the memory of one fetch, which
// is not used again: a decoder may keep them or parts of them, and what it keeps holds that whole
// fetch (a few megabytes at most) in memory. The slice Headers itself is used again, as is the Record.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64 // in a sink: ignored
	// Timestamp is the record's own time, in milliseconds since 1970-01-01T00:00:00Z and always in UTC.
	Timestamp time.Time
	Key       []byte // nil is no key, which is not an empty one
	Value     []byte // nil is a tombstone in a compacted topic, which is not an empty value
	Headers   []Header
}
