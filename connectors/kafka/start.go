package kafka

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ParseStart reads a start as configuration has it:
//
//	earliest
//	latest
//	2026-03-02T10:00:00Z             a time (RFC 3339)
//	group:NAME:earliest              a group's offsets; or latest or fail, where it has none
//	offsets:0=120,1=0                an offset for each partition
func ParseStart(s string) (Start, error) {
	kind, rest, _ := strings.Cut(s, ":")
	switch {
	case s == "" || s == "earliest":
		return Earliest(), nil
	case s == "latest":
		return Latest(), nil
	case kind == "group":
		return parseGroup(s, rest)
	case kind == "offsets":
		return parseOffsets(s, rest)
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return Start{}, fmt.Errorf("start %q: want earliest, latest, a time like 2026-03-02T10:00:00Z, "+
			"group:NAME:earliest (or latest, or fail) or offsets:0=120,1=0", s)
	}
	return Timestamp(t), nil
}

func parseGroup(s, rest string) (Start, error) {
	i := strings.LastIndexByte(rest, ':')
	if i > 0 {
		switch rest[i+1:] {
		case "earliest":
			return FromGroup(rest[:i], OrEarliest), nil
		case "latest":
			return FromGroup(rest[:i], OrLatest), nil
		case "fail":
			return FromGroup(rest[:i], OrFail), nil
		}
	}
	return Start{}, fmt.Errorf("start %q: want group:NAME:earliest, group:NAME:latest or group:NAME:fail, which says "+
		"where to begin in a partition without a committed offset", s)
}

func parseOffsets(s, rest string) (Start, error) {
	offsets := map[int32]int64{}
	for pair := range strings.SplitSeq(rest, ",") {
		partition, offset, _ := strings.Cut(pair, "=")
		p, err := strconv.ParseInt(partition, 10, 32)
		at, err2 := strconv.ParseInt(offset, 10, 64)
		if err := errors.Join(err, err2); err != nil || p < 0 || at < 0 {
			return Start{}, fmt.Errorf("start %q: %q is not partition=offset", s, pair)
		}
		if _, twice := offsets[int32(p)]; twice {
			return Start{}, fmt.Errorf("start %q: partition %d is named twice", s, p)
		}
		offsets[int32(p)] = at
	}
	return Offsets(offsets), nil
}
