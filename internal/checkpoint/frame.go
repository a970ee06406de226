package checkpoint

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"example.com/weir/connector"
	"example.com/weir/internal/protocol"
)

// A snapshot or committable file is a header and the payload. The header, big-endian:
//
//	 0  8 bytes  magic
//	 8  4        format version
//	12  8        size of the payload in bytes
//	20 32        SHA-256 of the payload
//	52  8        xxHash64 of the 52 bytes before
//
// The header has a sum of its own so that an error can say what is damaged.
const (
	snapshotMagic    = "WEIRSNAP"
	committableMagic = "WEIRCOMM"
	frameVersion     = 1
	headerSize       = 60
)

// frameHeader returns the header for a payload, and the payload's size and digest.
func frameHeader(magic string, payload ...[]byte) (header []byte, size int64, sum digest) {
	all := sha256.New()
	for _, part := range payload {
		all.Write(part)
		size += int64(len(part))
	}
	all.Sum(sum[:0])
	h := make([]byte, 0, headerSize)
	h = append(h, magic...)
	h = binary.BigEndian.AppendUint32(h, frameVersion)
	h = binary.BigEndian.AppendUint64(h, uint64(size))
	h = append(h, sum[:]...)
	return binary.BigEndian.AppendUint64(h, xxhash.Sum64(h)), size, sum
}

// unframe returns the payload of a file, which is the one that h describes.
func unframe(magic string, data []byte, h protocol.Handle) ([]byte, error) {
	corrupt := func(format string, args ...any) ([]byte, error) {
		o, _ := parseOrigin(h.Name)
		return nil, connector.Stop(&CorruptError{
			File: h.Name, Checkpoint: o.checkpoint, What: fmt.Sprintf(format, args...),
		})
	}
	if len(data) < headerSize {
		return corrupt("it has %d bytes, less than its header", len(data))
	}
	if got := string(data[:8]); got != magic {
		return corrupt("it begins with %q, not with %q", got, magic)
	}
	// The version before the sum: a newer format may lay out the rest in another way.
	version := binary.BigEndian.Uint32(data[8:])
	if version > frameVersion {
		return nil, connector.Stop(&FormatError{
			File: h.Name, Version: int(version), Newest: frameVersion,
		})
	}
	if xxhash.Sum64(data[:headerSize-8]) != binary.BigEndian.Uint64(data[headerSize-8:headerSize]) {
		return corrupt("the checksum of its header differs")
	}
	if version == 0 {
		return corrupt("it says to have format version 0")
	}
	payload := data[headerSize:]
	if size := binary.BigEndian.Uint64(data[12:]); size != uint64(len(payload)) {
		return corrupt("its payload has %d bytes, and its header says %d", len(payload), size)
	}
	sum := digest(sha256.Sum256(payload))
	if sum != digest(data[20:52]) {
		return corrupt("the checksum of its payload differs")
	}
	if sum != h.Digest || int64(len(payload)) != h.Size {
		return corrupt("it is sound, and not the one that the manifest names")
	}
	return payload, nil
}
