package kafka

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/settle"
	"example.com/weir/internal/kafkatest"
)

// refused is the error of a restore that is refused.
func (j *testJob) refused(t *testing.T, rc connector.RestoreContext) error {
	t.Helper()
	err := j.sink(t).Restore(t.Context(), rc)
	require.Error(t, err)
	require.True(t, connector.IsStop(err), "%v", err)
	return err
}

// logged returns what a restore logs, which goes well.
func (j *testJob) logged(t *testing.T, rc connector.RestoreContext) string {
	t.Helper()
	var log bytes.Buffer
	rc.Logger = slog.New(slog.NewTextHandler(&log, nil))
	require.NoError(t, j.sink(t).Restore(t.Context(), rc))
	return log.String()
}

// in is what an error of a topic's restore names.
func requireNamed(t *testing.T, err error, names ...string) {
	t.Helper()
	for _, name := range names {
		require.ErrorContains(t, err, name)
	}
}

func TestATransactionTimeoutAboveTheBrokersMaximumIsRefusedWithBoth(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		j.cfg.TransactionTimeout = 16 * time.Minute
		requireNamed(t, j.refused(t, j.restoreContext()), j.cfg.Topic, "16m0s", "transaction.max.timeout.ms (15m0s)")
		j.cfg.TransactionTimeout = 15 * time.Minute
		require.NotContains(t, j.logged(t, j.restoreContext()), "not checked")
	})
}

// A refusal comes before anything is ended or written: what is open stays open, and can be committed once the cause is
// gone.
func TestARefusedStartEndsNothing(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		dead := j.writer(t, j.restore(t), 0)
		write(t, dead, "a1")
		c := prepare(t, dead, 1)
		write(t, dead, "b1")
		require.NoError(t, dead.Flush(t.Context(), false))
		open := dead.open.slot.ID

		rc := j.restoreContext(c)
		rc.CheckpointTimeout = time.Hour
		j.refused(t, rc)
		require.Equal(t, settle.Ongoing, j.state(t, handleOf(t, c).TransactionalID).State)
		require.Equal(t, settle.Ongoing, j.state(t, open).State)
		j.restore(t, c)
		require.Equal(t, []string{"a1"}, j.visible(t))
	})
}

// A topic that was made a moment ago, or a right that was granted a moment ago, may not be known to every broker.
func TestWhatIsRefusedIsAskedForAgainForAWhile(t *testing.T) {
	b := kafkatest.NewFake(t)
	for name, code := range map[string]int16{
		"right": kerr.TopicAuthorizationFailed.Code, "topic": kerr.UnknownTopicOrPartition.Code,
		"moment": kerr.LeaderNotAvailable.Code,
	} {
		t.Run(name, func(t *testing.T) {
			j := newTestJob(t, b)
			left := 3
			b.Fake.ControlKey(int16(kmsg.Metadata), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
				req := kreq.(*kmsg.MetadataRequest)
				b.Fake.KeepControl()
				if !req.IncludeTopicAuthorizedOperations || left == 0 {
					return nil, nil, false
				}
				left--
				resp := req.ResponseKind().(*kmsg.MetadataResponse)
				rt := kmsg.NewMetadataResponseTopic()
				rt.Topic, rt.ErrorCode = req.Topics[0].Topic, code
				resp.Topics = append(resp.Topics, rt)
				return resp, nil, true
			})
			j.restore(t)
			require.Zero(t, left, "it was not asked again")
			left = 1 << 30
			j.cfg.grace = time.Millisecond
			require.Error(t, j.sink(t).Restore(t.Context(), j.restoreContext()), "patience has an end")
			left = 0
		})
	}
}

func TestATopicThatIsNotThereIsRefused(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		j.cfg.Topic, j.cfg.grace = b.TopicName(t), time.Millisecond
		requireNamed(t, j.refused(t, j.restoreContext()), j.cfg.Topic, "does not exist")
	})
}

// watched calls f between two looks at other lineages.
func (j *testJob) watched(f func()) *int {
	looks := new(int)
	j.cfg.betweenLooks = func(context.Context) error {
		*looks++
		f()
		return nil
	}
	return looks
}

