package weir_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/weir"
	"example.com/weir/connector"
	"example.com/weir/weirtest"
)

// item is a row of the dataflows of this test.
type item struct {
	Key, N int
	At     time.Duration // event time, from start
	Tag    string        // what a last operator says of it
}

func (i *item) eventTime() time.Time { return start.Add(i.At) }
func (i *item) key() int             { return i.Key }

// since is a time as an item keeps it.
func since(t time.Time) time.Duration { return t.Sub(start) }

// node is an operator of a dataflow, and what it should make of all rows there ever were.
type node struct {
	operator
	in []*node
	id int
}

// operator is what a node does: with streams, and with all rows of its inputs at once.
type operator struct {
	name  string
	ins   int
	last  bool // nothing is to follow it: what it emits lies anywhere in event time
	wide  bool // its result depends on the parallelism
	build func(d *dataflow, n *node, in []weir.Stream[item]) weir.Stream[item]
	model func(d *dataflow, in [][]item) []item
	// check, where it is there, says what is wrong with the rows of an operator that has no model.
	check func(in, out []item) error
}

func (n *node) uid() string { return fmt.Sprint(n.name, "-", n.id) }

func (n *node) String() string {
	var in []string
	for _, i := range n.in {
		in = append(in, i.uid())
	}
	return n.uid() + "(" + strings.Join(in, ", ") + ")"
}

// dataflow is a random dataflow, with what is outside of it.
type dataflow struct {
	nodes       []*node
	parallelism int // of each life; 0: it changes
	storage     string
	sources     []*weirtest.Source[item]
	rows        [][]item // that have been written to each source
	sinks       map[*node]*weirtest.Sink[item]
	fuse        atomic.Int64 // after how many rows an operator fails; not above 0: none does
	now         time.Duration
}

const (
	checkpointEvery = time.Second
	disorder        = 5 * time.Second // in the event time of a split
	dataSplits      = 2
)

// drawDataflow draws an acyclic graph of operators. What nobody reads goes to a sink.
func drawDataflow(rt *rapid.T) *dataflow {
	d := &dataflow{sinks: map[*node]*weirtest.Sink[item]{}}
	all := operators()
	for range rapid.IntRange(1, 2).Draw(rt, "sources") {
		s := weirtest.NewSource[item](dataSplits)
		d.sources, d.rows = append(d.sources, s), append(d.rows, nil)
		d.add(sourceOperator(len(d.sources) - 1))
	}
	for range rapid.IntRange(1, 7).Draw(rt, "operators") {
		op := rapid.SampledFrom(all).Draw(rt, "operator")
		var in []*node
		for range op.ins {
			readable := slices.DeleteFunc(slices.Clone(d.nodes), func(n *node) bool { return n.last })
			in = append(in, readable[max(0, len(readable)-1-rapid.IntRange(0, 3).Draw(rt, "input"))])
		}
		d.add(op, in...)
		if op.wide {
			d.parallelism = 3
		}
	}
	return d
}

func (d *dataflow) add(op operator, in ...*node) {
	d.nodes = append(d.nodes, &node{operator: op, in: in, id: len(d.nodes)})
}

func (d *dataflow) job(parallelism int) *weir.Job {
	j := weir.NewJob("dataflow", weir.Config{
		Parallelism: parallelism, MaxParallelism: 8, Logger: discard(),
		Checkpoint: weir.Checkpoint{Storage: d.storage, Interval: checkpointEvery},
		Restart:    weir.FixedDelay{Delay: 100 * time.Millisecond},
	})
	streams, read := map[*node]weir.Stream[item]{}, map[*node]bool{}
	for i, n := range d.nodes {
		if i < len(d.sources) {
			streams[n] = d.source(j, i, n)
			continue
		}
		var in []weir.Stream[item]
		for _, from := range n.in {
			in, read[from] = append(in, streams[from]), true
		}
		streams[n] = n.build(d, n, in)
	}
	for _, n := range d.nodes {
		if read[n] {
			continue
		}
		if d.sinks[n] == nil {
			d.sinks[n] = weirtest.NewSink[item](connector.ExactlyOnce)
		}
		weir.SinkTo(streams[n], "sink-"+n.uid(), d.sinks[n])
	}
	return j
}

var errFuse = errors.New("the fuse has blown")

// source reads a source through an operator that fails when it is to.
func (d *dataflow) source(j *weir.Job, i int, n *node) weir.Stream[item] {
	s := weir.From(j, n.uid(), d.sources[i], weir.EventTime((*item).eventTime, disorder))
	return weir.Map(s, n.uid()+"-fuse", func(v *item) (item, error) {
		if d.fuse.Load() > 0 && d.fuse.Add(-1) == 0 {
			return item{}, errFuse
		}
		return *v, nil
	})
}

// write writes a row that is not late.
func (d *dataflow) write(source, split int, v item) {
	d.sources[source].Add(split, v)
	d.rows[source] = append(d.rows[source], v)
}

// begin gives each split a row: an empty one holds event time back for nobody, and its first row may be late.
func (d *dataflow) begin(t *testing.T) {
	d.storage = "file://" + memoryDir(t)
	for s := range d.sources {
		for split := range dataSplits {
			d.write(s, split, item{Key: split, N: 1})
		}
	}
}

