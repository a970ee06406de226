// Package terminal shows a running job to who sits in front of it.
//
// Top is pure: one status or two become lines of text. Screen is the thin shell that repaints such lines
// in place on a terminal. Where the output is no terminal nothing is repainted: what is written stays.
//
// It asks nobody and counts nothing: the caller brings each status.
package terminal
