package state

import "encoding/binary"

// inline is how many bytes of a key's encoding lie in its entry.
const inline = 28

// keyRef is the encoding of a key as an entry holds it, without a pointer: the bytes themselves or,
// where they are more than inline, where they lie in the keys of the group (offset, room; four bytes
// each).
type keyRef struct {
	size  uint32
	bytes [inline]byte
}

func (r *keyRef) long() bool     { return r.size > inline }
func (r *keyRef) offset() uint32 { return binary.LittleEndian.Uint32(r.bytes[:]) }
func (r *keyRef) room() uint32   { return binary.LittleEndian.Uint32(r.bytes[4:]) }

// keys are the encodings of a group's keys that are too long for their entries. What a removed key
// has left is used again by the next one in its entry, if that is no longer; else it is waste.
type keys struct {
	bytes []byte
	waste int
}

// of returns the encoding of a key; it is good until the next set or pack.
func (s *keys) of(r *keyRef) []byte {
	if !r.long() {
		return r.bytes[:r.size]
	}
	at := r.offset()
	return s.bytes[at : at+r.size]
}

// set makes r the reference of a key.
func (s *keys) set(r *keyRef, encoded []byte) {
	was := *r
	*r = keyRef{size: uint32(len(encoded))}
	if !r.long() {
		if was.long() {
			s.waste += int(was.room())
		}
		copy(r.bytes[:], encoded)
		return
	}
	at, room := was.offset(), was.room()
	if !was.long() || room < r.size {
		if was.long() {
			s.waste += int(room)
		}
		at, room = uint32(len(s.bytes)), r.size
		s.bytes = append(s.bytes, encoded...)
	} else {
		copy(s.bytes[at:], encoded)
	}
	binary.LittleEndian.PutUint32(r.bytes[:], at)
	binary.LittleEndian.PutUint32(r.bytes[4:], room)
}

// wasteful reports whether packing is worth its while.
func (s *keys) wasteful() bool { return s.waste > 4096 && s.waste > len(s.bytes)/2 }
