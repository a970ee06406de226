// Package mutants tests the tests. A mutant is a small change to the code that would lose records, double
// them, or stop a job without a fault; the suite that exists to see that must fail on it.
//
// A mutant is compiled in place of the file that it changes (go test -overlay): no file of the checkout is
// written, and what does not depend on it comes from the build cache.
//
// It is not a mutation tester that makes changes up: each mutant here is one that somebody could make in
// good faith, with what it would do to a user written beside it.
//
// Invariants:
//
//	U1. A mutant counts as caught only if a test failed that passes without it. One that does not
//	    compile, or whose suite does not end, or runs no test, is an error of the mutant.
//	U2. The text that a mutant replaces stands exactly once in its file. Where the code has moved, the
//	    mutant moves with it; it is never left out in silence.
package mutants
