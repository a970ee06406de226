package gatewaymeter

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"example.com/weir/connector"
)

// keyRoom is how many bytes of tenant and request together a key holds itself.
const keyRoom = 62

// A request is known by its tenant and its own ID. Its key is the length of the tenant in one byte, the tenant and
// the request. Where they are too long for that, the key is 0, which no tenant's length is, and their SHA-256, and
// their request keeps them (more): should two requests ever have one hash, the job stops rather than take one for
// the other.

// appendRequestKey appends the key of an event's request.
func appendRequestKey(dst []byte, e *arrival) []byte {
	if !fitsKey(e.TenantID, e.RequestID) {
		return appendHashKey(dst, e.TenantID, e.RequestID)
	}
	dst = append(dst, byte(len(e.TenantID)))
	return append(append(dst, e.TenantID...), e.RequestID...)
}

// fitsKey reports whether a key holds them itself.
func fitsKey(tenant, request string) bool { return len(tenant)+len(request) <= keyRoom }

func appendHashKey(dst []byte, tenant, request string) []byte {
	h := sha256.New()
	h.Write(binary.AppendUvarint(nil, uint64(len(tenant))))
	h.Write([]byte(tenant))
	h.Write([]byte(request))
	return h.Sum(append(dst, 0))
}

// requestKey is a key in place, so that a row that has one needs no memory beside it.
type requestKey struct {
	size byte
	text [keyRoom + 1]byte // what follows the key is of an earlier one
}

// set makes k a key.
func (k *requestKey) set(key []byte) { k.size = byte(copy(k.text[:], key)) }

// hashed reports whether the key is a hash.
func (k *requestKey) hashed() bool { return k.text[0] == 0 }

// split returns the texts that the key holds in place.
func (k *requestKey) split() (tenant, request []byte) {
	both := k.text[1:k.size]
	return both[:k.text[0]], both[k.text[0]:]
}

// String returns the key for messages.
func (k requestKey) String() string {
	if k.hashed() {
		return fmt.Sprintf("request with hash %x", k.text[1:1+sha256.Size])
	}
	tenant, request := k.split()
	return fmt.Sprintf("request %q of tenant %q", request, tenant)
}

// longKey are the texts of a key that is a hash.
type longKey struct{ tenant, request string }

// errSameHash says that two requests have one hash.
func errSameHash(k requestKey, first *longKey, tenant, request string) error {
	return connector.Stop(fmt.Errorf("%v: request %q of tenant %q and request %q of tenant %q have the same hash, "+
		"and would be taken for one; choose other IDs", k, first.request, first.tenant, request, tenant))
}

// idRoom is how many bytes an eventID holds.
const idRoom = 23

// eventID is an event's ID in place: a text of at most idRoom bytes, or a UUID as it is usually written. The
// zero value is the empty text.
type eventID struct {
	kind byte // the length of the text, or idUUID, or idLong
	text [idRoom]byte
}

const (
	idUUID = 0xfe // the first 16 bytes are the UUID's
	idLong = 0xff // the text is too long, and in more
)

// newEventID returns the ID for a text, of kind idLong if it does not fit.
func newEventID(s string) (id eventID) {
	switch {
	case len(s) <= idRoom:
		id.kind = byte(len(s))
		copy(id.text[:], s)
	case id.setUUID(s):
		id.kind = idUUID
	default:
		id = eventID{kind: idLong}
	}
	return id
}

// stored returns the bytes of the text that are used.
func (id *eventID) stored() []byte {
	switch id.kind {
	case idUUID:
		return id.text[:16]
	case idLong:
		return nil
	}
	return id.text[:id.kind]
}

// setUUID takes a UUID in lower case with dashes, which is the one form that appendText writes.
func (id *eventID) setUUID(s string) bool {
	const shape = "00000000-0000-0000-0000-000000000000"
	if len(s) != len(shape) {
		return false
	}
	digits := 0
	for i := range len(shape) {
		if shape[i] == '-' {
			if s[i] != '-' {
				return false
			}
			continue
		}
		var v byte
		switch c := s[i]; {
		case '0' <= c && c <= '9':
			v = c - '0'
		case 'a' <= c && c <= 'f':
			v = c - 'a' + 10
		default:
			return false
		}
		id.text[digits/2] = id.text[digits/2]<<4 | v
		digits++
	}
	return true
}

// appendText appends the text of an ID that is not long.
func (id *eventID) appendText(dst []byte) []byte {
	if id.kind != idUUID {
		return append(dst, id.text[:id.kind]...)
	}
	for i, b := range id.text[:16] {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		dst = append(dst, "0123456789abcdef"[b>>4], "0123456789abcdef"[b&15])
	}
	return dst
}
