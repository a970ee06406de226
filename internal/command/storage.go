package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/control"
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

// byJobOrStore has the running job do something, or does it in the store where no job runs.
func (s *storage) byJobOrStore(
	ctx context.Context, ask func(*control.Client) error, do func(checkpoint.Store) error,
) error {
	dir, err := s.dir()
	if err != nil {
		return err
	}
	client, err := control.Find(dir)
	if err == nil {
		err = ask(client)
	}
	if !errors.Is(err, control.ErrNotRunning) {
		return err
	}
	return s.own(ctx, do)
}

// own does something with the store as its owner. It fails with a LockedError while a job runs.
func (s *storage) own(ctx context.Context, do func(checkpoint.Store) error) (err error) {
	c, err := s.current(ctx) // whose it is
	if err != nil {
		return err
	}
	if !c.Exists() {
		return fmt.Errorf("%s: no job has run here", s.address)
	}
	store, err := checkpoint.Open(s.address, checkpoint.Options{Job: c.Job})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return do(store)
}
