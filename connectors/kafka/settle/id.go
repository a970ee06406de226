package settle

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// lineageDigits is the length of a lineage in hexadecimal digits.
const lineageDigits = 16

// ID is a transactional ID of a sink: one slot of one subtask in one lineage.
type ID struct {
	Prefix  string // what the user named; never empty, otherwise free
	Lineage string // 16 lower-case hexadecimal digits
	Subtask int
	Slot    int
}

// String formats the ID as prefix-lineage-subtask-slot.
func (id ID) String() string {
	return id.Prefix + "-" + id.Lineage + "-" + strconv.Itoa(id.Subtask) + "-" + strconv.Itoa(id.Slot)
}

// Check reports why the ID cannot be used.
func (id ID) Check() error {
	back, ok := ParseID(id.String())
	if !ok || back != id {
		return fmt.Errorf("transactional ID %q: want a prefix, a lineage of %d lower-case hexadecimal digits, "+
			"and a subtask and a slot that are not negative", id.String(), lineageDigits)
	}
	return nil
}

// ParseID reads a transactional ID from the right, where every field has one spelling: whatever
// is left over is the prefix, dashes and all. It reports false for an ID of another make.
func ParseID(s string) (ID, bool) {
	rest, slot, ok := cutNumber(s)
	if !ok {
		return ID{}, false
	}
	rest, subtask, ok := cutNumber(rest)
	if !ok {
		return ID{}, false
	}
	at := len(rest) - lineageDigits - 1
	if at <= 0 || rest[at] != '-' || !isLineage(rest[at+1:]) {
		return ID{}, false
	}
	return ID{Prefix: rest[:at], Lineage: rest[at+1:], Subtask: subtask, Slot: slot}, true
}

// Pattern returns an expression (RE2) that matches every ID with the prefix. It only narrows
// what a broker returns; ParseID decides.
func Pattern(prefix string) string {
	return "^" + regexp.QuoteMeta(prefix) + "-[0-9a-f]{16}-[0-9]+-[0-9]+$"
}

// cutNumber cuts "-123" off the right end of s. Only the one canonical spelling of a number is
// read, so that no two IDs parse alike.
func cutNumber(s string) (rest string, n int, ok bool) {
	at := strings.LastIndexByte(s, '-')
	if at < 0 {
		return "", 0, false
	}
	n, err := strconv.Atoi(s[at+1:])
	if err != nil || n < 0 || strconv.Itoa(n) != s[at+1:] {
		return "", 0, false
	}
	return s[:at], n, true
}

func isLineage(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return len(s) == lineageDigits
}
