package kafka

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/settle"
	"example.com/weir/connectors/kafka/txn"
	"example.com/weir/internal/kafkatest"
)

// checkpoints is what the engine does for a sink: it keeps records, and holds what CURRENT names.
type checkpoints struct {
	mu      sync.Mutex
	files   map[string][]byte
	current []connector.Committable
	swaps   int
	dropped int

	reached []string
	crashAt string // the process dies when it reaches this step
}

type crash string

func (s *checkpoints) keep() connector.Keeper { return &fileKeeper{s: s} }

type fileKeeper struct {
	s   *checkpoints
	buf bytes.Buffer
}

func (k *fileKeeper) Write(p []byte) { k.buf.Write(p) }
func (k *fileKeeper) Discard()       { k.s.dropped++ }

func (k *fileKeeper) Seal() connector.Kept {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	name := fmt.Sprintf("kept-%d", len(k.s.files))
	k.s.files[name] = k.buf.Bytes()
	return connector.Kept{Name: name, Size: int64(k.buf.Len()), Digest: sha256.Sum256(k.buf.Bytes())}
}

func (s *checkpoints) kept(_ context.Context, k connector.Kept) (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.files[k.Name]
	if !ok {
		return nil, fmt.Errorf("no file %s", k.Name)
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

func (s *checkpoints) replace(_ context.Context, c connector.Committable) error {
	for i, named := range s.current {
		if named.ID() == c.ID() && named.Digest == c.Digest {
			s.current[i] = c
			s.swaps++
			return nil
		}
	}
	return fmt.Errorf("CURRENT does not name %s", c.ID())
}

func (s *checkpoints) reach(step string) {
	s.reached = append(s.reached, step)
	if step == s.crashAt {
		s.crashAt = ""
		panic(crash(step))
	}
}

// storedJob is a job whose checkpoints keep records.
type storedJob struct {
	*testJob
	*checkpoints
	log bytes.Buffer
}

func newStoredJob(t *testing.T, b *kafkatest.Broker) *storedJob {
	return &storedJob{testJob: newTestJob(t, b), checkpoints: &checkpoints{files: map[string][]byte{}}}
}

func (j *storedJob) writer(t *testing.T, subtask int) *txnWriter[testRow] {
	w, err := j.sink(t).Writer(t.Context(), connector.WriterContext{
		Job: "job", Lineage: j.lineage, Generation: 1, Operator: "out", Subtask: subtask, Parallelism: 2,
		StillOwner: j.stillOwner, TolerableCheckpointFailures: 1, Keep: j.keep, Reached: func(string) {},
	})
	require.NoError(t, err)
	tw := w.(*txnWriter[testRow])
	t.Cleanup(func() { require.NoError(t, tw.Close()) })
	return tw
}

// restoreErr restores what CURRENT names, in a process that may die on the way.
func (j *storedJob) restoreErr(t *testing.T) (err error) {
	rc := j.restoreContext(j.current...)
	rc.Named = append([]connector.Committable(nil), j.current...)
	rc.Kept, rc.Replace, rc.Reached = j.kept, j.replace, j.reach
	rc.Logger = slog.New(slog.NewTextHandler(&j.log, nil))
	defer func() {
		if died := recover(); died != nil {
			step, ok := died.(crash)
			if !ok {
				panic(died)
			}
			err = fmt.Errorf("crashed at %s", step)
		}
	}()
	return j.sink(t).Restore(t.Context(), rc)
}

func (j *storedJob) mustRestore(t *testing.T) {
	t.Helper()
	require.NoError(t, j.restoreErr(t))
}

// name writes values and passes a barrier; CURRENT names the transaction.
func (j *storedJob) name(t *testing.T, w *txnWriter[testRow], checkpoint uint64, values ...string) connector.Committable {
	write(t, w, values...)
	c := prepare(t, w, checkpoint)
	j.current = append(j.current, c)
	return c
}

// timeOut waits until the brokers have aborted the transaction for its age.
func (j *storedJob) timeOut(t *testing.T, c connector.Committable) {
	id := handleOf(t, c).TransactionalID
	require.Eventually(t, func() bool {
		s := j.state(t, id).State
		return s == settle.CompleteAbort || s == settle.NoHistory
	}, 60*time.Second, 20*time.Millisecond)
}

// Each of three transactions of a subtask is lost, with the ones before and behind it open or committed: every
// record is there once and in order.
func TestALostTransactionIsWrittenAgainInOrder(t *testing.T) {
	kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
		for lost, name := range []string{"first", "middle", "last"} {
			t.Run(name, func(t *testing.T) {
				j := newStoredJob(t, b)
				j.mustRestore(t)
				dead := j.writer(t, 0)
				var named []connector.Committable
				for n := range uint64(3) {
					named = append(named, j.name(t, dead, n+1, fmt.Sprintf("%d-1", n), fmt.Sprintf("%d-2", n)))
				}
				write(t, dead, "never1")
				require.NoError(t, dead.Flush(t.Context(), false))
				j.takeOver(t, handleOf(t, named[lost]).TransactionalID)

				j.mustRestore(t)
				want := []string{"0-1", "1-1", "2-1", "0-2", "1-2", "2-2"}
				require.Equal(t, want, j.visible(t))
				require.Equal(t, 3-lost, j.swaps, "the later ones of the subtask were ended, and written again too")
				for i := range named {
					require.Equal(t, named[i].ID(), j.current[i].ID())
					require.Equal(t, named[i].Digest, j.current[i].Digest)
				}
				// Once more changes nothing, nor does what the dead one still sends.
				j.mustRestore(t)
				require.Equal(t, 3-lost, j.swaps)
				require.Error(t, dead.Commit(t.Context(), named[lost]))
				require.Equal(t, want, j.visible(t))
				w := j.writer(t, 0)
				write(t, w, "new1")
				require.NoError(t, w.Commit(t.Context(), prepare(t, w, 9)))
				require.Contains(t, j.visible(t), "new1")
			})
		}
	})
}

