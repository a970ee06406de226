package checkpoint

import (
	"io"
	"os"
)

// fileSystem is what a directory store asks of the operating system: a seam at which tests
// record the order of operations, fail any of them, and lose what was not fsynced. Names are
// relative to the root of the store.
type fileSystem interface {
	Mkdir(name string) error // no error if it exists
	Create(name string, exclusive bool) (file, error)
	Open(name string) (io.ReadCloser, error)
	ReadFile(name string) ([]byte, error)
	Rename(from, to string) error
	Remove(name string) error
	List(dir string) ([]string, error)
	Size(name string) (int64, error)
	SyncDir(name string) error
	Close() error
}

// file is a file being written.
type file interface {
	io.Writer
	Sync() error
	Close() error
}

// osFS is the directory on disk. Names cannot leave it: a manifest may say anything.
type osFS struct{ root *os.Root }

func (o osFS) Mkdir(name string) error {
	err := o.root.Mkdir(name, 0o700) // K7
	if os.IsExist(err) {
		return nil
	}
	return err
}

func (o osFS) Create(name string, exclusive bool) (file, error) {
	flag := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	if exclusive {
		flag |= os.O_EXCL
	}
	f, err := o.root.OpenFile(name, flag, 0o600) // K7
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (o osFS) Open(name string) (io.ReadCloser, error) {
	f, err := o.root.Open(name)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (o osFS) ReadFile(name string) ([]byte, error) { return o.root.ReadFile(name) }
func (o osFS) Rename(from, to string) error         { return o.root.Rename(from, to) }
func (o osFS) Remove(name string) error             { return o.root.Remove(name) }
func (o osFS) Close() error                         { return o.root.Close() }

func (o osFS) Size(name string) (int64, error) {
	info, err := o.root.Stat(name)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (o osFS) List(dir string) ([]string, error) {
	d, err := o.root.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

func (o osFS) SyncDir(name string) error {
	d, err := o.root.Open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
