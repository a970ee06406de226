// Package proof writes down what the tests have counted: faults put in, faults that hit, records checked,
// and how many of them were missing or doubled. Tests note their counts while they run, and the document
// docs/PROOF.md is made of the notes.
//
// It judges nothing: a test that finds a record missing fails by itself. It does not run tests either;
// scripts/proof does.
//
// Invariants:
//
//	R1. A count whose fault did not hit proves nothing, and makes no document.
//	R2. The same notes make the same document, in whatever order they were written.
//	R3. What ran on a live broker never stands among what is made again from seeds.
package proof
