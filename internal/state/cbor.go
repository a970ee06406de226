package state

import (
	"encoding"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"time"

	"github.com/fxamacker/cbor/v2"

	"example.com/weir/connector"
)

// NewCBOR returns the default codec of T: CBOR (RFC 8949) with struct fields by name, so a field
// that was added is zero in older snapshots and one that was removed is ignored. Times keep their
// nanoseconds, and come back in UTC.
//
// A type of which something would not come back is refused: fields that are not exported (unless
// their tag is `cbor:"-"`, which leaves them out on purpose), interfaces, functions and channels.
func NewCBOR[T any]() (connector.Codec[T], error) {
	if err := comesBack(reflect.TypeFor[T](), map[reflect.Type]bool{}); err != nil {
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
	return cborCodec[T]{enc: enc, dec: dec}, nil
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
	enc cbor.EncMode
	dec cbor.DecMode
}

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

// comesBack reports what of a type would be lost between encoding and decoding.
func comesBack(t reflect.Type, seen map[reflect.Type]bool) error {
	if seen[t] || encodesItself(t) {
		return nil
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return comesBack(t.Elem(), seen)
	case reflect.Map:
		if err := comesBack(t.Key(), seen); err != nil {
			return err
		}
		return comesBack(t.Elem(), seen)
	case reflect.Struct:
		return fieldsComeBack(t, seen)
	case reflect.Interface, reflect.Func, reflect.Chan, reflect.Complex64, reflect.Complex128,
		reflect.UnsafePointer, reflect.Uintptr:
		return fmt.Errorf("state: a value of type %v would not come back from a snapshot: "+
			"give the state a codec of its own", t)
	}
	return nil
}

func fieldsComeBack(t reflect.Type, seen map[reflect.Type]bool) error {
	for f := range t.Fields() {
		switch {
		case f.Tag.Get("cbor") == "-" || f.Tag.Get("cbor") == "" && f.Tag.Get("json") == "-":
			continue // left out on purpose
		case !f.IsExported() && !f.Anonymous:
			return fmt.Errorf("state: field %s of %v is not exported, so it would not come back from a "+
				"snapshot: export it, leave it out by a tag `cbor:\"-\"`, or give the state a codec of its "+
				"own", f.Name, t)
		}
		if err := comesBack(f.Type, seen); err != nil {
			return fmt.Errorf("%w (in field %s of %v)", err, f.Name, t)
		}
	}
	return nil
}

// encodesItself reports whether the encoding does not look into a type.
func encodesItself(t reflect.Type) bool {
	if t == reflect.TypeFor[time.Time]() || t == reflect.TypeFor[big.Int]() {
		return true
	}
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[cbor.Marshaler]()) && p.Implements(reflect.TypeFor[cbor.Unmarshaler]()) ||
		p.Implements(reflect.TypeFor[encoding.BinaryMarshaler]()) &&
			p.Implements(reflect.TypeFor[encoding.BinaryUnmarshaler]())
}
