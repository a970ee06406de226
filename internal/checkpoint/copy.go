package checkpoint

import (
	"context"
	"fmt"

	"example.com/weir/internal/protocol"
)

// CopySnapshots copies the snapshots that a manifest names into another store, for the lineage and
// generation that the manifest says, and returns where they lie there. Each file keeps the number of the
// checkpoint that it was written for.
func CopySnapshots(ctx context.Context, from, to Store, m Manifest) ([]protocol.SubtaskSnapshot, error) {
	copies := make([]protocol.SubtaskSnapshot, 0, len(m.Snapshots))
	for _, s := range m.Snapshots {
		c := protocol.SubtaskSnapshot{Subtask: s.Subtask}
		for _, h := range s.Handles {
			payload, err := from.GetSnapshot(ctx, h)
			if err != nil {
				return nil, err
			}
			o, ok := parseOrigin(h.Name)
			if !ok {
				return nil, fmt.Errorf("%s is not the name of a snapshot", h.Name)
			}
			put, err := to.PutSnapshot(ctx, SnapshotName{
				Lineage: m.Lineage, Generation: m.Generation, Checkpoint: o.checkpoint, Subtask: s.Subtask,
			}, payload)
			if err != nil {
				return nil, err
			}
			c.Handles = append(c.Handles, put)
		}
		copies = append(copies, c)
	}
	return copies, nil
}
