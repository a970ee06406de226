package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"example.com/weir/connector"
	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/protocol"
	"example.com/weir/internal/terminal"
)

// fromCurrent is the checkpoint that --from-checkpoint stands for without a name.
const fromCurrent = "CURRENT"

func commitTransactionsCommand(of OutsideOf) *cobra.Command {
	var from string
	c := txn(of, &cobra.Command{
		Use: "commit --from-checkpoint [NAME]", Args: atMost("NAME"),
		Short: "Commit what CURRENT's checkpoint names, as the next start would",
		Long: "Commits the transactions that CURRENT's checkpoint names and that are not known to be settled, one after\n" +
			"the other within each subtask, and waits until the log of every partition shows each. What is lost, or\n" +
			"cannot be told, is reported and left to the next start. With the name or number of an earlier checkpoint,\n" +
			"it goes no further than that one. No job may be running.",
	}, func(ctx context.Context, d *desk, w io.Writer, args []string) error {
		switch {
		case from == "" && len(args) == 1:
			return d.refuseCommit(ctx, args[0])
		case from == "":
			return usage(errors.New("say what names the transactions: --from-checkpoint, with or without a name"))
		case len(args) == 1 && from != fromCurrent:
			return usage(fmt.Errorf("two checkpoints: %s and %s", from, args[0]))
		case len(args) == 1:
			from = args[0]
		}
		return d.alone(ctx, func(store checkpoint.Store) error {
			return d.commit(ctx, store, from, w)
		})
	})
	c.Flags().StringVar(&from, "from-checkpoint", "", "commit what this checkpoint names: CURRENT's, or an earlier one by name or number")
	c.Flags().Lookup("from-checkpoint").NoOptDefVal = fromCurrent
	return c
}

// refuseCommit says why a transaction is not committed by its name.
func (d *desk) refuseCommit(ctx context.Context, id string) error {
	if err := d.look(ctx); err != nil {
		return err
	}
	s, _, err := d.sinkOf(id)
	if err != nil {
		return err
	}
	c, err := d.naming(s, id)
	if err != nil {
		return fmt.Errorf("sink %s: %w", s.uid, err)
	}
	if c != nil {
		return usage(fmt.Errorf("transaction %s: checkpoint %d names it, and those before it of its subtask come first: "+
			"txn commit --from-checkpoint", id, c.Checkpoint))
	}
	return connector.Stop(fmt.Errorf("transaction %s: refused: CURRENT names no such transaction. The job goes on from CURRENT and "+
		"writes those records again, so that to commit them would show them twice. Only --from-checkpoint commits", id))
}

// commit settles what CURRENT names, up to a checkpoint, and says so in CURRENT if that is all.
func (d *desk) commit(ctx context.Context, store checkpoint.Store, from string, w io.Writer) error {
	upTo, err := d.lastToCommit(ctx, store, from)
	if err != nil {
		return err
	}
	if len(d.named) == 0 {
		fmt.Fprintf(w, "%s: nothing is left to be committed\n", currentOf(d.heading()))
		return nil
	}
	var errs []error
	stuck := map[protocol.SubtaskID]connector.CommittableID{} // what of a subtask was not settled
	committed := 0
	for _, c := range d.named {
		subtask := protocol.SubtaskID{Operator: c.Sink, Index: c.Subtask}
		before, waits := stuck[subtask]
		switch {
		case c.Checkpoint > upTo:
		case waits:
			fmt.Fprintf(w, "%s\tleft alone: %s comes first\n", c.ID(), before)
		default:
			id, err := d.settle(ctx, c)
			if err != nil {
				stuck[subtask] = c.ID()
				errs = append(errs, err)
				fmt.Fprintf(w, "%s\t%s\tnot committed\n", c.ID(), id)
				continue
			}
			committed++
			fmt.Fprintf(w, "%s\t%s\tcommitted\n", c.ID(), id)
		}
	}
	fmt.Fprintf(w, "%d of %d committed, and seen in the log of every partition\n", committed, len(d.named))
	if committed == len(d.named) {
		return d.saySettled(ctx, store, w)
	}
	if len(errs) == 0 {
		fmt.Fprintf(w, "the others are named by checkpoints after %d\n", upTo)
	}
	return errors.Join(errs...)
}

func (d *desk) heading() Transactions {
	return Transactions{Lineage: d.current.Lineage, Checkpoint: d.current.Checkpoint, Settled: d.current.Settled}
}

