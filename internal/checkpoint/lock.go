package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// lockDir takes the directory for this process, until the returned file is closed. The lock
// belongs to the open file: it ends with the process, however that ends, and the file itself
// stays where it is. To remove it would let two processes lock two files of one name.
func lockDir(root *os.Root, dir string, me Holder) (*os.File, error) {
	f, err := root.OpenFile(lockName, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = flock(f)
	if err == nil {
		err = writeHolder(f, me)
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = &LockedError{Dir: dir, Holder: readHolder(f)}
	}
	if err != nil {
		_ = f.Close() // the lock could not be had; there is nothing to lose
		return nil, err
	}
	return f, nil
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
