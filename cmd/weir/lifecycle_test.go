package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/weir"
	"example.com/weir/apps/gatewaymeter/truebill"
	"example.com/weir/internal/control"
	"example.com/weir/internal/kafkatest"
	"example.com/weir/internal/status"
)

// process is a run of the binary.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}

	mu    sync.Mutex
	log   bytes.Buffer
	grown chan struct{} // holds a token when the log has grown
}

func startProcess(t *testing.T, binary string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(binary, args...), done: make(chan struct{}), grown: make(chan struct{}, 1)}
	p.cmd.Stderr = p
	require.NoError(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("%s", p.text())
		}
		for line := range strings.Lines(p.text()) { // whatever else this run was for
			if strings.HasPrefix(line, "time=") {
				require.Regexp(t, ` job=\w+`, line, "a line of the log names no job")
			}
		}
	})
	return p
}

// Write gathers the log.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case p.grown <- struct{}{}:
	default:
	}
	return p.log.Write(b)
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// await waits until the log says something.
func (p *process) await(t *testing.T, pattern string) {
	t.Helper()
	re, end := regexp.MustCompile(pattern), time.After(time.Minute)
	for !re.MatchString(p.text()) {
		select {
		case <-p.grown:
		case <-p.done:
			require.Regexp(t, re, p.text(), "the process has ended")
		case <-end:
			require.Regexp(t, re, p.text(), "a minute has passed")
		}
	}
}

// saysWithin reports whether the process logs something before the time is up.
func (p *process) saysWithin(d time.Duration, pattern string) bool {
	re, end := regexp.MustCompile(pattern), time.After(d)
	for !re.MatchString(p.text()) {
		select {
		case <-p.grown:
		case <-p.done:
			return re.MatchString(p.text())
		case <-end:
			return false
		}
	}
	return true
}

// ended waits for the end, and returns the exit code.
func (p *process) ended(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		require.Fail(t, "the process does not end")
	}
	return p.cmd.ProcessState.ExitCode()
}

// life is a job that is stopped and started over one storage.
type life struct {
	*topic
	binary, checkpoints string
}

func newLife(t *testing.T, binary string, b *kafkatest.Broker) *life {
	return &life{topic: newTopic(t, b), binary: binary, checkpoints: t.TempDir()}
}

func (l *life) storage() string { return "file://" + l.checkpoints }

// startAnyhow runs the job without an end, whatever comes of it.
func (l *life) startAnyhow(t *testing.T, parallelism int, more ...string) *process {
	t.Helper()
	args := slices.DeleteFunc(l.args(l.checkpoints, parallelism), func(a string) bool { return a == "--until-end" })
	return startProcess(t, l.binary, append(args, more...)...)
}

// start runs the job without an end, until it has completed some checkpoints.
func (l *life) start(t *testing.T, parallelism int, more ...string) *process {
	t.Helper()
	p := l.startAnyhow(t, parallelism, more...)
	p.await(t, `(?s)(checkpoint completed.*){3}`)
	return p
}

// end waits for the end of a process.
func (l *life) end(t *testing.T, p *process, code int, outcome string) {
	t.Helper()
	require.Equal(t, code, p.ended(t), "%s", p.text())
	require.Regexp(t, `msg="job ended" .*outcome=`+outcome+" ", p.text())
	require.NoFileExists(t, filepath.Join(l.checkpoints, control.FileName))
}

// until waits until the running job is so.
func (l *life) until(t *testing.T, is func(s *status.Status) bool) {
	t.Helper()
	client, err := control.Find(l.checkpoints)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		s, err := client.Status(t.Context())
		return err == nil && is(&s)
	}, time.Minute, 5*time.Millisecond)
}

// caughtUp waits until everything that was written has been read.
func (l *life) caughtUp(t *testing.T) {
	t.Helper()
	offset := regexp.MustCompile(`^(\d+)$`)
	l.until(t, func(s *status.Status) bool {
		read := 0
		for _, o := range s.Operators {
			for i := range o.Subtasks {
				for _, sp := range o.Subtasks[i].Splits {
					if at := offset.FindStringSubmatch(sp.Position); at != nil {
						n, _ := strconv.Atoi(at[1])
						read += n
					}
				}
			}
		}
		return read == len(l.records)
	})
}

// command runs another command of the binary over the job's storage.
func (l *life) command(t *testing.T, code int, args ...string) string {
	t.Helper()
	cmd := exec.Command(l.binary, append(args, "--storage", l.storage())...)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	_ = cmd.Run()
	require.Equal(t, code, cmd.ProcessState.ExitCode(), "%v: %s%s", args, &out, &log)
	return strings.TrimSpace(out.String() + log.String())
}

