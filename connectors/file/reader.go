package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"time"

	"example.com/weir/connector"
	"example.com/weir/connectors/internal/lines"
)

// reader reads its files in turn. It has no goroutine of its own.
type reader[T any] struct {
	cfg    *Config
	lines  lines.Decoder[T]
	logger *slog.Logger
	files  []*input
	turn   int
	closed bool
}

// input is one file.
type input struct {
	path string
	file *os.File
	pos  Position
	read trace // of what lies before pos.Next
	// rest is what has been read from the file behind pos.Next. Rows point into it: it is added to and
	// never written over.
	rest  []byte
	time  int64 // when the file was last written to, as of the last look at it, in microseconds
	atEnd bool  // there was nothing behind rest at the last look
	// skipped, while a line that is too long is read over, is how many bytes of it have been: rest then
	// begins with the bytes that are kept of it, up to Config.MaxLine.
	skipped int64
	gap     bool // the trace lacks bytes that were skipped

	toldAt time.Time // when a batch last said that it is caught up
	told   bool
	ended  bool
}

// chunkSize is how much is read from a file at a time.
const chunkSize = 64 << 10

// tellAgain is how often a file that stays read to its end says so.
const tellAgain = time.Second

// AddSplits opens files, and sees that they are those that the positions are of (F1).
func (r *reader[T]) AddSplits(_ context.Context, splits []connector.Split) error {
	for _, sp := range splits {
		in, err := r.open(sp)
		if err != nil {
			return fmt.Errorf("file %s: %w", sp.ID, err)
		}
		r.files = append(r.files, in)
	}
	return nil
}

func (r *reader[T]) open(sp connector.Split) (*input, error) {
	pos, err := ParsePosition(sp.Position)
	if err != nil {
		return nil, connector.Stop(err)
	}
	if bounded := pos.End >= 0; bounded == r.cfg.Follow {
		return nil, connector.Stop(errors.New("whether a read has an end is fixed when the job first starts: start afresh"))
	}
	f, err := os.Open(sp.ID)
	if errors.Is(err, os.ErrNotExist) {
		return nil, connector.Stop(fmt.Errorf("it is gone, and was read up to byte %d: put it back, or start afresh: %w",
			pos.Next, err))
	}
	if err != nil {
		return nil, err
	}
	in := &input{path: sp.ID, file: f, pos: pos}
	if err := in.check(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return in, nil
}

// check holds the position against the file.
func (in *input) check() error {
	info, err := in.file.Stat()
	if err != nil {
		return err
	}
	if size, least := info.Size(), max(in.pos.Next, in.pos.End); size < least {
		return in.shrunk(size, least)
	}
	if in.read, err = readTrace(in.file, in.pos.Next); err != nil {
		return err
	}
	if head, tail := in.read.sums(); head != in.pos.Head || tail != in.pos.Tail {
		return connector.Stop(fmt.Errorf("it is another file than was read: the bytes before position %d are not "+
			"those that were there; put the old one back under its name, or start afresh", in.pos.Next))
	}
	return nil
}

func (in *input) shrunk(size, least int64) error {
	return connector.Stop(fmt.Errorf("it was truncated: it has %d bytes, and the job goes on at byte %d and knows of %d; "+
		"put the old one back, or start afresh", size, in.pos.Next, least))
}

// Close closes the files.
func (r *reader[T]) Close() error {
	var errs []error
	for _, in := range r.files {
		errs = append(errs, in.file.Close())
	}
	r.files, r.closed = nil, true
	return errors.Join(errs...)
}

// Read fills b from the next file that has something to tell.
func (r *reader[T]) Read(ctx context.Context, b *connector.Batch[T]) error {
	b.Reset()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if r.closed {
			return errors.New("file source: the reader is closed")
		}
		more := false
		for range r.files {
			i := r.turn
			r.turn = (r.turn + 1) % len(r.files)
			in := r.files[i]
			news, err := r.next(in, b)
			if err != nil {
				return fmt.Errorf("file %s: at byte %d: %w", in.path, in.pos.Next, err)
			}
			if news {
				b.Split = i
				return nil
			}
			more = more || !in.ended && !in.atEnd
		}
		if more { // of a line that is not read to its end
			continue
		}
		if err := r.pause(ctx); err != nil {
			return err
		}
	}
}

