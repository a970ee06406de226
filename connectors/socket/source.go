package socket

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"example.com/weir/connector"
	"example.com/weir/connectors/internal/lines"
)

// Config describes a source.
type Config struct {
	// Address is where to connect to, host:port.
	Address string
	// MaxLine is the most bytes of a line; a longer one is a dead letter with the first MaxLine bytes of
	// it. The default is 1 MiB.
	MaxLine int
	// MaxBatch is the most rows of a batch; the default is 1024.
	MaxBatch int
	// DialTimeout bounds one try to connect; the default is 10 s. After a failure the next try comes after
	// 100 ms, doubled each time, and at most 10 s.
	DialTimeout time.Duration
}

func (c Config) withDefaults() Config {
	c.MaxLine = cmp.Or(c.MaxLine, 1<<20)
	c.MaxBatch = cmp.Or(c.MaxBatch, 1024)
	c.DialTimeout = cmp.Or(c.DialTimeout, 10*time.Second)
	return c
}

func (c *Config) validate() error {
	if _, _, err := net.SplitHostPort(c.Address); err != nil {
		return fmt.Errorf("address: %w", err)
	}
	if c.MaxLine < 1 || c.MaxBatch < 1 || c.DialTimeout < 0 {
		return errors.New("a limit is negative")
	}
	return nil
}

// Lines describes a source of lines, each decoded to a row of type T. It has one split.
//
// decode sets row, which is the zero value at first, from a line without its line end (LF or CR LF). It
// may keep the bytes that it is given. A line for which it returns an error is rejected whole. A line's own
// timestamp is when it was received.
func Lines[T any](cfg Config, decode func(line []byte, row *T) error) connector.Source[T] {
	return &source[T]{cfg: cfg.withDefaults(), decode: decode}
}

type source[T any] struct {
	cfg    Config
	decode func([]byte, *T) error
}

// Replayable reports that nothing can be read again.
func (s *source[T]) Replayable() bool { return false }

// Discover returns the one split.
func (s *source[T]) Discover(context.Context) ([]connector.Split, error) {
	if err := s.cfg.validate(); err != nil {
		return nil, connector.Stop(fmt.Errorf("socket source: %w", err))
	}
	return []connector.Split{{ID: s.cfg.Address, Position: appendCount(nil, 0)}}, nil
}

// A position is how many lines have been read, for people: nobody can go back to it.
const positionVersion = 1

func appendCount(dst []byte, lines uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, positionVersion), lines)
}

func parseCount(position []byte) (uint64, error) {
	if len(position) != 9 || position[0] != positionVersion {
		return 0, fmt.Errorf("position of %d bytes: this release does not read it", len(position))
	}
	return binary.BigEndian.Uint64(position[1:]), nil
}

// Reader opens a reader. It connects when it is first read.
func (s *source[T]) Reader(
	_ context.Context, rc connector.ReaderContext[T], splits []connector.Split,
) (connector.Reader[T], error) {
	if err := s.cfg.validate(); err != nil {
		return nil, connector.Stop(fmt.Errorf("socket source %s[%d]: %w", rc.Operator, rc.Subtask, err))
	}
	logger := cmp.Or(rc.Logger, slog.New(slog.DiscardHandler))
	r := &reader[T]{
		cfg: &s.cfg, logger: logger, has: len(splits) > 0,
		decoder: lines.Decoder[T]{MaxLine: s.cfg.MaxLine, Decode: s.decode, Admit: rc.Admit},
	}
	for _, sp := range splits {
		n, err := parseCount(sp.Position)
		if err != nil {
			return nil, connector.Stop(fmt.Errorf("socket source %s[%d]: split %s: %w", rc.Operator, rc.Subtask, sp.ID, err))
		}
		r.lines = n
		if n > 0 {
			logger.Warn("socket source: going on; what was sent since the checkpoint is lost, as is what was read and "+
				"is not in it", "address", s.cfg.Address, "lines_in_checkpoint", n)
		}
	}
	return r, nil
}