// burst writes rows of many keys at once: what is kept of them then is more than a cut holds whole.
func (d *dataflow) burst(rows int) {
	for i := range rows {
		d.write(i%len(d.sources), i%dataSplits, item{Key: 10 + i, N: i % 10, At: d.now})
	}
}

// step is what happens beside the job.
type step struct {
	source, split, key, n int
	ahead, back           time.Duration // of the event time of a row, behind all before it and from there
	advance               bool          // event time is moved as far as it can be
	wait                  time.Duration
}

func drawStep(rt *rapid.T) step {
	return step{
		source: rapid.IntRange(0, 1).Draw(rt, "source"), split: rapid.IntRange(0, dataSplits-1).Draw(rt, "split"),
		key: rapid.IntRange(0, 3).Draw(rt, "key"), n: rapid.IntRange(0, 9).Draw(rt, "n"),
		ahead:   time.Duration(rapid.IntRange(0, 3).Draw(rt, "ahead")) * time.Second,
		back:    time.Duration(rapid.IntRange(0, 4).Draw(rt, "back")) * time.Second,
		advance: rapid.IntRange(0, 4).Draw(rt, "advance") == 0,
		wait:    rapid.SampledFrom([]time.Duration{0, 0, 0, 0, time.Millisecond, 400 * time.Millisecond, time.Second}).Draw(rt, "wait"),
	}
}

func (d *dataflow) do(s step) {
	d.now += s.ahead
	source := s.source % len(d.sources)
	d.write(source, s.split, item{Key: s.key, N: s.n, At: max(0, d.now-s.back)})
	if s.advance {
		for _, src := range d.sources {
			src.AdvanceTo(start.Add(d.now - disorder))
		}
	}
	time.Sleep(s.wait)
}

// ends are the ways in which a life ends.
var ends = []string{"kill", "kill", "kill", "stop", "fail"}

// live runs the job for a while.
func (d *dataflow) live(rt *rapid.T, t *testing.T) {
	parallelism := rapid.IntRange(1, 3).Draw(rt, "parallelism")
	if d.parallelism > 0 {
		parallelism = d.parallelism
	}
	steps := rapid.SliceOfN(rapid.Custom(drawStep), 0, 12).Draw(rt, "steps")
	end := rapid.SampledFrom(ends).Draw(rt, "end")
	rest := rapid.SampledFrom([]time.Duration{0, time.Millisecond, time.Second, 1500 * time.Millisecond}).Draw(rt, "rest")
	if end == "fail" {
		d.fuse.Store(int64(rapid.IntRange(1, 12).Draw(rt, "fuse")))
	}
	burst := rapid.IntRange(0, 24).Draw(rt, "burst") // before which step, if there are so many
	r := weirtest.Start(t, d.job(parallelism))
	begun := time.Now()
	for i, s := range steps {
		if i == burst {
			time.Sleep(checkpointEvery - time.Since(begun)%checkpointEvery) // so that a barrier comes with it
			d.burst(2500)
		}
		d.do(s)
	}
	time.Sleep(rest)
	if end == "stop" {
		_, err := r.Stop()
		require.NoError(rt, err)
	}
	r.Kill()
}

// drain lets the job read what is left and takes event time to its end.
func (d *dataflow) drain(rt *rapid.T, t *testing.T) {
	d.fuse.Store(0)
	r := weirtest.Start(t, d.job(max(1, d.parallelism)))
	time.Sleep(10 * time.Second)
	outcome, err := r.Drain()
	require.NoError(rt, err)
	require.Equal(rt, weir.Finished, outcome)
}

// requireExact holds what each sink has seen against what all rows at once make.
func (d *dataflow) requireExact(rt *rapid.T) {
	want := map[*node][]item{}
	for i, n := range d.nodes {
		if i < len(d.sources) {
			want[n] = d.rows[i]
			continue
		}
		var in [][]item
		for _, from := range n.in {
			in = append(in, want[from])
		}
		if n.model != nil {
			want[n] = n.model(d, in)
		}
		sink := d.sinks[n]
		switch {
		case sink == nil:
		case n.check != nil:
			require.NoError(rt, n.check(in[0], sink.Rows()), "%s of %v", n.uid(), d.nodes)
		default:
			require.Equal(rt, lines(want[n]), lines(sink.Rows()), "%s of %v", n.uid(), d.nodes)
		}
	}
}

func lines(rows []item) []string {
	all := make([]string, len(rows))
	for i, r := range rows {
		all[i] = fmt.Sprintf("key %d at %s: %d %s", r.Key, r.At, r.N, r.Tag)
	}
	slices.Sort(all)
	return all
}

// bubbled is a test in a bubble, of which nobody may ask for its deadline.
type bubbled struct{ testing.TB }

// Any dataflow of these operators makes of its rows what an uninterrupted run over all of them at once does:
// whatever its graph, in whatever order its rows come, wherever it is stopped, killed or fails, and at
// whatever parallelism it goes on.
func TestAnyDataflowMakesOfItsRowsWhatOneRunOverAllOfThemDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(bubbled{t}, func(rt *rapid.T) {
			d := drawDataflow(rt)
			d.begin(t)
			for range rapid.IntRange(1, 5).Draw(rt, "lives") {
				d.live(rt, t)
			}
			d.drain(rt, t)
			d.requireExact(rt)
		})
	})
}
