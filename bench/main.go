// Command bench measures GatewayMeter end to end: from a topic that is already full to its last
// committed minute, with the broker in a process of its own.
//
// It prints medians of interleaved runs, and compares within one run of the command only: machines
// differ, and so does one machine from hour to hour.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"
)

type options struct {
	events     int
	runs       int
	partitions int
	parallel   int
	interval   time.Duration
	rate       float64
	weir       string
	against    string
	only       string
	profile    string
	profiled   string
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == brokerArgument {
		if err := serveBroker(); err != nil {
			fmt.Fprintln(os.Stderr, "broker:", err)
			os.Exit(1)
		}
		return
	}
	var o options
	flag.IntVar(&o.events, "events", 2_000_000, "events in the topic")
	flag.IntVar(&o.runs, "runs", 5, "runs of each mode")
	flag.IntVar(&o.partitions, "partitions", 4, "partitions of the topic")
	flag.IntVar(&o.parallel, "parallelism", 2, "parallelism of the job")
	flag.DurationVar(&o.interval, "interval", time.Second, "checkpoint interval")
	flag.Float64Var(&o.rate, "rate", 100, "requests a second of event time: how many an hour of state holds")
	flag.StringVar(&o.weir, "weir", "bin/weir", "the binary to measure")
	flag.StringVar(&o.against, "against", "", "another binary to measure in turn with it, an older build say")
	flag.StringVar(&o.only, "only", "", "the one mode to run: exactly-once, at-least-once or no checkpoints")
	flag.StringVar(&o.profile, "cpuprofile", "", "write a CPU profile of the last run of a mode")
	flag.StringVar(&o.profiled, "profiled", "exactly-once", "that mode")
	flag.Parse()
	fmt.Printf("%d events, %d partitions, parallelism %d, checkpoint interval %s, %d runs of each mode, "+
		"%d CPUs, %s\n", o.events, o.partitions, o.parallel, o.interval, o.runs, runtime.NumCPU(), runtime.Version())
	if err := measure(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}