func TestAJobDoesNotStartBesideALiveOneUnderItsPrefix(t *testing.T) {
	for name, sign := range map[string]struct {
		move func(t *testing.T, w *txnWriter[testRow])
		says string
	}{
		"writes": {
			func(t *testing.T, w *txnWriter[testRow]) { write(t, w, "more1") },
			"records were written to ",
		},
		"begins": {
			func(t *testing.T, w *txnWriter[testRow]) {
				prepare(t, w, 2)
				write(t, w, "next2")
			},
			"a transaction began",
		},
		"commits": {
			func(t *testing.T, w *txnWriter[testRow]) { require.NoError(t, w.Commit(t.Context(), prepare(t, w, 2))) },
			"", // kfake knows no state of a committed transaction
		},
	} {
		t.Run(name, func(t *testing.T) {
			kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
				live := newTestJob(t, b)
				w := live.writer(t, live.restore(t), 0)
				write(t, w, "live1")
				require.NoError(t, w.Flush(t.Context(), false))
				open := w.open.slot.ID

				j := newTestJob(t, b)
				j.cfg.Topic, j.cfg.TransactionalIDPrefix = live.cfg.Topic, live.cfg.TransactionalIDPrefix
				looks := j.watched(func() {
					sign.move(t, w)
					require.NoError(t, w.Flush(t.Context(), false))
				})
				rc := j.restoreContext()
				rc.Fresh, rc.AcceptLineages = true, []string{live.lineage} // accepted by name, and alive all the same
				err := j.refused(t, rc)
				requireNamed(t, err, j.cfg.Topic, j.cfg.TransactionalIDPrefix, live.lineage, sign.says, "another prefix")
				require.Equal(t, 1, *looks)
				if name == "writes" {
					require.ErrorContains(t, err, open)
					require.Equal(t, settle.Ongoing, live.state(t, open).State, "the other job was hurt")
				}
			})
		})
	}
}

// At a restore a stranger is no reason to stop, unless it lives: whether it was accepted, is an ancestor, or
// somebody else.
func TestARestoreBesideADeadLineageGoesOnAndBesideALiveOneDoesNot(t *testing.T) {
	kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		w := j.writer(t, j.restore(t), 0)
		write(t, w, "a1")
		c := prepare(t, w, 1)

		other := newTestJob(t, b)
		other.cfg.Topic, other.cfg.TransactionalIDPrefix = j.cfg.Topic, j.cfg.TransactionalIDPrefix
		ow := other.writer(t, other.sink(t), 0)
		write(t, ow, "o1")
		require.NoError(t, ow.Flush(t.Context(), false))
		open := ow.open.slot.ID

		looks := j.watched(func() {})
		j.restore(t, c)
		require.Equal(t, 1, *looks, "an open transaction of a stranger was not looked at twice")
		require.Equal(t, settle.Ongoing, j.state(t, open).State, "a stranger's transaction was ended")

		j.watched(func() {
			write(t, ow, "o2")
			require.NoError(t, ow.Flush(t.Context(), false))
		})
		requireNamed(t, j.refused(t, j.restoreContext(c)), "right now", open, other.lineage)
		rc := j.restoreContext(c)
		rc.Clean = true
		requireNamed(t, j.refused(t, rc), "right now")
		require.Equal(t, settle.Ongoing, j.state(t, open).State)

		// Now it has died, and its lineage is an ancestor: what it left open is ended.
		j.watched(func() {})
		rc = j.restoreContext(c)
		rc.AcceptLineages = []string{other.lineage}
		require.NoError(t, j.sink(t).Restore(t.Context(), rc))
		require.NotEqual(t, settle.Ongoing, j.state(t, open).State)
		require.Equal(t, []string{"a1"}, j.visible(t))
	})
}

// A live job may have nothing open at the first look: it is looked at again where this lineage begins, and where
// the other one has had a transaction a moment ago.
func TestALineageAtRestIsLookedAtTwiceWhereItMayBeAlive(t *testing.T) {
	kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
		live, j := newTestJob(t, b), newTestJob(t, b)
		j.cfg.Topic, j.cfg.TransactionalIDPrefix = live.cfg.Topic, live.cfg.TransactionalIDPrefix
		w := live.writer(t, live.restore(t), 0)
		write(t, w, "live1")
		c := prepare(t, w, 1)
		require.NoError(t, w.Commit(t.Context(), c))
		<-w.next.done // what it has taken ahead

		begin := func() {
			write(t, w, "live2")
			require.NoError(t, w.Flush(t.Context(), false))
		}
		looks := j.watched(begin)
		rc := j.restoreContext()
		rc.AcceptLineages = []string{live.lineage}
		requireNamed(t, j.refused(t, rc), "right now", live.lineage)
		require.Equal(t, 1, *looks)
		require.NoError(t, w.Commit(t.Context(), prepare(t, w, 2)))

		// With transactions of its own, only those of the other one that are new matter.
		looks = j.watched(func() {})
		ow := j.writer(t, j.sink(t), 0)
		write(t, ow, "own1")
		j.restore(t, prepare(t, ow, 1))
		want := 1
		if b.Kind == kafkatest.Fake {
			want = 0 // kfake does not say when a transaction began that has ended
		}
		require.Equal(t, want, *looks)
	})
}

