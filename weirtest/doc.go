// Package weirtest is for tests of jobs: a source, a sink and a table in memory, and a job that runs
// beside the test and can be stopped, killed and started again.
//
// A test writes rows and event times into a Source, runs the job over it, and looks at what the
// Sink's consumer sees. Source and Sink outlive a run of the job, as the outside does: a test that
// kills the job builds it again over the same ones and the same checkpoint directory. A Table is a sink that
// replaces rows by key.
//
// A test of an upgrade, of another parallelism or of a restore runs the job with Run and its options; the example
// is one.
//
// It is not a double of any real system: nothing here fails by itself. Everything works inside a
// testing/synctest bubble.
package weirtest
