package state

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"

	"github.com/fxamacker/cbor/v2"

	"example.com/weir/internal/keygroup"
)

// KeyAppender is implemented by key types that bring their own canonical encoding: equal keys
// have equal encodings and different ones different encodings, in every release.
type KeyAppender interface {
	AppendKey(dst []byte) []byte
}

// KeyDecoder is the other half of KeyAppender, on the pointer type. DecodeKey keeps nothing of
// src.
type KeyDecoder interface {
	DecodeKey(src []byte) error
}

// KeyCodec is the canonical encoding of keys of type K.
type KeyCodec[K comparable] struct {
	Append func(dst []byte, k *K) []byte
	Decode func(src []byte) (K, error)
	// Hash returns the hash of a key's encoding; the key's group follows from it.
	Hash func(encoded []byte) uint64
	// Schema is what the encoding is made of. A restore refuses another one.
	Schema Schema
	// Own says that the encoding is the user's own, and not taken on trust.
	Own bool
	// decodeTo is Decode into memory that is there, of an encoding of the user's own.
	decodeTo func(src []byte, k *K) error
}

// Key returns the key v.
func (c *KeyCodec[K]) Key(v K, maxParallelism int) Key[K] {
	encoded := c.Append(nil, &v)
	hash := c.Hash(encoded)
	var k Key[K]
	k.Set(c, hash, keygroup.Of(hash, maxParallelism), encoded, v)
	return k
}

// restored returns a key that a checkpoint holds. One that would be encoded in another way today would
// never be found again.
func (c *KeyCodec[K]) restored(group int, encoded []byte) (Key[K], error) {
	v, err := c.Decode(encoded)
	if err != nil {
		return Key[K]{}, fmt.Errorf("key %x: %w", encoded, err)
	}
	if !bytes.Equal(c.Append(nil, &v), encoded) {
		return Key[K]{}, fmt.Errorf("key %v is encoded in another way than in the checkpoint: %w", v, ErrCorrupt)
	}
	var k Key[K]
	k.Set(c, c.Hash(encoded), group, encoded, v)
	k.sound = true
	return k, nil
}

// owned returns a copy of v that shares no memory with it.
func (c *KeyCodec[K]) owned(v K) (own K, err error) {
	if own, err = c.Decode(c.Append(nil, &v)); err != nil {
		return own, fmt.Errorf("state: key %v does not survive its own encoding: %w", v, err)
	}
	if own != v {
		return own, fmt.Errorf("state: key %v comes back from its own encoding as %v", v, own)
	}
	return own, nil
}

// KeyEncoding is implemented by key types that name their own encoding, with a version: "request/1". A
// checkpoint with another name is refused.
type KeyEncoding interface{ KeyEncoding() string }

// NewKeyCodec returns the codec of K: K's own if *K is a KeyAppender and a KeyDecoder, plain
// bytes for strings, eight bytes for integers, and deterministic CBOR (RFC 8949 §4.2) for structs
// and arrays of these. Types whose equality is not that of their encoding (floats, pointers,
// interfaces) are refused.
func NewKeyCodec[K comparable]() (KeyCodec[K], error) {
	var zero K
	_, appends := any(&zero).(KeyAppender)
	_, decodes := any(&zero).(KeyDecoder)
	switch t := reflect.TypeFor[K](); {
	case appends && decodes:
		return ownKeyCodec[K](), nil
	case t == reflect.TypeFor[string]():
		return stringKeyCodec[K](), nil
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		return integerKeyCodec[K](t)
	default:
		if err := canonical(t); err != nil {
			return KeyCodec[K]{}, err
		}
		return cborKeyCodec[K]()
	}
}

func ownKeyCodec[K comparable]() KeyCodec[K] {
	own := node{kind: ownKind}
	var zero K
	if named, ok := any(&zero).(KeyEncoding); ok {
		own.name = named.KeyEncoding()
	}
	return KeyCodec[K]{
		Schema: Schema{nodes: []node{own}},
		Own:    true,
		Hash:   keygroup.Hash,
		Append: func(dst []byte, k *K) []byte { return any(k).(KeyAppender).AppendKey(dst) },
		Decode: func(src []byte) (K, error) {
			var k K
			err := any(&k).(KeyDecoder).DecodeKey(src)
			return k, err
		},
		decodeTo: func(src []byte, k *K) error { return any(k).(KeyDecoder).DecodeKey(src) },
	}
}

