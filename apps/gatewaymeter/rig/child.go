package rig

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// child is one process of the job.
type child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed once it has ended and its log has been read
	err  error         // how it ended; after done
}

// startChild starts a process and hands over each line of its standard error.
func startChild(binary string, args []string, line func([]byte)) (*child, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(binary, args...)
	cmd.Stderr = write
	cmd.SysProcAttr = ownGroup()
	err = cmd.Start()
	write.Close()
	if err != nil {
		read.Close()
		return nil, fmt.Errorf("start the job: %w", err)
	}
	c := &child{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		defer read.Close()
		lines := bufio.NewReaderSize(read, 1<<16)
		for {
			text, err := lines.ReadBytes('\n')
			if len(text) > 0 {
				line(text)
			}
			if err != nil {
				break
			}
		}
		c.err = cmd.Wait()
	}()
	return c, nil
}

// kill ends the process as a power failure would, and waits until it is gone. It fails where the process
// had ended before.
func (c *child) kill() error {
	killErr := c.cmd.Process.Signal(syscall.SIGKILL)
	<-c.done
	status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if killErr != nil || !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
		return errors.Join(errors.New("it was not killed: it had ended by itself"), c.err)
	}
	return nil
}

// ended says how the process ended, for errors; after done.
func (c *child) ended() string {
	if c.err == nil {
		return "exit code 0"
	}
	return c.err.Error()
}

// logTail keeps the last lines of a log.
type logTail struct{ lines []string }

func (t *logTail) add(line []byte) {
	const most = 12
	if len(t.lines) == most {
		t.lines = t.lines[1:]
	}
	t.lines = append(t.lines, strings.TrimSpace(string(line)))
}

func (t *logTail) String() string { return strings.Join(t.lines, "\n") }
