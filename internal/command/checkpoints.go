package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"example.com/weir/internal/checkpoint"
)

func checkpointsCommand(address string) *cobra.Command {
	return Group("checkpoints", "Look at what a job can go on from",
		reading(address, "list", "List checkpoints and savepoints, newest first", cobra.NoArgs, listCheckpoints),
		reading(address, "show NAME|N", "Show what is in a checkpoint or savepoint", exactly("NAME|N"), showCheckpoint),
		reading(address, "verify [NAME|N]", "Read every file and hold it against its digest", atMost("NAME|N"), verifyCheckpoints),
		gcCommand(address),
	)
}

// reading is a command that looks at a store, of a job that runs or does not.
func reading(
	address, use, short string, args cobra.PositionalArgs,
	look func(ctx context.Context, s checkpoint.Store, w io.Writer, args []string) error,
) *cobra.Command {
	var s storage
	c := &cobra.Command{
		Use: use, Short: short, Args: args,
		RunE: func(c *cobra.Command, args []string) error {
			ctx, cancel := interruptible(c.Context(), 0)
			defer cancel()
			return failed(s.look(ctx, func(store checkpoint.Store) error {
				return look(ctx, store, c.OutOrStdout(), args)
			}))
		},
	}
	s.flag(c, address)
	return c
}

// look opens the store to be read.
func (s *storage) look(ctx context.Context, f func(checkpoint.Store) error) (err error) {
	if _, err := s.dir(); err != nil {
		return err
	}
	store, err := checkpoint.Open(s.address, checkpoint.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	c, err := store.Current(ctx)
	if err == nil && !c.Exists() {
		err = fmt.Errorf("%s: no job has run here", s.address)
	}
	if err != nil {
		return err
	}
	return f(store)
}

func listCheckpoints(ctx context.Context, s checkpoint.Store, w io.Writer, _ []string) error {
	all, err := checkpoint.List(ctx, s)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "CHECKPOINT\tLINEAGE\tTAKEN\tSIZE\tIS\tSAVEPOINTS")
	for _, e := range all {
		if e.Err != nil {
			fmt.Fprintf(t, "%s\t\t\t\t%s\t%s\n", e.Name(), wordsOf(e), strings.Join(e.Savepoints, ", "))
			continue
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\n", e.Manifest.Checkpoint, e.Manifest.Lineage,
			e.Manifest.Created.UTC().Format(time.RFC3339), size(e.Size), wordsOf(e), strings.Join(e.Savepoints, ", "))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, e := range all { // behind the table: a reason is long
		if e.Err != nil {
			fmt.Fprintf(w, "\n%s: %v\n", e.Name(), e.Err)
		}
	}
	return nil
}

// wordsOf says what a checkpoint is, in words.
func wordsOf(e checkpoint.Entry) string {
	var is []string
	for _, w := range []struct {
		so   bool
		word string
	}{
		{e.Current, "current"},
		{e.Err != nil, "damaged"},
		{e.Err == nil && e.Settled, "settled"},
		{e.Err == nil && !e.Settled, "not settled"},
		{e.Manifest.Finished, "finished"},
	} {
		if w.so {
			is = append(is, w.word)
		}
	}
	return strings.Join(is, ", ")
}

// size writes a number of bytes.
func size(n int64) string {
	const unit = 1 << 10
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, prefix := float64(n)/unit, 0
	for ; f >= unit && prefix < 4; prefix++ {
		f /= unit
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGTP"[prefix])
}

func showCheckpoint(ctx context.Context, s checkpoint.Store, w io.Writer, args []string) error {
	e, err := checkpoint.Find(ctx, s, args[0])
	if err != nil {
		return err
	}
	m := e.Manifest
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintf(t, "checkpoint\t%d of lineage %s, generation %d\n", m.Checkpoint, m.Lineage, m.Generation)
	fmt.Fprintf(t, "job\t%s\n", m.Job)
	fmt.Fprintf(t, "taken\t%s\n", m.Created.UTC().Format(time.RFC3339Nano))
	fmt.Fprintf(t, "is\t%s\n", wordsOf(e))
	if len(e.Savepoints) > 0 {
		fmt.Fprintf(t, "savepoints\t%s\n", strings.Join(e.Savepoints, ", "))
	}
	fmt.Fprintf(t, "manifest\t%s\n", e.Ref.Name)
	fmt.Fprintf(t, "size\t%s\n", size(e.Size))
	fmt.Fprintf(t, "keys\t%d key groups by %s\n", m.MaxParallelism, m.KeyHash)
	word := "to commit"
	if e.Settled {
		word = "committed"
	}
	fmt.Fprintf(t, "%s\t%d\n", word, len(m.Committables))
	for _, c := range m.Committables {
		fmt.Fprintf(t, "\t%s\n", c.ID())
	}
	fmt.Fprintln(t, "\nOPERATOR\tKIND\tSUBTASKS\tSTATE")
	sizes := stateSizes(m)
	for _, o := range m.Operators {
		state := "-"
		if o.Stateful {
			state = size(sizes[o.UID])
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\n", o.UID, o.Kind, o.Parallelism, state)
	}
	return t.Flush()
}

// stateSizes are the bytes of snapshots, by the head of the chain that wrote them.
func stateSizes(m checkpoint.Manifest) map[string]int64 {
	sizes := map[string]int64{}
	for _, s := range m.Snapshots {
		for _, h := range s.Handles {
			sizes[s.Subtask.Operator] += h.Size
		}
	}
	return sizes
}

func verifyCheckpoints(ctx context.Context, s checkpoint.Store, w io.Writer, args []string) error {
	entries, err := checkpoint.List(ctx, s)
	if err == nil && len(args) == 1 {
		var e checkpoint.Entry
		e, err = checkpoint.Find(ctx, s, args[0])
		entries = []checkpoint.Entry{e}
	}
	if err != nil {
		return err
	}
	v, err := checkpoint.Verify(ctx, s, entries)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%d checkpoints, %d files, %s read\n", v.Checkpoints, v.Files, size(v.Bytes))
	if len(v.Corrupt) > 0 {
		return errors.Join(v.Corrupt...)
	}
	fmt.Fprintln(w, "every file is what was written")
	return nil
}

func gcCommand(address string) *cobra.Command {
	var s storage
	var remove bool
	c := &cobra.Command{
		Use: "gc", Short: "Show, and with --delete delete, files that no checkpoint and no savepoint refers to",
		Long: "Shows which files neither a checkpoint from CURRENT back nor a savepoint refers to: what killed processes\n" +
			"and other lineages have left. With --delete they are deleted; no job may be running then. A running job\n" +
			"lets its own old checkpoints go by itself.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := interruptible(c.Context(), 0)
			defer cancel()
			if _, err := s.dir(); err != nil {
				return err
			}
			return failed(s.collect(ctx, c.OutOrStdout(), remove))
		},
	}
	s.flag(c, address)
	c.Flags().BoolVar(&remove, "delete", false, "delete them")
	return c
}

func (s *storage) collect(ctx context.Context, w io.Writer, remove bool) error {
	in, do, done := s.look, checkpoint.FindGarbage, "nothing refers to"
	if remove {
		in, do, done = s.own, checkpoint.DeleteGarbage, "deleted"
	}
	return in(ctx, func(store checkpoint.Store) error {
		g, err := do(ctx, store)
		for _, f := range g.Files {
			fmt.Fprintln(w, f)
		}
		fmt.Fprintf(w, "%s %d files, %s\n", done, len(g.Files), size(g.Bytes))
		return err
	})
}
