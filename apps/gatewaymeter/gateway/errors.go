package gateway

import "fmt"

// Reason says which rule of the contract a value breaks.
type Reason uint8

// The reasons for which a value goes to the dead-letter output. The first three are no faults by
// themselves: with them the decoder notes the state of a field whose verdict is still open.
const (
	absent  Reason = iota // the name was not given
	present               // the name was given with a value that can be used
	null                  // the name was given with null

	// NotJSON: the value is not one JSON text.
	NotJSON
	// InvalidUTF8: a byte of the value is not UTF-8.
	InvalidUTF8
	// NotObject: the value is JSON, but not an object.
	NotObject
	// MissingField: a required name was not given.
	MissingField
	// WrongField: the value of a name has the wrong JSON type.
	WrongField
	// EmptyField: a string that must not be empty is.
	EmptyField
	// UnknownType: type is neither RequestStarted nor RequestCompleted.
	UnknownType
	// UnknownStatus: status is none of ok, cancelled and failed.
	UnknownStatus
	// BadTime: event_time is not an RFC 3339 time of the years 0000 to 9999.
	BadTime
	// NoZone: event_time has neither Z nor an offset.
	NoZone
	// TooPrecise: event_time has more than nine digits of a second.
	TooPrecise
	// Negative: a number of tokens is below zero.
	Negative
	// Fractional: a number of tokens is not an integer.
	Fractional
	// TooLarge: a number of tokens is above 2^53.
	TooLarge
)

// String returns the reason in words.
func (r Reason) String() string {
	switch r {
	case NotJSON:
		return "not JSON"
	case InvalidUTF8:
		return "invalid UTF-8"
	case NotObject:
		return "not an object"
	case MissingField:
		return "missing"
	case WrongField:
		return "of the wrong JSON type"
	case EmptyField:
		return "empty"
	case UnknownType:
		return "neither RequestStarted nor RequestCompleted"
	case UnknownStatus:
		return "none of ok, cancelled and failed"
	case BadTime:
		return "not an RFC 3339 time of the years 0000 to 9999"
	case NoZone:
		return "without a zone"
	case TooPrecise:
		return "with more than 9 digits of a second"
	case Negative:
		return "negative"
	case Fractional:
		return "fractional"
	case TooLarge:
		return "above 2^53"
	case absent, present, null:
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// DecodeError says why Decode refused a value. Its text is the reason that the dead-letter
// output shows.
type DecodeError struct {
	Reason Reason
	// Field is the name at fault, "usage.input_tokens" for one inside usage. It is empty
	// where the value as a whole is at fault.
	Field string
	// Offset is the byte of the value where JSON's syntax or encoding breaks off, else 0.
	Offset int
	// Detail is what is wrong there, in words, else empty.
	Detail string
}

// Error returns the reason in words.
func (e *DecodeError) Error() string {
	switch {
	case e.Field != "":
		return "field " + e.Field + " is " + e.Reason.String()
	case e.Reason == NotObject:
		return e.Reason.String()
	case e.Detail != "":
		return fmt.Sprintf("%s: %s at byte %d", e.Reason, e.Detail, e.Offset)
	}
	return fmt.Sprintf("%s at byte %d", e.Reason, e.Offset)
}
