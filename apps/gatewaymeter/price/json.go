package price

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The book is read as raw JSON, level by level: encoding/json into structs would ignore the case of
// names, and numbers must keep their digits.

// kindOf says what a JSON value is, for a switch and for people.
func kindOf(raw json.RawMessage) string {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 'n':
		return "null"
	case 't', 'f':
		return "true or false"
	default:
		return "a number"
	}
}

// isNull reports whether a value is null or not there, which is the same.
func isNull(raw json.RawMessage) bool {
	kind := kindOf(raw)
	return kind == "null" || kind == "nothing"
}

func asObject(raw json.RawMessage) (map[string]json.RawMessage, error) {
	return as[map[string]json.RawMessage](raw, "an object")
}

func asArray(raw json.RawMessage) ([]json.RawMessage, error) {
	return as[[]json.RawMessage](raw, "an array")
}

func asString(raw json.RawMessage) (string, error) {
	return as[string](raw, "a string")
}

func as[T any](raw json.RawMessage, want string) (T, error) {
	var v T
	if kind := kindOf(raw); kind != want {
		return v, fmt.Errorf("want %s, have %s", want, kind)
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return v, err
	}
	return v, nil
}

// keys lists the keys of an object in order.
func keys(fields map[string]json.RawMessage) string {
	if len(fields) == 0 {
		return "nothing"
	}
	return strings.Join(slices.Sorted(maps.Keys(fields)), ", ")
}
