package checkpoint

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"sync/atomic"

	"github.com/klauspost/compress/s2"

	"example.com/weir/connector"
)

// A file of kept records is 8 bytes of magic, 4 bytes of format version (big-endian), and an S2 stream,
// each block of which has a checksum. Its size and the SHA-256 sum of all of it are in the manifests that
// name it: they are not known before its end, and nothing in it is written twice.
const (
	recordsMagic   = "WEIRRECS"
	recordsVersion = 1
	recordsHeader  = 12

	// recordsBlock bounds what is compressed at once, and recordsBuffer what is held back before it is
	// written: what a stream takes of memory does not depend on its length.
	recordsBlock  = 64 << 10
	recordsBuffer = 64 << 10
)

// Recorder keeps the records of one sink subtask in a store: a stream for each committable. One goroutine
// at a time uses it and the streams that it begins, until they are sealed.
type Recorder struct {
	store Store
	name  RecordsName
	spare *s2.Writer
}

// NewRecorder returns a recorder that counts its streams from 1 (RecordsName.Number).
func NewRecorder(s Store, whose RecordsName) *Recorder { return &Recorder{store: s, name: whose} }

// Begin begins a stream.
func (r *Recorder) Begin() *Records {
	r.name.Number++
	x := &Records{recorder: r, name: r.name.file(), sum: sha256.New()}
	if x.encoder, r.spare = r.spare, nil; x.encoder == nil {
		x.encoder = s2.NewWriter(nil, s2.WriterConcurrency(1), s2.WriterBlockSize(recordsBlock))
	}
	x.encoder.Reset((*recordsOut)(x))
	header := binary.BigEndian.AppendUint32([]byte(recordsMagic), recordsVersion)
	_, _ = (*recordsOut)(x).Write(header) // its errors are kept
	return x
}

// Records is one stream. It implements connector.Keeper. There is no file before there is more to hold
// than a buffer, and none at all for few bytes: those go into the manifests.
type Records struct {
	recorder *Recorder
	name     string
	encoder  *s2.Writer // nil once it is sealed or discarded
	sum      hash.Hash
	size     atomic.Int64
	held     []byte      // compressed, and not written yet
	file     RecordsFile // nil until there is one
	sealed   bool
	err      error // the first one; nothing is written behind it
	done     atomic.Bool
}

// Name is what the stream is called in the store.
func (x *Records) Name() string { return x.name }

// Size is how many bytes have been compressed. Anyone may ask.
func (x *Records) Size() int64 { return x.size.Load() }

// Sealed reports whether the stream has been sealed.
func (x *Records) Sealed() bool { return x.sealed }

// Done reports that the stream needs nothing more: it was synced, discarded or has failed. Anyone may ask.
func (x *Records) Done() bool { return x.done.Load() }

// Write implements connector.Keeper.
func (x *Records) Write(p []byte) {
	if x.err == nil && x.encoder != nil {
		_, err := x.encoder.Write(p)
		x.fail(err)
	}
}

// Seal implements connector.Keeper. What could not be written is told by Sync, and is not named.
func (x *Records) Seal() connector.Kept {
	if x.encoder == nil {
		return connector.Kept{}
	}
	if x.err == nil {
		x.fail(x.encoder.Close())
	}
	x.release()
	x.sealed = true
	if x.err != nil {
		return connector.Kept{}
	}
	k := connector.Kept{Name: x.name, Size: x.Size(), Digest: [32]byte(x.sum.Sum(nil))}
	if x.file == nil && k.Size <= inlineLimit {
		k.Inline = x.held
		x.done.Store(true)
	}
	return k
}

// Sync makes a sealed stream durable, up to the entry of its directory, which PutManifest makes so. It
// may run beside the streams that follow. An error is that of any call before, and takes the file away.
func (x *Records) Sync() error {
	if x.done.Load() {
		return x.err
	}
	if x.err == nil {
		x.fail(x.flush())
	}
	if x.err == nil && x.file != nil {
		x.fail(x.file.Sync())
	}
	if x.err != nil {
		return fmt.Errorf("records %s: %w", x.name, errors.Join(x.err, x.drop()))
	}
	x.done.Store(true)
	return x.file.Close()
}

// Discard implements connector.Keeper. A stream that was synced stays.
func (x *Records) Discard() {
	x.release()
	if !x.done.Load() {
		x.fail(x.drop())
	}
}

// drop gives the file up and takes it away. What cannot be removed is collected later.
func (x *Records) drop() error {
	x.done.Store(true)
	x.held = nil
	if x.file == nil {
		return nil
	}
	err := x.file.Close()
	x.file = nil
	return errors.Join(err, x.recorder.store.DeleteRecords(context.Background(), []string{x.name}))
}

// release hands the encoder on to the next stream.
func (x *Records) release() {
	if x.encoder != nil {
		x.encoder.Reset(nil)
		x.recorder.spare, x.encoder = x.encoder, nil
	}
}

func (x *Records) fail(err error) {
	if x.err == nil {
		x.err = err
	}
}

