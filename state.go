package weir

import (
	"example.com/weir/connector"
	"example.com/weir/internal/engine"
)

// Value is one value for each key. Its methods work on the key that the context stands at.
//
//	Get() *V            // for reading and writing, or nil; good until the call of the processor returns
//	Peek() *V           // for reading only, or nil
//	Put() (*V, error)   // for writing; zero if there was none
//	Clear()
type Value[V any] = engine.Value[V]

// MapState is a map for each key.
//
//	Get(k MK) (V, bool)
//	Put(k MK, v V) error
//	Delete(k MK)
//	Len() int
//	Entries() map[MK]V   // for reading; what a value points to is not to be changed
type MapState[MK comparable, V any] = engine.Map[MK, V]

// NewValue declares a value state under a name that is unique in the operator. A nil codec
// encodes it as CBOR by field name.
func NewValue[V any, K comparable](
	o *OpenContext[K], name string, codec connector.Codec[V],
) (Value[V], error) {
	return engine.NewValue[V](o, name, codec)
}

// NewMapState declares a map state under a name that is unique in the operator.
func NewMapState[MK comparable, V any, K comparable](
	o *OpenContext[K], name string,
) (MapState[MK, V], error) {
	return engine.NewMap[MK, V](o, name)
}
