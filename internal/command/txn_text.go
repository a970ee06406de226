package command

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"example.com/weir/connector"
	"example.com/weir/internal/protocol"
)

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func printTransactions(w io.Writer, all Transactions) error {
	fmt.Fprintf(w, "job %s: %s\n", all.Job, currentOf(all))
	if len(all.Transactions) == 0 {
		fmt.Fprintln(w, "nothing is open outside, and nothing is left to be settled")
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "\nTRANSACTION\tSINK\tLINEAGE\tSTATE\tIS\tAGE\tNAMED BY\tHOLDS BACK")
	for i := range all.Transactions {
		x := &all.Transactions[i]
		fmt.Fprintf(t, "%s\t%s[%d]\t%s\t%s\t%s\t%s\t%s\t%s\n", x.ID, x.Sink, x.Subtask, lineageOf(x), x.State, x.Found,
			age(x), namedBy(x), holds(x))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i := range all.Transactions {
		if line := advice(&all.Transactions[i]); line != "" {
			fmt.Fprintf(w, "\n%s\n", line)
		}
	}
	return nil
}

func currentOf(all Transactions) string {
	switch {
	case all.Lineage == "":
		return "no checkpoint is known, so nothing names a transaction"
	case all.Settled:
		return fmt.Sprintf("CURRENT is checkpoint %d of lineage %s, settled", all.Checkpoint, all.Lineage)
	}
	return fmt.Sprintf("CURRENT is checkpoint %d of lineage %s, not known to be settled", all.Checkpoint, all.Lineage)
}

func lineageOf(t *Transaction) string {
	if t.Ours {
		return "ours"
	}
	return "another: " + t.Lineage
}

func namedBy(t *Transaction) string {
	if t.Checkpoint == 0 {
		return "nothing"
	}
	return fmt.Sprintf("checkpoint %d", t.Checkpoint)
}

// age is how long a transaction has been open, and how much of its time that is.
func age(t *Transaction) string {
	if t.Began.IsZero() {
		return "-"
	}
	if t.Timeout == 0 {
		return brief(t.Age)
	}
	return fmt.Sprintf("%s/%s %d%%", brief(t.Age), brief(t.Timeout), 100*t.Age/t.Timeout)
}

// brief writes a duration as people say it: the two largest units.
func brief(d time.Duration) string {
	switch {
	case d >= time.Hour:
		d = d.Round(time.Minute)
	case d >= time.Second:
		d = d.Round(time.Second)
	default:
		d = d.Round(time.Millisecond)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// holds names the partitions in which readers of committed records stand at a transaction.
func holds(t *Transaction) string {
	var all []string
	for i := range t.Partitions {
		if p := &t.Partitions[i]; p.Holds() {
			all = append(all, fmt.Sprintf("%s from %d (%d behind)", p.Name, p.First, p.Behind()))
		}
	}
	const most = 3
	if len(all) > most {
		all = append(all[:most], fmt.Sprintf("and %d more", len(all)-most))
	}
	if len(all) == 0 {
		return "-"
	}
	return strings.Join(all, ", ")
}

// advice says what to do about a transaction that needs somebody.
func advice(t *Transaction) string {
	what := ""
	switch {
	case t.Found == connector.FoundOpen && t.Checkpoint != 0:
		what = "It is to be committed: start the job, or txn commit --from-checkpoint."
	case t.Found == connector.FoundOpen && t.Ours:
		what = "No checkpoint names it. The running job is writing it, or the next start ends it."
	case t.Found == connector.FoundOpen:
		what = "It is of another lineage: an earlier one of this job, or another job's. If nobody writes it any more: txn abort."
	case t.Found == connector.FoundUnmarked:
		what = fmt.Sprintf("Its %s marker is missing: txn repair.", t.Missing)
	case t.Found == connector.FoundAborted && t.Checkpoint != 0:
		what = "It is lost: the next start deals with it as the sink's policy for lost transactions says."
	case t.Found == connector.FoundUnknown && t.Checkpoint != 0:
		what = "Read the topic to find out whether its records are there; the next start stops at it."
	default:
		return ""
	}
	return fmt.Sprintf("%s is %s: %s. %s", t.ID, t.Found, t.Why, what)
}

func printTransaction(w io.Writer, x *Transaction, current protocol.Current) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintf(t, "transaction\t%s\n", x.ID)
	fmt.Fprintf(t, "sink\t%s, subtask %d, slot %d\n", x.Sink, x.Subtask, x.Slot)
	fmt.Fprintf(t, "lineage\t%s\n", lineageInFull(x))
	fmt.Fprintf(t, "named by\t%s\n", namedInFull(x, current))
	fmt.Fprintf(t, "coordinator\t%s: %s\n", orDash(x.Coordinator), x.State)
	fmt.Fprintf(t, "producer\t%s\n", producer(x))
	if !x.Began.IsZero() {
		fmt.Fprintf(t, "began\t%s\n", x.Began.UTC().Format(time.RFC3339))
	}
	fmt.Fprintf(t, "age\t%s\n", age(x))
	fmt.Fprintf(t, "is\t%s: %s\n", x.Found, x.Why)
	fmt.Fprintf(t, "records\t%s\n", recordsOf(&x.OutsideTransaction))
	fmt.Fprintf(t, "kept\t%s\n", keptOf(x))
	if err := t.Flush(); err != nil {
		return err
	}
	if len(x.Partitions) > 0 {
		t = tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
		fmt.Fprintln(t, "\nPARTITION\tFIRST\tLAST\tRECORDS\tMARKER\tREADERS STAND AT\tEND\tHOLDS BACK")
		for i := range x.Partitions {
			p := &x.Partitions[i]
			fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", p.Name, p.First, known(p.Last), known(p.Records), marker(p),
				known(p.Stable), known(p.End), held(p))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if line := advice(x); line != "" {
		_, err := fmt.Fprintf(w, "\n%s\n", line)
		return err
	}
	return nil
}

func lineageInFull(x *Transaction) string {
	if x.Ours {
		return x.Lineage + ", the job's own"
	}
	return x.Lineage + ", another one than CURRENT's"
}

func namedInFull(x *Transaction, current protocol.Current) string {
	switch {
	case x.Checkpoint != 0 && x.Checkpoint == current.Checkpoint:
		return fmt.Sprintf("checkpoint %d, which is CURRENT's, not known to be settled", x.Checkpoint)
	case x.Checkpoint != 0:
		return fmt.Sprintf("checkpoint %d, and still by CURRENT's, which is %d: not known to be settled",
			x.Checkpoint, current.Checkpoint)
	case !current.Exists():
		return "nothing: no checkpoint is known"
	case current.Settled:
		return fmt.Sprintf("nothing: all that CURRENT's checkpoint %d names is settled", current.Checkpoint)
	}
	return fmt.Sprintf("nothing: CURRENT's checkpoint %d does not name it", current.Checkpoint)
}

func producer(x *Transaction) string {
	if x.ProducerID < 0 {
		return "-"
	}
	return fmt.Sprintf("%d, epoch %d", x.ProducerID, x.Epoch)
}

func recordsOf(t *connector.OutsideTransaction) string {
	n, isKnown := t.Records()
	switch {
	case t.Found == connector.FoundEnded:
		return "-"
	case !isKnown:
		return "not counted"
	case len(t.Partitions) == 0:
		return "none"
	case len(t.Partitions) == 1:
		return fmt.Sprintf("%d in 1 partition", n)
	}
	return fmt.Sprintf("%d in %d partitions", n, len(t.Partitions))
}

func keptOf(x *Transaction) string {
	switch {
	case x.Kept == nil:
		return "no: its records lie in the topic alone"
	case x.Kept.Missing != "":
		return "they cannot be read: " + x.Kept.Missing
	case x.Kept.Name == "":
		return size(x.Kept.Size) + " in the manifest, whole"
	}
	return fmt.Sprintf("%s in %s, whole", size(x.Kept.Size), x.Kept.Name)
}

func known(n int64) string {
	if n < 0 {
		return "?"
	}
	return fmt.Sprint(n)
}

func marker(p *connector.TransactionPartition) string {
	switch {
	case p.Marker != "" && p.At < 0:
		return p.Marker
	case p.Marker != "":
		return fmt.Sprintf("%s at %d", p.Marker, p.At)
	case p.Open:
		return "none"
	}
	return "-"
}

func held(p *connector.TransactionPartition) string {
	switch {
	case p.Holds():
		return fmt.Sprintf("%d offsets", p.Behind())
	case p.Open:
		return "behind another"
	}
	return "-"
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
