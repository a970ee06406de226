package weir_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir"
	"example.com/weir/connector"
	"example.com/weir/weirtest"
)

// Golden checkpoints are what earlier releases wrote: testdata/golden/vN, one for each format. They are
// never written again; a new format gets a directory of its own:
//
//	go test -run TestGolden -golden v2 .
//
// (testdata/deadlines is the same of a job whose state has deadlines, which formats before the fourth had not.)
// They hold a chain of cuts with state of every kind, timers of both clocks and open windows, and two
// committables that nobody has committed, one small and one in a file of its own.
var goldenFormat = flag.String("golden", "", "write the golden checkpoints of this format")

// goldenRows are the rows before and behind the golden checkpoint.
func goldenRows() (before, after []event) {
	for i := range 3000 {
		offset := time.Duration(i) * 15 * time.Millisecond
		if i >= 2750 { // the first windows are over
			offset += 30 * time.Second
		}
		before = append(before, at(offset, string(rune('a'+i%5)), i))
	}
	return before, []event{
		at(4*time.Minute, "a", 10_000), at(5*time.Minute, "b", 20_000), at(24*time.Hour, "c", 30_000),
		at(25*time.Hour, "d", 40_000),
	}
}

// goldenKeeper has state of every kind, and timers of both clocks.
func goldenKeeper() *keeper {
	type seen struct {
		Rows int
		Last time.Time
		Note string
	}
	var (
		value weir.Value[seen]
		brief weir.Value[int]
		byN   weir.MapState[int, seen]
		all   weir.ListState[int64]
	)
	k := &keeper{}
	k.open = func(o *weir.OpenContext[string]) (err error) {
		if value, err = weir.NewValue[seen](o, "value", nil); err != nil {
			return err
		}
		if brief, err = weir.NewValue[int](o, "brief", nil, weir.TTL(30*time.Second)); err != nil {
			return err
		}
		if byN, err = weir.NewMapState[int, seen](o, "map", nil); err != nil {
			return err
		}
		all, err = weir.NewListState[int64](o, "list", nil)
		return err
	}
	tell := func(ctx *weir.Context[string], out *weir.Out[string]) {
		v := value.Peek()
		s := fmt.Sprintf("%s rows %d last %s %s", ctx.Key(), v.Rows, v.Last.Format(time.TimeOnly), v.Note)
		if b := brief.Peek(); b != nil {
			s += fmt.Sprint(" brief ", *b)
		}
		for n, e := range byN.All() {
			s += fmt.Sprint(" ", n, ":", e.Rows)
		}
		sum := int64(0)
		for n := range all.All() {
			sum = sum*31 + n
		}
		out.Emit(fmt.Sprint(s, " list ", all.Len(), "/", sum))
	}
	k.process = func(ctx *weir.Context[string], e *event, out *weir.Out[string]) error {
		v, err := value.Put()
		if err != nil {
			return err
		}
		v.Rows, v.Last, v.Note = v.Rows+1, e.At, "n"
		b, err := brief.Put()
		if err != nil {
			return err
		}
		*b += e.N
		m, _ := byN.Get(e.N % 7)
		m.Rows++
		if err := errors.Join(byN.Put(e.N%7, m), all.Append(int64(e.N))); err != nil {
			return err
		}
		if e.N%500 == 0 {
			ctx.SetTimer(e.At.Add(time.Hour))
		}
		if e.N == 20 {
			ctx.SetProcessingTimer(began.Add(time.Hour))
		}
		if e.N >= 2999 {
			tell(ctx, out)
		}
		return nil
	}
	k.timer = func(ctx *weir.Context[string], out *weir.Out[string]) error {
		out.Emit(fmt.Sprintf("timer %d at %s", ctx.TimerDomain(), ctx.TimerTime().Format(time.DateTime)))
		tell(ctx, out)
		return nil
	}
	return k
}

// goldenJob is the job that the golden checkpoints are of.
func goldenJob(dir string, source *weirtest.Source[event], out *carrying) *weir.Job {
	j := weir.NewJob("golden", weir.Config{
		Checkpoint: weir.Checkpoint{Storage: "file://" + dir, Interval: time.Second}, MaxParallelism: 8,
		Logger: discard(),
	})
	events := weir.From(j, "events", source, weir.EventTime((*event).eventTime, 5*time.Second))
	byTenant := weir.KeyBy(events, (*event).tenant)
	kept := weir.Process(byTenant, "keeper", func() weir.Processor[string, event, string] { return goldenKeeper() })
	weir.SinkTo(kept, "sink", out)
	minutes := weir.Aggregate(weir.Window(byTenant, weir.Tumbling(time.Minute), weir.AllowedLateness(time.Hour)), "sum", sum{})
	weir.SinkTo(weir.Map(minutes, "texts", func(m *minute) (string, error) { return m.String(), nil }), "sink-minutes", out)
	return j
}

