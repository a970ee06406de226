package connectortest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/weir/connector"
)

// patience bounds a wait for what must come: a test that needs it all has failed.
const patience = 30 * time.Second

// ErrBad is what Decode says of a bad value.
var ErrBad = errors.New("a bad value")

// Decode is the decoder of the sources under test: a row is the value, and one that begins with "bad"
// is refused. The row shares the memory of the value, as a decoder may: a source that used its buffers
// again would change rows after it has returned them.
func Decode(value []byte, row *string) error {
	*row = unsafe.String(unsafe.SliceData(value), len(value))
	if strings.HasPrefix(*row, "bad") {
		return ErrBad
	}
	return nil
}

// SourceFixture is a place with records, of a test's own, and sources that read it.
type SourceFixture struct {
	// Source reads the place from its beginning and does not end.
	Source connector.Source[string]
	// Bounded reads it from its beginning to where each split ends when the job starts.
	Bounded connector.Source[string]
	// Splits is how many splits the place has; two or more, so that they can be mixed up.
	Splits int
	// Write appends values to the split with the index in what Discover returns.
	Write func(t *testing.T, split int, values ...string)
}

// Source runs the suite of a replayable source. fixture makes a new, empty place for each test.
func Source(t *testing.T, fixture func(t *testing.T) SourceFixture) {
	for name, test := range map[string]func(*testing.T, SourceFixture){
		"every row once and in order":                                        everyRowOnce,
		"C1 a reader from any position yields precisely the rest":            anyPosition,
		"C2 a row is among the rows or among the rejected":                   rowsOrRejected,
		"a read that is cancelled loses nothing":                             cancelledReads,
		"a bounded read ends where it was said to":                           boundedEnd,
		"a bounded read that has ended is ended again":                       endedAgain,
		"a split is caught up once it is read to its end, and says so again": caughtUp,
		"rows stay valid while later batches are read":                       rowsStay,
		"splits that are added are read like the others":                     addedSplits,
		"close leaves nothing behind":                                        closeLeavesNothing,
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture(t)
			require.True(t, f.Source.Replayable(), "the suite is for replayable sources")
			require.GreaterOrEqual(t, f.Splits, 2)
			test(t, f)
		})
	}
}

// values are n values that tell their split and place.
func values(split, from, n int) []string {
	v := make([]string, n)
	for i := range v {
		v[i] = fmt.Sprintf("%d.%05d", split, from+i)
	}
	return v
}

// fill writes values to every split but the last, which stays empty, and returns them. It writes them
// in several goes, so that a source which reads what was written together finds it in pieces.
func fill(t *testing.T, f SourceFixture, n int) [][]string {
	t.Helper()
	written := make([][]string, f.Splits)
	written[f.Splits-1] = []string{}
	for split := range f.Splits - 1 {
		written[split] = values(split, 0, n)
		for piece := range slices.Chunk(written[split], max(1, n/8)) {
			f.Write(t, split, piece...)
		}
	}
	return written
}

func discover(t *testing.T, s connector.Source[string]) []connector.Split {
	t.Helper()
	splits, err := s.Discover(t.Context())
	require.NoError(t, err)
	return splits
}

func readerContext(t *testing.T) connector.ReaderContext[string] {
	return connector.ReaderContext[string]{
		Job: t.Name(), Operator: "source", Parallelism: 1,
		Admit: func(row *string, sourceTime int64) (int64, error) {
			if strings.HasPrefix(*row, "refused") {
				return 0, errors.New("not admitted")
			}
			return sourceTime + int64(len(*row)), nil
		},
	}
}

func open(t *testing.T, s connector.Source[string], splits []connector.Split) connector.Reader[string] {
	t.Helper()
	r, err := s.Reader(t.Context(), readerContext(t), splits)
	require.NoError(t, err)
	return r
}

// log is what was read.
type log struct {
	rows     [][]string               // by split
	rejected [][]connector.DeadLetter // by split
	ended    []int                    // how often each split was said to have ended
	steps    []step
}

// step is one batch: where its split went on after it, and how many rows of it had been read then.
type step struct {
	split, rows, rejected int
	position              []byte
}

func newLog(splits int) *log {
	l := &log{
		rows: make([][]string, splits), rejected: make([][]connector.DeadLetter, splits), ended: make([]int, splits),
	}
	for split := range l.rows {
		l.rows[split] = []string{}
	}
	return l
}

func (l *log) add(t *testing.T, b *connector.Batch[string]) {
	t.Helper()
	require.Len(t, b.Times, len(b.Rows))
	require.NotEmpty(t, b.Position)
	l.rows[b.Split] = append(l.rows[b.Split], b.Rows...)
	l.rejected[b.Split] = append(l.rejected[b.Split], b.Rejected...)
	if b.Ended {
		l.ended[b.Split]++
	}
	l.steps = append(l.steps, step{
		b.Split, len(l.rows[b.Split]), len(l.rejected[b.Split]), slices.Clone(b.Position),
	})
}

