//go:build !linux

package main

import "os"

// maxResident is known on Linux alone.
func maxResident(*os.ProcessState) int64 { return 0 }
