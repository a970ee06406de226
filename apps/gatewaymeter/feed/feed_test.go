package feed_test

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/weir/apps/gatewaymeter/feed"
	"example.com/weir/apps/gatewaymeter/replay"
)

func generator(t *testing.T, partitions int) *replay.Generator {
	t.Helper()
	in, err := feed.Load("", "")
	require.NoError(t, err)
	shares := replay.Usual()
	shares.Spread = 0.5
	g, err := replay.New(replay.Config{
		Seed: 7, Trace: in.Trace, Models: in.Models, Requests: 200, Partitions: partitions, Shares: shares,
	})
	require.NoError(t, err)
	return g
}

func client(t *testing.T, c *kfake.Cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(c.ListenAddrs()...))...)
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return cl
}

func cluster(t *testing.T) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "events"))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func TestATopicGetsEveryRecordWhereAndWhenTheReplayHasIt(t *testing.T) {
	c := cluster(t)
	cl := client(t, c, feed.Options()...)
	n, err := feed.Partitions(t.Context(), cl, "events")
	require.NoError(t, err)
	require.Equal(t, 3, n)
	want := slices.Collect(generator(t, n).All())
	var told int // by the client's goroutine, which has ended its work once ToTopic returns
	written, err := feed.ToTopic(t.Context(), cl, "events", generator(t, n).All(), func() { told++ })
	require.NoError(t, err)
	require.EqualValues(t, len(want), written)
	require.Equal(t, len(want), told)

	reader := client(t, c, kgo.ConsumeTopics("events"))
	got := map[int32][]*kgo.Record{}
	for n := 0; n < len(want); {
		fetches := reader.PollFetches(t.Context())
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) { got[r.Partition] = append(got[r.Partition], r); n++ })
	}
	require.Len(t, got, 3)
	for _, w := range want {
		r := got[w.Partition][0]
		got[w.Partition] = got[w.Partition][1:]
		require.Equal(t, string(w.Key), string(r.Key))
		require.Equal(t, string(w.Value), string(r.Value))
		require.Equal(t, w.At.Truncate(time.Millisecond), r.Timestamp.UTC())
	}
}

func TestARecordThatCannotBeWrittenEndsTheFeed(t *testing.T) {
	c := cluster(t)
	cl := client(t, c, feed.Options()...)
	written, err := feed.ToTopic(t.Context(), cl, "events", generator(t, 4).All(), nil) // there are 3
	require.ErrorContains(t, err, "write request r7-")
	require.Less(t, written, int64(len(slices.Collect(generator(t, 4).All()))))
	_, err = feed.Partitions(t.Context(), cl, "nowhere")
	require.ErrorContains(t, err, "partitions of topic nowhere: UNKNOWN_TOPIC_OR_PARTITION")
}

func TestLinesAreTheValues(t *testing.T) {
	var want, got bytes.Buffer
	n := 0
	for r := range generator(t, 0).All() {
		want.Write(append(r.Value, '\n'))
		n++
	}
	written, err := feed.ToLines(t.Context(), &got, generator(t, 0).All())
	require.NoError(t, err)
	require.EqualValues(t, n, written)
	require.Equal(t, want.String(), got.String())

	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	_, err = feed.ToLines(ctx, &got, generator(t, 0).All())
	require.ErrorIs(t, err, enough)
}

// at are records at so many seconds.
func at(seconds ...int) iter.Seq[replay.Record] {
	return func(yield func(replay.Record) bool) {
		for _, s := range seconds {
			if !yield(replay.Record{At: time.Unix(int64(s), 0)}) {
				return
			}
		}
	}
}

func TestAReplayIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := func(ctx context.Context, speedup float64, late time.Duration) (times []time.Duration) {
			began := time.Now()
			for range feed.Paced(ctx, at(100, 160, 160, 400), speedup) {
				times = append(times, time.Since(began))
				time.Sleep(late)
			}
			return times
		}
		s := time.Second
		require.Equal(t, []time.Duration{0, 60 * s, 60 * s, 300 * s}, seen(t.Context(), 1, 0))
		require.Equal(t, []time.Duration{0, 1 * s, 1 * s, 5 * s}, seen(t.Context(), 60, 0))
		require.Equal(t, []time.Duration{0, 0, 0, 0}, seen(t.Context(), 0, 0))
		require.Equal(t, []time.Duration{0, 2 * s, 4 * s, 6 * s}, seen(t.Context(), 60, 2*s), "who is behind does not wait")
		ctx, cancel := context.WithTimeout(t.Context(), 61*s)
		defer cancel()
		require.Len(t, seen(ctx, 1, 0), 3)
	})
}

func TestFilesAreReadAndTheSampleIsThere(t *testing.T) {
	in, err := feed.Load("", "")
	require.NoError(t, err)
	require.Equal(t, []string{"the sample in the program", "the sample in the program"}, []string{in.TraceName, in.PricesName})
	require.NotEmpty(t, in.Models)

	dir := t.TempDir()
	trace, prices := filepath.Join(dir, "t.csv"), filepath.Join(dir, "p.json")
	require.NoError(t, os.WriteFile(trace, []byte("TIMESTAMP,ContextTokens,GeneratedTokens\n2026-03-02 10:00:00,1,2\n"), 0o600))
	require.NoError(t, os.WriteFile(prices, []byte(`[{"id":"p","models":[{"id":"m","prices":{"input_mtok":1}}]}]`), 0o600))
	in, err = feed.Load(trace, "")
	require.NoError(t, err)
	require.Len(t, in.Trace, 1)
	require.Equal(t, trace, in.TraceName)
	_, err = feed.Load("", prices)
	require.ErrorContains(t, err, prices+": no model with prices for input and output")
	_, err = feed.Load(filepath.Join(dir, "none"), "")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestPublicDataBesideTheFolderAreFound(t *testing.T) {
	dir := t.TempDir()
	own := filepath.Join(dir, "own")
	require.NoError(t, os.Mkdir(own, 0o700))
	t.Chdir(own)
	trace, prices := feed.Beside()
	require.Empty(t, trace+prices)
	for _, path := range []string{"azure-llm-2023/code.csv", "genai-prices/data.json"} {
		file := filepath.Join(dir, "shared", "data", path)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, nil, 0o600))
	}
	trace, prices = feed.Beside()
	require.True(t, strings.HasSuffix(trace, "code.csv") && strings.HasSuffix(prices, "data.json"))
}
