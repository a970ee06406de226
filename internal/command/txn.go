package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"example.com/weir/connector"
	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/engine"
	"example.com/weir/internal/protocol"
)

// Outside is what the commands txn need to know of a job: what its sinks have outside, and where its
// checkpoints say which of it is to be committed.
type Outside struct {
	Job     string
	Storage string // address of the checkpoint storage; empty: there is none
	Sinks   []engine.AdministeredSink
	Logger  *slog.Logger
}

// OutsideOf finds out about a job, once the flags of a command have been read.
type OutsideOf func(c *cobra.Command) (Outside, error)

// TransactionCommands returns the commands list, show, commit, abort and repair of a job.
func TransactionCommands(of OutsideOf) []*cobra.Command {
	return []*cobra.Command{
		listTransactionsCommand(of), showTransactionCommand(of), commitTransactionsCommand(of),
		abortTransactionCommand(of), repairTransactionCommand(of),
	}
}

// txnCommand is the command txn of a program that holds one job.
func txnCommand(j Job) *cobra.Command {
	s := &storage{}
	commands := TransactionCommands(func(*cobra.Command) (Outside, error) {
		settings := j.Settings()
		settings.Storage = s.address
		j.Apply(settings)
		return j.Outside()
	})
	for _, c := range commands {
		s.flag(c, j.Settings().Storage)
	}
	return Group("txn", TransactionsShort, commands...)
}

// TransactionsShort says what the command txn is for.
const TransactionsShort = "Look at the transactions that a job's sinks have outside, and end them"

// desk is what a command txn works at: the sinks of a job, and what CURRENT names of theirs.
type desk struct {
	outside Outside
	sinks   []administered
	current protocol.Current // the zero value: no job has run, or there are no checkpoints
	// named are the committables that CURRENT names and that are not known to be settled, in the
	// order in which they are to be committed.
	named []connector.Committable
}

// administered is a sink that has been reached.
type administered struct {
	uid string
	connector.TransactionAdmin
}

// openDesk reaches the sinks of a job.
func openDesk(o Outside) (*desk, error) {
	if len(o.Sinks) == 0 {
		return nil, usage(fmt.Errorf("job %s: no sink of it has transactions", o.Job))
	}
	d := &desk{outside: o}
	for _, s := range o.Sinks {
		a, err := s.Administer(o.Logger)
		if err != nil {
			d.close()
			return nil, fmt.Errorf("sink %s: %w", s.UID, err)
		}
		d.sinks = append(d.sinks, administered{s.UID, a})
	}
	return d, nil
}

func (d *desk) close() {
	for _, s := range d.sinks {
		s.Close()
	}
}

// read looks at CURRENT in a store.
func (d *desk) read(ctx context.Context, store checkpoint.Store) error {
	current, m, err := checkpoint.Latest(ctx, store)
	if err != nil {
		return err
	}
	d.current, d.named = current, nil
	if !current.Settled {
		d.named = slices.Clone(m.Committables)
		slices.SortFunc(d.named, func(a, b connector.Committable) int { return a.ID().Compare(b.ID()) })
	}
	return nil
}

