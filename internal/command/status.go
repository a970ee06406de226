package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

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
	c, err := s.current(ctx)
	if err != nil {
		return status.Status{}, err
	}
	if !c.Exists() {
		return status.Status{}, fmt.Errorf("%s: no job has run here", s.address)
	}
	st := status.Status{
		Job: c.Job, Lineage: c.Lineage, Generation: c.Generation, State: status.Ended, At: time.Now().UTC(),
		Settled: c.Settled, Checkpoints: status.Checkpoints{Last: c.Checkpoint},
	}
	switch {
	case !c.Settled || !c.Clean:
		st.LastFailure = "it did not end in order: the next start settles the last checkpoint and goes on from it"
	case c.Finished:
		st.Outcome = protocol.Finished.String()
	default:
		st.Outcome = protocol.Stopped.String()
	}
	return st, nil
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
	for _, line := range terminal.Waiting(&st) {
		fmt.Fprintln(w, line)
	}
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
		if s.EventTimeDone {
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
	case done && len(o.Subtasks) > 0:
		return "end"
	case lowest == nil:
		return "-"
	}
	return lowest.UTC().Format(time.RFC3339)
}