func TestTransactionsThatTimedOutAreWrittenAgain(t *testing.T) {
	kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newStoredJob(t, b)
		j.cfg.TransactionTimeout = time.Second
		j.mustRestore(t)
		first, second := j.writer(t, 0), j.writer(t, 1)
		for n := range uint64(2) {
			j.name(t, first, n+1, fmt.Sprintf("a%d-1", n), fmt.Sprintf("a%d-3", n))
			j.name(t, second, n+1, fmt.Sprintf("b%d-2", n))
		}
		for _, c := range j.current {
			j.timeOut(t, c)
		}
		j.cfg.TransactionTimeout = time.Minute
		j.mustRestore(t)
		require.Equal(t, []string{"a0-1", "a1-1", "b0-2", "b1-2", "a0-3", "a1-3"}, j.visible(t))
		require.Equal(t, 4, j.swaps)
	})
}

// The process dies at each step of a re-emission, and the next one goes on from what CURRENT names.
func TestACrashAnywhereInAReemissionLeadsToTheSamePlace(t *testing.T) {
	steps := []string{
		txn.StepLostFound, txn.StepReemitTaken, txn.StepReemitWritten, txn.StepReemitReplaced,
		txn.StepReemitBeforeEndTxn, txn.StepReemitSettled,
	}
	kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
		for _, step := range steps {
			for nth, name := range []string{"and goes on", "and dies again", "and the new one is lost"} {
				t.Run(step+" "+name, func(t *testing.T) {
					j := newStoredJob(t, b)
					j.mustRestore(t)
					dead := j.writer(t, 0)
					lost := j.name(t, dead, 1, "a1", "a2")
					j.name(t, dead, 2, "b1")
					j.takeOver(t, handleOf(t, lost).TransactionalID)
					for range 1 + nth%2 {
						j.crashAt = step
						if err := j.restoreErr(t); err != nil {
							require.EqualError(t, err, "crashed at "+step)
						}
						require.Contains(t, j.reached, step)
						if j.swaps == 2 {
							break // all of it has been written again
						}
					}
					if nth == 2 && j.state(t, handleOf(t, j.current[0]).TransactionalID).State == settle.Ongoing {
						require.Greater(t, j.swaps, 0)
						j.takeOver(t, handleOf(t, j.current[0]).TransactionalID)
					}
					j.mustRestore(t)
					require.Equal(t, []string{"a1", "b1", "a2"}, j.visible(t))
					j.mustRestore(t)
					require.Equal(t, []string{"a1", "b1", "a2"}, j.visible(t))
				})
			}
		}
	})
}