func (l *log) count() int {
	n := 0
	for split := range l.rows {
		n += len(l.rows[split]) + len(l.rejected[split])
	}
	return n
}

// read reads until it has n records, and then until every split is caught up.
func read(t *testing.T, r connector.Reader[string], splits, n int) *log {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	l := newLog(splits)
	caught := make([]bool, splits)
	var b connector.Batch[string]
	for l.count() < n || slices.Contains(caught, false) {
		require.NoError(t, r.Read(ctx, &b), "after %d of %d records, caught up: %v", l.count(), n, caught)
		l.add(t, &b)
		caught[b.Split] = b.CaughtUp
	}
	return l
}

// readToEnd reads until every split has ended, and sees that nothing comes afterwards.
func readToEnd(t *testing.T, r connector.Reader[string], splits int) *log {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	l := newLog(splits)
	var b connector.Batch[string]
	for slices.Contains(l.ended, 0) {
		require.NoError(t, r.Read(ctx, &b), "ended: %v", l.ended)
		l.add(t, &b)
	}
	// Once every split has ended, Read waits for its context.
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, r.Read(ctx, &b), context.DeadlineExceeded)
	return l
}

func shut(t *testing.T, r connector.Reader[string]) {
	t.Helper()
	require.NoError(t, r.Close())
}

func everyRowOnce(t *testing.T, f SourceFixture) {
	written := fill(t, f, 2500)
	splits := discover(t, f.Source)
	require.Len(t, splits, f.Splits)
	r := open(t, f.Source, splits)
	defer shut(t, r)
	l := read(t, r, f.Splits, 2500*(f.Splits-1))
	for split := range written {
		require.Equal(t, written[split], l.rows[split], "split %d", split)
	}

	// What is written while the reader waits comes too, in the split that was empty as well.
	more := values(f.Splits-1, 0, 10)
	f.Write(t, f.Splits-1, more...)
	l = read(t, r, f.Splits, len(more))
	require.Equal(t, more, l.rows[f.Splits-1])
}

func anyPosition(t *testing.T, f SourceFixture) {
	written := fill(t, f, 1500)
	f.Write(t, 0, "bad")
	written[0] = append(written[0], values(0, 1500, 1)...)
	f.Write(t, 0, written[0][1500:]...)
	splits := discover(t, f.Bounded)
	r := open(t, f.Bounded, splits)
	whole := readToEnd(t, r, f.Splits)
	shut(t, r)

	// The positions of all splits after each step, as a checkpoint would hold them.
	at := make([]step, f.Splits)
	for split := range at {
		at[split] = step{split: split, position: splits[split].Position}
	}
	steps := append([]step{at[0]}, whole.steps...)
	for i, s := range steps {
		at[s.split] = s
		if len(steps) > 12 && i%(len(steps)/12) != 0 && i != len(steps)-1 {
			continue // each costs a reader: a dozen of them will do
		}
		from := slices.Clone(splits)
		for split := range from {
			from[split].Position = at[split].position
		}
		r := open(t, f.Bounded, from)
		rest := readToEnd(t, r, f.Splits)
		shut(t, r)
		for split := range at {
			require.Equal(t, whole.rows[split][at[split].rows:], rest.rows[split], "split %d, step %d", split, i)
			require.Len(t, rest.rejected[split], len(whole.rejected[split])-at[split].rejected)
		}
	}
}

func rowsOrRejected(t *testing.T, f SourceFixture) {
	f.Write(t, 0, "bad 1", "a", "refused 2", "b", "bad 3")
	f.Write(t, 1, "bad alone")
	r := open(t, f.Source, discover(t, f.Source))
	defer shut(t, r)
	l := read(t, r, f.Splits, 6)
	require.Equal(t, []string{"a", "b"}, l.rows[0])
	require.Empty(t, l.rows[1])
	var got []string
	for _, d := range append(l.rejected[0], l.rejected[1]...) {
		got = append(got, string(d.Value)+": "+d.Reason)
		require.NotEmpty(t, d.Topic)
	}
	require.Equal(t, []string{
		"bad 1: " + ErrBad.Error(), "refused 2: not admitted", "bad 3: " + ErrBad.Error(), "bad alone: " + ErrBad.Error(),
	}, got)
}

