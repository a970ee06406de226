package state

// chunkBytes is how much a log collects in one piece.
const chunkBytes = 64 << 10

// chunks is the memory of a log: what was handed over comes back and is used again, so that a job whose
// checkpoints are alike allocates nothing for them.
type chunks struct {
	spare [][]byte
	back  chan [][]byte // given back, and not taken in yet
}

func newChunks() *chunks { return &chunks{back: make(chan [][]byte, 2)} }

// take returns an empty chunk.
func (c *chunks) take() []byte {
	if len(c.spare) == 0 {
		c.takeIn()
	}
	if n := len(c.spare); n > 0 {
		b := c.spare[n-1]
		c.spare = c.spare[:n-1]
		return b
	}
	return make([]byte, 0, chunkBytes)
}

// takeIn makes what was given back spare.
func (c *chunks) takeIn() {
	for {
		select {
		case given := <-c.back:
			c.spare = append(c.spare, given...)
		default:
			return
		}
	}
}

// giveBack takes chunks that nobody reads any more. Any goroutine may call it.
func (c *chunks) giveBack(given [][]byte) {
	same := given[:0]
	for _, b := range given {
		if cap(b) == chunkBytes { // not one that a large record has made larger
			same = append(same, b[:0])
		}
	}
	select {
	case c.back <- same:
	default: // they are given back faster than they are used
	}
}

// keep lets go of spare chunks but for so many: a burst is over.
func (c *chunks) keep(most int) {
	c.takeIn()
	if len(c.spare) > most {
		clear(c.spare[most:])
		c.spare = c.spare[:most]
	}
}
