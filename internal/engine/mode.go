package engine

// Mode says what a checkpoint promises of state.
type Mode uint8

// The modes.
const (
	// ExactlyOnce: a subtask waits at a barrier until it has come on every input, so that each
	// record changes state once.
	ExactlyOnce Mode = iota
	// AtLeastOnce: a subtask waits for nothing. After a restore a record can count twice in state,
	// where a subtask has several inputs.
	AtLeastOnce
)

func (m Mode) String() string {
	if m == AtLeastOnce {
		return "at-least-once"
	}
	return "exactly-once"
}

// unaligned reports whether a snapshot of a running job may hold records that lie behind its barrier.
func (p *Plan) unaligned() bool { return p.mode == AtLeastOnce && p.exchanges > 0 }
