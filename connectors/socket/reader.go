package socket

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"example.com/weir/connector"
	"example.com/weir/connectors/internal/lines"
)

// reader reads the connection, and connects again when it ends. It has no goroutine of its own.
type reader[T any] struct {
	cfg     *Config
	decoder lines.Decoder[T]
	logger  *slog.Logger
	has     bool // it has the split
	closed  bool

	conn     net.Conn // nil: not connected
	failures int      // to connect, in a row
	lines    uint64
	// rest is what was received and not handed on. Rows point into it: it is added to and never written
	// over. The first MaxLine bytes are kept of a line that is too long; skipped counts the others.
	rest     []byte
	skipped  int
	received time.Time
	told     bool // that it is caught up
}

const (
	chunkSize = 64 << 10
	// quiet is how long nothing may come before the source is caught up, and how often it says so again.
	quiet = time.Second
)

// Read fills b with the lines that have come.
func (r *reader[T]) Read(ctx context.Context, b *connector.Batch[T]) error {
	b.Reset()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if r.closed {
			return errors.New("socket source: the reader is closed")
		}
		if !r.has {
			<-ctx.Done()
			return ctx.Err()
		}
		for taken := true; taken && len(b.Rows)+len(b.Rejected) < r.cfg.MaxBatch; {
			taken = r.take(b)
		}
		if len(b.Rows)+len(b.Rejected) > 0 {
			return r.tell(b, false)
		}
		if r.conn == nil && !r.connect(ctx) {
			if r.told { // N2
				return r.tell(b, false)
			}
			continue
		}
		if quiet := r.receive(ctx); quiet {
			return r.tell(b, true)
		}
	}
}

// tell completes a batch.
func (r *reader[T]) tell(b *connector.Batch[T], caughtUp bool) error {
	b.CaughtUp, r.told = caughtUp, caughtUp
	b.Position = appendCount(b.Position[:0], r.lines)
	return nil
}

// connect tries once, and waits after a failure.
func (r *reader[T]) connect(ctx context.Context) bool {
	dialer := net.Dialer{Timeout: r.cfg.DialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", r.cfg.Address)
	if err == nil {
		if r.failures > 0 || r.lines > 0 {
			r.logger.Warn("socket source: connected; what was sent meanwhile is lost",
				"address", r.cfg.Address, "lines_before", r.lines)
		}
		r.conn, r.failures = conn, 0
		return true
	}
	if ctx.Err() != nil {
		return false
	}
	r.logger.Warn("socket source: no connection; event time is held back until there is one",
		"address", r.cfg.Address, "failures", r.failures+1, "error", err)
	timer := time.NewTimer(min(10*time.Second, 100*time.Millisecond<<min(r.failures, 10)))
	defer timer.Stop()
	r.failures++
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// receive reads from the connection, and reports whether nothing has come for a while. The end of ctx cuts
// it short; what has come by then is kept.
func (r *reader[T]) receive(ctx context.Context) (isQuiet bool) {
	conn := r.conn
	_ = conn.SetReadDeadline(time.Now().Add(quiet))
	cut := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)); close(cut) })
	defer func() {
		if !stop() {
			<-cut // or it would cut the next one
		}
	}()
	chunk := make([]byte, len(r.rest)+chunkSize)
	copy(chunk, r.rest)
	n, err := conn.Read(chunk[len(r.rest):])
	if n > 0 {
		r.rest, r.received = chunk[:len(r.rest)+n], time.Now()
	}
	switch {
	case err == nil:
		return false
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n == 0 && ctx.Err() == nil
	}
	r.disconnected(err)
	return false
}

// disconnected gives up the connection. What it leaves of a line is taken for a dead letter (N1).
func (r *reader[T]) disconnected(err error) {
	reason := "it ended"
	if !errors.Is(err, io.EOF) {
		reason = err.Error()
	}
	r.logger.Warn("socket source: the connection was lost; what is sent until there is another one is lost",
		"address", r.cfg.Address, "reason", reason, "lines", r.lines)
	_ = r.conn.Close()
	r.conn = nil
}

// take takes one line from what was received. It reports false if there is none.
func (r *reader[T]) take(b *connector.Batch[T]) bool {
	end := bytes.IndexByte(r.rest, '\n')
	switch {
	case end >= 0:
		r.line(b, r.rest[:end])
		r.rest, r.skipped = r.rest[end+1:], 0
		return true
	case r.conn == nil && len(r.rest) > 0:
		r.reject(b, r.rest, errors.New("the connection ended within this line"))
		r.rest, r.skipped = nil, 0
		return true
	case len(r.rest) > r.cfg.MaxLine:
		r.skipped += len(r.rest) - r.cfg.MaxLine
		r.rest = r.rest[:r.cfg.MaxLine:r.cfg.MaxLine]
	}
	return false
}

func (r *reader[T]) line(b *connector.Batch[T], line []byte) {
	shown, err := r.decoder.Take(b, line, int64(r.skipped), r.received.UnixMicro())
	if err != nil {
		r.reject(b, shown, err)
		return
	}
	r.lines++
}

func (r *reader[T]) reject(b *connector.Batch[T], line []byte, reason error) {
	b.Rejected = append(b.Rejected, connector.DeadLetter{
		Topic: r.cfg.Address, Offset: int64(r.lines), Timestamp: r.received.UnixMicro(), Value: bytes.Clone(line),
		Reason: reason.Error(),
	})
	r.lines++
}

// Close closes the connection.
func (r *reader[T]) Close() error {
	r.closed = true
	if r.conn == nil {
		return nil
	}
	err := r.conn.Close()
	r.conn = nil
	return err
}

// PositionText shows how many lines have been read.
func (r *reader[T]) PositionText(position []byte) string {
	n, err := parseCount(position)
	if err != nil {
		return ""
	}
	return strconv.FormatUint(n, 10) + " lines"
}
