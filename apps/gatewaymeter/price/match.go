package price

import (
	"regexp"
	"strings"
)

// clause is a condition on a normalized name.
type clause struct {
	op    operator
	text  string         // equals, starts_with, ends_with, contains: normalized
	regex *regexp.Regexp // regex
	parts []clause       // or, and: at least one
}

type operator uint8

const (
	opEquals operator = iota
	opStartsWith
	opEndsWith
	opContains
	opRegex
	opOr
	opAnd
)

func (c *clause) holds(name string) bool {
	switch c.op {
	case opEquals:
		return name == c.text
	case opStartsWith:
		return strings.HasPrefix(name, c.text)
	case opEndsWith:
		return strings.HasSuffix(name, c.text)
	case opContains:
		return strings.Contains(name, c.text)
	case opRegex:
		return c.regex.MatchString(name)
	case opOr:
		for i := range c.parts {
			if c.parts[i].holds(name) {
				return true
			}
		}
		return false
	case opAnd:
		for i := range c.parts {
			if !c.parts[i].holds(name) {
				return false
			}
		}
		return true
	default:
		panic("price: clause with an unknown operator")
	}
}
