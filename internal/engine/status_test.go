package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
	"example.com/weir/internal/engine"
	"example.com/weir/internal/protocol"
	"example.com/weir/internal/status"
	"example.com/weir/weirtest"
)

// started runs a job until the test ends.
func started(t *testing.T, job func(ctx context.Context, c *engine.Control) (protocol.Outcome, error)) *engine.Control {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	control, done := engine.NewControl(), make(chan struct{})
	go func() {
		defer close(done)
		_, _ = job(ctx, control)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return control
}

func TestStatusCountsForEachOperatorAndTimesForEachChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSlowWindows(2 * time.Second)
		w.source.Add(0, reading{Meter: "a", At: ten, N: 1}, reading{Meter: "b", At: ten.Add(time.Second), N: 2},
			reading{Meter: "a", At: ten.Add(90 * time.Second), N: 3}, reading{Meter: "b", At: ten, N: 4})
		control := started(t, func(ctx context.Context, c *engine.Control) (protocol.Outcome, error) { return w.run(ctx, c) })
		time.Sleep(12500 * time.Millisecond)
		s := control.Status()
		var lines []string
		for _, o := range s.Operators {
			x := o.Subtasks[0]
			lines = append(lines, fmt.Sprintf("%s %s in %s behind %v: %d in, %d out, %d late; busy %s, idle %s; %d keys, %d timers",
				o.Kind, o.UID, o.Chain, o.Inputs, x.RecordsIn, x.RecordsOut, x.Late, x.Busy, x.Idle, x.StateKeys, x.Timers))
		}
		require.Equal(t, []string{
			"source readings in readings behind []: 4 in, 4 out, 0 late; busy 8s, idle 4.5s; 0 keys, 0 timers",
			"map slow in readings behind [readings]: 4 in, 4 out, 0 late; busy 0s, idle 0s; 0 keys, 0 timers",
			"window sum in sum behind [slow]: 4 in, 2 out, 1 late; busy 0s, idle 12.5s; 1 keys, 2 timers",
			"sink sink in sum behind [sum]: 2 in, 2 out, 0 late; busy 0s, idle 0s; 0 keys, 0 timers",
		}, lines)
		require.Equal(t, ten.Add(90*time.Second), *s.Operators[0].Subtasks[0].Watermark)
		require.Equal(t, ten.Add(90*time.Second), *s.Operators[3].Subtasks[0].Watermark)
		require.Equal(t, 1, s.Committed)
	})
}

// A scrape that finds a total lower than the one before takes the process for a new one.
func TestNoCounterGoesBackInARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers()
		n.cfg.Restart = protocol.FixedDelay{Delay: 3 * time.Second}
		n.source.Add(0, 1, 2, 3)
		n.sink.commit = func(context.Context, connector.Committable) error { return errors.New("the outside is away") }
		control := started(t, n.run)
		var last status.Status
		seen := map[status.State]bool{}
		for range 400 {
			time.Sleep(50 * time.Millisecond)
			s := control.Status()
			seen[s.State] = true
			require.Len(t, s.Operators, 2, s.State)
			for i := range last.Operators {
				was, is := last.Operators[i].Subtasks[0], s.Operators[i].Subtasks[0]
				require.GreaterOrEqual(t, is.RecordsIn, was.RecordsIn)
				require.GreaterOrEqual(t, is.RecordsOut, was.RecordsOut)
				require.GreaterOrEqual(t, is.Busy, was.Busy)
				require.GreaterOrEqual(t, is.Idle, was.Idle)
			}
			require.NoError(t, control.Answer(t.Context()), "it lives, whatever it does")
			last = s
			if s.Restarts == 1 && n.sink.commit != nil {
				n.sink.commit = nil
				n.source.Add(0, 4)
			}
		}
		require.Equal(t, 1, last.Restarts)
		require.Equal(t, status.Running, last.State)
		require.True(t, seen[status.Restarting])
		require.Equal(t, int64(4), last.Operators[0].Subtasks[0].RecordsIn, "CURRENT named three: they were not read again")
		require.Equal(t, 2, last.Committed)
	})
}

// logged keeps the records of a log as lines, without their times.
type logged struct {
	mu    sync.Mutex
	lines []string
	attrs []slog.Attr
	to    *logged
}

func (l *logged) Enabled(context.Context, slog.Level) bool { return true }
func (l *logged) WithGroup(string) slog.Handler            { return l }

func (l *logged) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logged{to: l.root(), attrs: append(slices.Clone(l.attrs), attrs...)}
}

func (l *logged) root() *logged {
	if l.to != nil {
		return l.to
	}
	return l
}

func (l *logged) Handle(_ context.Context, r slog.Record) error {
	line := r.Level.String() + " " + r.Message
	for _, a := range l.attrs {
		line += " " + a.String()
	}
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	root := l.root()
	root.mu.Lock()
	defer root.mu.Unlock()
	root.lines = append(root.lines, line)
	return nil
}

func (l *logged) with(text string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.lines), func(line string) bool { return !strings.Contains(line, text) })
}

