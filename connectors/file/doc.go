// Package file is a source of lines in files: one split for each file, one record for each line.
//
// A bounded read ends where each file ended when the job first started. A read that follows goes on for
// ever: files may grow, and more of them may come; they may not shrink, be replaced or go away. It is not
// a reader of logs that are rotated under one name.
//
// Invariants:
//
//	F1. A position is a byte offset behind a line. What comes with it tells the file whose bytes were
//	    read from another one under its name, and from what is left of it: that stops the job by name.
//	F2. A line is a record once its line end is there, and not before. Where a bounded read ends within
//	    a line, that is a dead letter.
//	F3. Memory is bounded, whatever the files hold: a line that is too long is a dead letter, cut.
package file
