package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/engine"
	"example.com/weir/internal/protocol"
	"example.com/weir/internal/status"
)

const ownLineage = "00000000000000aa"

// broker is what a sink has outside, and what was done to it.
type broker struct {
	prefix   string
	held     []connector.OutsideTransaction
	lost     map[string]string // by ID: why Settle fails
	noRight  bool
	settled  []string
	aborted  []string
	repaired []string
}

func (b *broker) Administer(*slog.Logger) (connector.TransactionAdmin, error) { return b, nil }
func (b *broker) Prefix() string                                              { return b.prefix }
func (b *broker) Close()                                                      {}

func (b *broker) IfAborted(connector.Committable) string {
	return "its records are lost, and the next start stops"
}

// ID reads it from the payload.
func (b *broker) ID(c connector.Committable) (string, error) { return string(c.Payload), nil }

func (b *broker) Owner(id string) (o connector.TransactionOwner, ok bool) {
	rest, ok := strings.CutPrefix(id, b.prefix+"-")
	fields := strings.Split(rest, "-")
	if !ok || len(fields) != 3 {
		return o, false
	}
	o.Lineage = fields[0]
	o.Subtask, _ = strconv.Atoi(fields[1])
	o.Slot, _ = strconv.Atoi(fields[2])
	return o, true
}