func cancelledReads(t *testing.T, f SourceFixture) {
	written := fill(t, f, 3000)
	rc := readerContext(t)
	admit, cancel := rc.Admit, context.CancelFunc(func() {})
	rows := 0
	rc.Admit = func(row *string, sourceTime int64) (int64, error) {
		if rows++; rows%500 == 0 {
			cancel() // the read is cancelled while it makes its batch
		}
		return admit(row, sourceTime)
	}
	r, err := f.Bounded.Reader(t.Context(), rc, discover(t, f.Bounded))
	require.NoError(t, err)
	defer shut(t, r)
	l := newLog(f.Splits)
	deadline := time.Now().Add(patience)
	var b connector.Batch[string]
	for try := 0; slices.Contains(l.ended, 0); try++ {
		require.True(t, time.Now().Before(deadline), "ended: %v", l.ended)
		// From one that has ended already to one that ends about when an answer comes.
		var ctx context.Context
		ctx, cancel = context.WithTimeout(t.Context(), time.Duration(try%40)*250*time.Microsecond)
		if err := r.Read(ctx, &b); err != nil {
			require.Equal(t, ctx.Err(), err)
		} else {
			l.add(t, &b)
		}
		cancel()
	}
	for split := range written {
		require.Equal(t, written[split], l.rows[split], "split %d", split)
	}
}

func boundedEnd(t *testing.T, f SourceFixture) {
	written := fill(t, f, 700)
	splits := discover(t, f.Bounded)
	for split := range f.Splits {
		f.Write(t, split, values(split, 700, 300)...) // after the end
	}
	r := open(t, f.Bounded, splits)
	defer shut(t, r)
	l := readToEnd(t, r, f.Splits)
	for split := range written {
		require.Equal(t, written[split], l.rows[split], "split %d", split)
		require.Equal(t, 1, l.ended[split], "split %d", split)
	}
}

func endedAgain(t *testing.T, f SourceFixture) {
	fill(t, f, 10)
	splits := discover(t, f.Bounded)
	r := open(t, f.Bounded, splits)
	l := readToEnd(t, r, f.Splits)
	shut(t, r)
	for _, s := range l.steps {
		splits[s.split].Position = s.position
	}
	f.Write(t, 0, "more")
	r = open(t, f.Bounded, splits)
	defer shut(t, r)
	require.Zero(t, readToEnd(t, r, f.Splits).count())
}

func caughtUp(t *testing.T, f SourceFixture) {
	written := fill(t, f, 2500)
	r := open(t, f.Source, discover(t, f.Source))
	defer shut(t, r)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	l, told := newLog(f.Splits), make([]int, f.Splits)
	var b connector.Batch[string]
	for slices.Min(told) < 2 { // each of them again, although nothing comes
		require.NoError(t, r.Read(ctx, &b), "caught up: %v", told)
		l.add(t, &b)
		if b.CaughtUp {
			require.Len(t, l.rows[b.Split], len(written[b.Split]), "split %d is behind, and says it is not", b.Split)
			told[b.Split]++
		}
	}
}

func rowsStay(t *testing.T, f SourceFixture) {
	written := fill(t, f, 3000)
	r := open(t, f.Source, discover(t, f.Source))
	defer shut(t, r)
	// The log keeps the rows and not the slice of each batch; they are compared after all has been read.
	l := read(t, r, f.Splits, 3000*(f.Splits-1))
	require.Equal(t, written[0], l.rows[0])
}

// addedSplits opens a reader without splits and one with the first, and adds the others, if readers take
// some.
func addedSplits(t *testing.T, f SourceFixture) {
	written := fill(t, f, 700)
	splits := discover(t, f.Source)
	for had := range 2 {
		r := open(t, f.Source, slices.Clone(splits[:had]))
		defer shut(t, r)
		adder, ok := r.(connector.SplitAdder)
		if !ok {
			return
		}
		if had > 0 {
			read(t, r, had, 700)
		}
		require.NoError(t, adder.AddSplits(t.Context(), slices.Clone(splits[had:])))
		l := read(t, r, f.Splits, 700*(f.Splits-1-had))
		for split := had; split < f.Splits; split++ {
			require.Equal(t, written[split], l.rows[split], "split %d of %d, added to %d", split, f.Splits, had)
		}
		f.Write(t, f.Splits-1, "more")
		l = read(t, r, f.Splits, 1)
		require.Equal(t, []string{"more"}, l.rows[f.Splits-1])
		written[f.Splits-1] = append(written[f.Splits-1], "more")
	}
}

func closeLeavesNothing(t *testing.T, f SourceFixture) {
	fill(t, f, 2000)
	before := goleak.IgnoreCurrent()
	splits := discover(t, f.Source)
	goleak.VerifyNone(t, before)

	r := open(t, f.Source, splits)
	shut(t, r) // before the first read
	goleak.VerifyNone(t, before)

	r = open(t, f.Source, splits)
	var b connector.Batch[string]
	require.NoError(t, r.Read(t.Context(), &b))
	shut(t, r) // in the middle
	goleak.VerifyNone(t, before)
}
