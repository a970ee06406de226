package file

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"example.com/weir/connector"
	"example.com/weir/connectors/internal/lines"
)

// Config describes a source of files.
type Config struct {
	// Paths are the files to read, as patterns of path/filepath.Match. At least one is needed.
	Paths []string
	// Follow reads on, in files that grow and in files that come. Without it the read is bounded: it ends
	// where each file ends when the job first starts.
	Follow bool

	// MaxLine is the most bytes of a line; a longer one is a dead letter with the first MaxLine bytes of
	// it. The default is 1 MiB.
	MaxLine int
	// MaxBatch is the most rows of a batch; the default is 1024.
	MaxBatch int
	// Poll is how often a file that is read to its end is looked at; the default is 1 s.
	Poll time.Duration
	// Discovery is how often a read that follows looks for more files; the default is 1 min.
	Discovery time.Duration
}

func (c Config) withDefaults() Config {
	c.MaxLine = cmp.Or(c.MaxLine, 1<<20)
	c.MaxBatch = cmp.Or(c.MaxBatch, 1024)
	c.Poll = cmp.Or(c.Poll, time.Second)
	c.Discovery = cmp.Or(c.Discovery, time.Minute)
	return c
}

func (c *Config) validate() error {
	if len(c.Paths) == 0 {
		return errors.New("no paths")
	}
	for _, p := range c.Paths {
		if _, err := filepath.Match(p, ""); err != nil {
			return fmt.Errorf("path %q: %w", p, err)
		}
	}
	if c.MaxLine < 1 || c.MaxBatch < 1 || c.Poll < 0 || c.Discovery < 0 {
		return errors.New("a limit is negative")
	}
	return nil
}

// Lines describes a source of lines, each decoded to a row of type T. A split is a file, and its ID is the
// file's path as the pattern matched it.
//
// decode sets row, which is the zero value at first, from a line without its line end (LF or CR LF). It
// may keep the bytes that it is given. A line for which it returns an error is rejected whole, with the
// error's text for the reason, and the source goes on.
//
// A line has no timestamp of its own. Where the job asks for one, it is the time at which the file was last
// written to, as of when the line was read.
//
// The source stops the job where a file is gone, has shrunk, or is another one than was read: its positions
// would mean other lines. Files that are rotated under one name are not for it.
func Lines[T any](cfg Config, decode func(line []byte, row *T) error) connector.Source[T] {
	return &source[T]{cfg: cfg.withDefaults(), decode: decode}
}

// JSON describes a source of lines that hold one JSON value each, decoded by encoding/json.
func JSON[T any](cfg Config) connector.Source[T] {
	return Lines(cfg, func(line []byte, row *T) error { return json.Unmarshal(line, row) })
}

type source[T any] struct {
	cfg    Config
	decode func([]byte, *T) error
}

// Replayable reports that lines can be read again, as long as the files are there.
func (s *source[T]) Replayable() bool { return true }

// Discover returns the files that are there, each from its first line and, in a bounded read, to its end.
func (s *source[T]) Discover(context.Context) ([]connector.Split, error) {
	if err := s.cfg.validate(); err != nil {
		return nil, connector.Stop(fmt.Errorf("file source: %w", err))
	}
	paths, err := s.match()
	if err != nil {
		return nil, fmt.Errorf("file source: %w", err)
	}
	if len(paths) == 0 && !s.cfg.Follow {
		return nil, connector.Stop(fmt.Errorf("file source: no file matches %q", s.cfg.Paths))
	}
	return s.splits(paths)
}

// splits makes a split of each file, from its start.
func (s *source[T]) splits(paths []string) ([]connector.Split, error) {
	var splits []connector.Split
	for _, path := range paths {
		p := Position{End: -1}
		p.Head, p.Tail = new(trace).sums()
		if !s.cfg.Follow {
			info, err := os.Stat(path)
			if err != nil {
				return nil, fmt.Errorf("file source: %w", err)
			}
			p.End = info.Size()
		}
		splits = append(splits, connector.Split{ID: path, Position: p.AppendTo(nil)})
	}
	return splits, nil
}

// match returns the regular files that the patterns match, each once and in order.
func (s *source[T]) match() ([]string, error) {
	var all []string
	for _, pattern := range s.cfg.Paths {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			info, err := os.Stat(path)
			switch {
			case errors.Is(err, os.ErrNotExist): // it has just gone away, and was never one of ours
				continue
			case err != nil:
				return nil, err
			case info.IsDir():
				continue
			case !info.Mode().IsRegular():
				return nil, connector.Stop(fmt.Errorf("%s is not a regular file: its bytes cannot be read again", path))
			}
			all = append(all, filepath.Clean(path))
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// GrowthInterval is how often to look for more files. A bounded read has those that were there.
func (s *source[T]) GrowthInterval() time.Duration {
	if !s.cfg.Follow {
		return 0
	}
	return s.cfg.Discovery
}

// Grow finds the files that have come.
func (s *source[T]) Grow(_ context.Context, known []connector.Split) ([]connector.Split, error) {
	paths, err := s.match()
	if err != nil {
		return nil, fmt.Errorf("file source: %w", err)
	}
	return s.splits(slices.DeleteFunc(paths, func(path string) bool {
		return slices.ContainsFunc(known, func(k connector.Split) bool { return k.ID == path })
	}))
}

// Reader opens a reader over some of the files.
func (s *source[T]) Reader(
	ctx context.Context, rc connector.ReaderContext[T], splits []connector.Split,
) (connector.Reader[T], error) {
	if err := s.cfg.validate(); err != nil {
		return nil, connector.Stop(fmt.Errorf("file source %s[%d]: %w", rc.Operator, rc.Subtask, err))
	}
	logger := cmp.Or(rc.Logger, slog.New(slog.DiscardHandler))
	r := &reader[T]{
		cfg: &s.cfg, logger: logger,
		lines: lines.Decoder[T]{MaxLine: s.cfg.MaxLine, Decode: s.decode, Admit: rc.Admit},
	}
	if err := r.AddSplits(ctx, splits); err != nil {
		return nil, errors.Join(fmt.Errorf("file source %s[%d]: %w", rc.Operator, rc.Subtask, err), r.Close())
	}
	return r, nil
}
