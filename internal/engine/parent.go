package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"example.com/weir/connector"
	"example.com/weir/internal/checkpoint"
)

// ErrParentUnsettled reports that a fork was to replace its parent's lineage while the parent has something
// to commit.
var ErrParentUnsettled = errors.New("the job that it is forked from has not settled what its CURRENT names")

// sparesParent refuses to replace by name the lineage that the job was forked from while that one's CURRENT
// is not settled: a restore ends what an accepted lineage has open, nobody else has those records, and a
// fork begins behind them. What an older checkpoint names and is not settled, CURRENT names too.
//
// It is asked at every start, for a fork that its sinks refused has begun all the same. A parent that runs
// may go on behind this look: that it lives is what its sinks see.
func (r *run) sparesParent(ctx context.Context) (err error) {
	if len(r.cfg.AcceptLineages) == 0 {
		return nil
	}
	address := r.cfg.Restore.Fork
	if address == "" {
		_, m, err := checkpoint.Latest(ctx, r.cfg.Store)
		if err != nil || m.Restored.Storage == "" {
			return nil // nothing is forked, or the start fails with what it finds there
		}
		address = m.Restored.Storage
	}
	parent, err := checkpoint.Open(address, checkpoint.Options{ReadOnly: true})
	if errors.Is(err, fs.ErrNotExist) {
		r.cfg.Logger.Warn("the storage that the job was forked from is not there: whether an accepted lineage has something "+
			"to commit was not looked at", "storage", address, "accepted", r.cfg.AcceptLineages)
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, parent.Close()) }()
	current, m, err := checkpoint.Latest(ctx, parent)
	if current.Exists() && (current.Settled || !slices.Contains(r.cfg.AcceptLineages, current.Lineage)) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("whether %s has something to commit is not known: %w", address, err)
	}
	if len(m.Committables) == 0 {
		return nil
	}
	return connector.Stop(fmt.Errorf("%w: checkpoint %d of lineage %s in %s names %s. To replace that lineage "+
		"(--accept-lineage) ends them, and their records are lost: nobody writes them again. Let the parent settle "+
		"them first (start it and stop it, or run weir txn commit --from-checkpoint on its storage), and then start the "+
		"fork; or give the fork transactional IDs, topics or tables of its own, and accept nothing",
		ErrParentUnsettled, current.Checkpoint, current.Lineage, address, r.plan.nameAll(m.Committables)))
}

// nameAll counts committables and names them, as the outside calls them where that is known.
func (p *Plan) nameAll(all []connector.Committable) string {
	const shown = 10
	names := make([]string, 0, shown)
	for _, c := range all[:min(len(all), shown)] {
		name := fmt.Sprintf("sink %s, subtask %d, checkpoint %d", c.Sink, c.Subtask, c.Checkpoint)
		if handle := p.transactionOf(c, c.Opened).handle; handle != "" {
			name += ": " + handle
		}
		names = append(names, name)
	}
	if more := len(all) - shown; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("%d not known to be committed (%s)", len(all), strings.Join(names, "; "))
}
