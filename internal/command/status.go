package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/control"
	"example.com/weir/internal/protocol"
	"example.com/weir/internal/status"
	"example.com/weir/internal/terminal"
)

// patience is how long a running job may take to answer what it can answer at once.
const patience = 10 * time.Second

func statusCommand(address string) *cobra.Command {
	var s storage
	var format string
	c := &cobra.Command{
		Use: "status", Short: "Say how a job does, or how it ended",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if format != "text" && format != "json" {
				return usage(fmt.Errorf("--format %q: want text or json", format))
			}
			ctx, cancel := interruptible(c.Context(), patience)
			defer cancel()
			st, err := s.status(ctx)
			if err != nil {
				return failed(err)
			}
			if format == "json" {
				e := json.NewEncoder(c.OutOrStdout())
				e.SetIndent("", "  ")
				return failed(e.Encode(st))
			}
			return failed(printStatus(c.OutOrStdout(), st))
		},
	}
	s.flag(c, address)
	c.Flags().StringVar(&format, "format", "text", "text or json")
	return c
}

// status asks the running job, or reads what the last one left.
func (s *storage) status(ctx context.Context) (status.Status, error) {
	dir, err := s.dir()
	if err != nil {
		return status.Status{}, err
	}
	client, err := control.Find(dir)
	if err == nil {
		var st status.Status
		if st, err = client.Status(ctx); err == nil {
			return st, nil
		}
	}
	if !errors.Is(err, control.ErrNotRunning) && !errors.Is(err, control.ErrGone) {
		return status.Status{}, err
	}
	return s.left(ctx)
}

// left is what CURRENT says of a job that does not run.
func (s *storage) left(ctx context.Context) (status.Status, error) {
	var c protocol.Current
	var m checkpoint.Manifest
	if err := s.look(ctx, func(store checkpoint.Store) (err error) {
		c, m, err = checkpoint.Latest(ctx, store)
		return err
	}); err != nil {
		return status.Status{}, err
	}
	st := status.Status{
		Job: c.Job, Lineage: c.Lineage, Generation: c.Generation, State: status.Ended, At: time.Now().UTC(),
		Settled: c.Settled, Checkpoints: status.Checkpoints{Last: c.Checkpoint},
	}
	if !c.Settled {
		st.Transactions = toCommit(m, st.At)
	}
	switch {
	case !inOrder(c):
		st.LastFailure = disorder(c)
	case c.Finished:
		st.Outcome = protocol.Finished.String()
	default:
		st.Outcome = protocol.Stopped.String()
	}
	return st, nil
}

// inOrder reports whether the last run ended as it was to. Each start claims CURRENT, and Clean goes with that; one
// that finds the job finished ends with nothing begun, and CURRENT says so as before.
func inOrder(c protocol.Current) bool { return c.Settled && (c.Clean || c.Finished) }

// disorder says what became of a job whose last run did not end in order, and what its next start does.
func disorder(c protocol.Current) string {
	if !c.Settled {
		return fmt.Sprintf("it did not end in order: the next start settles checkpoint %d and goes on from it", c.Checkpoint)
	}
	return fmt.Sprintf("it did not end in order (it was killed, or its last start was refused): nothing is left to commit, "+
		"and the next start goes on from checkpoint %d", c.Checkpoint)
}

// toCommit lists what a checkpoint names.
func toCommit(m checkpoint.Manifest, now time.Time) []status.Transaction {
	var all []status.Transaction
	for _, c := range m.Committables {
		opened := c.Opened
		if opened.IsZero() { // a release wrote it that did not note when
			opened = m.Created
		}
		all = append(all, status.Transaction{
			ID: c.ID().String(), Sink: c.Sink, Subtask: c.Subtask, Checkpoint: c.Checkpoint, Age: max(now.Sub(opened), 0), Kept: c.Kept.Size,
		})
	}
	return all
}

func printStatus(w io.Writer, st status.Status) error {
	state := string(st.State)
	if st.Outcome != "" {
		state = st.Outcome
	}
	fmt.Fprintf(w, "job %s: %s, lineage %s, generation %d, checkpoint %d", st.Job, state, st.Lineage, st.Generation,
		st.Checkpoints.Last)
	if st.Settled {
		fmt.Fprint(w, ", settled")
	}
	fmt.Fprintln(w)
	if st.Restarts > 0 {
		fmt.Fprintf(w, "restarts: %d\n", st.Restarts)
	}
	if st.LastFailure != "" {
		fmt.Fprintf(w, "last failure: %s\n", st.LastFailure)
	}
	if st.State != status.Ended { // of a job that does not run, CURRENT says no more than the number
		fmt.Fprintln(w, terminal.Checkpoints(&st))
	}
	for _, line := range terminal.Waiting(&st) {
		fmt.Fprintln(w, line)
	}
	printOpen(w, &st)
	if len(st.Operators) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "\nOPERATOR\tKIND\tSUBTASKS\tIN\tOUT\tWATERMARK")
	for _, o := range st.Operators {
		in, out := totals(o)
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%s\n", o.UID, o.Kind, len(o.Subtasks), in, out, watermark(o))
	}
	return t.Flush()
}

// printOpen says what is open outside. Of a job that does not run it is known only that it was to be committed.
func printOpen(w io.Writer, st *status.Status) {
	switch {
	case len(st.Transactions) == 0:
	case st.State == status.Ended:
		oldest := slices.MaxFunc(st.Transactions, func(a, b status.Transaction) int { return cmp.Compare(a.Age, b.Age) })
		fmt.Fprintf(w, "transactions to be committed, and not known to be: %d, the oldest (%s) begun %s ago; the command txn list shows them\n",
			len(st.Transactions), oldest.ID, brief(oldest.Age))
	default:
		for _, line := range terminal.Transactions(st) {
			fmt.Fprintln(w, line)
		}
	}
}

func totals(o status.Operator) (in, out int64) {
	for i := range o.Subtasks {
		in += o.Subtasks[i].RecordsIn
		out += o.Subtasks[i].RecordsOut
	}
	return in, out
}

// watermark is the lowest of an operator's subtasks.
func watermark(o status.Operator) string {
	var lowest *time.Time
	done := true
	for i := range o.Subtasks {
		s := &o.Subtasks[i]
		if s.EventTimeDone || o.Kind == "source" && len(s.Splits) == 0 { // what reads nothing holds nothing back
			continue
		}
		done = false
		if s.Watermark == nil {
			return "-"
		}
		if lowest == nil || s.Watermark.Before(*lowest) {
			lowest = s.Watermark
		}
	}
	switch {
	case done && slices.ContainsFunc(o.Subtasks, func(s status.Subtask) bool { return s.EventTimeDone }):
		return "end"
	case lowest == nil:
		return "-"
	}
	return lowest.UTC().Format(time.RFC3339)
}