func (b *broker) List(ctx context.Context, named []connector.Committable) (all []connector.OutsideTransaction, err error) {
	for i := range b.held {
		var of *connector.Committable
		if at := slices.IndexFunc(named, func(c connector.Committable) bool { return string(c.Payload) == b.held[i].ID }); at >= 0 {
			of = &named[at]
		}
		t, err := b.Inspect(ctx, b.held[i].ID, of)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

func (b *broker) Inspect(_ context.Context, id string, named *connector.Committable) (connector.OutsideTransaction, error) {
	for _, t := range b.held {
		if t.ID != id {
			continue
		}
		t.TransactionOwner, _ = b.Owner(id)
		if named != nil {
			of := named.ID()
			t.Named = &of
		}
		return t, nil
	}
	return connector.OutsideTransaction{}, fmt.Errorf("transaction %s: the coordinator does not answer", id)
}

func (b *broker) Settle(_ context.Context, c connector.Committable) error {
	if why := b.lost[string(c.Payload)]; why != "" {
		return connector.Stop(errors.New(why))
	}
	b.settled = append(b.settled, string(c.Payload))
	return nil
}

func (b *broker) Abort(_ context.Context, t *connector.OutsideTransaction) error {
	b.aborted = append(b.aborted, t.ID)
	return nil
}

func (b *broker) Repair(_ context.Context, id string, _ *connector.Committable) ([]string, error) {
	if b.noRight {
		return nil, errors.New("this login may not write markers")
	}
	b.repaired = append(b.repaired, id)
	return []string{"t/1"}, nil
}

// bench is a job that does not run, with its checkpoints in a directory.
type bench struct {
	*fakeJob
	sinks   map[string]*broker
	lineage string
}

func (b *bench) Outside() (Outside, error) {
	o := Outside{Job: b.Name(), Storage: b.settings.Storage, Logger: slog.New(slog.DiscardHandler)}
	for _, uid := range []string{"bill", "alerts"} {
		if s := b.sinks[uid]; s != nil {
			o.Sinks = append(o.Sinks, engine.AdministeredSink{UID: uid, Administered: s})
		}
	}
	return o, nil
}

func newBench(t *testing.T) *bench {
	b := &bench{fakeJob: newFakeJob(stopsAfter(0)), lineage: ownLineage, sinks: map[string]*broker{
		"bill": {prefix: "bill", lost: map[string]string{}}, "alerts": {prefix: "alerts"},
	}}
	b.settings.Storage = "file://" + t.TempDir()
	return b
}

// complete completes a checkpoint in the storage.
func (b *bench) complete(t *testing.T, n uint64, settled bool, named ...connector.Committable) {
	store, err := checkpoint.Open(b.settings.Storage, checkpoint.Options{Job: b.Name()})
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	current, err := store.Current(t.Context())
	require.NoError(t, err)
	var parent checkpoint.Ref
	if current.Exists() {
		parent = checkpoint.Ref{Name: current.Manifest, Digest: current.ManifestDigest}
	} else {
		current, err = store.Swap(t.Context(), current, protocol.Current{Job: b.Name(), Lineage: b.lineage, Generation: 1})
		require.NoError(t, err)
	}
	ref, err := store.PutManifest(t.Context(), checkpoint.Manifest{
		Job: b.Name(), Lineage: b.lineage, Generation: 1, Checkpoint: n, Parent: parent, MaxParallelism: 128,
		Committables: named, Created: time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC),
	})
	require.NoError(t, err)
	next := current
	next.Lineage = b.lineage
	next.Checkpoint, next.Settled, next.Manifest, next.ManifestDigest, next.Nonce = n, settled, ref.Name, ref.Digest, ""
	_, err = store.Swap(t.Context(), current, next)
	require.NoError(t, err)
}

func (b *bench) current(t *testing.T) protocol.Current {
	store, err := checkpoint.Open(b.settings.Storage, checkpoint.Options{ReadOnly: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	c, err := store.Current(t.Context())
	require.NoError(t, err)
	return c
}

// run runs a command line and returns what it prints, its exit code and its error.
func (b *bench) run(ctx context.Context, args ...string) (out string, code int, err error) {
	var w bytes.Buffer
	root := txnCommand(b)
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetOut(&w)
	root.SetIn(strings.NewReader(""))
	root.SetArgs(args)
	err = root.ExecuteContext(ctx)
	var known *Error
	switch {
	case errors.As(err, &known):
		code = known.Code
	case err != nil:
		code = ExitUsage
	}
	return w.String(), code, err
}

// The scripts in testdata/txn: what CURRENT names, what the brokers hold, and what each command prints
// and does.
func TestTransactionCommands(t *testing.T) {
	datadriven.Walk(t, "testdata/txn", func(t *testing.T, path string) {
		b := newBench(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "checkpoint":
				var n uint64
				d.ScanArgs(t, "n", &n)
				b.complete(t, n, d.HasArg("settled"), namedIn(t, d.Input)...)
				return ""
			case "outside":
				s := &broker{lost: map[string]string{}}
				d.ScanArgs(t, "prefix", &s.prefix)
				s.noRight = d.HasArg("no-right")
				require.NoError(t, json.Unmarshal([]byte(d.Input), &s.held))
				b.sinks[d.CmdArgs[0].Key] = s
				return ""
			case "lost":
				b.sinks["bill"].lost[d.CmdArgs[0].Key] = d.Input
				return ""
			case "txn":
				return b.script(t, d)
			}
			d.Fatalf(t, "unknown command %s", d.Cmd)
			return ""
		})
	})
}

// namedIn reads committables, one a line: sink subtask checkpoint transaction [kept-name size].
func namedIn(t *testing.T, lines string) []connector.Committable {
	var all []connector.Committable
	for line := range strings.Lines(lines) {
		f := strings.Fields(line)
		c := connector.Committable{Sink: f[0], Payload: []byte(f[3])}
		var err error
		c.Subtask, err = strconv.Atoi(f[1])
		require.NoError(t, err)
		c.Checkpoint, err = strconv.ParseUint(f[2], 10, 64)
		require.NoError(t, err)
		all = append(all, c)
	}
	return all
}

func (b *bench) script(t *testing.T, d *datadriven.TestData) string {
	var args []string
	for _, a := range d.CmdArgs {
		args = append(args, a.String())
	}
	for _, s := range b.sinks {
		s.settled, s.aborted, s.repaired = nil, nil, nil
	}
	out, code, err := b.run(t.Context(), args...)
	if code != 0 {
		out += fmt.Sprintf("exit %d: %v\n", code, err)
	}
	for _, uid := range []string{"bill", "alerts"} {
		s := b.sinks[uid]
		for _, did := range []struct {
			word string
			ids  []string
		}{{"settled", s.settled}, {"aborted", s.aborted}, {"repaired", s.repaired}} {
			if len(did.ids) > 0 {
				out += fmt.Sprintf("[%s: %s %s]\n", uid, did.word, strings.Join(did.ids, " "))
			}
		}
	}
	if c := b.current(t); c.Settled {
		out += "[CURRENT is settled]\n"
	}
	return strings.ReplaceAll(out, b.settings.Storage, "STORAGE")
}

// While the job holds its checkpoints, looking is all that a command does to its lineage.
func TestNothingOfARunningJobIsEnded(t *testing.T) {
	b := newBench(t)
	own, stranger := "bill-"+ownLineage+"-0-0", "bill-00000000000000bb-0-0"
	s := b.sinks["bill"]
	for _, id := range []string{own, stranger} {
		s.held = append(s.held, connector.OutsideTransaction{ID: id, State: "Ongoing", Found: connector.FoundOpen, Why: "it waits"})
	}
	b.complete(t, 7, false, connector.Committable{Sink: "bill", Checkpoint: 7, Payload: []byte(own)})
	running, err := checkpoint.Open(b.settings.Storage, checkpoint.Options{Job: b.Name()})
	require.NoError(t, err)
	for _, args := range [][]string{
		{"commit", "--from-checkpoint"}, {"abort", own, "--yes"}, {"repair", own, "--yes"},
	} {
		_, code, err := b.run(t.Context(), args...)
		require.Equal(t, ExitSuperseded, code, "%v: %v", args, err)
		require.ErrorContains(t, err, "stop it first")
	}
	require.Empty(t, s.settled)
	require.Empty(t, s.aborted)
	for _, args := range [][]string{{"list"}, {"show", own}, {"abort", stranger, "--yes"}} {
		_, code, err := b.run(t.Context(), args...)
		require.Zero(t, code, "%v: %v", args, err)
	}
	require.Equal(t, []string{stranger}, s.aborted)
	require.NoError(t, running.Close())
	_, code, err := b.run(t.Context(), "commit", "--from-checkpoint")
	require.Zero(t, code, "%v", err)
	require.Equal(t, []string{own}, s.settled)
}

// An earlier checkpoint is committed as far as it goes; CURRENT does not say settled before all is.
func TestCommitGoesNoFurtherThanItsCheckpoint(t *testing.T) {
	b := newBench(t)
	first := connector.Committable{Sink: "bill", Checkpoint: 7, Payload: []byte("bill-" + ownLineage + "-0-0")}
	second := connector.Committable{Sink: "bill", Checkpoint: 8, Payload: []byte("bill-" + ownLineage + "-0-1")}
	b.complete(t, 7, false, first)
	b.complete(t, 8, false, second, first)
	out, code, err := b.run(t.Context(), "commit", "--from-checkpoint", "7")
	require.Zero(t, code, "%v", err)
	require.Contains(t, out, "1 of 2 committed")
	require.Equal(t, []string{string(first.Payload)}, b.sinks["bill"].settled)
	require.False(t, b.current(t).Settled)
	before := b.current(t)
	out, code, err = b.run(t.Context(), "commit", "--from-checkpoint=8")
	require.Zero(t, code, "%v", err)
	require.Contains(t, out, "2 of 2 committed")
	after := b.current(t)
	require.True(t, after.Settled)
	after.Settled, after.Nonce = false, before.Nonce
	require.Equal(t, before, after, "nothing else in CURRENT may change")
}

// A savepoint of another history names what the job does not go on from.
func TestNothingIsCommittedThatIsNotOfCurrentsHistory(t *testing.T) {
	b := newBench(t)
	b.lineage = "00000000000000bb"
	b.complete(t, 5, true, connector.Committable{Sink: "bill", Checkpoint: 5, Payload: []byte("bill-00000000000000bb-0-0")})
	store, err := checkpoint.Open(b.settings.Storage, checkpoint.Options{Job: b.Name()})
	require.NoError(t, err)
	c, err := store.Current(t.Context())
	require.NoError(t, err)
	_, err = store.PutSavepoint(t.Context(), "old", checkpoint.Ref{Name: c.Manifest, Digest: c.ManifestDigest})
	require.NoError(t, err)
	require.NoError(t, store.Close())
	b.lineage = ownLineage
	b.complete(t, 7, false, connector.Committable{Sink: "bill", Checkpoint: 7, Payload: []byte("bill-" + ownLineage + "-0-0")})
	out, code, err := b.run(t.Context(), "commit", "--from-checkpoint", "old")
	require.Equal(t, ExitRefused, code, "%s%v", out, err)
	require.ErrorContains(t, err, "Nothing was committed")
	require.Empty(t, b.sinks["bill"].settled)
	require.False(t, b.current(t).Settled)
}

func TestATypedNameIsAConfirmation(t *testing.T) {
	for typed, want := range map[string]error{
		"id-1\n": nil, "id-1": nil, " id-1 \n": nil, "id-2\n": errNotConfirmed, "y\n": errNotConfirmed, "": errNotConfirmed,
	} {
		var out bytes.Buffer
		q := &question{in: strings.NewReader(typed), out: &out}
		require.ErrorIs(t, q.typed("abort it all the same", "id-1"), want, "%q", typed)
		require.Equal(t, "to abort it all the same, type id-1: ", out.String())
	}
}

func TestDurationsAreBrief(t *testing.T) {
	for d, want := range map[time.Duration]string{
		12 * time.Minute: "12m", 90 * time.Second: "1m30s", time.Hour: "1h", 26*time.Hour + 30*time.Minute: "26h30m",
		1500 * time.Microsecond: "2ms", 0: "0s", 10 * time.Minute: "10m", time.Hour + 10*time.Minute + 4*time.Second: "1h10m",
	} {
		require.Equal(t, want, brief(d))
	}
}

// Whoever asks how a job does hears of what it has open outside, whether it runs or not.
func TestStatusTellsOfOpenTransactions(t *testing.T) {
	b := newBench(t)
	b.complete(t, 7, false,
		connector.Committable{Sink: "bill", Subtask: 1, Checkpoint: 7, Payload: []byte("x"), Opened: time.Now().Add(-20 * time.Minute)},
		connector.Committable{Sink: "bill", Checkpoint: 7, Payload: []byte("y"), Opened: time.Now()})
	s := storage{address: b.settings.Storage}
	st, err := s.status(t.Context())
	require.NoError(t, err)
	require.Len(t, st.Transactions, 2)
	var out bytes.Buffer
	require.NoError(t, printStatus(&out, st))
	require.Contains(t, out.String(), "transactions to be committed, and not known to be: 2, the oldest (bill[1]@7) begun 20m ago")

	b.complete(t, 8, true, connector.Committable{Sink: "bill", Checkpoint: 8, Payload: []byte("z")})
	st, err = s.status(t.Context())
	require.NoError(t, err)
	require.Empty(t, st.Transactions, "all of it is settled")

	out.Reset()
	require.NoError(t, printStatus(&out, status.Status{State: status.Running, Transactions: []status.Transaction{
		{ID: "bill[0]@9", Handle: "bill-0-0", Age: 10 * time.Minute, Timeout: 15 * time.Minute},
	}}))
	require.Contains(t, out.String(), "bill[0]@9   open for 10m0s of 15m0s   bill-0-0   PAST HALF OF ITS TIMEOUT")
}

// Whether a transaction's records are kept is found out by reading them.
func TestKeptRecordsAreReadToSayThatTheyAreThere(t *testing.T) {
	for name, c := range map[string]struct {
		records int
		lose    bool
		want    string
	}{
		"in the manifest": {1, false, "in the manifest, whole"},
		"in a file":       {100_000, false, ", whole"},
		"lost":            {100_000, true, "they cannot be read: "},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			id := "bill-" + ownLineage + "-0-0"
			b.sinks["bill"].held = []connector.OutsideTransaction{{ID: id, State: "Ongoing", Found: connector.FoundOpen, Why: "it waits"}}
			kept := b.keep(t, c.records)
			b.complete(t, 7, false, connector.Committable{Sink: "bill", Checkpoint: 7, Payload: []byte(id), Kept: kept})
			if c.lose {
				dir, err := checkpoint.Dir(b.settings.Storage)
				require.NoError(t, err)
				require.NoError(t, os.Remove(filepath.Join(dir, kept.Name)))
			}
			out, _, err := b.run(t.Context(), "show", id)
			require.NoError(t, err)
			require.Contains(t, out, c.want)
			out, code, _ := b.run(t.Context(), "abort", id)
			require.Equal(t, ExitRefused, code)
			require.Contains(t, out, "  kept: ")
			require.Contains(t, out, c.want)
			require.Empty(t, b.sinks["bill"].aborted)
		})
	}
}

// keep keeps some records in the storage.
func (b *bench) keep(t *testing.T, n int) connector.Kept {
	store, err := checkpoint.Open(b.settings.Storage, checkpoint.Options{Job: b.Name()})
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	records := checkpoint.NewRecorder(store, checkpoint.RecordsName{
		Lineage: ownLineage, Generation: 1, Sink: "bill",
	}).Begin()
	for i := range n {
		records.Write(fmt.Appendf(nil, "%x", i*7919))
	}
	kept := records.Seal()
	require.NoError(t, records.Sync())
	return kept
}