func (l *life) status(t *testing.T) status.Status {
	t.Helper()
	var s status.Status
	require.NoError(t, json.Unmarshal([]byte(l.command(t, weir.ExitOK, "status", "--format", "json")), &s))
	return s
}

// drain ends the job with all that was written counted, and holds its bill against the true one.
func (l *life) drain(t *testing.T, p *process) {
	t.Helper()
	l.caughtUp(t)
	require.Equal(t, "job gatewaymeter finished", l.command(t, weir.ExitOK, "stop", "--drain"))
	l.end(t, p, weir.ExitOK, "finished")
	bill, err := truebill.Compute(truebill.Config{}, l.prices, l.records)
	require.NoError(t, err)
	l.requireBill(t, bill)
}

// A job is ended in every way there is, at one parallelism and another, while its topic grows. Its bill
// is the true one at the end, and nobody finds the door to it once it is closed.
func TestABillGoesThroughEveryWayToEnd(t *testing.T) {
	binary := build(t)
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		l := newLife(t, binary, b)
		l.append(t, 3000)

		p := l.start(t, 2) // SIGTERM
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
		l.end(t, p, weir.ExitOK, "stopped")
		s := l.status(t)
		require.Equal(t, status.Ended, s.State)
		require.Equal(t, "stopped", s.Outcome)
		require.Contains(t, l.command(t, weir.ExitOK, "stop"), "job gatewaymeter stopped at checkpoint ")
		l.command(t, weir.ExitFailed, "stop", "--drain")

		p = l.start(t, 4) // stop
		l.append(t, 2000)
		s = l.status(t)
		require.Equal(t, status.Running, s.State)
		require.True(t, s.Ready())
		require.Equal(t, 4, s.Parallelism)
		require.Equal(t, "job gatewaymeter stopped", l.command(t, weir.ExitOK, "stop"))
		l.end(t, p, weir.ExitOK, "stopped")

		p = l.start(t, 1) // a second signal
		l.append(t, 2000)
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGINT))
		code := p.ended(t)
		if code == weir.ExitOK { // the last checkpoint was faster
			l.end(t, p, code, "stopped")
		} else {
			l.end(t, p, weir.ExitInterrupted, "interrupted")
			require.Contains(t, l.command(t, weir.ExitFailed, "stop"), "did not end in order")
		}

		p = l.start(t, 2) // SIGKILL: it leaves its file, and nobody is there
		require.NoError(t, p.cmd.Process.Kill())
		p.ended(t)
		require.FileExists(t, filepath.Join(l.checkpoints, control.FileName))
		require.Contains(t, l.command(t, weir.ExitFailed, "stop"), "no job is running here (last: process "+
			strconv.Itoa(p.cmd.Process.Pid))
		require.Equal(t, status.Ended, l.status(t).State)

		p = l.start(t, 4)
		l.append(t, 500)
		l.drain(t, p)
		for _, parallelism := range []int{4, 1} { // started again, a finished job is finished
			require.Equal(t, "finished", l.status(t).Outcome)
			require.Contains(t, l.command(t, weir.ExitOK, "stop", "--drain"), "job gatewaymeter finished at checkpoint ")
			l.end(t, l.startAnyhow(t, parallelism), weir.ExitOK, "finished")
		}
		require.Equal(t, "finished", l.status(t).Outcome)
	})
}

// holdCommits has the brokers answer that a transaction cannot be committed yet, while it is set.
func holdCommits(b *kafkatest.Broker) *atomic.Bool {
	var hold atomic.Bool
	b.Fake.ControlKey(int16(kmsg.EndTxn), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		if !hold.Load() {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.EndTxnResponse)
		resp.Default()
		resp.ErrorCode = kerr.ConcurrentTransactions.Code
		return resp, nil, true
	})
	return &hold
}

// A job that cannot settle its last checkpoint does not stop by itself. A second signal ends it, and so
// does the grace period, each at once and with an exit code of its own; what was not committed then is
// by the next start.
func TestAJobThatCannotStopEndsAtOnceAndLosesNothing(t *testing.T) {
	binary := build(t)
	b := kafkatest.NewFake(t)
	hold, l := holdCommits(b), newLife(t, binary, b)
	for name, c := range map[string]struct {
		grace string
		again os.Signal
		want  string
	}{
		"second signal":       {"1h", syscall.SIGTERM, "ended by a second signal"},
		"another signal":      {"1h", os.Interrupt, "ended by a second signal"},
		"end of grace period": {"300ms", nil, "the grace period has passed"},
	} {
		hold.Store(false)
		p := l.start(t, 2, "--stop-grace", c.grace)
		hold.Store(true)
		l.append(t, 6000) // more than a minute
		l.until(t, func(s *status.Status) bool { return len(s.Transactions) > 0 })
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
		p.await(t, "stopping after a last checkpoint")
		if c.again != nil {
			require.NoError(t, p.cmd.Process.Signal(c.again))
		}
		l.end(t, p, weir.ExitInterrupted, "interrupted")
		require.Contains(t, p.text(), c.want, name)
		require.Contains(t, l.command(t, weir.ExitFailed, "stop"), "did not end in order", name)
	}
	hold.Store(false)
	l.drain(t, l.start(t, 1))
}