// What a dead job left open ends by its timeout while it is looked at. That is no sign of life.
func TestATimeoutIsNoSignOfLife(t *testing.T) {
	kafkatest.RunTransactionVersions(t, func(t *testing.T, b *kafkatest.Broker) {
		b.Except(t, kafkatest.Fake, "kfake shows a transaction that timed out as one whose ID was taken")
		dead := newTestJob(t, b)
		dead.cfg.TransactionTimeout = time.Second
		w := dead.writer(t, dead.restore(t), 0)
		write(t, w, "dead1")
		require.NoError(t, w.Flush(t.Context(), false))
		open := w.open.slot.ID

		j := newTestJob(t, b)
		j.cfg.Topic, j.cfg.TransactionalIDPrefix = dead.cfg.Topic, dead.cfg.TransactionalIDPrefix
		timedOut := false
		j.watched(func() {
			require.Equal(t, settle.Ongoing, dead.state(t, open).State)
			require.Eventually(t, func() bool {
				timedOut = dead.state(t, open).State == settle.CompleteAbort
				return timedOut
			}, 60*time.Second, 20*time.Millisecond)
		})
		rc := j.restoreContext()
		rc.Fresh, rc.AcceptLineages = true, []string{dead.lineage}
		require.NoError(t, j.sink(t).Restore(t.Context(), rc))
		require.True(t, timedOut)
	})
}

func TestALiveJobOfALongerPrefixIsNobodysBusiness(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		j, eu := newTestJob(t, b), newTestJob(t, b)
		eu.cfg.Topic = j.cfg.Topic
		eu.cfg.TransactionalIDPrefix = j.cfg.TransactionalIDPrefix + "-eu"
		w := eu.writer(t, eu.restore(t), 0)
		write(t, w, "eu1")
		require.NoError(t, w.Flush(t.Context(), false))
		looks := j.watched(func() {})
		rc := j.restoreContext()
		rc.Fresh = true
		require.NoError(t, j.sink(t).Restore(t.Context(), rc))
		require.Zero(t, *looks)
	})
}

// An ordinary restart has nothing to wait for: the only lineage is its own.
func TestAJobAloneUnderItsPrefixIsNotLookedAtTwice(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		j := newTestJob(t, b)
		w := j.writer(t, j.restore(t), 0)
		write(t, w, "a1")
		c := prepare(t, w, 1)
		write(t, w, "b1")
		require.NoError(t, w.Flush(t.Context(), false))
		looks := j.watched(func() {})
		j.restore(t, c)
		require.Zero(t, *looks)
	})
}

func TestWhatMovesBetweenTwoLooks(t *testing.T) {
	at := topicPartition{"orders", 3}
	rest := footprint{state: settle.CompleteCommit, producerID: 7, epoch: 2, began: 100}
	open := footprint{
		state: settle.Ongoing, producerID: 7, epoch: 2, began: 200, written: map[topicPartition]int32{at: 9},
	}
	with := func(f footprint, change func(*footprint)) footprint {
		change(&f)
		return f
	}
	state := func(s settle.State) func(*footprint) { return func(f *footprint) { f.state = s } }
	for name, c := range map[string]struct {
		before *footprint
		now    footprint
		sign   string
	}{
		"nothing":            {&rest, rest, ""},
		"open and still":     {&open, open, ""},
		"written":            {&open, with(open, func(f *footprint) { f.written = map[topicPartition]int32{at: 10} }), "records were written to orders/3"},
		"in a new partition": {&open, with(open, func(f *footprint) { f.written = map[topicPartition]int32{at: 9, {"orders", 4}: 0} }), "records were written to orders/4"},
		"begun":              {&rest, open, "a transaction began"},
		"begun anew":         {&open, with(open, func(f *footprint) { f.began = 300 }), "a transaction began"},
		"begun, next epoch":  {&open, with(open, func(f *footprint) { f.epoch = 3 }), "a transaction began"},
		"begun, new ID":      {nil, open, "a transaction began"},
		"committing":         {&open, with(open, state(settle.PrepareCommit)), "a transaction was committed"},
		"committed":          {&open, with(rest, func(f *footprint) { f.began = 200 }), "a transaction was committed"},
		"commit completes":   {ptr(with(rest, state(settle.PrepareCommit))), rest, ""},
		"begun and committed": {
			&rest, with(rest, func(f *footprint) { f.epoch, f.began = 3, 300 }), "a transaction was committed",
		},
		"timed out":            {&open, with(open, func(f *footprint) { f.state, f.epoch = settle.CompleteAbort, 3 }), ""},
		"abort completes":      {ptr(with(open, state(settle.PrepareAbort))), with(open, func(f *footprint) { f.state, f.epoch = settle.CompleteAbort, 3 }), ""},
		"begun and aborted":    {&rest, footprint{state: settle.CompleteAbort, producerID: 7, epoch: 4, began: 300}, "began and was aborted"},
		"taken":                {&rest, footprint{state: settle.NoHistory, producerID: 7, epoch: 3, began: -1}, "taken by a new producer"},
		"taken, new ID":        {nil, footprint{state: settle.NoHistory, producerID: 9, began: -1}, "taken by a new producer"},
		"taken, and was taken": {ptr(footprint{producerID: 9, began: -1, state: settle.NoHistory}), footprint{state: settle.NoHistory, producerID: 9, began: -1}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			before := footprint{}
			if c.before != nil {
				before = *c.before
			}
			got := before.moved(c.before != nil, c.now)
			if c.sign == "" {
				require.Empty(t, got)
			}
			require.Contains(t, got, c.sign)
		})
	}
}