// It was lost before its first record could be committed, with more records than are written at a time, and all
// that a record has.
func TestWhatIsWrittenAgainIsTheSame(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newStoredJob(t, b)
		j.mustRestore(t)
		dead := j.writer(t, 0)
		for i := range 2500 {
			write(t, dead, fmt.Sprintf("%s-%d-%d", strings.Repeat("x", 100), i, i%3+1))
		}
		c := j.name(t, dead, 1, "last1")
		j.takeOver(t, handleOf(t, c).TransactionalID)
		j.mustRestore(t)
		again := handleOf(t, j.current[0])
		require.Equal(t, int64(2501), again.Records())
		require.NotEqual(t, handleOf(t, c).TransactionalID, again.TransactionalID)
		before := 0
		for _, v := range j.visible(t) {
			if v == "last1" {
				continue
			}
			var i, p int
			_, err := fmt.Sscanf(strings.TrimLeft(v, "x"), "-%d-%d", &i, &p)
			require.NoError(t, err)
			if i > 2 {
				require.Equal(t, before+3, i)
			}
			before = i
		}
	})
}

// Partition, timestamp, key, value and headers come back as they were, and so does the difference between none and
// an empty one.
func TestEachFieldOfARecordIsWrittenAgain(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newStoredJob(t, b)
		at := time.UnixMilli(1_700_000_000_123)
		rows := []Record{
			{Timestamp: at, Key: []byte("k"), Value: []byte("v"), Headers: []Header{
				{Key: "none"}, {Key: "empty", Value: []byte{}}, {Key: "h", Value: []byte("1")},
			}},
			{Timestamp: at.Add(time.Hour), Key: []byte{}, Value: []byte{}},
			{Timestamp: at.Add(time.Minute), Key: []byte("tombstone")},
			{Value: []byte("at the time of writing")},
		}
		sink, ok := Sink(j.cfg, func(row *Record, r *Record) error { *r = *row; return nil }).(connector.TwoPhaseSink[Record])
		require.True(t, ok)
		w, err := sink.Writer(t.Context(), connector.WriterContext{
			Lineage: j.lineage, Operator: "out", StillOwner: j.stillOwner, Keep: j.keep,
		})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, w.Close()) })
		require.NoError(t, w.Write(t.Context(), rows))
		require.NoError(t, w.Flush(t.Context(), false))
		c, err := w.(connector.TwoPhaseWriter[Record]).PrepareCommit(t.Context(), 1)
		require.NoError(t, err)
		j.current = append(j.current, *c)
		lost := readRecords(t, j, kgo.ReadUncommitted(), len(rows))
		require.Equal(t, at.Add(time.Hour).UnixMilli(), lost[1].Timestamp.UnixMilli())
		require.Nil(t, lost[2].Value)

		j.takeOver(t, handleOf(t, *c).TransactionalID)
		j.mustRestore(t)
		require.Equal(t, 1, j.swaps)
		again := readRecords(t, j, kgo.ReadCommitted(), len(rows))
		for i := range lost {
			require.Greater(t, again[i].Offset, lost[i].Offset)
			for _, r := range []*kgo.Record{lost[i], again[i]} {
				require.Equal(t, int32(0), r.Partition)
				*r = kgo.Record{Timestamp: r.Timestamp, Key: r.Key, Value: r.Value, Headers: r.Headers}
			}
			require.Equal(t, lost[i], again[i])
		}
	})
}