// goldenLeases is a job whose state has deadlines.
func goldenLeases(dir string, source *weirtest.Source[event], out *carrying) *weir.Job {
	j := weir.NewJob("golden", weir.Config{
		Checkpoint: weir.Checkpoint{Storage: "file://" + dir, Interval: time.Second}, MaxParallelism: 8,
		Logger: discard(),
	})
	events := weir.From(j, "events", source, weir.EventTime((*event).eventTime, 5*time.Second))
	long := weir.Filter(events, "long", func(e *event) (bool, error) { return e.N >= 200, nil }) // none ends before the cut
	byTenant := weir.KeyBy(long, func(e *event) string { return fmt.Sprint(e.tenant(), " ", e.N/20) })
	leased := weir.Process(byTenant, "leases", func() weir.Processor[string, event, string] { return leases() })
	weir.SinkTo(leased, "sink", out)
	return j
}

// carrying is a sink whose committables carry their rows, as one from another process would.
type carrying struct {
	blocked bool // nothing is committed

	mu   sync.Mutex
	rows map[string][]string // by committable
}

func newCarrying() *carrying { return &carrying{rows: map[string][]string{}} }

func (c *carrying) Guarantee() connector.Guarantee { return connector.ExactlyOnce }
func (c *carrying) Validate(bool) error            { return nil }
func (c *carrying) Writer(_ context.Context, wc connector.WriterContext) (connector.Writer[string], error) {
	return &carryingWriter{sink: c, wc: wc}, nil
}

func (c *carrying) Restore(_ context.Context, rc connector.RestoreContext) error {
	for _, named := range rc.Named {
		if err := c.commit(named); err != nil {
			return err
		}
	}
	return nil
}

func (c *carrying) commit(named connector.Committable) error {
	var rows []string
	if err := json.Unmarshal(named.Payload, &rows); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rows[named.ID().String()] = rows
	return nil
}

// texts returns all that was committed, sorted.
func (c *carrying) texts() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []text
	for _, rows := range c.rows {
		for _, r := range rows {
			all = append(all, text(strings.TrimSpace(r)))
		}
	}
	return strings.Join(texts(all), "\n") + "\n"
}

type text string

func (t text) String() string { return string(t) }

type carryingWriter struct {
	sink *carrying
	wc   connector.WriterContext
	rows []string
}

func (w *carryingWriter) Write(_ context.Context, rows []string) error {
	w.rows = append(w.rows, rows...)
	return nil
}
func (w *carryingWriter) Flush(context.Context, bool) error { return nil }
func (w *carryingWriter) Release(connector.Committable)     {}
func (w *carryingWriter) Close() error                      { return nil }
func (w *carryingWriter) Commit(ctx context.Context, c connector.Committable) error {
	if w.sink.blocked {
		<-ctx.Done()
		return ctx.Err()
	}
	return w.sink.commit(c)
}

// PrepareCommit makes committables of the second sink large enough for files of their own.
func (w *carryingWriter) PrepareCommit(_ context.Context, n uint64) (*connector.Committable, error) {
	if len(w.rows) == 0 {
		return nil, nil
	}
	if w.wc.Operator == "sink-minutes" {
		w.rows[0] += strings.Repeat(" ", 5000)
	}
	payload, err := json.Marshal(w.rows)
	w.rows = nil
	return &connector.Committable{
		Sink: w.wc.Operator, Subtask: w.wc.Subtask, Checkpoint: n, Payload: payload, Digest: sha256.Sum256(payload),
	}, err
}

// aGoldenJob makes a job over a checkpoint directory.
type aGoldenJob func(dir string, source *weirtest.Source[event], out *carrying) *weir.Job

// writeGolden writes the golden checkpoints of today's format.
func writeGolden(t *testing.T, dir string, newJob aGoldenJob) {
	work := t.TempDir()
	before, _ := goldenRows()
	synctest.Test(t, func(t *testing.T) {
		out := newCarrying()
		out.blocked = true
		source := weirtest.NewSource[event](1)
		job := weirtest.Start(t, newJob(work, source, out))
		for len(before) > 0 { // a part behind each checkpoint, for a chain of cuts
			source.Add(0, before[:250]...)
			before = before[250:]
			time.Sleep(time.Second)
		}
		time.Sleep(100 * time.Millisecond) // until the last one is written
		job.Kill()
	})
	require.NoError(t, os.Remove(filepath.Join(work, "LOCK")))
	edit(t, filepath.Join(work, "CURRENT"), `"pid": \d+`, `"pid": 4711`)
	edit(t, filepath.Join(work, "CURRENT"), `"host": "[^"]*"`, `"host": "host-a"`)
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.CopyFS(dir, os.DirFS(work)))
}

// edit replaces something in CURRENT or in a manifest, and makes its checksum right again.
func edit(t *testing.T, file, pattern, by string) {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	was := regexp.MustCompile(pattern).ReplaceAll(data, []byte(by))
	var e struct{ Content json.RawMessage }
	require.NoError(t, json.Unmarshal(was, &e))
	var compact bytes.Buffer
	require.NoError(t, json.Compact(&compact, e.Content))
	sum := sha256.Sum256(compact.Bytes())
	i := bytes.Index(was, []byte(`"sha256": "`)) + len(`"sha256": "`)
	copy(was[i:], hex.EncodeToString(sum[:]))
	require.NoError(t, os.WriteFile(file, was, 0o600))
}