// flush writes what is held.
func (x *Records) flush() (err error) {
	if x.file == nil {
		if x.file, err = x.recorder.store.CreateRecords(x.name); err != nil {
			x.file = nil
			return err
		}
	}
	_, err = x.file.Write(x.held)
	x.held = x.held[:0]
	return err
}

// recordsOut is where the encoder writes to.
type recordsOut Records

func (o *recordsOut) Write(p []byte) (int, error) {
	x := (*Records)(o)
	x.sum.Write(p)
	x.size.Add(int64(len(p)))
	x.held = append(x.held, p...)
	if len(x.held) < recordsBuffer {
		return len(p), nil
	}
	if err := x.flush(); err != nil {
		return 0, err
	}
	return len(p), nil
}

// ReadRecords opens kept records. What was written is read, or an error says that it is not the same: at
// the latest in place of io.EOF.
func ReadRecords(ctx context.Context, s Store, k connector.Kept) (io.ReadCloser, error) {
	if k.Name == "" {
		return nil, errors.New("the records are not kept")
	}
	raw := io.NopCloser(bytes.NewReader(k.Inline))
	if k.Inline == nil {
		var err error
		raw, err = s.OpenRecords(ctx, k.Name)
		var missing *CorruptError // names them itself
		if errors.As(err, &missing) {
			return nil, err
		}
		if err != nil {
			return nil, fmt.Errorf("records %s: %w", k.Name, err)
		}
	}
	r := &recordsReader{ctx: ctx, kept: k, raw: raw, sum: sha256.New()}
	header := make([]byte, recordsHeader)
	_, err := io.ReadFull(recordsIn{r}, header)
	version := binary.BigEndian.Uint32(header[len(recordsMagic):])
	switch {
	case r.failed != nil:
		err = r.failed
	case err != nil || !bytes.HasPrefix(header, []byte(recordsMagic)) || version == 0:
		err = r.corrupt("it does not begin as kept records do")
	case version > recordsVersion:
		err = connector.Stop(&FormatError{File: k.Name, Version: int(version), Newest: recordsVersion})
	}
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	r.decoder = s2.NewReader(recordsIn{r}, s2.ReaderMaxBlockSize(recordsBlock))
	return r, nil
}

type recordsReader struct {
	ctx     context.Context
	kept    connector.Kept
	raw     io.ReadCloser
	sum     hash.Hash
	size    int64
	failed  error // of the storage
	decoder *s2.Reader
}

// Read implements io.Reader.
func (r *recordsReader) Read(p []byte) (int, error) {
	n, err := r.decoder.Read(p)
	switch {
	case err == nil:
		return n, nil
	case r.failed != nil:
		return n, fmt.Errorf("records %s: %w", r.kept.Name, r.failed)
	case !errors.Is(err, io.EOF):
		return n, r.corrupt("%v", err)
	case r.size != r.kept.Size:
		return n, r.corrupt("it has %d bytes, and what names it says %d", r.size, r.kept.Size)
	case [32]byte(r.sum.Sum(nil)) != r.kept.Digest:
		return n, r.corrupt("its checksum differs from the one that what names it says")
	}
	return n, io.EOF
}

// Close implements io.Closer.
func (r *recordsReader) Close() error { return r.raw.Close() }

func (r *recordsReader) corrupt(format string, args ...any) error {
	return connector.Stop(&CorruptError{File: r.kept.Name, What: fmt.Sprintf(format, args...)})
}

// recordsIn reads the file, and adds up what it has read.
type recordsIn struct{ of *recordsReader }

func (i recordsIn) Read(p []byte) (int, error) {
	r := i.of
	if r.failed = r.ctx.Err(); r.failed != nil {
		return 0, r.failed
	}
	n, err := r.raw.Read(p)
	r.sum.Write(p[:n])
	r.size += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		r.failed = err
	}
	return n, err
}

// CreateRecords implements Store.
func (s *dirStore) CreateRecords(name string) (RecordsFile, error) {
	if err := s.usable(context.Background()); err != nil {
		return nil, err
	}
	f, err := s.fs.Create(name, true)
	if err != nil {
		return nil, err
	}
	return &dirRecords{store: s, name: name, file: f}, nil
}

// dirRecords is a file of kept records in a directory. A failed fsync of it ends the use of the store, as
// any other does (K4).
type dirRecords struct {
	store *dirStore
	name  string
	file  file
}

func (f *dirRecords) Write(p []byte) (int, error) {
	if err := f.store.usable(context.Background()); err != nil {
		return 0, err
	}
	return f.file.Write(p)
}

func (f *dirRecords) Sync() error {
	if err := f.store.usable(context.Background()); err != nil {
		return err
	}
	if err := f.file.Sync(); err != nil {
		return f.store.fail(fmt.Errorf("fsync %s: %w", f.name, err))
	}
	return nil
}

func (f *dirRecords) Close() error { return f.file.Close() }

// OpenRecords implements Store.
func (s *dirStore) OpenRecords(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f, err := s.fs.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, connector.Stop(&CorruptError{File: name, What: "it is missing"})
	}
	return f, err
}

// DeleteRecords implements Store.
func (s *dirStore) DeleteRecords(ctx context.Context, names []string) error {
	return s.deleteFiles(ctx, names)
}