// readRecords reads the first n records of partition 0.
func readRecords(t *testing.T, j *storedJob, isolation kgo.IsolationLevel, n int) (all []*kgo.Record) {
	cl := j.b.Client(t, kgo.FetchIsolationLevel(isolation), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		j.cfg.Topic: {0: kgo.NewOffset().At(0)},
	}))
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for len(all) < n {
		fetches := cl.PollFetches(ctx)
		require.NoError(t, fetches.Err0())
		all = append(all, fetches.Records()...)
	}
	return all
}

// Found while the job runs, the loss fails the generation, and is no reason to stop.
func TestALossWhileRunningIsLeftToTheRestore(t *testing.T) {
	kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newStoredJob(t, b)
		j.mustRestore(t)
		w := j.writer(t, 0)
		c := j.name(t, w, 5, "a1")
		d := j.name(t, w, 6, "b1")
		h := handleOf(t, c)
		j.takeOver(t, h.TransactionalID)
		err := w.Commit(t.Context(), c)
		require.False(t, connector.IsStop(err), "%v", err)
		for _, name := range []string{
			"sink out", "subtask 0", "checkpoint 5", h.TransactionalID, "1 records", "written again when the job restores",
		} {
			require.ErrorContains(t, err, name)
		}
		require.ErrorContains(t, w.Commit(t.Context(), d), "before that of checkpoint 5")
		j.mustRestore(t)
		require.Equal(t, []string{"a1", "b1"}, j.visible(t))
	})
}

// Under skip the commit counts as done, and one line says what was lost.
func TestASkippedTransactionIsNamedOnce(t *testing.T) {
	kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newStoredJob(t, b)
		j.cfg.LostTransaction = Skip
		j.mustRestore(t)
		w := j.writer(t, 0)
		c := j.name(t, w, 1, "a1", "a2", "b1")
		j.name(t, w, 2, "c1")
		h := handleOf(t, c)
		j.takeOver(t, h.TransactionalID)
		j.mustRestore(t)
		require.Equal(t, []string{"c1"}, j.visible(t))
		require.Zero(t, j.swaps)
		line := j.log.String()
		require.Equal(t, 1, strings.Count(line, "level=ERROR"), line)
		for _, name := range []string{
			"sink=out", "subtask=0", "checkpoint=1", "transaction=" + h.TransactionalID, "records=3",
			fmt.Sprintf("%s/0 offsets %d to %d (2 records)", j.cfg.Topic, h.Parts[0].First, h.Parts[0].Last),
		} {
			require.Contains(t, line, name)
		}
		require.NoError(t, w.Commit(t.Context(), c), "done while running, too")
		require.True(t, w.pool.Settled(h))
	})
}

