package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
	"example.com/weir/internal/protocol"
)

// TestOrderOfOperations pins what is asked of the file system, and in which order.
func TestOrderOfOperations(t *testing.T) {
	fsys := newMemFS()
	l := &life{retain: 1}
	datadriven.RunTest(t, "testdata/order", func(t *testing.T, d *datadriven.TestData) string {
		fsys.ops = nil
		var err error
		switch d.Cmd {
		case "open":
			l.s, err = openMem(fsys)
		case "claim":
			err = l.claim()
		case "checkpoint":
			var n uint64
			d.ScanArgs(t, "n", &n)
			err = l.checkpoint(n)
		case "collect":
			_, err = l.s.Collect(t.Context(), 1)
		}
		require.NoError(t, err)
		return strings.Join(fsys.ops, "\n") + "\n"
	})
}

// story is the life of two generations, the second of which finds that something was lost: what it does is the same in every run, up to an error.
func story(fsys *memFS, l *life) error {
	for generation := range 2 {
		var err error
		if l.s, err = openMem(fsys); err != nil {
			return err
		}
		if err := l.claim(); err != nil {
			return err
		}
		for range 2 * generation {
			if err := l.replace(); err != nil {
				return err
			}
		}
		for n := range uint64(2) {
			if err := l.checkpoint(uint64(generation)*2 + n + 1); err != nil {
				return err
			}
		}
	}
	return nil
}

// requireOrderly opens what a crash left and checks it: CURRENT is what the last answered swap
// said, or what the swap that was out asked for, and what it names is complete. goOn lets the next
// generation live on it, and clean up.
func requireOrderly(t *testing.T, left *memFS, l *life, goOn bool) {
	t.Helper()
	s, err := openMem(left)
	require.NoError(t, err)
	cur := requireComplete(t, s)
	asked := l.asked
	asked.Nonce = cur.Nonce
	if cur != l.cur && cur != asked {
		require.Failf(t, "CURRENT", "is %s, not %s or %s", cur, l.cur, asked)
	}
	requireManifestsSound(t, s)

	if !goOn {
		return
	}
	next := &life{s: s, retain: 1}
	require.NoError(t, next.claim())
	require.NoError(t, next.checkpoint(cur.Checkpoint+1))
	requireComplete(t, s)
	names, err := left.List(manifestsDir)
	require.NoError(t, err)
	require.Len(t, names, 1, "leftovers of a dead generation are collected")
	snapshots, err := left.List(snapshotsDir)
	require.NoError(t, err)
	require.Len(t, snapshots, 2)
}

func TestCrashBetweenAnyTwoOperations(t *testing.T) {
	for _, how := range []crash{killed, powerLost, entriesOnDisk} {
		fsys, l := newMemFS(), &life{retain: 2}
		fsys.before = func() {
			if l.s != nil { // the directories are there
				requireOrderly(t, fsys.crashed(how), l, how == powerLost)
			}
		}
		require.NoError(t, story(fsys, l))
		require.Greater(t, len(fsys.ops), 100)
	}
}

// TestAnyFailedOperation fails each operation in turn. CURRENT still names a complete checkpoint;
// a failed fsync ends the use of the store, and a swap that may have happened says so.
func TestAnyFailedOperation(t *testing.T) {
	for _, after := range []bool{false, true} {
		for k := 1; ; k++ {
			fsys, l := newMemFS(), &life{retain: 2}
			fsys.failAt, fsys.after = k, after
			err := story(fsys, l)
			if fsys.failed == "" {
				require.NoError(t, err)
				require.Greater(t, k, 100)
				break
			}
			if after && !strings.HasPrefix(fsys.failed, "rename ") {
				continue // it makes a difference to a rename alone
			}
			t.Run(fmt.Sprintf("%d %s", k, fsys.failed), func(t *testing.T) {
				require.ErrorIs(t, err, errInjected)
				requireErrorFits(t, fsys, l, err)
				if fsys.dirs[committablesDir] == nil {
					return // it was the making of the directories
				}
				for _, how := range []crash{killed, powerLost, entriesOnDisk} {
					requireOrderly(t, fsys.crashed(how), l, how == killed)
				}
			})
		}
	}
}