// pause waits until the files are to be looked at again. Where all have ended, it waits for ctx.
func (r *reader[T]) pause(ctx context.Context) error {
	var again <-chan time.Time
	for _, in := range r.files {
		if !in.ended {
			timer := time.NewTimer(r.cfg.Poll)
			defer timer.Stop()
			again = timer.C
			break
		}
	}
	select {
	case <-again:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// next takes lines from a file, and says whether the batch has something to tell.
func (r *reader[T]) next(in *input, b *connector.Batch[T]) (bool, error) {
	if in.ended {
		return false, nil
	}
	if err := in.fill(); err != nil {
		return false, err
	}
	from := in.pos.Next
	for taken := true; taken && len(b.Rows)+len(b.Rejected) < r.cfg.MaxBatch; {
		taken = r.take(in, b)
	}
	if err := in.sum(); err != nil {
		return false, err
	}
	b.Position = in.pos.AppendTo(b.Position[:0])
	b.Ended = in.pos.Ended()
	in.ended = b.Ended
	b.CaughtUp = b.Ended || in.atEnd && bytes.IndexByte(in.rest, '\n') < 0
	now := time.Now()
	news := in.pos.Next != from || b.Ended || b.CaughtUp && (!in.told || now.Sub(in.toldAt) >= tellAgain)
	if news && b.CaughtUp {
		in.toldAt = now
	}
	in.told = b.CaughtUp
	return news, nil
}

// fill reads on, unless there is a line to take already.
func (in *input) fill() error {
	if bytes.IndexByte(in.rest, '\n') >= 0 {
		return nil
	}
	at := in.pos.Next + in.skipped + int64(len(in.rest))
	size := int64(chunkSize)
	if in.pos.End >= 0 {
		size = min(size, in.pos.End-at)
	}
	info, err := in.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() < at {
		return in.shrunk(info.Size(), at)
	}
	in.time = info.ModTime().UnixMicro()
	chunk := make([]byte, int64(len(in.rest))+size)
	copy(chunk, in.rest)
	n, err := in.file.ReadAt(chunk[len(in.rest):], at)
	in.rest = chunk[:len(in.rest)+n]
	in.atEnd = n == 0
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if in.atEnd && in.pos.End < 0 {
		return in.still(info)
	}
	return nil
}

// still sees that the file, which is read to its end, is the one that its path names: what is written to
// another one would stay unread.
func (in *input) still(info os.FileInfo) error {
	now, err := os.Stat(in.path)
	if errors.Is(err, os.ErrNotExist) {
		return connector.Stop(fmt.Errorf("it was removed while it was followed, and was read to its end: %w", err))
	}
	if err != nil {
		return err
	}
	if !os.SameFile(info, now) {
		return connector.Stop(errors.New("another file has its name now (was it rotated?): this one was read to its end. " +
			"Follow files that keep their names"))
	}
	return nil
}

// take takes one line from what was read. It reports false if there is none.
func (r *reader[T]) take(in *input, b *connector.Batch[T]) bool {
	end := bytes.IndexByte(in.rest, '\n')
	atTheEnd := in.pos.End >= 0 && in.pos.Next+in.skipped+int64(len(in.rest)) >= in.pos.End
	switch {
	case end >= 0:
		r.line(in, b, in.rest[:end])
		in.pass(end + 1)
		return true
	case atTheEnd && in.skipped+int64(len(in.rest)) > 0: // F2
		r.reject(in, b, in.rest, errors.New("the file ended within this line when the job first started"))
		in.pass(len(in.rest))
		return true
	case len(in.rest) > r.cfg.MaxLine: // F3
		in.skip(r.cfg.MaxLine)
	}
	return false
}

// pass moves the position over the first n bytes of rest, and over what was skipped.
func (in *input) pass(n int) {
	in.pos.Next += in.skipped + int64(n)
	in.read.passed(in.rest[:n])
	in.gap = in.gap || in.skipped > 0
	in.rest, in.skipped = in.rest[n:], 0
}

// sum sets the position's checksums.
func (in *input) sum() (err error) {
	if in.gap { // some of the bytes have not been kept
		in.gap = false
		if in.read, err = readTrace(in.file, in.pos.Next); err != nil {
			return err
		}
	}
	in.pos.Head, in.pos.Tail = in.read.sums()
	return nil
}

// skip keeps the first bytes of a line that is too long, and forgets what has been read behind them.
func (in *input) skip(keep int) {
	in.skipped += int64(len(in.rest) - keep)
	in.rest = in.rest[:keep:keep]
}

// line hands on a line without its end.
func (r *reader[T]) line(in *input, b *connector.Batch[T], line []byte) {
	if shown, err := r.lines.Take(b, line, in.skipped, in.time); err != nil {
		r.reject(in, b, shown, err)
	}
}

func (r *reader[T]) reject(in *input, b *connector.Batch[T], line []byte, reason error) {
	b.Rejected = append(b.Rejected, connector.DeadLetter{
		Topic: in.path, Offset: in.pos.Next, Timestamp: in.time, Value: bytes.Clone(line), Reason: reason.Error(),
	})
}

// PositionText shows the byte offset of a position.
func (r *reader[T]) PositionText(position []byte) string {
	p, err := ParsePosition(position)
	if err != nil {
		return ""
	}
	return "byte " + strconv.FormatInt(p.Next, 10)
}