// lastToCommit returns the last checkpoint of which something is committed. One that is named must be of
// CURRENT's history: what it named and CURRENT does not name any more is settled.
func (d *desk) lastToCommit(ctx context.Context, store checkpoint.Store, from string) (uint64, error) {
	if !d.current.Exists() {
		return 0, fmt.Errorf("%s: no job has run here", d.outside.Storage)
	}
	if from == fromCurrent {
		return d.current.Checkpoint, nil
	}
	e, err := checkpoint.Find(ctx, store, from)
	if err != nil {
		return 0, err
	}
	if e.Manifest.Lineage != d.current.Lineage || e.Manifest.Checkpoint > d.current.Checkpoint {
		return 0, connector.Stop(fmt.Errorf("checkpoint %s is not of CURRENT's history (lineage %s, up to checkpoint %d): the job does "+
			"not go on from it, so that to commit what it names could show records twice. Nothing was committed",
			e.Name(), d.current.Lineage, d.current.Checkpoint))
	}
	return e.Manifest.Checkpoint, nil
}

// settle commits one committable, and returns what its transaction is called.
func (d *desk) settle(ctx context.Context, c connector.Committable) (id string, err error) {
	for _, s := range d.sinks {
		if s.uid != c.Sink {
			continue
		}
		if id, err = s.ID(c); err == nil {
			err = s.Settle(ctx, c)
		}
		return id, err
	}
	return "", connector.Stop(fmt.Errorf("%s: the job has no sink %s with transactions: this is not the program that wrote the checkpoint",
		c.ID(), c.Sink))
}

// saySettled notes in CURRENT that nothing is left to be committed: the next start asks nobody about it,
// however long after.
func (d *desk) saySettled(ctx context.Context, store checkpoint.Store, w io.Writer) error {
	next := d.current
	next.Settled, next.Nonce = true, ""
	if _, err := store.Swap(ctx, d.current, next); err != nil {
		return fmt.Errorf("all is committed, and CURRENT could not be made to say so; the next start finds out by itself: %w", err)
	}
	fmt.Fprintf(w, "CURRENT, checkpoint %d, is settled\n", next.Checkpoint)
	return nil
}

func abortTransactionCommand(of OutsideOf) *cobra.Command {
	q := &question{}
	c := &cobra.Command{
		Use: "abort ID", Args: exactly("ID"), Short: "Abort an open transaction, so that readers go on",
		Long: "Aborts an open transaction and waits until no partition shows it open. Where a checkpoint names it, its\n" +
			"records are lost to readers, or written again at the next start if the sink is told to: this is said first,\n" +
			"and wants --yes, or its name typed on a terminal. The job that it belongs to may not be running.",
	}
	c.Flags().BoolVar(&q.yes, "yes", false, "do not ask")
	return txn(of, c, func(ctx context.Context, d *desk, w io.Writer, args []string) error {
		q.in, q.out = c.InOrStdin(), w
		return d.beside(ctx, args[0], q, func(s administered) error { return d.abort(ctx, s, args[0], q) })
	})
}

// beside does something to a transaction while no generation of its lineage runs. For one of CURRENT's
// lineage the store says so; for any other one nobody but whoever asks for it can.
func (d *desk) beside(ctx context.Context, id string, q *question, do func(administered) error) error {
	s, owner, err := d.sinkOf(id)
	if err != nil {
		return err
	}
	if err := d.look(ctx); err != nil {
		return err
	}
	if d.ours(owner) {
		return d.alone(ctx, func(checkpoint.Store) error { return do(s) })
	}
	if !d.current.Exists() {
		fmt.Fprintln(q.out, "no checkpoint of the job is known: whether one names this transaction cannot be told, and its "+
			"process must not be running")
		return do(s)
	}
	fmt.Fprintf(q.out, "lineage %s is not CURRENT's: an earlier one of this job, or another job's, whose process must not be running\n",
		owner.Lineage)
	return do(s)
}

func (d *desk) abort(ctx context.Context, s administered, id string, q *question) error {
	c, err := d.naming(s, id)
	if err != nil {
		return fmt.Errorf("sink %s: %w", s.uid, err)
	}
	t, err := s.Inspect(ctx, id, c)
	if err == nil && c != nil && (t.Found == connector.FoundCommitted || t.Found == connector.FoundAborted) {
		// What the checkpoint named has ended; somebody may have opened another one under its name.
		c = nil
		t, err = s.Inspect(ctx, id, nil)
	}
	if err != nil {
		return fmt.Errorf("sink %s: %w", s.uid, err)
	}
	if t.Found != connector.FoundOpen {
		return fmt.Errorf("transaction %s is not open, and nothing was done: it is %s at its coordinator, and %s: %s",
			id, t.State, t.Found, t.Why)
	}
	x := d.transaction(s, t)
	fmt.Fprintf(q.out, "transaction %s, sink %s, subtask %d: open, %s\n", id, s.uid, t.Subtask, age(&x))
	fmt.Fprintf(q.out, "  records: %s\n", recordsOf(&t))
	if err := d.readKept(ctx, x.Kept, c); err != nil {
		return err
	}
	if err := d.confirmAbort(s, &x, c, q); err != nil {
		return err
	}
	if err := s.Abort(ctx, &t); err != nil {
		return fmt.Errorf("sink %s: %w", s.uid, err)
	}
	fmt.Fprintf(q.out, "aborted: no partition shows it open any more\n")
	return nil
}