func requireErrorFits(t *testing.T, fsys *memFS, l *life, err error) {
	t.Helper()
	fsync := strings.HasPrefix(fsys.failed, "fsync ")
	require.Equal(t, fsync, connector.IsStop(err), "a failed fsync stops the job, and nothing else: %v", err)
	mayHaveSwapped := strings.HasPrefix(fsys.failed, "rename CURRENT.tmp") ||
		fsys.failed == "fsync ./" && l.s != nil && l.cur != l.asked
	require.Equal(t, mayHaveSwapped, errors.Is(err, ErrSwapUnknown), "%v", err)
	if !fsync || l.s == nil {
		return
	}
	ctx, ops := context.Background(), len(fsys.ops)
	_, again := l.s.Swap(ctx, l.cur, l.cur)
	require.ErrorIs(t, again, errInjected)
	require.True(t, connector.IsStop(again))
	_, again = l.s.PutSnapshot(ctx, SnapshotName{Lineage: testLineage, Generation: 9, Checkpoint: 9}, nil)
	require.ErrorIs(t, again, errInjected)
	_, again = l.s.PutManifest(ctx, Manifest{Lineage: testLineage, Generation: 9, Checkpoint: 9})
	require.ErrorIs(t, again, errInjected)
	_, again = l.s.Collect(ctx, 1)
	require.ErrorIs(t, again, errInjected)
	require.Len(t, fsys.ops, ops, "nothing is written after a failed fsync")
}

// TestStaleManifestOfADeadGeneration: generation 1 wrote a manifest 2 that CURRENT never named.
// Generation 2 writes its own, which is another file, and clean-up takes the stale one.
func TestStaleManifestOfADeadGeneration(t *testing.T) {
	fsys, l := newMemFS(), &life{retain: 5}
	l.s, _ = openMem(fsys)
	require.NoError(t, l.claim())
	require.NoError(t, l.checkpoint(1))
	m, err := l.manifest(2)
	require.NoError(t, err)
	stale, err := l.s.PutManifest(t.Context(), m)
	require.NoError(t, err)

	l.s, _ = openMem(fsys)
	require.NoError(t, l.claim())
	_, err = l.s.GetManifest(t.Context(), stale)
	require.NoError(t, err)
	require.NoError(t, l.checkpoint(2))
	requireComplete(t, l.s)
	_, err = l.s.readManifest(t.Context(), stale)
	require.ErrorContains(t, err, "file does not exist")
	retained, err := Retained(t.Context(), l.s)
	require.NoError(t, err)
	require.Len(t, retained, 2)
}

// TestCollectKeepsWhatIsBeingWritten: a clean-up runs while the next checkpoint is half written.
func TestCollectKeepsWhatIsBeingWritten(t *testing.T) {
	l := &life{retain: 1}
	l.s, _ = openMem(newMemFS())
	require.NoError(t, l.claim())
	require.NoError(t, l.checkpoint(1))
	m, err := l.manifest(2)
	require.NoError(t, err)
	ref, err := l.s.PutManifest(t.Context(), m)
	require.NoError(t, err)
	n, err := l.s.Collect(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, Collected{}, n)
	got, err := l.s.GetManifest(t.Context(), ref)
	require.NoError(t, err)
	requireSound(t, l.s, got)
}

