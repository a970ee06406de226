package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// dirLock is what makes a directory this process's own: locks that belong to open files, and so end with the
// process, however that ends.
type dirLock struct {
	dir    *os.File // the directory itself: nobody can put another one in its place under an open one
	holder *os.File // LOCK, which says who it is
}

// lockDir takes the directory for this process, until the lock is closed. LOCK itself stays where it is.
//
// LOCK alone would not do. Somebody takes it for stale and deletes it, a second process makes another file of
// that name and locks it, and both write CURRENT.
func lockDir(root *os.Root, dir string, me Holder) (_ *dirLock, err error) {
	var l dirLock
	defer func() {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = &LockedError{Dir: dir, Holder: readHolder(l.holder)}
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
	return &l, writeHolder(l.holder, me)
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

func writeHolder(f *os.File, me Holder) error {
	data, err := json.Marshal(me)
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(append(data, '\n'), 0)
	return err
}

// readHolder returns who wrote the lock file. The zero Holder is "unknown": the owner may be
// just about to write.
func readHolder(f *os.File) Holder {
	var h Holder
	data, err := io.ReadAll(f)
	if err != nil || json.Unmarshal(data, &h) != nil {
		return Holder{}
	}
	return h
}