// confirmAbort asks before data can be lost.
func (d *desk) confirmAbort(s administered, x *Transaction, c *connector.Committable, q *question) error {
	switch {
	case c == nil && !d.current.Exists():
		return q.confirm("abort it all the same", x.ID, func(err error) error {
			return connector.Stop(fmt.Errorf("transaction %s may be named by a checkpoint: %w", x.ID, err))
		})
	case c == nil:
		fmt.Fprintln(q.out, "  no checkpoint names it")
		return q.confirm("abort it", "yes", func(err error) error { return usage(err) })
	}
	fmt.Fprintf(q.out, "  checkpoint %d names it, and CURRENT (checkpoint %d) does: it is to be committed\n",
		c.Checkpoint, d.current.Checkpoint)
	fmt.Fprintf(q.out, "  kept: %s\n", keptOf(x))
	fmt.Fprintf(q.out, "  if it is aborted: %s\n", s.IfAborted(*c))
	return q.confirm("abort it all the same", x.ID, func(err error) error {
		return connector.Stop(fmt.Errorf("transaction %s is named by checkpoint %d: %w", x.ID, c.Checkpoint, err))
	})
}

func repairTransactionCommand(of OutsideOf) *cobra.Command {
	q := &question{}
	c := &cobra.Command{
		Use: "repair ID", Args: exactly("ID"), Short: "Write the marker that a broker has lost, so that readers go on",
		Long: "Writes the control record that ends a transaction in the partitions that lack it, and only the one that is\n" +
			"proved: COMMIT where the coordinator says that it was committed, ABORT where it says that it was aborted.\n" +
			"It takes the right ClusterAction or Alter on the cluster. The job that it belongs to may not be running.",
	}
	c.Flags().BoolVar(&q.yes, "yes", false, "do not ask, if it is of another lineage")
	return txn(of, c, func(ctx context.Context, d *desk, w io.Writer, args []string) error {
		q.in, q.out = c.InOrStdin(), w
		return d.beside(ctx, args[0], q, func(s administered) error { return d.repair(ctx, s, args[0], q) })
	})
}

func (d *desk) repair(ctx context.Context, s administered, id string, q *question) error {
	c, err := d.naming(s, id)
	if err != nil {
		return fmt.Errorf("sink %s: %w", s.uid, err)
	}
	t, err := s.Inspect(ctx, id, c)
	if err != nil {
		return fmt.Errorf("sink %s: %w", s.uid, err)
	}
	switch t.Found {
	case connector.FoundUnmarked:
	case connector.FoundCommitted, connector.FoundAborted, connector.FoundEnded:
		fmt.Fprintf(q.out, "transaction %s lacks nothing: it is %s: %s\n", id, t.Found, t.Why)
		return nil
	case connector.FoundOpen, connector.FoundUnknown, connector.FoundWait:
		return connector.Stop(fmt.Errorf("transaction %s is %s (%s): no marker is proved, so none was written", id, t.Found, t.Why))
	}
	fmt.Fprintf(q.out, "transaction %s (producer %d): %s\n", id, t.ProducerID, t.Why)
	if !d.ours(t.TransactionOwner) {
		if err := q.confirm("write "+t.Missing+" all the same", "yes", func(err error) error { return usage(err) }); err != nil {
			return err
		}
	}
	repaired, err := s.Repair(ctx, id, c)
	for _, p := range repaired {
		fmt.Fprintf(q.out, "wrote %s to %s\n", t.Missing, p)
	}
	if err != nil {
		return fmt.Errorf("sink %s: %w", s.uid, err)
	}
	fmt.Fprintf(q.out, "every partition has its marker\n")
	return nil
}

// question is asked before something that cannot be undone.
type question struct {
	yes bool
	in  io.Reader
	out io.Writer
}

// errNotConfirmed reports that somebody was asked and did not agree.
var errNotConfirmed = errors.New("not confirmed, so nothing was done")

// confirm returns nil if --yes was said or the wanted word is typed. Where nobody can be asked the error is
// what refused makes of it.
func (q *question) confirm(what, want string, refused func(error) error) error {
	switch {
	case q.yes:
		return nil
	case !terminal.Interactive(q.in):
		return refused(fmt.Errorf("to %s wants --yes; nothing was done", what))
	}
	return q.typed(what, want)
}

func (q *question) typed(what, want string) error {
	fmt.Fprintf(q.out, "to %s, type %s: ", what, want)
	line, err := bufio.NewReader(q.in).ReadString('\n')
	if strings.TrimSpace(line) != want {
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("%w: %w", errNotConfirmed, err)
		}
		return errNotConfirmed
	}
	return nil
}
