package file_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/weir/connector"
	"example.com/weir/connector/connectortest"
	"example.com/weir/connectors/file"
)

func add(t testing.TB, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	_, err = f.WriteString(text)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestTheSourceKeepsTheContractOfSources(t *testing.T) {
	connectortest.Source(t, func(t *testing.T) connectortest.SourceFixture {
		dir := t.TempDir()
		path := func(split int) string { return filepath.Join(dir, fmt.Sprint(split, ".log")) }
		for split := range 3 {
			add(t, path(split), "")
		}
		cfg := file.Config{
			Paths: []string{filepath.Join(dir, "*.log")}, Follow: true, MaxBatch: 100, Poll: 10 * time.Millisecond,
		}
		bounded := cfg
		bounded.Follow = false
		return connectortest.SourceFixture{
			Source:  file.Lines(cfg, connectortest.Decode),
			Bounded: file.Lines(bounded, connectortest.Decode), Splits: 3,
			Write: func(t *testing.T, split int, values ...string) {
				add(t, path(split), strings.Join(values, "\n")+"\n")
			},
		}
	})
}

// stream reads as the engine does.
type stream struct {
	t        *testing.T
	source   connector.Source[string]
	splits   []connector.Split
	reader   connector.Reader[string]
	rows     []string
	rejected []connector.DeadLetter
	caughtUp map[int]bool
	ended    map[int]bool
}

func keep(line []byte, row *string) error {
	*row = string(line)
	return nil
}

func discover(t *testing.T, cfg file.Config) *stream {
	t.Helper()
	cfg.Poll = time.Millisecond
	s := &stream{t: t, source: file.Lines(cfg, keep)}
	var err error
	s.splits, err = s.source.Discover(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.start())
	return s
}

func (s *stream) start() error {
	s.caughtUp, s.ended = map[int]bool{}, map[int]bool{}
	r, err := s.source.Reader(s.t.Context(), connector.ReaderContext[string]{
		Operator: "lines", Admit: func(_ *string, at int64) (int64, error) { return at, nil },
	}, s.splits)
	if err != nil {
		return err
	}
	s.reader = r
	s.t.Cleanup(func() { require.NoError(s.t, r.Close()) })
	return nil
}

func (s *stream) until(done func() bool) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	var b connector.Batch[string]
	for !done() {
		if err := s.reader.Read(ctx, &b); err != nil {
			return err
		}
		s.rows = append(s.rows, b.Rows...)
		s.rejected = append(s.rejected, b.Rejected...)
		s.splits[b.Split].Position = append([]byte(nil), b.Position...)
		s.caughtUp[b.Split], s.ended[b.Split] = b.CaughtUp, b.Ended
	}
	return nil
}

func (s *stream) all(told map[int]bool) func() bool {
	return func() bool {
		for i := range s.splits {
			if !told[i] {
				return false
			}
		}
		return true
	}
}

func (s *stream) read() []string {
	s.t.Helper()
	clear(s.caughtUp)
	s.rows, s.rejected = nil, nil
	require.NoError(s.t, s.until(s.all(s.caughtUp)))
	return s.rows
}

func requireStop(t *testing.T, err error, text string) {
	t.Helper()
	require.ErrorContains(t, err, text)
	require.True(t, connector.IsStop(err), err)
}

func TestALineIsARecordOnceItsEndIsThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	add(t, path, "one\ntw")
	s := discover(t, file.Config{Paths: []string{path}, Follow: true})
	require.Equal(t, []string{"one"}, s.read())
	require.Empty(t, s.read())
	require.NoError(t, s.start(), "and after a restart")
	add(t, path, "o\r\n\n")
	require.Equal(t, []string{"two", ""}, s.read())
}

func TestABoundedReadThatEndsWithinALineSaysSo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	add(t, path, "one\ntwo")
	s := discover(t, file.Config{Paths: []string{path}})
	add(t, path, "and more\nthree\n")
	require.NoError(t, s.until(s.all(s.ended)))
	require.Equal(t, []string{"one"}, s.rows)
	require.Len(t, s.rejected, 1)
	require.Equal(t, "two", string(s.rejected[0].Value))
	require.EqualValues(t, 4, s.rejected[0].Offset)
	require.Contains(t, s.rejected[0].Reason, "the file ended within this line")
}

func TestALineThatIsTooLongIsADeadLetterAndItsBeginningIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	long := strings.Repeat("x", 300_000)
	add(t, path, "short\n"+long+"\nshort too\n12345678901\n1234567890\n"+long)
	s := discover(t, file.Config{Paths: []string{path}, MaxLine: 10})
	require.NoError(t, s.until(s.all(s.ended)))
	require.Equal(t, []string{"short", "short too", "1234567890"}, s.rows)
	var reasons []string
	for _, d := range s.rejected {
		require.LessOrEqual(t, len(d.Value), 64<<10, "memory is bounded")
		reasons = append(reasons, fmt.Sprint(d.Offset, " ", string(d.Value[:10]), " ", d.Reason))
	}
	require.Equal(t, []string{
		"6 xxxxxxxxxx a line of 300000 bytes, above the limit of 10: this is its beginning",
		"300017 1234567890 a line of 11 bytes, above the limit of 10: this is its beginning",
		"300040 xxxxxxxxxx the file ended within this line when the job first started",
	}, reasons)
	require.NoError(t, s.start(), "the checksums are those of the file")
}