// BytesKeyCodec is the codec of keys that are nothing but bytes. They may be what AppendKey of a key type without
// a name of its own once appended: a checkpoint does not tell them apart.
func BytesKeyCodec() KeyCodec[string] {
	c := stringKeyCodec[string]()
	c.Schema = Schema{nodes: []node{{kind: ownKind}}}
	return c
}

func stringKeyCodec[K comparable]() KeyCodec[K] {
	return KeyCodec[K]{
		Schema: Schema{nodes: []node{{kind: "string"}}},
		Hash:   keygroup.Hash,
		Append: func(dst []byte, k *K) []byte { return append(dst, *any(k).(*string)...) },
		Decode: func(src []byte) (K, error) {
			var k K
			*any(&k).(*string) = string(src)
			return k, nil
		},
	}
}

func integerKeyCodec[K comparable](t reflect.Type) (KeyCodec[K], error) {
	signed := t.Kind() <= reflect.Int64
	schema, err := describe(t)
	if err != nil {
		return KeyCodec[K]{}, err
	}
	return KeyCodec[K]{
		Schema: schema,
		Hash:   keygroup.Hash,
		Append: func(dst []byte, k *K) []byte {
			v := reflect.ValueOf(k).Elem()
			if signed {
				return binary.BigEndian.AppendUint64(dst, uint64(v.Int()))
			}
			return binary.BigEndian.AppendUint64(dst, v.Uint())
		},
		Decode: func(src []byte) (k K, err error) {
			if len(src) != 8 {
				return k, ErrCorrupt
			}
			v := reflect.ValueOf(&k).Elem()
			if signed {
				v.SetInt(int64(binary.BigEndian.Uint64(src)))
				if v.Int() != int64(binary.BigEndian.Uint64(src)) {
					return k, ErrCorrupt
				}
			} else {
				v.SetUint(binary.BigEndian.Uint64(src))
				if v.Uint() != binary.BigEndian.Uint64(src) {
					return k, ErrCorrupt
				}
			}
			return k, nil
		},
	}, nil
}

func cborKeyCodec[K comparable]() (KeyCodec[K], error) {
	mode, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		return KeyCodec[K]{}, err
	}
	dec, err := decoding()
	if err != nil {
		return KeyCodec[K]{}, err
	}
	schema, err := describe(reflect.TypeFor[K]())
	if err != nil {
		return KeyCodec[K]{}, err
	}
	return KeyCodec[K]{
		Schema: schema,
		Hash:   keygroup.Hash,
		Append: func(dst []byte, k *K) []byte {
			b, err := mode.Marshal(k)
			if err != nil { // canonical has refused every type that Marshal could fail on
				panic(fmt.Sprintf("state: key of type %T: %v", *k, err))
			}
			return append(dst, b...)
		},
		Decode: func(src []byte) (k K, err error) { return k, dec.Unmarshal(src, &k) },
	}, nil
}

// canonical reports why keys of type t have no canonical encoding.
func canonical(t reflect.Type) error {
	switch k := t.Kind(); {
	case k == reflect.String, k == reflect.Bool, k >= reflect.Int && k <= reflect.Uint64:
		return nil
	case k == reflect.Array:
		return canonical(t.Elem())
	case k == reflect.Struct:
		for f := range t.Fields() {
			if !f.IsExported() {
				return fmt.Errorf("key type %v: field %s is not exported, so it would not be "+
					"part of the key's encoding: export it or implement AppendKey and DecodeKey", t, f.Name)
			}
			if err := canonical(f.Type); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("key type %v has no canonical encoding: use strings, integers, booleans, "+
		"arrays and structs of them, or implement AppendKey and DecodeKey", t)
}
