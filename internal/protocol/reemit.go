package protocol

import (
	"bytes"
	"fmt"
	"slices"

	"example.com/weir/connector"
)

// replacement puts a committable whose records were lost outside and have been written again in the
// other one's place. The restore waits for it:
//
//	rewriting (the manifest) ─▶ swapping ─▶ (replaced)
//
// Until CURRENT names it, what was written again is nobody's: a crash leaves it to the next restore,
// which ends it like anything else that no CURRENT names.
type replacement struct {
	committable connector.Committable
	named       []connector.Committable // by CURRENT once it has been swapped
}

// reemitted asks for the manifest in which the committable is named (P10).
func (c *Coordinator) reemitted(e Reemitted) {
	x := e.Committable
	if c.phase != restoring {
		c.broken("%s was written again outside a restore", x.ID())
		return
	}
	if c.replacement != nil {
		c.broken("%s was written again before CURRENT names %s", x.ID(), c.replacement.committable.ID())
		return
	}
	i := slices.IndexFunc(c.named, func(n connector.Committable) bool { return n.ID() == x.ID() })
	switch {
	case i < 0:
		c.broken("%s was written again, and CURRENT (%s) does not name it as unsettled", x.ID(), c.current)
	case c.named[i].Digest != x.Digest: // P8
		c.changed(c.named[i], x)
	case bytes.Equal(c.named[i].Payload, x.Payload):
		c.broken("%s was written again, and is what it was", x.ID())
	default:
		named := slices.Clone(c.named)
		named[i] = x
		c.replacement = &replacement{committable: x, named: named}
		c.emit(RewriteManifest{Current: c.current, Committables: named})
	}
}

// rewritten asks for the swap to the same checkpoint, as another manifest describes it.
func (c *Coordinator) rewritten(e ManifestWritten) {
	if e.Checkpoint != c.current.Checkpoint || c.swap != nil {
		c.broken("manifest of checkpoint %d was written, which was not asked for", e.Checkpoint)
		return
	}
	next := c.current
	next.Settled, next.Clean = false, false
	next.Manifest, next.ManifestDigest = e.Manifest, e.Digest
	c.askSwap(c.current, next)
}

func (c *Coordinator) rewriteFailed(e ManifestFailed) {
	c.fail(fmt.Errorf("checkpoint %d with %s written again: manifest: %w",
		c.current.Checkpoint, c.replacement.committable.ID(), e.Err))
}

// replaced follows the swap: what was written again may be committed, under a permit of its own (P2).
func (c *Coordinator) replaced() {
	r := c.replacement
	c.replacement, c.named = nil, r.named
	c.emit(Replaced{Permit: c.newPermit(c.named), Committable: r.committable})
}