func TestAReemissionWithoutItsRecordsStopsTheJob(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		for name, c := range map[string]struct {
			spoil func(j *storedJob)
			want  string
		}{
			"not kept":        {func(j *storedJob) { j.current[0].Kept = connector.Kept{} }, "keeps no records"},
			"cut off":         {func(j *storedJob) { cutKept(j, 3) }, "they end in the middle"},
			"a record short":  {func(j *storedJob) { cutKept(j, len(txn.AppendKept(nil, 0, 1<<40, nil, []byte("b1"), 0))) }, "damaged: they are"},
			"other format":    {func(j *storedJob) { j.files[j.current[0].Kept.Name][0] = 9 }, "format 9"},
			"storage is away": {func(j *storedJob) { delete(j.files, j.current[0].Kept.Name) }, "no file"},
		} {
			t.Run(name, func(t *testing.T) {
				j := newStoredJob(t, b)
				j.mustRestore(t)
				dead := j.writer(t, 0)
				lost := j.name(t, dead, 1, "a1", "b1")
				next := j.name(t, dead, 2, "c1")
				j.takeOver(t, handleOf(t, lost).TransactionalID)
				c.spoil(j)
				err := j.restoreErr(t)
				require.ErrorContains(t, err, c.want)
				require.ErrorContains(t, err, handleOf(t, lost).TransactionalID)
				require.Equal(t, name != "storage is away", connector.IsStop(err), "%v", err)
				require.Equal(t, settle.Ongoing, j.state(t, handleOf(t, next).TransactionalID).State, "ended for nothing")
				// The way out that the error names.
				j.cfg.LostTransaction = Skip
				j.mustRestore(t)
				require.Equal(t, []string{"c1"}, j.visible(t))
			})
		}
	})
}

func cutKept(j *storedJob, n int) {
	name := j.current[0].Kept.Name
	j.files[name] = j.files[name][:len(j.files[name])-n]
}

func TestRecordsAreNotKeptWhereThatIsSwitchedOff(t *testing.T) {
	b := kafkatest.NewFake(t)
	j := newStoredJob(t, b)
	j.cfg.DoNotKeepRecords = true
	require.ErrorContains(t, Sink(j.cfg, encodeTestRow).Validate(true), "re-emission needs the records")
	j.cfg.LostTransaction = Fail
	j.mustRestore(t)
	w := j.writer(t, 0)
	require.Empty(t, j.name(t, w, 1, "a1").Kept)
	require.Empty(t, j.files)
}

// What is written when the generation ends is never named: its records are not kept.
func TestADroppedTransactionKeepsNothing(t *testing.T) {
	b := kafkatest.NewFake(t)
	j := newStoredJob(t, b)
	j.mustRestore(t)
	w := j.writer(t, 0)
	j.name(t, w, 1, "a1")
	write(t, w, "b1")
	require.NoError(t, w.Flush(t.Context(), false))
	require.NoError(t, w.Close())
	require.Equal(t, 1, j.dropped)
	require.Len(t, j.files, 1)
	j.mustRestore(t)
	require.Equal(t, []string{"a1"}, j.visible(t))
}

// A process that another one has superseded writes nothing again: neither ends nor takes anything.
func TestASupersededProcessWritesNothingAgain(t *testing.T) {
	b := kafkatest.NewFake(t)
	j := newStoredJob(t, b)
	j.mustRestore(t)
	dead := j.writer(t, 0)
	lost := j.name(t, dead, 1, "a1")
	next := j.name(t, dead, 2, "b1")
	j.takeOver(t, handleOf(t, lost).TransactionalID)
	j.owned(func(context.Context) error { return connector.ErrSuperseded })
	require.ErrorIs(t, j.restoreErr(t), connector.ErrSuperseded)
	require.Equal(t, settle.Ongoing, j.state(t, handleOf(t, next).TransactionalID).State)
	require.Zero(t, j.swaps)
}

// CURRENT cannot be swapped: what was written is never committed, and the next restore begins anew.
func TestWithoutASwapNothingIsCommitted(t *testing.T) {
	b := kafkatest.NewFake(t)
	j := newStoredJob(t, b)
	j.mustRestore(t)
	dead := j.writer(t, 0)
	lost := j.name(t, dead, 1, "a1")
	j.takeOver(t, handleOf(t, lost).TransactionalID)
	rc := j.restoreContext(j.current...)
	rc.Kept = j.kept
	away := errors.New("the store is away")
	rc.Replace = func(context.Context, connector.Committable) error { return away }
	require.ErrorIs(t, j.sink(t).Restore(t.Context(), rc), away)
	j.mustRestore(t)
	require.Equal(t, []string{"a1"}, j.visible(t))
	require.Equal(t, 1, j.swaps)
}
