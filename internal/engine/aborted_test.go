package engine_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/engine"
	"example.com/weir/internal/protocol"
)

// fullStore is a directory in which checkpoints fail for as long as it is full: behind some of their files.
type fullStore struct {
	checkpoint.Store
	how  string
	full atomic.Bool
}

func (s *fullStore) PutSnapshot(
	ctx context.Context, name checkpoint.SnapshotName, payload ...[]byte,
) (protocol.Handle, error) {
	if s.full.Load() && name.Subtask.String() == "delay[1]" {
		switch s.how {
		case "a snapshot fails":
			return protocol.Handle{}, errStorage
		case "a snapshot takes too long":
			select {
			case <-time.After(3 * time.Second):
			case <-ctx.Done():
				return protocol.Handle{}, ctx.Err()
			}
		}
	}
	return s.Store.PutSnapshot(ctx, name, payload...)
}

func (s *fullStore) PutManifest(ctx context.Context, m checkpoint.Manifest) (checkpoint.Ref, error) {
	if s.full.Load() && s.how == "the manifest fails" {
		return checkpoint.Ref{}, errStorage
	}
	return s.Store.PutManifest(ctx, m)
}

// While checkpoints fail, one after the other or one a generation, what they leave on disk does not grow;
// and what they wrote is all there once one completes.
func TestCheckpointsThatFailTakeNoMoreOfTheDisk(t *testing.T) {
	for _, c := range []struct {
		how       string
		tolerable int
	}{
		{"a snapshot fails", 0},
		{"a snapshot fails", 1000},
		{"a snapshot takes too long", 1000},
		{"the manifest fails", 1000},
	} {
		t.Run(fmt.Sprintf("%s, %d are tolerated", c.how, c.tolerable), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { failUntilHealed(t, c.how, c.tolerable) })
		})
	}
}

func failUntilHealed(t *testing.T, how string, tolerable int) {
	dir := t.TempDir()
	disk, err := checkpoint.Open("file://"+dir, checkpoint.Options{Job: "faults"})
	require.NoError(t, err)
	defer func() { require.NoError(t, disk.Close()) }()
	store, m := &fullStore{Store: disk, how: how}, newMeters(0, nil)
	begin, want := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC), map[string]int{}
	add := func(meter int, at time.Time) {
		m.source.Add(meter%3, reading{Meter: fmt.Sprint("m", meter), At: at, N: 1})
		want[fmt.Sprintf("m%d %s", meter, at.Truncate(time.Minute).Add(time.Minute).Format("15:04"))]++
	}
	run := func() (stop func() error) {
		control, ended := engine.NewControl(), make(chan error, 1)
		go func() {
			_, err := engine.Run(t.Context(), m.plan(2), engine.RunConfig{
				Store: store, Interval: 500 * time.Millisecond, Timeout: time.Second,
				TolerableFailures: tolerable, Restart: protocol.FixedDelay{Delay: 100 * time.Millisecond},
			}, control)
			ended <- err
		}()
		return func() error { control.Stop(false); return <-ended }
	}
	for i := range 2200 { // so many that a cut does not hold all of them whole
		add(i, begin)
	}
	stop := run()
	time.Sleep(4 * time.Second)
	store.full.Store(true)
	most := func(seconds int) (n int) {
		for i := range seconds {
			add(i%7, begin.Add(time.Duration(i)*time.Second))
			time.Sleep(time.Second)
			n = max(n, files(t, dir))
		}
		return n
	}
	early := most(8)
	require.LessOrEqual(t, most(24), 2*early, "early on they were %d", early)
	store.full.Store(false)
	time.Sleep(4 * time.Second)
	require.NoError(t, stop())
	m.source.AdvanceTo(begin.Add(24 * time.Hour))
	stop = run() // restored
	time.Sleep(4 * time.Second)
	require.NoError(t, stop())
	got := map[string]int{}
	for _, r := range m.sink.Rows() {
		got[r.Meter+" "+r.End.Format("15:04")] = r.Sum
	}
	require.Equal(t, want, got)
}

func files(t *testing.T, dir string) int {
	t.Helper()
	all, err := os.ReadDir(filepath.Join(dir, "snapshots"))
	require.NoError(t, err)
	return len(all)
}