// One process owns the checkpoints. A second one is told who, and leaves the first one's door alone.
func TestASecondProcessIsToldWhoRunsTheJob(t *testing.T) {
	binary := build(t)
	l := newLife(t, binary, kafkatest.NewFake(t))
	l.append(t, 100)
	p := l.start(t, 1)
	second := startProcess(t, binary, l.args(l.checkpoints, 1)...)
	require.Equal(t, weir.ExitSuperseded, second.ended(t))
	require.Contains(t, second.text(), "is held by process "+strconv.Itoa(p.cmd.Process.Pid))
	require.Equal(t, "job gatewaymeter stopped", l.command(t, weir.ExitOK, "stop"))
	l.end(t, p, weir.ExitOK, "stopped")
}

// A savepoint is taken of a job that runs and of one that does not.
func TestSavepointsAreTakenOfAnyJob(t *testing.T) {
	binary := build(t)
	l := newLife(t, binary, kafkatest.NewFake(t))
	l.append(t, 1000)
	p := l.start(t, 2)
	require.Contains(t, l.command(t, weir.ExitOK, "savepoint", "running"), "savepoint running: checkpoint ")
	require.Contains(t, l.command(t, weir.ExitFailed, "savepoint", "running"), "a savepoint of that name exists")
	l.command(t, weir.ExitUsage, "savepoint", "17")
	require.Contains(t, l.command(t, weir.ExitOK, "savepoint", "running", "--delete"), "deleted")
	require.Contains(t, l.command(t, weir.ExitOK, "savepoint", "running"), "savepoint running: checkpoint ")
	l.command(t, weir.ExitOK, "stop")
	l.end(t, p, weir.ExitOK, "stopped")
	require.Contains(t, l.command(t, weir.ExitOK, "savepoint", "stopped"), "savepoint stopped: checkpoint ")
	require.Contains(t, l.command(t, weir.ExitOK, "savepoint", "running", "--delete"), "deleted")
	require.Contains(t, l.command(t, weir.ExitFailed, "savepoint", "running", "--delete"), "no such savepoint")
	l.drain(t, l.start(t, 1))
}

// A savepoint is gone on from while nothing has been committed since; behind that it is a rewind, which is
// refused. It can be looked at, with all other checkpoints, while the job runs and while it does not.
func TestAJobGoesOnFromASavepoint(t *testing.T) {
	binary := build(t)
	l := newLife(t, binary, kafkatest.NewFake(t))
	l.append(t, 1000)
	p := l.start(t, 2)
	l.command(t, weir.ExitOK, "stop")
	l.end(t, p, weir.ExitOK, "stopped")
	l.command(t, weir.ExitOK, "savepoint", "here")
	require.Regexp(t, `current, settled +here`, l.command(t, weir.ExitOK, "checkpoints", "list"))
	require.Contains(t, l.command(t, weir.ExitOK, "checkpoints", "show", "here"), "assemble")
	require.Contains(t, l.command(t, weir.ExitOK, "checkpoints", "verify"), "every file is what was written")
	require.Contains(t, l.command(t, weir.ExitOK, "checkpoints", "gc"), "nothing refers to ")

	p = l.start(t, 1, "--restore", "here")
	require.Contains(t, l.command(t, weir.ExitSuperseded, "checkpoints", "gc", "--delete"), "is held by process")
	require.Contains(t, l.command(t, weir.ExitOK, "checkpoints", "list"), "here")
	l.append(t, 8000) // minutes close
	l.caughtUp(t)
	l.command(t, weir.ExitOK, "stop")
	l.end(t, p, weir.ExitOK, "stopped")
	l.command(t, weir.ExitOK, "savepoint", "later")

	p = startProcess(t, binary, append(l.args(l.checkpoints, 1), "--restore", "nowhere")...)
	require.Equal(t, weir.ExitRefused, p.ended(t))
	require.Contains(t, p.text(), "nowhere")
	l.command(t, weir.ExitOK, "checkpoints", "gc", "--delete")
	l.drain(t, l.start(t, 2, "--restore", "later"))
}
