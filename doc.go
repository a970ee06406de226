// Package weir is a library for stream processing in which every event has exactly one effect:
// typed dataflows, checkpoints by barriers, sources that replay, and sinks that say which guarantee
// their consumer gets.
//
// A job is built from typed streams and run by Main or Job.Run:
//
//	job := weir.NewJob("counts", weir.Config{Checkpoint: weir.Checkpoint{
//		Interval: 10 * time.Second, Storage: "file:///var/lib/counts",
//	}})
//	words := weir.From(job, "words", source, weir.EventTime((*Word).At, 5*time.Second))
//	counts := weir.Aggregate(weir.Window(weir.KeyBy(words, text), weir.Tumbling(time.Minute)), "count", counter{})
//	weir.SinkTo(counts, "sink-counts", sink)
//	os.Exit(weir.Main(job))
//
// The package is an index: what it offers is defined here or forwarded to the engine, and it
// decides nothing itself. Connectors live in packages of their own and know only package connector.
//
// What a job may rely on:
//
//	W1. A processor and what it keeps belong to one goroutine. An aggregator serves all subtasks
//	    at once, and keeps nothing.
//	W2. State is changed by each record once, whatever fails and restarts (state exactly-once),
//	    if the sources are replayable and checkpoints are on.
//	W3. A sink's consumer gets the guarantee that the sink was asked for by name; a job with a
//	    sink that states none does not build.
//	W4. Event time never goes back, across restarts too.
//
// An error that a function of the job returns, or a panic in it, fails the generation: the job
// restarts from its last checkpoint, and comes to the same row again. A row that can never be
// handled belongs in a side output; an error that no restart heals is marked with connector.Stop and
// ends the job.
//
// Functions are handed pointers to rows (*T), so that nothing is copied. What the row holds is the
// function's to keep; the pointer itself is not, once the call has returned.
//
// Event times are kept in microseconds, rounded down; every time that is handed out is UTC.
package weir
