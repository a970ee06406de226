package kafka

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// Position is where a source goes on in one partition: what the positions of its splits encode.
type Position struct {
	// TopicID is the topic's own: one that was deleted and made again under its name has another.
	TopicID [16]byte
	// Partitions is how many partitions the topic had when this one was found.
	Partitions int32
	// Next is the offset to go on at. What lies before it has been read, or holds no record.
	Next int64
	// LeaderEpoch is the leader epoch of what was read last, -1 if unknown. It tells a log that was
	// truncated below Next and grew again from the one that was read.
	LeaderEpoch int32
	// End is the offset at which a bounded read ends: records at it or beyond it are not read. -1 is
	// a read without end.
	End int64
}

const (
	positionVersion = 1
	positionSize    = 1 + 16 + 4 + 8 + 4 + 8
)

// AppendTo appends the encoding of p to dst and returns the extended slice.
func (p Position) AppendTo(dst []byte) []byte {
	dst = append(dst, positionVersion)
	dst = append(dst, p.TopicID[:]...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(p.Partitions))
	dst = binary.BigEndian.AppendUint64(dst, uint64(p.Next))
	dst = binary.BigEndian.AppendUint32(dst, uint32(p.LeaderEpoch))
	return binary.BigEndian.AppendUint64(dst, uint64(p.End))
}

// ParsePosition reads the position of a split. It refuses one that a later release wrote.
func ParsePosition(src []byte) (Position, error) {
	if len(src) == 0 {
		return Position{}, fmt.Errorf("position: empty")
	}
	if src[0] != positionVersion {
		return Position{}, fmt.Errorf("position: version %d; this release reads %d", src[0], positionVersion)
	}
	if len(src) != positionSize {
		return Position{}, fmt.Errorf("position: %d bytes, want %d", len(src), positionSize)
	}
	p := Position{
		TopicID:     [16]byte(src[1:17]),
		Partitions:  int32(binary.BigEndian.Uint32(src[17:])),
		Next:        int64(binary.BigEndian.Uint64(src[21:])),
		LeaderEpoch: int32(binary.BigEndian.Uint32(src[29:])),
		End:         int64(binary.BigEndian.Uint64(src[33:])),
	}
	if p.Partitions < 1 || p.Next < 0 || p.LeaderEpoch < -1 || p.End < -1 {
		return Position{}, fmt.Errorf("position: impossible: %v", p)
	}
	return p, nil
}

// Ended reports whether a bounded read has nothing more to read.
func (p Position) Ended() bool { return p.End >= 0 && p.Next >= p.End }

// String shows the position as errors and logs do.
func (p Position) String() string {
	s := fmt.Sprintf("offset %d (leader epoch %d, topic ID %s, %d partitions)",
		p.Next, p.LeaderEpoch, hex.EncodeToString(p.TopicID[:]), p.Partitions)
	if p.End >= 0 {
		s += fmt.Sprintf(" to %d", p.End)
	}
	return s
}
