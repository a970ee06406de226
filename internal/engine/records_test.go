package engine_test

import (
	"bufio"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/engine"
	"example.com/weir/internal/protocol"
)

// keeping is a job in a directory whose sink keeps its rows.
func keeping(t *testing.T) (n *numbers, dir string) {
	t.Helper()
	dir = t.TempDir()
	store, err := checkpoint.Open("file://"+dir, checkpoint.Options{Job: "numbers"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	n = newNumbers()
	n.store.Store, n.sink.keep = store, true
	return n, dir
}

func recordFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "records", "*"))
	require.NoError(t, err)
	return files
}

// many are rows that take more than fits into a manifest, in an order that does not compress away.
func many() []int {
	random := rand.New(rand.NewPCG(1, 2))
	rows := make([]int, 5000)
	for i := range rows {
		rows[i] = random.Int()
	}
	return rows
}

// keptRows reads the rows of a committable as a restore does.
func keptRows(t *testing.T, ctx context.Context, rc connector.RestoreContext, c connector.Committable) (rows []int) {
	r, err := rc.Kept(ctx, c.Kept)
	require.NoError(t, err)
	defer r.Close()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		row, err := strconv.Atoi(lines.Text())
		require.NoError(t, err)
		rows = append(rows, row)
	}
	require.NoError(t, lines.Err())
	return rows
}

// The records of what CURRENT names are there for a restore, whoever wrote them, and go once that is known
// to be committed.
func TestRecordsAreKeptUntilWhatTheyAreKeptForIsCommitted(t *testing.T) {
	for name, rows := range map[string][]int{"in the manifest": {1, 2, 3}, "in a file": many()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, dir := keeping(t)
				n.source.Add(0, rows...)
				n.sink.commit = func(ctx context.Context, _ connector.Committable) error { <-ctx.Done(); return ctx.Err() }
				require.ErrorIs(t, n.runFor(t, 2500*time.Millisecond), context.DeadlineExceeded)
				_, m := n.current(t)
				require.Len(t, m.Committables, 1)
				require.Len(t, recordFiles(t, dir), min(len(rows)/1000, 1))
				n.sink.commit = nil

				restored := 0
				n.sink.restore = func(ctx context.Context, rc connector.RestoreContext) error {
					for _, c := range rc.Named {
						restored++
						require.Equal(t, rows, keptRows(t, ctx, rc, c))
						again := string(c.Payload) + " again"
						n.sink.mu.Lock()
						n.sink.prepared[again] = keptRows(t, ctx, rc, c)
						n.sink.mu.Unlock()
						c.Payload = []byte(again)
						require.NoError(t, rc.Replace(ctx, c))
						require.Equal(t, rows, keptRows(t, ctx, rc, c), "they are kept for what was written again")
						n.sink.mu.Lock()
						n.sink.settle(c)
						n.sink.mu.Unlock()
					}
					return nil
				}
				more := append(many(), 1)
				time.AfterFunc(1500*time.Millisecond, func() { n.source.Add(0, more...) })
				require.ErrorIs(t, n.runFor(t, 4500*time.Millisecond), context.DeadlineExceeded)
				require.Equal(t, 1, restored)
				require.Equal(t, append(rows, more...), n.sink.rows())
				require.Empty(t, recordFiles(t, dir), "all is committed")
			})
		})
	}
}

// failingRecords fails at one of the steps of keeping records.
type failingRecords struct {
	checkpoint.Store
	step string
	hits int
	once bool
}

func (s *failingRecords) fails(step string) error {
	if s.step != step || s.once && s.hits > 0 {
		return nil
	}
	s.hits++
	return errStorage
}

func (s *failingRecords) CreateRecords(name string) (checkpoint.RecordsFile, error) {
	if err := s.fails("create"); err != nil {
		return nil, err
	}
	f, err := s.Store.CreateRecords(name)
	return failingFile{f, s}, err
}

type failingFile struct {
	checkpoint.RecordsFile
	of *failingRecords
}