func TestAFileThatIsNotTheOneThatWasReadStopsTheJob(t *testing.T) {
	header := strings.Repeat("h", 2000) + "\n"
	for name, c := range map[string]struct {
		change func(path string)
		want   string
	}{
		"replaced, longer": {func(path string) {
			require.NoError(t, os.WriteFile(path, []byte(header+"other\nlines\nand more\n"), 0o600))
		}, "it is another file than was read"},
		"another beginning": {func(path string) {
			require.NoError(t, os.WriteFile(path, []byte("H"+header[1:]+"one\ntwo\n"), 0o600))
		}, "it is another file than was read"},
		"truncated": {func(path string) { require.NoError(t, os.Truncate(path, 2003)) }, "it was truncated: it has 2003 bytes"},
		"gone":      {func(path string) { require.NoError(t, os.Remove(path)) }, "it is gone, and was read up to byte 2009"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a")
			add(t, path, header+"one\ntwo\n")
			s := discover(t, file.Config{Paths: []string{path}, Follow: true})
			require.Len(t, s.read(), 3)
			require.NoError(t, s.start())
			c.change(path)
			requireStop(t, s.start(), c.want)
		})
	}
}

func TestAFileThatIsFollowedMayNotShrinkBeReplacedOrGo(t *testing.T) {
	for name, c := range map[string]struct {
		change func(path string)
		want   string
	}{
		"truncated": {func(path string) { require.NoError(t, os.Truncate(path, 1)) }, "it was truncated"},
		"rotated": {func(path string) {
			add(t, path, "last\n")
			require.NoError(t, os.Rename(path, path+".1"))
			add(t, path, "other\n")
		}, "another file has its name now"},
		"removed": {func(path string) {
			add(t, path, "last\n")
			require.NoError(t, os.Remove(path))
		}, "it was removed while it was followed"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a")
			add(t, path, "one\n")
			s := discover(t, file.Config{Paths: []string{path}, Follow: true})
			require.Equal(t, []string{"one"}, s.read())
			c.change(path)
			requireStop(t, s.until(func() bool { return false }), c.want)
			if name != "truncated" {
				require.Equal(t, []string{"one", "last"}, s.rows, "it is read to its end first")
			}
		})
	}
}

func TestAFileThatComesIsReadFromItsStart(t *testing.T) {
	dir := t.TempDir()
	s := discover(t, file.Config{Paths: []string{filepath.Join(dir, "*.log")}, Follow: true})
	require.Empty(t, s.splits)
	add(t, filepath.Join(dir, "b.log"), "one\n")
	add(t, filepath.Join(dir, "no.txt"), "no\n")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "dir.log"), 0o700))
	for _, want := range []int{1, 0} {
		more, err := s.source.(connector.Growing).Grow(t.Context(), s.splits)
		require.NoError(t, err)
		require.Len(t, more, want)
		s.splits = append(s.splits, more...)
		require.NoError(t, s.reader.(connector.SplitAdder).AddSplits(t.Context(), more))
	}
	require.Equal(t, []string{"one"}, s.read())
}

func TestAnImpossibleConfigurationStopsTheJob(t *testing.T) {
	for want, cfg := range map[string]file.Config{
		"no paths":            {},
		"syntax error":        {Paths: []string{"["}},
		"no file matches":     {Paths: []string{filepath.Join(t.TempDir(), "none")}},
		"a limit is negative": {Paths: []string{"a"}, MaxLine: -1},
	} {
		_, err := file.Lines(cfg, keep).Discover(t.Context())
		requireStop(t, err, want)
	}
}

func TestALineOfJSONIsDecodedOrRejected(t *testing.T) {
	type event struct {
		ID string `json:"id"`
		N  json.Number
	}
	path := filepath.Join(t.TempDir(), "a")
	add(t, path, `{"id": "a", "N": 4.0054321e-8}`+"\nnot json\n")
	src := file.JSON[event](file.Config{Paths: []string{path}})
	splits, err := src.Discover(t.Context())
	require.NoError(t, err)
	r, err := src.Reader(t.Context(), connector.ReaderContext[event]{
		Admit: func(*event, int64) (int64, error) { return 7, nil },
	}, splits)
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	var b connector.Batch[event]
	require.NoError(t, r.Read(t.Context(), &b))
	require.Equal(t, []event{{ID: "a", N: "4.0054321e-8"}}, b.Rows)
	require.Equal(t, []int64{7}, b.Times)
	require.Equal(t, "not json", string(b.Rejected[0].Value))
}

// However a file is cut into pieces that come one after the other, and wherever the reader is opened
// again, each line comes once and in order.
func TestLinesDoNotDependOnHowTheyCome(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		path := filepath.Join(dir, fmt.Sprint(n))
		lines := rapid.SliceOfN(rapid.StringMatching(`[a-c]{0,12}`), 1, 30).Draw(rt, "lines")
		text := strings.Join(lines, "\n") + "\n"
		add(t, path, "")
		s := discover(t, file.Config{Paths: []string{path}, Follow: true, MaxLine: 100})
		var got []string
		for len(text) > 0 {
			cut := rapid.IntRange(1, len(text)).Draw(rt, "cut")
			add(t, path, text[:cut])
			text = text[cut:]
			got = append(got, s.read()...)
			if rapid.Bool().Draw(rt, "restart") {
				require.NoError(rt, s.start())
			}
		}
		require.Equal(rt, lines, got)
	})
}

func TestAPositionOfALaterReleaseIsRefused(t *testing.T) {
	p := file.Position{Next: 5, End: -1, Head: 1, Tail: 2}
	got, err := file.ParsePosition(p.AppendTo(nil))
	require.NoError(t, err)
	require.Equal(t, p, got)
	for _, bad := range [][]byte{nil, {2}, p.AppendTo(nil)[:10], file.Position{Next: -1}.AppendTo(nil)} {
		_, err := file.ParsePosition(bad)
		require.ErrorContains(t, err, "position: ")
	}
}
