package state

import (
	"fmt"
	"slices"

	"example.com/weir/connector"
)

// Schema says what an encoding is made of: kinds, and names by field. It is written into every cut,
// and a restore holds what was written against what the job has now, before it decodes anything.
type Schema struct{ nodes []node } // nodes[0] is the whole

// node is one type. Types that contain themselves are cycles of nodes.
type node struct {
	kind  string   // int64, string, struct, …
	name  string   // of a codec or a type with an encoding of its own
	size  int      // of an array
	parts []member // fields of a struct, what a container holds

	reads func(encoding string) bool // asks the codec; not written
}

type member struct {
	name string
	node int
	omit bool // left out of the encoding where it is empty
}

// exactKind holds an encoding that must stay as it is.
const exactKind = "exact"

// ownKind is an encoding that this package cannot look into.
const ownKind = "own"

// Described is implemented by codecs that say what their encoding is made of.
type Described interface{ Schema() Schema }

// SchemaOf returns what a codec says of its encoding: its schema, or the name of its own encoding.
func SchemaOf(codec any) Schema {
	if d, ok := codec.(Described); ok {
		return d.Schema()
	}
	own := node{kind: ownKind}
	if v, ok := codec.(connector.Versioned); ok {
		own.name, own.reads = v.Encoding(), v.Reads
	}
	return Schema{nodes: []node{own}}
}

// Compose returns the schema of an encoding that holds another one.
func Compose(kind, name string, inner Schema) Schema {
	s := Schema{nodes: []node{{kind: kind, parts: []member{{name: name, node: 1}}}}}
	for _, n := range inner.nodes {
		n.parts = slices.Clone(n.parts)
		for i := range n.parts {
			n.parts[i].node++
		}
		s.nodes = append(s.nodes, n)
	}
	return s
}

// String names the outermost kind, as errors do.
func (s Schema) String() string { return s.show(0) }

func (s Schema) show(i int) string {
	if i >= len(s.nodes) {
		return "unknown"
	}
	switch n := &s.nodes[i]; n.kind {
	case ownKind:
		if n.name == "" {
			return "an encoding of its own"
		}
		return "encoded as " + n.name
	case "array":
		return fmt.Sprintf("[%d]%s", n.size, s.show(n.parts[0].node))
	case "slice":
		return "[]" + s.show(n.parts[0].node)
	case "pointer":
		return "*" + s.show(n.parts[0].node)
	case "map":
		return "map[" + s.show(n.parts[0].node) + "]" + s.show(n.parts[1].node)
	case "byte array":
		return fmt.Sprintf("[%d]byte", n.size)
	case exactKind:
		return s.show(n.parts[0].node)
	default:
		return n.kind
	}
}

// ChangedError reports a type that a checkpoint holds in another shape than the job has.
type ChangedError struct {
	State   string // name of the state; empty: the key
	Field   string // path to the field; empty: the whole
	Was, Is string
}

// Error names state, field and both types.
func (e *ChangedError) Error() string {
	what := "the key"
	if e.State != "" {
		what = fmt.Sprintf("state %q", e.State)
	}
	if e.Field != "" {
		what += ": field " + e.Field
	}
	return fmt.Sprintf("%s was %s in the checkpoint and is %s now: what is there cannot be read as that; change "+
		"it back, or give the new one a name of its own", what, e.Was, e.Is)
}

// reading compares what was written with what is to read it.
type reading struct {
	was, is Schema
	exact   bool // the encoding itself must be the same: of a key, from which its group follows
	seen    map[[2]int]bool
}

// changed returns where two schemas differ, or nil if what was written can be read.
func changed(was, is Schema, exact bool) *ChangedError {
	if len(was.nodes) == 0 || len(is.nodes) == 0 {
		return nil // written before schemas were kept
	}
	r := reading{was: was, is: is, exact: exact, seen: map[[2]int]bool{}}
	return r.compare(0, 0, "")
}

