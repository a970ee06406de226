package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/control"
)

func savepointCommand(address string) *cobra.Command {
	var s storage
	var drop bool
	c := &cobra.Command{
		Use: "savepoint NAME", Short: "Keep a checkpoint under a name, until it is deleted",
		Long: "Has a running job take a checkpoint and keeps it under a name, which retention does not let go. Where no\n" +
			"job runs, the last checkpoint is kept. A run goes back to it with --restore NAME. Names have letters from\n" +
			"a to z, digits, dots, underscores and hyphens, and are no numbers.",
		Args: exactly("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, cancel := interruptible(c.Context(), 0)
			defer cancel()
			name := args[0]
			if err := checkpoint.CheckSavepointName(name); err != nil {
				return usage(err)
			}
			if drop {
				if err := s.deleteSavepoint(ctx, name); err != nil {
					return failed(err)
				}
				fmt.Fprintf(c.OutOrStdout(), "savepoint %s is deleted\n", name)
				return nil
			}
			taken, err := s.savepoint(ctx, name)
			if err != nil {
				return failed(err)
			}
			fmt.Fprintf(c.OutOrStdout(), "savepoint %s: checkpoint %d of lineage %s\n", name, taken.Checkpoint, taken.Lineage)
			return nil
		},
	}
	s.flag(c, address)
	c.Flags().BoolVar(&drop, "delete", false, "delete it")
	return c
}

// savepoint has the running job take one, or keeps the last checkpoint of one that does not run.
func (s *storage) savepoint(ctx context.Context, name string) (p control.Savepoint, err error) {
	err = s.byJobOrStore(ctx, func(c *control.Client) error {
		p, err = c.Savepoint(ctx, name)
		return err
	}, func(store checkpoint.Store) error {
		current, err := store.Current(ctx)
		if err != nil {
			return err
		}
		if current.Manifest == "" {
			return errors.New("the job has no checkpoint yet")
		}
		kept, err := store.PutSavepoint(ctx, name, checkpoint.Ref{Name: current.Manifest, Digest: current.ManifestDigest})
		p = told(kept)
		return err
	})
	return p, err
}

func (s *storage) deleteSavepoint(ctx context.Context, name string) error {
	return s.byJobOrStore(ctx, func(c *control.Client) error {
		return c.DeleteSavepoint(ctx, name)
	}, func(store checkpoint.Store) error {
		return store.DeleteSavepoint(ctx, name)
	})
}