// TestCollectTouchesNothingElse: other lineages' files, and files of no known name, stay.
func TestCollectTouchesNothingElse(t *testing.T) {
	fsys, l := newMemFS(), &life{retain: 1}
	l.s, _ = openMem(fsys)
	require.NoError(t, l.claim())
	others := []string{
		"manifests/notes.txt", "manifests/0000000000000001-g1-c1.json",
		"snapshots/0000000000000001-g1-c1-assemble-0", "snapshots/" + testLineage + "-g1",
	}
	for _, name := range others {
		require.NoError(t, l.s.write(name, true, []byte("x")))
	}
	require.NoError(t, l.checkpoint(1))
	require.NoError(t, l.checkpoint(2))
	for _, name := range others {
		_, err := fsys.ReadFile(name)
		require.NoError(t, err)
	}
}

// TestSwapOfASupersededProcess: two stores on one directory, as if the lock did not exist.
func TestSwapOfASupersededProcess(t *testing.T) {
	fsys := newMemFS()
	a, b := &life{retain: 1}, &life{retain: 1}
	a.s, _ = openMem(fsys)
	require.NoError(t, a.claim())
	require.NoError(t, a.checkpoint(1))
	b.s, _ = openMem(fsys)
	b.s.nonce = func() string { return "another" }
	require.NoError(t, b.claim())

	err := a.checkpoint(2)
	require.ErrorIs(t, err, ErrSwapRefused)
	require.ErrorIs(t, err, connector.ErrSuperseded)
	var refused *SwapRefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, b.cur, refused.Have)
	require.NotZero(t, refused.By.PID)
	require.Equal(t, uint64(1), requireComplete(t, b.s).Checkpoint)

	// The same generation and checkpoint with another nonce is somebody else's, too.
	forged := b.cur
	forged.Nonce = "guessed"
	_, err = b.s.Swap(t.Context(), forged, b.cur)
	require.ErrorIs(t, err, ErrSwapRefused)
	_, err = b.s.Swap(t.Context(), protocol.Current{}, b.cur)
	require.ErrorIs(t, err, ErrSwapRefused, "CURRENT is not created over one that exists")
}

// TestLargeCommittableIsWrittenOnce: it travels in two manifests, and in one file.
func TestLargeCommittableIsWrittenOnce(t *testing.T) {
	fsys, l := newMemFS(), &life{retain: 5}
	l.s, _ = openMem(fsys)
	require.NoError(t, l.claim())
	require.NoError(t, l.checkpoint(1))
	require.NoError(t, l.checkpoint(2))
	written := 0
	for _, op := range fsys.ops {
		if strings.HasPrefix(op, "create committables/") {
			written++
		}
	}
	require.Equal(t, 2, written)
	_, m, err := Latest(t.Context(), l.s)
	require.NoError(t, err)
	require.Len(t, m.Committables, 3)
	require.Equal(t, committableOf(1, inlineLimit+1), m.Committables[1])
}

// TestClaimMakesDurableWhatWasRead: a process dies after its rename of CURRENT and before the
// fsync, and the kernel lives on. The next process reads checkpoint 2 and claims; then the power
// goes. Had the claim not made durable what was read, checkpoint 2 would be gone, with whatever
// was committed for it.
func TestClaimMakesDurableWhatWasRead(t *testing.T) {
	fsys, l := newMemFS(), &life{retain: 2}
	l.s, _ = openMem(fsys)
	require.NoError(t, l.claim())
	require.NoError(t, l.checkpoint(1))
	dead := false
	fsys.before = func() { // what it asks for after the rename is never done
		if n := len(fsys.ops); !dead && strings.HasPrefix(fsys.ops[n-1], "rename CURRENT.tmp") {
			dead = true
			fsys.failAt = n + 1
		}
	}
	require.ErrorIs(t, l.checkpoint(2), ErrSwapUnknown)
	fsys.failAt = 0

	next := &life{retain: 2}
	next.s, _ = openMem(fsys)
	require.NoError(t, next.claim())
	require.Equal(t, uint64(2), next.cur.Checkpoint)
	s, err := openMem(fsys.crashed(powerLost))
	require.NoError(t, err)
	require.Equal(t, next.cur, requireComplete(t, s))
}
