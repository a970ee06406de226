package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir"
	"example.com/weir/internal/kafkatest"
	"example.com/weir/internal/status"
)

// disk is a small file system that can be filled up.
type disk struct {
	dir  string
	size int
}

// newDisk mounts one, which not everybody may.
func newDisk(t *testing.T, size int) *disk {
	t.Helper()
	d := &disk{dir: t.TempDir(), size: size}
	if err := syscall.Mount("tmpfs", d.dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Skipf("no file system of its own for this test: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(d.dir, syscall.MNT_DETACH)) })
	return d
}

// fill takes all the space that is left.
func (d *disk) fill(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(d.dir, "filler"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	require.NoError(t, err)
	defer f.Close()
	page := bytes.Repeat([]byte{1}, os.Getpagesize())
	for range d.size / len(page) {
		if _, err = f.Write(page); err != nil {
			break
		}
	}
	require.True(t, err == nil || errors.Is(err, syscall.ENOSPC), "%v", err)
}

func (d *disk) free(t *testing.T) {
	t.Helper()
	require.NoError(t, os.Remove(filepath.Join(d.dir, "filler")))
}

// fillUp fills the disk until no checkpoint completes any more: those that were let go of had made room.
func (l *life) fillUp(t *testing.T, d *disk, p *process, says string) {
	t.Helper()
	for {
		done, failed := strings.Count(p.text(), "checkpoint completed"), strings.Count(p.text(), "no space left on device")
		d.fill(t)
		require.Eventually(t, func() bool {
			return strings.Count(p.text(), "no space left on device") > failed+1
		}, time.Minute, 5*time.Millisecond, "%s", p.text())
		if strings.Count(p.text(), "checkpoint completed") == done {
			break
		}
	}
	require.Regexp(t, says, p.text())
}

// The disk of the checkpoints fills up under the binary. It says so by name; what was on disk before is
// whole; within the tolerable failures it goes on when there is room again, and beyond them in another
// generation. A process that is killed while there is no room cannot begin, and says that too. The bill is
// exact.
func TestAFullDiskStopsCheckpointsAndNotTheTruth(t *testing.T) {
	d := newDisk(t, 4<<20)
	l := newLife(t, build(t), kafkatest.NewFake(t))
	l.checkpoints = filepath.Join(d.dir, "checkpoints")
	l.append(t, 2000)

	p := l.start(t, 2, "--checkpoint-interval", "200ms", "--tolerable-checkpoint-failures", "1000")
	l.fillUp(t, d, p, `level=WARN msg="checkpoint aborted" .*checkpoint=\d+ .*snapshots/.*no space left on device`)
	require.NotContains(t, p.text(), "generation failed")
	l.command(t, weir.ExitOK, "checkpoints", "verify")
	l.append(t, 2000)
	last := l.status(t).Checkpoints
	require.Contains(t, last.LastAborted, "no space left on device")
	d.free(t)
	l.until(t, func(s *status.Status) bool { return s.Checkpoints.Last > last.Last })
	require.NotContains(t, p.text(), "generation failed")
	l.command(t, weir.ExitOK, "stop")
	l.end(t, p, weir.ExitOK, "stopped")

	p = l.start(t, 1, "--checkpoint-interval", "200ms") // tolerates none
	l.append(t, 1000)
	const failed = `level=ERROR msg="generation failed" .*no space left on device.* restart_in=`
	l.fillUp(t, d, p, failed)
	last = l.status(t).Checkpoints
	d.free(t)
	l.until(t, func(s *status.Status) bool { return s.Checkpoints.Last > last.Last && s.Restarts > 0 })

	l.append(t, 1000)
	l.fillUp(t, d, p, failed)
	l.command(t, weir.ExitOK, "checkpoints", "verify")
	require.NoError(t, p.cmd.Process.Kill())
	p.ended(t)
	d.fill(t)
	p = startProcess(t, l.binary, l.args(l.checkpoints, 1)...)
	require.Equal(t, weir.ExitFailed, p.ended(t))
	require.Regexp(t, `level=ERROR msg="job ended" .*/checkpoints/.*no space left on device`, p.text())
	d.free(t)
	l.drain(t, l.start(t, 4))
}