// It is the outage that matters: a transaction is overdue while the outside is away, while the job waits
// for its restart, and while a restore settles it.
func TestATransactionPastHalfOfItsTimeoutIsWarnedOfOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, log := newNumbers(), &logged{}
		n.sink.timeout = 100 * time.Second
		n.cfg.Restart, n.cfg.Logger = protocol.FixedDelay{Delay: 30 * time.Second}, slog.New(log)
		n.source.Add(0, 1)
		n.sink.commit = func(ctx context.Context, _ connector.Committable) error {
			time.Sleep(40 * time.Second)
			return errors.New("the outside is away")
		}
		control := started(t, n.run)
		time.Sleep(45 * time.Second)
		require.Equal(t, status.Restarting, control.Status().State)
		require.Empty(t, log.with("half of its timeout"))
		require.Len(t, control.Status().Transactions, 1)
		time.Sleep(20 * time.Second)
		require.Equal(t, status.Restarting, control.Status().State)
		want := []string{"WARN a transaction has passed half of its timeout: readers of what it wrote wait, and past the timeout " +
			"it is lost outside operator=sink subtask=0 checkpoint=2 transaction=txn-2 age=56.25s timeout=1m40s"}
		require.Equal(t, want, log.with("half of its timeout"))
		x := control.Status().Transactions[0]
		require.Equal(t, 65*time.Second, x.Age)
		require.True(t, x.Overdue())
		n.sink.commit = nil
		time.Sleep(time.Hour)
		require.Equal(t, want, log.with("half of its timeout"))
		require.Empty(t, control.Status().Transactions)
	})
}

// A process that finds in its storage what another one left counts from the first record on, while its
// restore settles it.
func TestATransactionFoundInARestoreIsWarnedOfWithItsWholeAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, log := newNumbers(), &logged{}
		n.sink.timeout, n.cfg.Logger = 160*time.Second, slog.New(log)
		n.source.Add(0, 1)
		n.sink.commit = func(context.Context, connector.Committable) error {
			return errors.New("the outside is away")
		}
		require.Error(t, n.runFor(t, 4500*time.Millisecond))
		require.Empty(t, log.with("half of its timeout"))
		time.Sleep(90 * time.Second) // nothing runs
		settle := make(chan struct{})
		n.sink.restore = func(context.Context, connector.RestoreContext) error {
			<-settle
			return nil
		}
		control := started(t, n.run)
		time.Sleep(11 * time.Second) // a look at it has come
		s := control.Status()
		require.Equal(t, status.Restoring, s.State)
		require.Len(t, s.Transactions, 1)
		require.Greater(t, s.Transactions[0].Age, 100*time.Second)
		require.Equal(t, 160*time.Second, s.Transactions[0].Timeout)
		require.Len(t, log.with("half of its timeout"), 1)
		close(settle)
		synctest.Wait()
		require.Empty(t, control.Status().Transactions)
	})
}

// What is being written, or flushed, is the oldest thing open when checkpoints do not come through.
func TestATransactionThatIsBeingWrittenIsOpenToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, log := newNumbers(), &logged{}
		n.sink.timeout, n.cfg.Interval, n.cfg.Logger = 4*time.Hour, time.Hour, slog.New(log)
		began := time.Now()
		n.sink.flush = func() error {
			if time.Since(began) > time.Minute { // the checkpoint is stuck behind it
				time.Sleep(3 * time.Hour)
			}
			return nil
		}
		n.source.Add(0, 1)
		control := started(t, n.run)
		time.Sleep(time.Second)
		require.Equal(t, []status.Transaction{
			{ID: "sink[0]", Sink: "sink", Age: time.Second, Timeout: 4 * time.Hour},
		}, control.Status().Transactions)
		time.Sleep(3 * time.Hour)
		require.Equal(t, []string{"WARN a transaction has passed half of its timeout: readers of what it wrote wait, and past " +
			"the timeout it is lost outside operator=sink subtask=0 checkpoint=2 age=2h15m0s timeout=4h0m0s"}, log.with("half of its timeout"))
		time.Sleep(2 * time.Hour)
		require.Len(t, log.with("half of its timeout"), 1, "it has another name now")
	})
}

func TestAJobThatHasEndedDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers()
		control := engine.NewControl()
		control.Stop(false)
		_, err := n.run(t.Context(), control)
		require.NoError(t, err)
		require.ErrorIs(t, control.Answer(t.Context()), engine.ErrNotRunning)
	})
}

func TestStatusShowsWhereEachSplitStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers()
		n.source.Add(0, 1, 2, 3)
		control := started(t, n.run)
		time.Sleep(1500 * time.Millisecond)
		splits := control.Status().Operators[0].Subtasks[0].Splits
		require.Len(t, splits, 1)
		require.NotEmpty(t, splits[0].ID)
		require.False(t, splits[0].Idle)
	})
}

// Event time that stands still in silence is explained: by the split that got nothing more.
func TestStatusNamesTheSplitThatEventTimeWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers()
		n.source = weirtest.NewSource[int](2)
		at := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
		n.source.AddAt(0, at, 1)
		n.source.AddAt(1, at, 2)
		control := started(t, n.run)
		time.Sleep(1500 * time.Millisecond)
		before := control.Status()
		require.Empty(t, before.Held())
		n.source.AddAt(0, at.Add(5*time.Minute), 3)
		time.Sleep(1500 * time.Millisecond)
		st := control.Status()
		held := st.Held()
		require.Len(t, held, 1)
		require.Equal(t, st.Operators[0].Subtasks[0].Splits[1].ID, held[0].ID)
		require.WithinDuration(t, at, *held[0].Watermark, time.Second)
	})
}
