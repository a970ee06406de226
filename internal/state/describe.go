package state

import (
	"encoding"
	"fmt"
	"math/big"
	"reflect"
	"strings"
	"time"

	"github.com/fxamacker/cbor/v2"
)

const structKind = "struct"

// describe returns the schema of a type as the default codec encodes it. A type of which something
// would not come back is refused.
func describe(t reflect.Type) (Schema, error) {
	d := describer{at: map[reflect.Type]int{}}
	_, err := d.add(t)
	return Schema{nodes: d.nodes}, err
}

type describer struct {
	nodes []node
	at    map[reflect.Type]int
}

// add describes a type and what it is made of, and returns the place of its node.
func (d *describer) add(t reflect.Type) (int, error) {
	if i, ok := d.at[t]; ok {
		return i, nil
	}
	i := len(d.nodes)
	d.at[t], d.nodes = i, append(d.nodes, node{})
	n, err := d.node(t)
	d.nodes[i] = n
	return i, err
}

func (d *describer) node(t reflect.Type) (node, error) {
	if n, ok, err := encodesItself(t); ok {
		return n, err
	}
	switch k := t.Kind(); k {
	case reflect.Int, reflect.Uint:
		return node{kind: fmt.Sprintf("%s%d", k, t.Bits())}, nil
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			if k == reflect.Array {
				return node{kind: "byte array", size: t.Len()}, nil
			}
			return node{kind: "bytes"}, nil
		}
		n := node{kind: k.String()}
		if k == reflect.Array {
			n.size = t.Len()
		}
		return d.holding(n, "[]", t.Elem())
	case reflect.Pointer:
		return d.holding(node{kind: "pointer"}, "", t.Elem())
	case reflect.Map:
		n, err := d.holding(node{kind: "map"}, "[key]", t.Key())
		if err != nil {
			return n, err
		}
		return d.holding(n, "[]", t.Elem())
	case reflect.Struct:
		return d.fields(t)
	case reflect.Interface, reflect.Func, reflect.Chan, reflect.Complex64, reflect.Complex128,
		reflect.UnsafePointer, reflect.Uintptr:
		return node{}, fmt.Errorf("state: a value of type %v would not come back from a snapshot: "+
			"give the state a codec of its own", t)
	default:
		return node{kind: k.String()}, nil
	}
}

func (d *describer) holding(n node, name string, t reflect.Type) (node, error) {
	i, err := d.add(t)
	n.parts = append(n.parts, member{name: name, node: i})
	return n, err
}

func (d *describer) fields(t reflect.Type) (node, error) {
	n := node{kind: structKind}
	seen := map[string]string{}
	err := d.collect(t, &n, seen, map[reflect.Type]bool{})
	return n, err
}

// collect adds the fields of a struct, and those of structs that it embeds, as the encoding does.
func (d *describer) collect(t reflect.Type, n *node, seen map[string]string, within map[reflect.Type]bool) error {
	if within[t] {
		return fmt.Errorf("state: %v embeds itself, and would not come back from a snapshot", t)
	}
	within[t] = true
	defer delete(within, t)
	for f := range t.Fields() {
		name, omit, left := tagOf(f)
		if left {
			continue
		}
		if inner, ok := embedded(f, name); ok {
			if f.Type.Kind() == reflect.Pointer && !f.IsExported() {
				return notExported(f, t)
			}
			if err := d.collect(inner, n, seen, within); err != nil {
				return err
			}
			continue
		}
		if !f.IsExported() {
			return notExported(f, t)
		}
		if name == "" {
			name = f.Name
		}
		if other, twice := seen[name]; twice {
			return fmt.Errorf("state: fields %s and %s of %v are both encoded as %q, so one would not come back "+
				"from a snapshot: rename it, or leave it out by a tag `cbor:\"-\"`", other, f.Name, t, name)
		}
		seen[name] = f.Name
		i, err := d.add(f.Type)
		if err != nil {
			return fmt.Errorf("%w (in field %s of %v)", err, f.Name, t)
		}
		n.parts = append(n.parts, member{name: name, node: i, omit: omit})
	}
	return nil
}

func notExported(f reflect.StructField, t reflect.Type) error {
	return fmt.Errorf("state: field %s of %v is not exported, so it would not come back from a "+
		"snapshot: export it, leave it out by a tag `cbor:\"-\"`, or give the state a codec of its own", f.Name, t)
}

// embedded returns the struct whose fields become those of the struct around it.
func embedded(f reflect.StructField, name string) (reflect.Type, bool) {
	t := f.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t, f.Anonymous && name == "" && t.Kind() == reflect.Struct
}

// tagOf reads a field's tag: its name in the encoding if it gives one, whether the field is left out when
// empty, and whether it is left out always.
func tagOf(f reflect.StructField) (name string, omit, left bool) {
	tag := f.Tag.Get("cbor")
	if tag == "" {
		tag = f.Tag.Get("json")
	}
	if tag == "-" {
		return "", false, true
	}
	name, options, _ := strings.Cut(tag, ",")
	for o := range strings.SplitSeq(options, ",") {
		switch o {
		case "omitempty", "omitzero":
			omit = true
		case "keyasint":
			name += " (a number)"
		}
	}
	return name, omit, false
}

// encodesItself describes types that the encoding does not look into.
func encodesItself(t reflect.Type) (n node, ok bool, err error) {
	switch t {
	case reflect.TypeFor[time.Time]():
		return node{kind: "time"}, true, nil
	case reflect.TypeFor[big.Int]():
		return node{kind: "big integer"}, true, nil
	}
	if !marshals(t) {
		return node{}, false, nil
	}
	if t.Kind() == reflect.Struct && t.NumField() > 1 {
		for f := range t.Fields() {
			if f.Anonymous && (marshals(f.Type) || f.Type.Kind() == reflect.Pointer && marshals(f.Type.Elem())) {
				return node{}, true, fmt.Errorf("state: %v is encoded as the %s that it embeds, and its other fields "+
					"would not come back from a snapshot: give %s a name, or the state a codec of its own", t, f.Name, f.Name)
			}
		}
	}
	return node{kind: ownKind, name: t.String()}, true, nil
}

func marshals(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		return false // what it points to is asked
	}
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[cbor.Marshaler]()) && p.Implements(reflect.TypeFor[cbor.Unmarshaler]()) ||
		p.Implements(reflect.TypeFor[encoding.BinaryMarshaler]()) &&
			p.Implements(reflect.TypeFor[encoding.BinaryUnmarshaler]())
}
