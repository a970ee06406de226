package engine

import (
	"context"
	"fmt"

	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/protocol"
)

// savepoints are requests that wait for a checkpoint.
type savepoints []savepointRequest

// fail answers those that have no answer yet with an error.
func (s savepoints) fail(err error) {
	for _, r := range s {
		r.reply(checkpoint.Savepoint{}, fmt.Errorf("savepoint %s: %w", r.name, err))
	}
}

// keep makes savepoints of the checkpoint that has just come to exist. It is asked for before Collect
// is, so what it keeps is still there.
func (g *generation) keep(c protocol.Current) {
	if len(g.taking) == 0 {
		return
	}
	taken := g.taking
	g.taking = nil
	g.work <- func() {
		for _, r := range taken {
			p, err := g.store.PutSavepoint(context.WithoutCancel(g.ctx), r.name,
				checkpoint.Ref{Name: c.Manifest, Digest: c.ManifestDigest})
			if err == nil {
				g.logger.Info("savepoint taken", "savepoint", r.name, "checkpoint", c.Checkpoint)
			}
			r.reply(p, err)
		}
	}
}
