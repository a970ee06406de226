package gateway

import (
	"slices"
	"unsafe"
)

// Shapes are known ways in which values look. A gateway writes the same names in the same order into every
// event, so most of a value is the same as in the one before: what is the same is compared, and only what
// differs is read. Shapes do not change, and nil is none.
type Shapes struct {
	all  []shape
	root node
}

// maxShapes is how many shapes are known; then learning begins anew.
const maxShapes = 32

// Decode sets e from a value that looks in a known way, to what the function Decode sets it to. Any other value, and
// any that Decode would refuse, is left to that: Decode reports false, and e means nothing.
func (s *Shapes) Decode(value []byte, e *Event) bool { return s != nil && s.root.match(value, e) }

// Learn returns the shapes and that of a value that the function Decode has read e from. It returns s itself if
// nothing can be learnt from the value: it has a name twice, say, or an escape sequence in a string.
func (s *Shapes) Learn(value []byte, e *Event) *Shapes {
	learnt, ok := shapeOf(value, e)
	if !ok {
		return s
	}
	next := &Shapes{}
	if s != nil && len(s.all) < maxShapes {
		next.all = slices.Clone(s.all)
	}
	next.all = append(next.all, learnt)
	for _, sh := range next.all {
		next.root.add(sh)
	}
	return next
}

// shape is how a value looks: what is the same in every value of the shape, in parts, and the fields whose
// values stand between them. After the last part nothing follows.
type shape struct {
	parts  []string
	fields []int
	kind   Kind
	given  Given
}

// shapeOf returns the shape of a value that Decode has read e from. There is none for a value that has a name
// twice, or a string or number that does not stand in the plainest way.
func shapeOf(value []byte, e *Event) (shape, bool) {
	l := learner{decoder: decoder{scanner: scanner{buf: value}, event: &Event{}}}
	l.next()
	if !l.object(eventField) {
		return shape{}, false
	}
	l.shape.parts = append(l.shape.parts, string(value[l.from:]))
	l.shape.kind, l.shape.given = e.Kind, e.Usage.Given
	strange := e.Kind == Started && (l.seen[fieldStatus] || l.seen[fieldUsage]) // not the type's own
	return l.shape, !strange
}

// learner walks through a value that is known to be right.
type learner struct {
	decoder
	shape shape
	from  int // where the part begins that is being collected
	seen  [fieldCount]bool
}

// object learns from an object whose names mean what fieldOf says.
func (l *learner) object(fieldOf func(name []byte, escaped bool) int) bool {
	more, ok := l.open('}')
	for more && ok {
		name, escaped, good := l.str()
		if !good || !l.take(':') {
			return false
		}
		field := fieldOf(name, escaped)
		if field != fieldOther {
			if l.seen[field] {
				return false
			}
			l.seen[field] = true
		}
		if !l.value(field) {
			return false
		}
		more, ok = l.more('}')
	}
	return ok
}

// value learns from the value of a field.
func (l *learner) value(field int) bool {
	switch c := l.next(); {
	case field == fieldUsage && c == '{':
		return l.object(usageField)
	case field >= fieldInput && c != 'n':
		from := l.at
		_, ok := l.plainTokens()
		l.hole(field, from, l.at)
		return ok
	case field == fieldType || c != '"':
		return l.skip()
	}
	raw, escaped, ok := l.str()
	if !ok || escaped || plain(raw, 0) < len(raw) {
		return ok && field == fieldOther
	}
	l.hole(field, l.at-1-len(raw), l.at-1)
	return true
}

// hole ends a part where the value of a field begins; the next one begins where that ends.
func (l *learner) hole(field, from, to int) {
	l.shape.parts = append(l.shape.parts, string(l.buf[l.from:from]))
	l.shape.fields = append(l.shape.fields, field)
	l.from = to
}

// node is a part of one or more shapes that begin alike. A tree of nodes does not change.
type node struct {
	part  string
	field int // whose value follows, or fieldEnd
	next  []*node
	kind  Kind  // where nothing follows
	given Given // where nothing follows
}

// fieldEnd stands for the end of the value.
const fieldEnd = -2

// add adds a shape below n.
func (n *node) add(s shape) {
	for i, part := range s.parts {
		field := fieldEnd
		if i < len(s.fields) {
			field = s.fields[i]
		}
		n = n.child(part, field)
	}
	n.kind, n.given = s.kind, s.given
}

func (n *node) child(part string, field int) *node {
	for _, c := range n.next {
		if c.part == part && c.field == field {
			return c
		}
	}
	c := &node{part: part, field: field}
	n.next = append(n.next, c)
	// One part may be the beginning of another, which then stands for more: it is looked for first.
	slices.SortStableFunc(n.next, func(a, b *node) int { return len(b.part) - len(a.part) })
	return c
}

// follow returns the node below n whose part rest begins with, or nil.
func (n *node) follow(rest []byte) *node {
	for _, c := range n.next {
		if len(c.part) <= len(rest) && string(rest[:len(c.part)]) == c.part &&
			(c.field != fieldEnd || len(c.part) == len(rest)) {
			return c
		}
	}
	return nil
}

// match sets e from a value of a known shape. Where it reports false, e means nothing.
func (n *node) match(value []byte, e *Event) bool {
	*e = Event{}
	for at := 0; ; {
		if n = n.follow(value[at:]); n == nil {
			return false
		}
		at += len(n.part)
		switch {
		case n.field == fieldEnd:
			e.Kind, e.Usage.Given = n.kind, n.given
			return e.TenantID != "" && e.RequestID != ""
		case n.field >= fieldInput:
			tokens, end := digitsAt(value, at)
			if end == at {
				return false
			}
			at = end
			*e.Usage.tokens(n.field) = tokens
		default:
			end := plain(value, at)
			if end == len(value) || value[end] != '"' {
				return false
			}
			if !n.set(e, unsafe.String(unsafe.SliceData(value[at:]), end-at)) {
				return false
			}
			at = end
		}
	}
}

// set keeps the string that a field was given.
func (n *node) set(e *Event, s string) (ok bool) {
	switch n.field {
	case fieldEventID:
		e.EventID = s
	case fieldTenantID:
		e.TenantID = s
	case fieldRequestID:
		e.RequestID = s
	case fieldProvider:
		e.Provider = s
	case fieldModel:
		e.Model = s
	case fieldEventTime:
		var fault Reason
		e.Time, fault = parseTime(s)
		return fault == present
	case fieldStatus:
		e.Status, ok = parseStatus(s)
		return ok
	}
	return true
}
