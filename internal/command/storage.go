package command

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/protocol"
)

// storage is where a job's checkpoints are, as a flag says.
type storage struct{ address string }

// flag declares --storage.
func (s *storage) flag(c *cobra.Command, address string) {
	c.Flags().StringVar(&s.address, "storage", address, "address of the job's checkpoint storage, file:///path")
}

// dir is the directory that the address names.
func (s *storage) dir() (string, error) {
	if s.address == "" {
		return "", usage(errors.New("--storage: say where the job's checkpoints are, file:///path"))
	}
	dir, err := checkpoint.Dir(s.address)
	return dir, usage(err)
}

// current reads CURRENT, of whatever job it is.
func (s *storage) current(ctx context.Context) (c protocol.Current, err error) {
	store, err := checkpoint.Open(s.address, checkpoint.Options{ReadOnly: true})
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return store.Current(ctx)
}
