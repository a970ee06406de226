package lab

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/weir/apps/gatewaymeter/rig"
)

func TestARecordsFateIsWhatTheNextMarkerOfItsProducerSays(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "tenant-cost"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	minute := func(usd string) *kgo.Record {
		return &kgo.Record{Topic: "tenant-cost", Value: fmt.Appendf(nil,
			`{"tenant_id":"acme","window_end":"2026-03-02T10:02:00Z","usd":%q,"requests":2,"revision":1}`, usd)}
	}
	write := func(cl *kgo.Client, usd string) {
		t.Helper()
		require.NoError(t, cl.ProduceSync(t.Context(), minute(usd)).FirstErr())
	}
	begin := func(id string) *kgo.Client {
		t.Helper()
		cl := clientOf(t, cluster.ListenAddrs(), kgo.TransactionalID(id))
		require.NoError(t, cl.BeginTransaction())
		return cl
	}
	one, two := begin("one"), begin("two")
	write(one, "1")
	write(two, "2")
	write(one, "3")
	require.NoError(t, two.EndTransaction(t.Context(), kgo.TryAbort))
	write(clientOf(t, cluster.ListenAddrs()), "4")
	require.NoError(t, one.EndTransaction(t.Context(), kgo.TryCommit))
	require.NoError(t, one.BeginTransaction())
	write(one, "5")

	cl := clientOf(t, cluster.ListenAddrs(), kgo.ConsumeTopics("tenant-cost"), kgo.KeepControlRecords(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	log := &logbook{}
	for n := 0; n < 7; { // five records and two markers
		fetches := cl.PollFetches(t.Context())
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			n++
			require.NoError(t, log.add(r, time.Now()))
		})
	}
	fates := map[string]fate{}
	for _, l := range log.lines {
		require.Equal(t, "acme", l.Minute.Tenant)
		fates[l.USD] = l.fate
	}
	require.Equal(t, map[string]fate{"1": committed, "2": aborted, "3": committed, "4": plain, "5": open}, fates)
	require.Equal(t, "15", total(log.lines))
	require.Equal(t, "-0.25", less("1", "1.25"))
}

func TestAControlRecordThatIsNoMarkerIsNotPassedOver(t *testing.T) {
	for _, key := range [][]byte{nil, {0, 0}, {0, 0, 0, 2}} {
		_, err := marker(key)
		require.ErrorContains(t, err, "no marker")
	}
}

func TestATimelineIsInTheOrderOfTimesWhoeverSaysIt(t *testing.T) {
	began := time.Date(2026, 3, 2, 10, 0, 0, 0, time.Local)
	var out bytes.Buffer
	tl := newTimeline(&out, began)
	tl.note(began.Add(1500*time.Millisecond), lab, "second")
	tl.found(began.Add(time.Second), topic, "first")
	tl.note(began.Add(1500*time.Millisecond), jobLog, "third")
	require.Equal(t, "   1.50s  lab      second\n   1.50s  job      third\n", out.String(), "what is found afterwards is not printed")
	require.Equal(t, "10:00:01.000     1.000s  topic    first\n"+
		"10:00:01.500     1.500s  lab      second\n10:00:01.500     1.500s  job      third\n", tl.text())
}

func TestATimelineHasWhatTheJobSaysOfItsCourseAndEveryWarning(t *testing.T) {
	for text, want := range map[string]string{
		`{"level":"INFO","msg":"generation started","generation":2,"checkpoint":3}`:            "generation 2 has started, from checkpoint 3",
		`{"level":"INFO","msg":"restored","checkpoint":3,"settled":1}`:                         "checkpoint 3 is restored; 1 committables of it are settled",
		`{"level":"INFO","msg":"restored","checkpoint":0}`:                                     "",
		`{"level":"INFO","msg":"price book"}`:                                                  "",
		`{"level":"INFO","msg":"written again","transaction":"x-1"}`:                           "written again: x-1",
		`{"level":"ERROR","msg":"lost","transaction":"x-1","where":"t/0","because":"aborted"}`: "ERROR: lost: x-1: t/0: aborted",
		`{"level":"WARN","msg":"written again","lost":"x-1","again":"x-2"}`:                    "WARN: written again: x-1: x-2",
		`{"level":"ERROR","msg":"job ended","outcome":"refused","error":"lost: x-1"}`:          "ERROR: job ended: refused: lost: x-1",
	} {
		l, ok := rig.ParseLine([]byte(text))
		require.True(t, ok)
		require.Equal(t, want, told(l), text)
	}
}

func TestAVerdictSaysWhatItLacks(t *testing.T) {
	v := &verdict{is: "it is so"}
	v.want(true, "never said")
	require.Equal(t, "shown: it is so", v.String())
	v.want(false, "%d of %d", 1, 2)
	v.want(false, "another")
	require.False(t, v.shown())
	require.Equal(t, "not shown: 1 of 2; another", v.String())
}