func ptr[T any](v T) *T { return &v }

func TestATopicThatDoesNotKeepTheProofIsRefused(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		sum := func(j *testJob) connector.RestoreContext {
			rc := j.restoreContext() // a transaction timeout of one minute
			rc.CheckpointTimeout, rc.RestartBudget = 30*time.Second, 10*time.Second
			return rc
		}
		j := newTestJob(t, b)
		j.cfg.Topic = b.CreateTopic(t, partitionsOfTests, "cleanup.policy=compact")
		requireNamed(t, j.refused(t, sum(j)), j.cfg.Topic, "cleanup.policy", "min.compaction.lag.ms=100000", "AcceptCompaction")
		j.cfg.AcceptCompaction = true
		require.Contains(t, j.logged(t, sum(j)), "compacted, as accepted")

		j = newTestJob(t, b)
		j.cfg.Topic = b.CreateTopic(t, partitionsOfTests, "retention.ms=99999")
		requireNamed(t, j.refused(t, sum(j)), j.cfg.Topic, "retention.ms", "1m39.999s", "raise retention.ms to 100000")
		j.cfg.AcceptCompaction = true
		requireNamed(t, j.refused(t, sum(j)), "retention.ms")

		j = newTestJob(t, b)
		j.cfg.Topic = b.CreateTopic(t, partitionsOfTests, "retention.ms=100000", "retention.bytes=1000000")
		log := j.logged(t, sum(j))
		require.Contains(t, log, "level=WARN")
		require.Contains(t, log, "retention.bytes=1000000")

		j = newTestJob(t, b)
		j.cfg.Topic = b.CreateTopic(t, partitionsOfTests, "retention.ms=-1", "retention.bytes=-1")
		require.NotContains(t, j.logged(t, sum(j)), "level=WARN")
	})
}

func TestACompactedTopicThatKeepsRecentRecordsIsAsGoodAsAnyOther(t *testing.T) {
	kafkatest.Run(t, func(t *testing.T, b *kafkatest.Broker) {
		b.Except(t, kafkatest.Fake, "kfake has no min.compaction.lag.ms")
		j := newTestJob(t, b)
		for lag, refused := range map[int]bool{59_999: true, 60_000: false} {
			j.cfg.Topic = b.CreateTopic(t, partitionsOfTests, "cleanup.policy=compact,delete",
				fmt.Sprintf("min.compaction.lag.ms=%d", lag))
			if refused {
				requireNamed(t, j.refused(t, j.restoreContext()), "59.999s", "min.compaction.lag.ms=60000")
				continue
			}
			require.NotContains(t, j.logged(t, j.restoreContext()), "level=WARN")
		}
	})
}

func TestWhatRemovesRecordsFromATopic(t *testing.T) {
	const window = time.Minute
	for name, c := range map[string]struct {
		configs map[string]string
		refused string
	}{
		"Kafka's own":            {map[string]string{"cleanup.policy": "delete", "retention.ms": "604800000", "min.compaction.lag.ms": "0"}, ""},
		"compacted":              {map[string]string{"cleanup.policy": "compact", "retention.ms": "1"}, "is compacted"},
		"compacted late":         {map[string]string{"cleanup.policy": "compact", "min.compaction.lag.ms": "60000"}, ""},
		"never":                  {map[string]string{"cleanup.policy": "compact", "min.compaction.lag.ms": "9223372036854775807"}, ""},
		"both":                   {map[string]string{"cleanup.policy": "compact, delete", "min.compaction.lag.ms": "60000", "retention.ms": "59999"}, "deletes records"},
		"neither":                {map[string]string{"cleanup.policy": "", "retention.ms": "1"}, ""},
		"deleted never":          {map[string]string{"cleanup.policy": "delete", "retention.ms": "-1"}, ""},
		"a policy of tomorrow":   {map[string]string{"cleanup.policy": "compaction-like", "retention.ms": "1"}, ""},
		"a broker that says nil": {map[string]string{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			keeps := cleanupOf(c.configs)
			err := keeps.refusal("orders", window, false)
			if c.refused == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.refused)
		})
	}
}
