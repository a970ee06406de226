package state

import (
	"fmt"

	"github.com/fxamacker/cbor/v2"

	"example.com/weir/connector"
)

// NewCBOR returns the default codec of T: CBOR (RFC 8949) with struct fields by name, so a field
// that was added is zero in older snapshots and one that was removed is ignored.
func NewCBOR[T any]() (connector.Codec[T], error) {
	enc, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	return cborCodec[T]{enc: enc}, nil
}

type cborCodec[T any] struct{ enc cbor.EncMode }

func (c cborCodec[T]) Append(dst []byte, v *T) ([]byte, error) {
	b, err := c.enc.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("state: %T: %w", *v, err)
	}
	return append(dst, b...), nil
}

func (cborCodec[T]) Decode(src []byte, v *T) error {
	var fresh T
	if err := cbor.Unmarshal(src, &fresh); err != nil {
		return fmt.Errorf("state: %T: %w", fresh, err)
	}
	*v = fresh
	return nil
}
