package checkpoint

import (
	"bufio"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
	"example.com/weir/internal/protocol"
)

// holdEnv makes the test binary a process that owns a directory until it is killed.
const holdEnv = "WEIR_TEST_HOLD"

func TestMain(m *testing.M) {
	if address := os.Getenv(holdEnv); address != "" {
		_, err := Open(address, Options{Job: "gatewaymeter"})
		if err != nil {
			_, _ = os.Stdout.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		_, _ = os.Stdout.WriteString("held\n")
		_, _ = os.Stdin.Read(make([]byte, 1)) // until the parent goes away
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestSecondProcessIsToldWhoHoldsTheDirectory uses two real processes. The lock of one that is
// killed is free at once, and its file stays.
func TestSecondProcessIsToldWhoHoldsTheDirectory(t *testing.T) {
	address := "file://" + t.TempDir()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), holdEnv+"="+address)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	before := time.Now().Add(-time.Second)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "held\n", line)

	_, err = Open(address, testOptions())
	var locked *LockedError
	require.ErrorAs(t, err, &locked)
	host, err := os.Hostname()
	require.NoError(t, err)
	require.Equal(t, cmd.Process.Pid, locked.Holder.PID)
	require.Equal(t, host, locked.Holder.Host)
	require.True(t, locked.Holder.Since.After(before))
	require.False(t, connector.IsStop(locked), "it may be waited for")

	looking, err := Open(address, Options{Job: "gatewaymeter", ReadOnly: true})
	require.NoError(t, err, "looking takes no lock")
	require.NoError(t, looking.Close())

	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	s, err := Open(address, testOptions())
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

// Somebody takes LOCK for stale and deletes it. The directory is still the first one's.
func TestADeletedLockLetsNobodyIn(t *testing.T) {
	dir := t.TempDir()
	s, err := Open("file://"+dir, testOptions())
	require.NoError(t, err)
	for range 2 { // what the refused one made of LOCK lets nobody in either
		require.NoError(t, os.Remove(filepath.Join(dir, lockName)))
		_, err = Open("file://"+dir, testOptions())
		var locked *LockedError
		require.ErrorAs(t, err, &locked)
		require.Zero(t, locked.Holder)
		_, err = Open("file://"+dir, testOptions())
		require.ErrorAs(t, err, &locked)
	}
	require.NoError(t, s.Close())
	s, err = Open("file://"+dir, testOptions())
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

func TestSecondStoreInOneProcessIsRefused(t *testing.T) {
	address := "file://" + t.TempDir()
	s, err := Open(address, testOptions())
	require.NoError(t, err)
	_, err = Open(address, testOptions())
	var locked *LockedError
	require.ErrorAs(t, err, &locked)
	require.Equal(t, os.Getpid(), locked.Holder.PID)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "closing twice is nothing")
	_, err = s.Swap(t.Context(), protocol.Current{}, protocol.Current{})
	require.ErrorContains(t, err, "closed")
	s, err = Open(address, testOptions())
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

func TestFilesAreTheOwnersAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	l := &life{retain: 1}
	s, err := Open("file://"+dir, testOptions())
	require.NoError(t, err)
	defer s.Close()
	l.s = s.(*dirStore)
	require.NoError(t, l.claim())
	require.NoError(t, l.checkpoint(1))
	require.NoError(t, l.checkpoint(2))
	seen := 0
	require.NoError(t, filepath.WalkDir(filepath.Dir(dir), func(name string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := d.Info()
		require.NoError(t, err)
		want := fs.FileMode(0o600)
		if d.IsDir() {
			want = 0o700 | fs.ModeDir
		}
		require.Equal(t, want, info.Mode(), name)
		seen++
		return nil
	}))
	require.Equal(t, 13, seen, "2+4 directories, CURRENT, LOCK, 1 manifest, 2 snapshots, 2 committables")
	requireComplete(t, l.s)
}

func TestReadOnlyWritesNothing(t *testing.T) {
	dir := t.TempDir()
	opts := testOptions()
	opts.ReadOnly = true
	s, err := Open("file://"+dir, opts)
	require.NoError(t, err)
	cur, err := s.Current(t.Context())
	require.NoError(t, err)
	require.False(t, cur.Exists())
	_, err = s.Swap(t.Context(), cur, cur)
	require.ErrorIs(t, err, ErrReadOnly)
	_, err = s.PutSnapshot(t.Context(), SnapshotName{Lineage: testLineage, Generation: 1, Checkpoint: 1}, nil)
	require.ErrorIs(t, err, ErrReadOnly)
	_, err = s.Collect(t.Context(), 1)
	require.ErrorIs(t, err, ErrReadOnly)
	require.NoError(t, s.Close())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
	_, err = Open("file://"+filepath.Join(dir, "missing"), opts)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestNamesCannotLeaveTheDirectory(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "secret"), []byte("x"), 0o600))
	s, err := Open("file://"+filepath.Join(dir, "store"), testOptions())
	require.NoError(t, err)
	defer s.Close()
	_, err = s.GetSnapshot(t.Context(), protocol.Handle{Name: "../secret"})
	require.ErrorContains(t, err, "escapes")
	_, err = s.GetManifest(t.Context(), Ref{Name: "../secret"})
	require.ErrorContains(t, err, "escapes")
}

func TestCancelledContext(t *testing.T) {
	s, err := openMem(newMemFS())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Current(ctx)
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.Swap(ctx, protocol.Current{}, protocol.Current{})
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.PutSnapshot(ctx, SnapshotName{Lineage: testLineage, Generation: 1, Checkpoint: 1}, nil)
	require.ErrorIs(t, err, context.Canceled)
}

func TestAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"file:///var/lib/weir":          "/var/lib/weir",
		"file:/var/lib/weir":            "/var/lib/weir",
		"file://localhost/var/lib/weir": "/var/lib/weir",
		"file:state":                    "state",
		"file:./state":                  "./state",
		"file://./state":                "./state",
		"file://../state":               "../state",
		"file:///with%20space":          "/with space",
	} {
		got, err := parseAddress(address)
		require.NoError(t, err, address)
		require.Equal(t, want, got, address)
	}
	for address, want := range map[string]string{
		"":                 "an address is wanted, such as file:///var/lib/weir",
		"/var/lib/weir":    "an address is wanted, such as file:///var/lib/weir",
		"s3://bucket/weir": `scheme "s3" is not supported; supported is: file`,
		"file://var/lib":   `it names host "var"; write file:///absolute/path`,
		"file:":            "it names no directory; write file:///absolute/path",
		"file://":          "it names no directory; write file:///absolute/path",
		"file:///%zz":      `invalid URL escape "%zz"`,
	} {
		_, err := Open(address, testOptions())
		require.ErrorContains(t, err, want, address)
		require.True(t, connector.IsStop(err), address)
	}
}

func TestNetworkFileSystemIsRefusedByName(t *testing.T) {
	err := acceptFileSystem("/mnt/share", "nfs", "fuse")
	require.EqualError(t, err, "/mnt/share is on a file system that is refused, nfs: "+
		"locks and fsync cannot be relied on there; use a local disk")
	require.True(t, connector.IsStop(err))
	require.NoError(t, acceptFileSystem("/mnt/share", "nfs", "nfs"))
	require.NoError(t, acceptFileSystem("/var/lib/weir", "", ""))
}
