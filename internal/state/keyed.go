package state

import (
	"fmt"

	"example.com/weir/connector"
)

// Keyed is the whole keyed state of one operator subtask: its named states and its timers, over
// the key groups [First, End).
type Keyed[K comparable] struct {
	First, End int
	Codec      KeyCodec[K]
	Timers     *Timers[K]

	states []namedState
	// parked are states of the restored snapshot that the operator has not declared yet.
	parked map[string][][]byte
}

// namedState is one declared state, whatever its value type.
type namedState struct {
	name    string
	append  func(dst []byte, group int) ([]byte, error)
	restore func(d *Decoder, group int) error
}

// NewKeyed returns empty state over the key groups [first, end).
func NewKeyed[K comparable](first, end int, codec KeyCodec[K]) *Keyed[K] {
	return &Keyed[K]{
		First: first, End: end, Codec: codec, Timers: NewTimers(codec), parked: map[string][][]byte{},
	}
}

// Declare adds a state under a name that is unique in the operator, and gives it what the
// restored snapshot holds under that name.
func Declare[K comparable, V any](
	k *Keyed[K], name string, codec connector.Codec[V],
) (*Table[K, V], error) {
	for _, s := range k.states {
		if s.name == name {
			return nil, fmt.Errorf("state %q is declared twice", name)
		}
	}
	table := NewTable[K, V](k.First, k.End, k.Codec)
	s := namedState{
		name: name,
		append: func(dst []byte, group int) ([]byte, error) {
			return table.AppendGroup(dst, group, k.Codec, codec)
		},
		restore: func(d *Decoder, group int) error {
			return table.RestoreGroup(d, group, k.Codec, codec)
		},
	}
	k.states = append(k.states, s)
	for i, encoded := range k.parked[name] {
		if encoded == nil {
			continue
		}
		if err := s.restore(NewDecoder(encoded), k.First+i); err != nil {
			return nil, fmt.Errorf("state %q, key group %d: %w", name, k.First+i, err)
		}
	}
	delete(k.parked, name)
	return table, nil
}

// RestoreGroup takes what AppendGroups wrote for a group. States that the operator declares
// later find their content then; Undeclared tells what nobody asked for.
func (k *Keyed[K]) RestoreGroup(group int, encoded []byte) error {
	d := NewDecoder(encoded)
	if err := k.Timers.RestoreGroup(d, group, k.Codec); err != nil {
		return fmt.Errorf("timers of key group %d: %w", group, err)
	}
	for !d.Empty() {
		name, content := d.String(), d.Sized()
		if d.Err() != nil {
			break
		}
		if k.parked[name] == nil {
			k.parked[name] = make([][]byte, k.End-k.First)
		}
		k.parked[name][group-k.First] = content
	}
	return d.Err()
}

// Undeclared returns the name of a restored state that the operator has not declared, or "".
// To go on without it would be to lose it in silence.
func (k *Keyed[K]) Undeclared() string {
	least := ""
	for name := range k.parked {
		if least == "" || name < least {
			least = name
		}
	}
	return least
}

// AppendGroups calls write with the encoding of each group that holds anything: timers first,
// then the states in the order of their declaration. The slice is good until write returns.
func (k *Keyed[K]) AppendGroups(write func(group int, encoded []byte) error) error {
	timers := k.Timers.ByGroup(k.First, k.End)
	var buf []byte
	for g := k.First; g < k.End; g++ {
		buf = AppendTimers(buf[:0], timers[g-k.First], k.Codec)
		for _, s := range k.states {
			buf = AppendString(buf, s.name)
			var err error
			buf, err = AppendSized(buf, func(b []byte) ([]byte, error) { return s.append(b, g) })
			if err != nil {
				return fmt.Errorf("state %q, key group %d: %w", s.name, g, err)
			}
		}
		if err := write(g, buf); err != nil {
			return err
		}
	}
	return nil
}