func (r *reading) compare(i, j int, path string) *ChangedError {
	if r.seen[[2]int{i, j}] {
		return nil
	}
	r.seen[[2]int{i, j}] = true
	was, is := &r.was.nodes[i], &r.is.nodes[j]
	if is.reads != nil && is.reads(was.encoding()) {
		return nil
	}
	same := was.kind == is.kind && was.name == is.name && was.size == is.size
	if !same && !widened(was.kind, is.kind) {
		return r.differ(i, j, path)
	}
	if is.kind == structKind {
		return r.fields(was, is, path)
	}
	if len(was.parts) != len(is.parts) {
		return r.differ(i, j, path)
	}
	defer func(before bool) { r.exact = before }(r.exact)
	r.exact = r.exact || is.kind == exactKind
	for n, p := range is.parts {
		if err := r.compare(was.parts[n].node, p.node, path+p.name); err != nil {
			return err
		}
	}
	return nil
}

func (r *reading) differ(i, j int, path string) *ChangedError {
	return &ChangedError{Field: path, Was: r.was.show(i), Is: r.is.show(j)}
}

// fields compares structs: a field that was added or removed is none of this function's business,
// except in a key.
func (r *reading) fields(was, is *node, path string) *ChangedError {
	if path != "" {
		path += "."
	}
	for _, p := range is.parts {
		n := slices.IndexFunc(was.parts, func(q member) bool { return q.name == p.name })
		if n < 0 {
			if r.exact {
				return &ChangedError{Field: path + p.name, Was: "not there", Is: r.is.show(p.node)}
			}
			continue
		}
		if r.exact && was.parts[n].omit != p.omit {
			return &ChangedError{Field: path + p.name, Was: omitted(was.parts[n].omit), Is: omitted(p.omit)}
		}
		if err := r.compare(was.parts[n].node, p.node, path+p.name); err != nil {
			return err
		}
	}
	if r.exact {
		for _, p := range was.parts {
			if !slices.ContainsFunc(is.parts, func(q member) bool { return q.name == p.name }) {
				return &ChangedError{Field: path + p.name, Was: r.was.show(p.node), Is: "not there"}
			}
		}
	}
	return nil
}

func omitted(yes bool) string {
	if yes {
		return "left out when empty"
	}
	return "always written"
}

// encoding is what a codec is asked about.
func (n *node) encoding() string {
	if n.kind == ownKind {
		return n.name
	}
	return "cbor"
}

// widened reports whether every value of an integer kind is one of another: both are written alike, and the
// wider one reads what the narrower one wrote. The way back is refused.
func widened(was, is string) bool {
	for _, kinds := range [][]string{
		{"int8", "int16", "int32", "int64"}, {"uint8", "uint16", "uint32", "uint64"},
	} {
		if i, j := slices.Index(kinds, was), slices.Index(kinds, is); i >= 0 && j > i {
			return true
		}
	}
	return false
}

func (s Schema) append(dst []byte) []byte {
	return AppendBytes(dst, s.encode())
}

func (s Schema) encode() []byte {
	var dst []byte
	for _, n := range s.nodes {
		dst = AppendString(dst, n.kind)
		dst = AppendString(dst, n.name)
		dst = AppendInt(dst, int64(n.size))
		dst = append(dst, byte(len(n.parts)>>8), byte(len(n.parts)))
		for _, p := range n.parts {
			dst = AppendString(dst, p.name)
			dst = AppendInt(dst, int64(p.node))
			omit := byte(0)
			if p.omit {
				omit = 1
			}
			dst = append(dst, omit)
		}
	}
	return dst
}

func decodeSchema(src []byte) (Schema, error) {
	var s Schema
	d := NewDecoder(src)
	for !d.Empty() {
		n := node{kind: d.String(), name: d.String(), size: int(d.Int())}
		for count := int(d.byte())<<8 | int(d.byte()); count > 0 && d.err == nil; count-- {
			n.parts = append(n.parts, member{name: d.String(), node: int(d.Int()), omit: d.byte() == 1})
		}
		s.nodes = append(s.nodes, n)
	}
	for _, n := range s.nodes {
		if len(n.parts) < holds(n.kind) {
			return Schema{}, ErrCorrupt
		}
		for _, p := range n.parts {
			if p.node < 0 || p.node >= len(s.nodes) {
				return Schema{}, ErrCorrupt
			}
		}
	}
	return s, d.Err()
}

// holds returns how many types a container of this kind holds.
func holds(kind string) int {
	switch kind {
	case "array", "slice", "pointer", exactKind:
		return 1
	case "map":
		return 2
	}
	return 0
}
