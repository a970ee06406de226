package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
)

// memFS is a file system that can lose what was not fsynced, fail any operation, and show itself
// between any two of them. It keeps what the kernel has apart from what the disk has.
type memFS struct {
	dirs map[string]*memDir

	ops    []string // what was asked for, in order
	before func()   // called before each operation
	failAt int      // the operation, from 1, that fails; 0 is none
	failed string   // the one that did
	after  bool     // a rename that fails has been carried out all the same
}

type memDir struct{ now, disk map[string]*memInode }

type memInode struct{ now, disk []byte }

func newMemFS() *memFS { return &memFS{dirs: map[string]*memDir{".": newMemDir()}} }

func newMemDir() *memDir {
	return &memDir{now: map[string]*memInode{}, disk: map[string]*memInode{}}
}

// The ways to lose power or life between two operations.
type crash int

const (
	killed        crash = iota // the process dies: the kernel keeps everything
	powerLost                  // only what was fsynced is left
	entriesOnDisk              // the directories had reached the disk by themselves, the data had not
)

// after returns what is found after a crash. The original goes on.
func (m *memFS) crashed(c crash) *memFS {
	n := newMemFS()
	for name, d := range m.dirs {
		n.dirs[name] = newMemDir()
		entries := d.now
		if c == powerLost {
			entries = d.disk
		}
		for base, i := range entries {
			data := i.disk
			if c == killed {
				data = i.now
			}
			copied := &memInode{now: slices.Clone(data), disk: slices.Clone(data)}
			n.dirs[name].now[base], n.dirs[name].disk[base] = copied, copied
		}
	}
	return n
}

var errInjected = errors.New("injected failure")

// op records an operation, and says whether it is the one to fail.
func (m *memFS) op(format string, args ...any) error {
	if m.before != nil {
		m.before()
	}
	m.ops = append(m.ops, fmt.Sprintf(format, args...))
	if len(m.ops) == m.failAt {
		m.failed = m.ops[len(m.ops)-1]
		return errInjected
	}
	return nil
}

func (m *memFS) entry(name string) (*memDir, string) { return m.dirs[path.Dir(name)], path.Base(name) }

func (m *memFS) Mkdir(name string) error {
	if m.dirs[name] == nil {
		m.dirs[name] = newMemDir()
	}
	return m.op("mkdir %s", name)
}

func (m *memFS) Create(name string, exclusive bool) (file, error) {
	if err := m.op("create %s", name); err != nil {
		return nil, err
	}
	d, base := m.entry(name)
	i := d.now[base]
	if i != nil && exclusive {
		return nil, fmt.Errorf("create %s: %w", name, fs.ErrExist)
	}
	if i == nil {
		i = &memInode{}
		d.now[base] = i
	}
	i.now = nil
	return &memFile{fs: m, name: name, inode: i}, nil
}

func (m *memFS) ReadFile(name string) ([]byte, error) {
	d, base := m.entry(name)
	if d == nil || d.now[base] == nil {
		return nil, fmt.Errorf("open %s: %w", name, fs.ErrNotExist)
	}
	return slices.Clone(d.now[base].now), nil
}

func (m *memFS) Open(name string) (io.ReadCloser, error) {
	data, err := m.ReadFile(name)
	return io.NopCloser(bytes.NewReader(data)), err
}

func (m *memFS) Rename(from, to string) error {
	err := m.op("rename %s %s", from, to)
	if err == nil || m.after {
		fd, fb := m.entry(from)
		td, tb := m.entry(to)
		td.now[tb] = fd.now[fb]
		delete(fd.now, fb)
	}
	return err
}

func (m *memFS) Remove(name string) error {
	if err := m.op("remove %s", name); err != nil {
		return err
	}
	d, base := m.entry(name)
	if d == nil || d.now[base] == nil {
		return fmt.Errorf("remove %s: %w", name, fs.ErrNotExist)
	}
	delete(d.now, base)
	return nil
}

func (m *memFS) List(dir string) ([]string, error) {
	if m.dirs[dir] == nil {
		return nil, fmt.Errorf("open %s: %w", dir, fs.ErrNotExist)
	}
	return slices.Sorted(maps.Keys(m.dirs[dir].now)), nil
}

func (m *memFS) Size(name string) (int64, error) {
	data, err := m.ReadFile(name)
	return int64(len(data)), err
}

func (m *memFS) SyncDir(name string) error {
	if err := m.op("fsync %s/", name); err != nil {
		return err
	}
	m.dirs[name].disk = maps.Clone(m.dirs[name].now)
	return nil
}

func (m *memFS) Close() error { return nil }

type memFile struct {
	fs    *memFS
	name  string
	inode *memInode
}

func (f *memFile) Write(p []byte) (int, error) {
	if err := f.fs.op("write %s", f.name); err != nil {
		f.inode.now = append(f.inode.now, p[:len(p)/2]...)
		return len(p) / 2, err
	}
	f.inode.now = append(f.inode.now, p...)
	return len(p), nil
}

func (f *memFile) Sync() error {
	if err := f.fs.op("fsync %s", f.name); err != nil {
		return err
	}
	f.inode.disk = slices.Clone(f.inode.now)
	return nil
}

func (f *memFile) Close() error { return f.fs.op("close %s", f.name) }
