package state

import (
	"fmt"
	"math"
	"reflect"

	"github.com/fxamacker/cbor/v2"

	"example.com/weir/connector"
)

// NewCBOR returns the default codec of T: CBOR (RFC 8949) with struct fields by name, so a field
// that was added is zero in older snapshots and one that was removed is ignored. An integer may become
// a wider one of its kind. Any other change is refused by name at the restore. Times keep their
// nanoseconds, and come back in UTC.
//
// A type of which something would not come back is refused: fields that are not exported (unless
// their tag is `cbor:"-"`, which leaves them out on purpose) or share a name with another, interfaces,
// functions and channels.
func NewCBOR[T any]() (connector.Codec[T], error) {
	schema, err := describe(reflect.TypeFor[T]())
	if err != nil {
		return nil, err
	}
	options := cbor.CoreDetEncOptions()
	options.Time = cbor.TimeRFC3339NanoUTC
	enc, err := options.EncMode()
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	dec, err := decoding()
	if err != nil {
		return nil, err
	}
	return cborCodec[T]{enc: enc, dec: dec, schema: schema}, nil
}

// decoding reads everything that the encoding writes: its limits are for input that cannot be
// trusted, and would refuse a state that is large, or a string that is not UTF-8.
func decoding() (cbor.DecMode, error) {
	mode, err := cbor.DecOptions{
		MaxArrayElements: math.MaxInt32, MaxMapPairs: math.MaxInt32, MaxNestedLevels: math.MaxUint16,
		UTF8: cbor.UTF8DecodeInvalid, FieldNameMatching: cbor.FieldNameMatchingCaseSensitive,
	}.DecMode()
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	return mode, nil
}

type cborCodec[T any] struct {
	enc    cbor.EncMode
	dec    cbor.DecMode
	schema Schema
}

// Schema implements Described.
func (c cborCodec[T]) Schema() Schema { return c.schema }

func (c cborCodec[T]) Append(dst []byte, v *T) ([]byte, error) {
	b, err := c.enc.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("state: %T: %w", *v, err)
	}
	return append(dst, b...), nil
}

func (c cborCodec[T]) Decode(src []byte, v *T) error {
	var fresh T
	if err := c.dec.Unmarshal(src, &fresh); err != nil {
		return fmt.Errorf("state: %T: %w", fresh, err)
	}
	*v = fresh
	return nil
}