func (f failingFile) Write(p []byte) (int, error) {
	if err := f.of.fails("write"); err != nil {
		return 0, err
	}
	return f.RecordsFile.Write(p)
}

func (f failingFile) Sync() error {
	if err := f.of.fails("sync"); err != nil {
		return err
	}
	return f.RecordsFile.Sync()
}

// A storage that cannot keep records loses none: the checkpoint fails, what was pre-committed travels on
// without them, and the job goes on for as long as that is tolerated.
func TestRecordsThatCannotBeKeptFailTheCheckpointAlone(t *testing.T) {
	for _, step := range []string{"create", "write", "sync"} {
		t.Run(step, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, dir := keeping(t)
				fails := &failingRecords{Store: n.store, step: step, once: true}
				n.cfg.Store, n.cfg.TolerableFailures = fails, 1
				var aborted []error
				n.cfg.Observer.CheckpointAborted = func(_ uint64, err error) { aborted = append(aborted, err) }
				var named []connector.Committable
				n.store.after = func(c protocol.Current) {
					if c.Manifest != "" {
						m, err := n.store.GetManifest(t.Context(), checkpoint.Ref{Name: c.Manifest, Digest: c.ManifestDigest})
						require.NoError(t, err)
						named = append(named, m.Committables...)
					}
				}
				rows, more := many(), many()[:3000]
				n.source.Add(0, rows...)
				time.AfterFunc(1500*time.Millisecond, func() { n.source.Add(0, more...) })
				require.ErrorIs(t, n.runFor(t, 5500*time.Millisecond), context.DeadlineExceeded)
				require.Equal(t, 1, fails.hits)
				require.Len(t, aborted, 1)
				require.ErrorIs(t, aborted[0], errStorage)
				require.Len(t, n.sink.restores, 1, "the generation lives")
				require.Equal(t, append(rows, more...), n.sink.rows())
				require.Equal(t, uint64(2), named[0].Checkpoint)
				require.Empty(t, named[0].Kept.Name)
				require.Equal(t, uint64(3), named[1].Checkpoint)
				require.NotEmpty(t, named[1].Kept.Name)
				require.Empty(t, recordFiles(t, dir))
			})
		})
	}
}

// What a generation leaves behind when it fails is collected by the next one, and it leaves no file open.
func TestRecordsOfADeadGenerationAreCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, dir := keeping(t)
		n.cfg.Interval = time.Minute
		n.source.Add(0, many()...)
		n.source.Add(0, many()...)
		require.ErrorIs(t, n.runFor(t, 2500*time.Millisecond), context.DeadlineExceeded)
		require.Empty(t, recordFiles(t, dir), "no barrier has passed: nothing names them")
		left := filepath.Join(dir, "records", n.lineage(t)+"-g1-n1-sink-0")
		require.NoError(t, os.WriteFile(left, []byte("killed here"), 0o600))
		n.cfg.Interval = time.Second
		require.ErrorIs(t, n.runFor(t, 2500*time.Millisecond), context.DeadlineExceeded)
		require.Len(t, n.sink.rows(), 10000)
		require.Empty(t, recordFiles(t, dir))
	})
}

// The status says of each open transaction how much of it is kept.
func TestTheStatusSaysWhatIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, dir := keeping(t)
		n.cfg.Interval = 3 * time.Second
		n.sink.commit = func(ctx context.Context, _ connector.Committable) error { <-ctx.Done(); return ctx.Err() }
		n.source.Add(0, many()...)
		n.source.Add(0, many()...)
		control := engine.NewControl()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		done := make(chan struct{})
		go func() { defer close(done); _, _ = n.run(ctx, control) }()
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		s := control.Status()
		require.Len(t, s.Transactions, 1)
		require.Zero(t, s.Transactions[0].Checkpoint)
		require.Greater(t, s.Transactions[0].Kept, int64(20_000), "of what is being written")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		s = control.Status()
		require.Len(t, s.Transactions, 1)
		info, err := os.Stat(recordFiles(t, dir)[0])
		require.NoError(t, err)
		require.Equal(t, info.Size(), s.Transactions[0].Kept)
		<-done
	})
}
