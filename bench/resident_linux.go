package main

import (
	"os"
	"syscall"
)

// maxResident returns the largest resident set of an ended process, in KiB.
func maxResident(s *os.ProcessState) int64 {
	if u, ok := s.SysUsage().(*syscall.Rusage); ok {
		return u.Maxrss
	}
	return 0
}
