package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"example.com/weir/connector"
)

// dirLock is what makes a directory this process's own: locks that belong to open files, and so end with the
// process, however that ends.
type dirLock struct {
	dir    *os.File // the directory itself: nobody can put another one in its place under an open one
	holder *os.File // LOCK, which says who it is
}

// note is what LOCK says: who holds the directory, or held it last, and where that was. A copy of the
// directory has the note too, and is somewhere else.
type note struct {
	Holder
	Place string `json:"place,omitempty"` // releases that do not know it leave it out
}

// lockDir takes the directory for this process, until the lock is closed. LOCK itself stays where it is. A
// directory that is a copy is refused, unless that is accepted.
//
// LOCK alone would not do. Somebody takes it for stale and deletes it, a second process makes another file of
// that name and locks it, and both write CURRENT.
func lockDir(root *os.Root, dir string, me Holder, acceptCopy bool) (_ *dirLock, err error) {
	var l dirLock
	defer func() {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = &LockedError{Dir: dir, Holder: readNote(l.holder).Holder}
		}
		if err != nil {
			_ = l.Close() // the lock could not be had; there is nothing to lose
		}
	}()
	if l.dir, err = root.Open("."); err != nil {
		return nil, err
	}
	taken := flock(l.dir)
	if l.holder, err = root.OpenFile(lockName, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, err
	}
	if taken != nil {
		return nil, taken
	}
	if err := flock(l.holder); err != nil { // a release that locks nothing else may hold it
		return nil, err
	}
	here, err := l.place()
	if err != nil {
		return nil, err
	}
	last := readNote(l.holder)
	_, none := root.Stat(currentName)
	if last.Place != "" && last.Place != here && none == nil && !acceptCopy {
		return nil, connector.Stop(&CopiedError{Dir: dir, Holder: last.Holder})
	}
	return &l, writeNote(l.holder, note{Holder: me, Place: here})
}

// place tells directories apart: by their number in their file system, and that of LOCK, for one that was
// removed leaves its number to the next. The file system itself has another number wherever it is mounted.
func (l *dirLock) place() (string, error) {
	var numbers [2]uint64
	for i, f := range []*os.File{l.dir, l.holder} {
		info, err := f.Stat()
		if err != nil {
			return "", err
		}
		numbers[i] = uint64(info.Sys().(*syscall.Stat_t).Ino)
	}
	return fmt.Sprintf("%d/%d", numbers[0], numbers[1]), nil
}

// Close gives the directory up.
func (l *dirLock) Close() error {
	var errs []error
	for _, f := range []*os.File{l.holder, l.dir} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

func flock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			if err != nil {
				return fmt.Errorf("flock %s: %w", f.Name(), err)
			}
			return nil
		}
	}
}

func writeNote(f *os.File, n note) error {
	data, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(append(data, '\n'), 0)
	return err
}

// readNote returns what the lock file says. The zero note is "unknown": the owner may be just about to
// write.
func readNote(f *os.File) note {
	var n note
	data, err := io.ReadAll(f)
	if err != nil || json.Unmarshal(data, &n) != nil {
		return note{}
	}
	return n
}
