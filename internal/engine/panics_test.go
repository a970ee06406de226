package engine_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/weir/connector"
	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/engine"
	"example.com/weir/internal/protocol"
	"example.com/weir/weirtest"
)

// bomb fails once at one of the places where a job calls what is not its own, by a panic or by an
// error.
type bomb struct {
	at    string
	panic bool
	gone  bool
}

var errBomb = errors.New("boom")

func (b *bomb) here(at string) error {
	if b.at != at || b.gone {
		return nil
	}
	b.gone = true
	if b.panic {
		panic(errBomb)
	}
	return errBomb
}

type bombSource struct {
	connector.Source[int]
	*bomb
}

func (s bombSource) Discover(ctx context.Context) ([]connector.Split, error) {
	if err := s.here("Discover"); err != nil {
		return nil, err
	}
	return s.Source.Discover(ctx)
}

func (s bombSource) Reader(
	ctx context.Context, rc connector.ReaderContext[int], splits []connector.Split,
) (connector.Reader[int], error) {
	if err := s.here("Reader"); err != nil {
		return nil, err
	}
	r, err := s.Source.Reader(ctx, rc, splits)
	return bombReader{r, s.bomb}, err
}

type bombReader struct {
	connector.Reader[int]
	*bomb
}

func (r bombReader) Read(ctx context.Context, b *connector.Batch[int]) error {
	if err := r.Reader.Read(ctx, b); err != nil || len(b.Rows) == 0 {
		return err
	}
	return r.here("Read")
}

func (r bombReader) Close() error { return errors.Join(r.Reader.Close(), r.here("Reader.Close")) }

type bombSink struct {
	*weirtest.Sink[int]
	*bomb
}

func (s bombSink) Restore(ctx context.Context, rc connector.RestoreContext) error {
	return errors.Join(s.Sink.Restore(ctx, rc), s.here("Restore"))
}

func (s bombSink) Writer(ctx context.Context, wc connector.WriterContext) (connector.Writer[int], error) {
	if err := s.here("Writer"); err != nil {
		return nil, err
	}
	w, err := s.Sink.Writer(ctx, wc)
	return bombWriter{w.(connector.TwoPhaseWriter[int]), s.bomb}, err
}

type bombWriter struct {
	connector.TwoPhaseWriter[int]
	*bomb
}

func (w bombWriter) Write(ctx context.Context, rows []int) error {
	return errors.Join(w.TwoPhaseWriter.Write(ctx, rows), w.here("Write"))
}

func (w bombWriter) Flush(ctx context.Context, end bool) error {
	return errors.Join(w.TwoPhaseWriter.Flush(ctx, end), w.here("Flush"))
}

func (w bombWriter) PrepareCommit(ctx context.Context, n uint64) (*connector.Committable, error) {
	if err := w.here("PrepareCommit"); err != nil {
		return nil, err
	}
	return w.TwoPhaseWriter.PrepareCommit(ctx, n)
}

func (w bombWriter) Commit(ctx context.Context, c connector.Committable) error {
	if err := w.here("Commit"); err != nil {
		return err
	}
	return w.TwoPhaseWriter.Commit(ctx, c)
}

func (w bombWriter) Close() error {
	return errors.Join(w.TwoPhaseWriter.Close(), w.here("Writer.Close"))
}

type bombCodec struct{ *bomb }

func (c bombCodec) Append(dst []byte, v *int) ([]byte, error) {
	return append(dst, byte(*v)), c.here("encode")
}

func (c bombCodec) Decode(src []byte, v *int) error {
	*v = int(src[0])
	return c.here("decode")
}

// bombProcessor counts the numbers it has seen, and passes each on at its timer.
type bombProcessor struct {
	*bomb
	seen engine.Value[int]
}

func (p *bombProcessor) Open(o *engine.OpenContext[int]) (err error) {
	if err := p.here("Open"); err != nil {
		return err
	}
	p.seen, err = engine.NewValue(o, "seen", connector.Codec[int](bombCodec{p.bomb}))
	return err
}

func (p *bombProcessor) Process(ctx *engine.Context[int], _ *int, _ *engine.Out[int]) error {
	n, err := p.seen.Put()
	if err != nil {
		return err
	}
	*n++
	ctx.SetTimer(ctx.EventTime())
	return p.here("Process")
}

func (p *bombProcessor) OnTimer(ctx *engine.Context[int], out *engine.Out[int]) error {
	out.Emit(100*ctx.Key() + *p.seen.Get())
	return p.here("OnTimer")
}

type bombAggregator struct{ *bomb }

func (a bombAggregator) Add(acc *int, row *int) error { *acc += *row; return a.here("Add") }
func (a bombAggregator) Fire(_ *engine.WindowContext[int], acc *int, out *engine.Out[int]) error {
	out.Emit(*acc)
	return a.here("Fire")
}

// Whatever fails, and however, the process lives, the generation after it does the work, and the
// consumer sees it once.
func TestFailureAnywhereFailsTheGenerationAndNothingElse(t *testing.T) {
	for _, at := range []string{
		"Discover", "Reader", "Read", "Open", "Process", "OnTimer", "Add", "Fire", "encode", "decode",
		"Restore", "Writer", "Write", "Flush", "PrepareCommit", "Commit", "Writer.Close", "Reader.Close",
	} {
		for _, panics := range []bool{false, true} {
			t.Run(at+map[bool]string{true: " panics", false: ""}[panics], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { failOnce(t, &bomb{at: at, panic: panics}) })
			})
		}
	}
}

func failOnce(t *testing.T, b *bomb) {
	source, sink := weirtest.NewSource[int](1), weirtest.NewSink[int](connector.ExactlyOnce)
	store := checkpoint.NewMemory("bomb")
	begin := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	source.Add(0, 1, 2)
	source.AdvanceTo(begin)
	source.Add(0, 3)
	run := func(d time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		p := engine.NewPlan("bomb", 1, 16)
		s := engine.Source(p, "numbers", connector.Source[int](bombSource{source, b}), engine.SourceConfig[int]{
			EventTime: func(n *int) time.Time { return begin.Add(time.Duration(*n) * time.Second) },
		}, &engine.DeadLetters{})
		self := func(n *int) int { return *n }
		seen := engine.Process(engine.KeyBy(s, self), "seen",
			func() engine.Processor[int, int, int] { return &bombProcessor{bomb: b} })
		sums := engine.Aggregate(engine.KeyBy(seen, self), "sum",
			engine.WindowConfig[int]{Size: time.Minute}, bombAggregator{b})
		engine.Sink(sums, "sink", connector.Sink[int](bombSink{sink, b}))
		_, err := engine.Run(ctx, p, engine.RunConfig{
			Store: store, Interval: time.Second, Restart: protocol.FixedDelay{},
		}, nil)
		return err
	}
	require.ErrorIs(t, runOrStop(b, run, 5*time.Second), context.DeadlineExceeded)
	source.AdvanceTo(begin.Add(time.Hour))
	require.ErrorIs(t, runOrStop(b, run, 10*time.Second), context.DeadlineExceeded)
	require.True(t, b.gone, "%s was never reached", b.at)
	rows := sink.Rows()
	slices.Sort(rows)
	require.Equal(t, []int{101, 201, 301}, rows)
}

// runOrStop runs the job, and again if it stopped over the bomb: a state that cannot be decoded
// is refused, and no restart heals that.
func runOrStop(b *bomb, run func(time.Duration) error, d time.Duration) error {
	err := run(d)
	if b.at == "decode" && connector.IsStop(err) {
		err = run(d)
	}
	return err
}
