//go:build !linux

package rig

import "syscall"

// ownGroup starts a process in a group of its own, so that an interrupt at the terminal reaches this
// process alone, which then ends the job.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
