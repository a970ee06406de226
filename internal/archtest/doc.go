// Package archtest holds the module to its architecture: which package may import which, what pure
// packages may touch, and what no file may contain. Its one test reads the module's files itself, so
// that they are inputs of the test: what the go command would be asked for is answered from the cache
// of earlier answers, and passes on a violation.
//
// The table of packages is in table.go. A new package needs a row there before its tests pass.
//
// What is held:
//
//	A1. Every package has a row, every row a package; what production code imports from the module
//	    and from outside libraries is in its row, and what is in the row is imported.
//	A2. No row may allow what a law forbids. The laws are the layers of docs/ARCHITECTURE.md.
//	A3. Nothing that is for tests is imported by what ships.
//	A4. Pure packages touch no system, clock, goroutine, lock or unseeded randomness.
//	A5. Nothing runs before main: no init functions, no package-level variable but sentinel errors
//	    and tables that are never written, marked so.
//	A6. The clock is read where a row says why; nobody sleeps, except tests inside a synctest bubble.
//	A7. No text file names a machine's directories or where packages are fetched from.
//
// It does not ask whether the code compiles, and knows no types: names are what they are in the file.
package archtest
