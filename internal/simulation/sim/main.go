// Command sim runs the commit protocol in simulated worlds, says what it counted, and tells the shortest
// course it finds to whatever goes wrong.
//
//	sim -seeds 4000            many worlds
//	sim -first 17 -seeds 1 -v  one, with everything that happens in it
//	sim -json                  the counts for a program
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"

	"example.com/weir/internal/simulation"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	f := flag.NewFlagSet("sim", flag.ContinueOnError)
	first := f.Uint64("first", 1, "the first seed")
	seeds := f.Uint64("seeds", 4000, "how many seeds")
	verbose := f.Bool("v", false, "tell everything that happens")
	asJSON := f.Bool("json", false, "print the counts as JSON")
	kinds := f.Bool("kinds", false, "say only what went wrong, how often and first where")
	tries := f.Int("shrink", 50_000, "how many worlds are tried to make a failure shorter")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *verbose {
		for seed := *first; seed < *first+*seeds; seed++ {
			r := simulation.Run(seed, func(line string) { fmt.Fprintln(out, line) })
			fmt.Fprintln(out, &r)
		}
		return nil
	}
	r := simulation.RunMany(*first, *seeds)
	if *kinds {
		printKinds(out, &r)
		return wrong(&r)
	}
	if *asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "\t")
		if err := e.Encode(&r); err != nil {
			return err
		}
	} else {
		print(out, &r)
	}
	if len(r.Failures) > 0 {
		fmt.Fprintln(out, simulation.Explain(r.Failures[0], *tries))
	}
	return wrong(&r)
}

func wrong(r *simulation.Report) error {
	if n := len(r.Failures); n > 0 {
		return fmt.Errorf("%d of %d worlds went wrong", n, r.Seeds)
	}
	return nil
}

func printKinds(out io.Writer, r *simulation.Report) {
	var kinds []string
	count, first := map[string]int{}, map[string]uint64{}
	for i := range r.Failures {
		k := simulation.Kind(r.Failures[i].Violation)
		if count[k]++; count[k] == 1 {
			kinds, first[k] = append(kinds, k), r.Failures[i].Seed
		}
	}
	for _, k := range kinds {
		fmt.Fprintf(out, "%s in %d worlds, first of seed %d\n", k, count[k], first[k])
	}
}

func print(out io.Writer, r *simulation.Report) {
	for _, f := range r.Faults {
		fmt.Fprintf(out, "%8d times in %5d worlds  %s\n", f.Hit, f.Worlds, f.Fault)
	}
	fmt.Fprintln(out, r)
}