// look reads CURRENT beside whoever runs the job.
func (d *desk) look(ctx context.Context) (err error) {
	if d.outside.Storage == "" {
		return nil
	}
	store, err := checkpoint.Open(d.outside.Storage, checkpoint.Options{Job: d.outside.Job, ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return d.read(ctx, store)
}

// alone reads CURRENT and does something while no generation of the job can run: the owner of the store
// is this process (M5). With CURRENT's word for what it commits, that stands for a permit.
func (d *desk) alone(ctx context.Context, do func(checkpoint.Store) error) (err error) {
	if d.outside.Storage == "" {
		return usage(fmt.Errorf("job %s has no checkpoint storage: say where it is", d.outside.Job))
	}
	store, err := checkpoint.Open(d.outside.Storage, checkpoint.Options{Job: d.outside.Job})
	var locked *checkpoint.LockedError
	if errors.As(err, &locked) {
		return fmt.Errorf("nothing was done, because the job may be running: stop it first: %w", err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := d.read(ctx, store); err != nil {
		return err
	}
	return do(store)
}

// namedBy returns what CURRENT names of a sink.
func (d *desk) namedBy(s administered) []connector.Committable {
	var all []connector.Committable
	for _, c := range d.named {
		if c.Sink == s.uid {
			all = append(all, c)
		}
	}
	return all
}

// naming returns the committable of CURRENT that holds a transaction, or nil.
func (d *desk) naming(s administered, id string) (*connector.Committable, error) {
	for _, c := range d.namedBy(s) {
		name, err := s.ID(c)
		if err != nil {
			return nil, err
		}
		if name == id {
			return &c, nil
		}
	}
	return nil, nil
}

// sinkOf returns the sink that a transaction belongs to, by its name.
func (d *desk) sinkOf(id string) (administered, connector.TransactionOwner, error) {
	var prefixes []string
	for _, s := range d.sinks {
		if o, ok := s.Owner(id); ok {
			return s, o, nil
		}
		prefixes = append(prefixes, s.Prefix())
	}
	return administered{}, connector.TransactionOwner{}, usage(fmt.Errorf("transaction %q is of no sink of job %s: their "+
		"names begin with %s, and end with lineage, subtask and slot", id, d.outside.Job, strings.Join(prefixes, ", ")))
}

// ours reports whether a transaction is of the lineage that CURRENT belongs to.
func (d *desk) ours(o connector.TransactionOwner) bool {
	return d.current.Exists() && o.Lineage == d.current.Lineage
}

// Transaction is a transaction as the commands list and show print it.
type Transaction struct {
	Sink string `json:"sink"`
	connector.OutsideTransaction
	// Ours: it is of CURRENT's lineage. Another one is an earlier lineage of the job, or somebody else's.
	Ours bool `json:"ours"`
	// Checkpoint is the one whose barrier it was written up to, if CURRENT names it; 0 if it does not.
	Checkpoint uint64 `json:"checkpoint,omitempty"`
	Kept       *Kept  `json:"kept,omitempty"`
}

// Kept is where a transaction's records are kept beside the broker.
type Kept struct {
	Name string `json:"name,omitempty"` // empty: in the manifest itself
	Size int64  `json:"size"`
	// Whole: they were read, and are what was written. Only the command show reads them.
	Whole bool `json:"whole,omitempty"`
	// Missing says why they cannot be read.
	Missing string `json:"missing,omitempty"`
}

// transaction adds to what is outside what the checkpoints say.
func (d *desk) transaction(s administered, t connector.OutsideTransaction) Transaction {
	x := Transaction{Sink: s.uid, OutsideTransaction: t, Ours: d.ours(t.TransactionOwner)}
	for _, c := range d.namedBy(s) {
		if t.Named == nil || c.ID() != *t.Named {
			continue
		}
		x.Checkpoint = c.Checkpoint
		if k := c.Kept; k.Name != "" {
			x.Kept = &Kept{Name: k.Name, Size: k.Size}
			if k.Inline != nil {
				x.Kept.Name = ""
			}
		}
	}
	return x
}

// Transactions is what the command list prints with --json.
type Transactions struct {
	Job          string        `json:"job"`
	Lineage      string        `json:"lineage,omitempty"` // empty: nothing is known of checkpoints
	Generation   uint64        `json:"generation,omitempty"`
	Checkpoint   uint64        `json:"checkpoint,omitempty"` // that CURRENT names
	Settled      bool          `json:"settled"`              // all that it names is committed and known to be
	Transactions []Transaction `json:"transactions"`
}

// list asks every sink.
func (d *desk) list(ctx context.Context) (Transactions, error) {
	all := Transactions{
		Job: d.outside.Job, Lineage: d.current.Lineage, Generation: d.current.Generation,
		Checkpoint: d.current.Checkpoint, Settled: d.current.Settled, Transactions: []Transaction{},
	}
	for _, s := range d.sinks {
		found, err := s.List(ctx, d.namedBy(s))
		if err != nil {
			return all, fmt.Errorf("sink %s: %w", s.uid, err)
		}
		for _, t := range found {
			all.Transactions = append(all.Transactions, d.transaction(s, t))
		}
	}
	return all, nil
}

// txnRun is what a command txn does at its desk.
type txnRun func(ctx context.Context, d *desk, w io.Writer, args []string) error

// txn makes a command of what it does.
func txn(of OutsideOf, c *cobra.Command, run txnRun) *cobra.Command {
	c.RunE = func(c *cobra.Command, args []string) error {
		ctx, cancel := interruptible(c.Context(), 0)
		defer cancel()
		o, err := of(c)
		if err != nil {
			return failed(err)
		}
		d, err := openDesk(o)
		if err != nil {
			return failed(err)
		}
		defer d.close()
		return failed(run(ctx, d, c.OutOrStdout(), args))
	}
	return c
}

func listTransactionsCommand(of OutsideOf) *cobra.Command {
	var asJSON bool
	c := txn(of, &cobra.Command{
		Use: "list", Args: cobra.NoArgs,
		Short: "List what is open outside under the prefixes of the job's sinks, and what has ended badly",
		Long: "Lists the transactions that the brokers hold open under the prefixes of the job's sinks, of every lineage;\n" +
			"those that have ended and lack their end in a partition; and all that CURRENT names and that is not known\n" +
			"to be settled. The job may be running.",
	}, func(ctx context.Context, d *desk, w io.Writer, _ []string) error {
		if err := d.look(ctx); err != nil {
			return err
		}
		all, err := d.list(ctx)
		if err != nil {
			return err
		}
		if asJSON {
			return printJSON(w, all)
		}
		return printTransactions(w, all)
	})
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func showTransactionCommand(of OutsideOf) *cobra.Command {
	var asJSON bool
	c := txn(of, &cobra.Command{
		Use: "show ID", Args: exactly("ID"), Short: "Show all there is about one transaction",
		Long: "Shows a transaction as its coordinator and the log of every partition show it, what it is judged to be\n" +
			"and why, which checkpoint names it, and whether its records are kept. The job may be running.",
	}, func(ctx context.Context, d *desk, w io.Writer, args []string) error {
		if err := d.look(ctx); err != nil {
			return err
		}
		t, err := d.inspect(ctx, args[0])
		if err != nil {
			return err
		}
		if asJSON {
			return printJSON(w, t)
		}
		return printTransaction(w, &t, d.current)
	})
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// inspect looks at the transaction of a name.
func (d *desk) inspect(ctx context.Context, id string) (Transaction, error) {
	s, _, err := d.sinkOf(id)
	if err != nil {
		return Transaction{}, err
	}
	c, err := d.naming(s, id)
	if err != nil {
		return Transaction{}, fmt.Errorf("sink %s: %w", s.uid, err)
	}
	t, err := s.Inspect(ctx, id, c)
	if err != nil {
		return Transaction{}, fmt.Errorf("sink %s: %w", s.uid, err)
	}
	x := d.transaction(s, t)
	return x, d.readKept(ctx, x.Kept, c)
}

// readKept reads the records that a checkpoint keeps for a committable, to say whether they are there.
func (d *desk) readKept(ctx context.Context, k *Kept, c *connector.Committable) (err error) {
	if k == nil {
		return nil
	}
	store, err := checkpoint.Open(d.outside.Storage, checkpoint.Options{Job: d.outside.Job, ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	records, err := checkpoint.ReadRecords(ctx, store, c.Kept)
	if err == nil {
		_, err = io.Copy(io.Discard, records)
		err = errors.Join(err, records.Close())
	}
	if err != nil {
		k.Missing = err.Error()
	}
	k.Whole = err == nil
	return nil
}