// goldenDirs returns the golden checkpoints of every format.
func goldenDirs(t *testing.T) []string { return formatsIn(t, "testdata/golden") }

func formatsIn(t *testing.T, dir string) []string {
	dirs, err := filepath.Glob(filepath.Join(dir, "v*"))
	require.NoError(t, err)
	require.NotEmpty(t, dirs)
	return dirs
}

// copied returns a copy of golden checkpoints that a job may use.
func copied(t *testing.T, dir string) string {
	t.Helper()
	work := t.TempDir()
	require.NoError(t, os.CopyFS(work, os.DirFS(dir)))
	return work
}

// What an earlier release wrote is read: its committables are committed, its state, timers, windows and
// event time go on, and the results are those of a job that was never interrupted.
func TestGoldenCheckpointsOfEveryFormatAreRestored(t *testing.T) {
	requireGoldenRestores(t, "testdata/golden", goldenJob,
		"timer 1 at 2026-03-02 11:00:00", "timer 2 at 2000-01-01 01:00:00", "a 10:05 10000 #1")
}

// The same of deadlines, each of which comes once.
func TestGoldenCheckpointsWithDeadlinesAreRestored(t *testing.T) {
	requireGoldenRestores(t, "testdata/deadlines", goldenLeases, "a 10 deadline 10:03:38, 4 rows", "a 149 deadline 10:51:09, 4 rows", "a 500 deadline 12:50:41, 1 rows")
}

// requireGoldenRestores requires the results of a job over golden checkpoints to be those of one that was never
// interrupted, with some lines that are to be among them.
func requireGoldenRestores(t *testing.T, golden string, newJob aGoldenJob, lines ...string) {
	if *goldenFormat != "" {
		writeGolden(t, filepath.Join(golden, *goldenFormat), newJob)
	}
	before, after := goldenRows()
	run := func(t *testing.T, dir string, before []event) (results string) {
		synctest.Test(t, func(t *testing.T) {
			out, source := newCarrying(), weirtest.NewSource[event](1)
			source.Add(0, append(slices.Clone(before), after...)...)
			job := weirtest.Start(t, newJob(dir, source, out))
			time.Sleep(90 * time.Second)
			job.Kill()
			time.Sleep(time.Hour)
			job = weirtest.Start(t, newJob(dir, source, out))
			time.Sleep(10 * time.Second)
			job.Kill()
			results = out.texts()
		})
		return results
	}
	want := run(t, t.TempDir(), before)
	for _, line := range lines {
		require.Contains(t, want, line)
	}
	for _, dir := range formatsIn(t, golden) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			others := slices.Clone(before) // what is in the cuts is not read again
			clear(others[:2500])
			require.Equal(t, want, run(t, copied(t, dir), others))
		})
	}
}

// A file of a format that is newer than the program is refused by its name, whichever it is; nothing is
// guessed, and nothing changed.
func TestNewerFormatsAreRefusedByName(t *testing.T) {
	dirs := goldenDirs(t)
	dir := dirs[len(dirs)-1]
	manifest := string(regexp.MustCompile(`manifests/[^"]+`).Find(read(t, dir, "CURRENT")))
	snapshot := string(regexp.MustCompile(`snapshots/[^"]*keeper[^"]*`).Find(read(t, dir, manifest)))
	committable := string(regexp.MustCompile(`committables/[^"]+`).Find(read(t, dir, manifest)))
	for _, file := range []string{"CURRENT", manifest, snapshot, committable} {
		t.Run(filepath.Dir(file), func(t *testing.T) {
			require.NotEmpty(t, file)
			work := copied(t, dir)
			data := read(t, work, file)
			newest := 0
			if bytes.HasPrefix(data, []byte("WEIR")) { // the version lies behind the magic
				newest = int(binary.BigEndian.Uint32(data[8:]))
				binary.BigEndian.PutUint32(data[8:], uint32(newest+1))
			} else {
				version := regexp.MustCompile(`"version": (\d+)`).FindSubmatch(data)
				_, err := fmt.Sscan(string(version[1]), &newest)
				require.NoError(t, err)
				newest = max(newest, 4) // what needs no more is written in version 1, and 4 is read
				data = bytes.Replace(data, version[0], fmt.Appendf(nil, `"version": %d`, newest+1), 1)
			}
			require.NoError(t, os.WriteFile(filepath.Join(work, file), data, 0o600))
			synctest.Test(t, func(t *testing.T) {
				job := weirtest.Start(t, goldenJob(work, weirtest.NewSource[event](1), newCarrying()))
				time.Sleep(time.Minute)
				require.NotEqual(t, "running", job.Status().State)
				_, err := job.Wait()
				require.ErrorContains(t, err, fmt.Sprintf("%s has format version %d, and this program reads up to %d",
					file, newest+1, newest))
				require.True(t, connector.IsStop(err))
			})
			require.Equal(t, data, read(t, work, file))
		})
	}
}
