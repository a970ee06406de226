package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// FileName is the name of the file, beside a job's checkpoints, that says how to reach it.
const FileName = "control.json"

// Info is what the file says. Its field names are the format.
type Info struct {
	Job     string    `json:"job"`
	Address string    `json:"address"` // host:port
	Token   string    `json:"token"`
	PID     int       `json:"pid"`
	Host    string    `json:"host"`
	Started time.Time `json:"started"` // UTC
}

// String names the process.
func (i Info) String() string {
	return fmt.Sprintf("process %d on %s, started at %s", i.PID, i.Host, i.Started.UTC().Format(time.RFC3339))
}

// write puts the file into a directory, whole or not at all. It need not be durable: it is of no use
// once the process has ended.
func (i Info) write(dir string) error {
	data, err := json.Marshal(i)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, FileName+".*") // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, FileName))
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the error at hand is the one to tell
	}
	return err
}

// remove takes the file away if it is still this one.
func (i Info) remove(dir string) error {
	have, err := readInfo(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && have.Token != i.Token {
		return nil
	}
	return errors.Join(err, os.Remove(filepath.Join(dir, FileName)))
}

func readInfo(dir string) (Info, error) {
	var i Info
	data, err := os.ReadFile(filepath.Join(dir, FileName))
	if err != nil {
		return i, err
	}
	if err := json.Unmarshal(data, &i); err != nil {
		return i, fmt.Errorf("%s: %w", filepath.Join(dir, FileName), err)
	}
	return i, nil
}
