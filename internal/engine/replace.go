package engine

import (
	"context"
	"errors"
	"fmt"

	"example.com/weir/connector"
	"example.com/weir/internal/fault"
	"example.com/weir/internal/protocol"
)

// errNotReplaced reports a generation that ended before CURRENT was known to name what was written again.
var errNotReplaced = errors.New("the generation ended before CURRENT was known to name it")

// replace is RestoreContext.Replace: it waits until CURRENT names c in place of the committable with the
// same identity. Only the end of the generation cuts that short: a swap is never called back, so whoever
// gave up on it would not know what CURRENT names.
func (g *generation) replace(uid string, c connector.Committable) error {
	if c.Sink != uid {
		return connector.Stop(fmt.Errorf("sink %s has written %s again, which is not its own", uid, c.ID()))
	}
	if g.state.manifest.Lineage == "" {
		return connector.Stop(fmt.Errorf("the records of %s are to be written again, and the manifest that CURRENT "+
			"names cannot be read: nothing can take its place there", c.ID()))
	}
	c.Opened = g.now().UTC()
	g.post(protocol.Reemitted{Committable: c})
	select {
	case r := <-g.replaced:
		// The one place that lets what was written again be committed.
		if !r.Permit.Covers(c.ID()) || r.Committable.ID() != c.ID() {
			return connector.Stop(fmt.Errorf("%s does not cover %s, which was written again", r.Permit, c.ID()))
		}
	case <-g.ctx.Done():
		return fmt.Errorf("%s was written again: %w", c.ID(), errNotReplaced)
	}
	g.state.manifest = g.rewritten
	g.logger.Warn("a lost transaction was written again: CURRENT names the new one in its place",
		"operator", c.Sink, "subtask", c.Subtask, "checkpoint", c.Checkpoint)
	return nil
}

// rewriteManifest writes another manifest of the checkpoint that is restored. It follows the same parent
// as the one whose place it takes, so a history of checkpoints has each of them once.
func (g *generation) rewriteManifest(a protocol.RewriteManifest) protocol.Event {
	m := g.state.manifest
	if m.Generation != a.Current.Generation {
		m.Generation, m.Replacement = a.Current.Generation, 0
	}
	m.Replacement++
	m.Created, m.Committables = g.now(), a.Committables
	ref, err := g.store.PutManifest(context.WithoutCancel(g.ctx), m)
	if err != nil {
		return protocol.ManifestFailed{Checkpoint: m.Checkpoint, Err: err}
	}
	g.cfg.Reached(fault.ReemitManifest)
	g.rewritten = m
	return protocol.ManifestWritten{Checkpoint: m.Checkpoint, Manifest: ref.Name, Digest: ref.Digest}
}
