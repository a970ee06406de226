// Command report prints which test ran against which broker, from the file that WEIR_KAFKA_REPORT
// named while the tests ran, and below it what was left out on one of them, and why.
package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: report FILE")
		os.Exit(2)
	}
	lines, err := os.ReadFile(os.Args[1])
	if err == nil {
		err = printTable(os.Stdout, string(lines))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

// outcomes is what became of one test, by broker.
type outcomes map[string]string

// worse orders outcomes: a test that ran several times shows the worst of them.
func worse(a, b string) string {
	order := []string{"", "pass", "left out", "FAIL"}
	if slices.Index(order, a) > slices.Index(order, b) {
		return a
	}
	return b
}

// printTable prints a row for each test and a column for each broker.
func printTable(w io.Writer, lines string) error {
	tests, brokers, reasons := map[string]outcomes{}, map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(lines) {
		field := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(field) != 4 {
			return fmt.Errorf("line %q: want test, broker, outcome and reason", line)
		}
		test, broker, outcome, reason := field[0], field[1], field[2], field[3]
		if tests[test] == nil {
			tests[test] = outcomes{}
		}
		tests[test][broker] = worse(tests[test][broker], outcome)
		brokers[broker] = true
		if reason != "" {
			reasons[fmt.Sprintf("%s, not on %s: %s", test, broker, reason)] = true
		}
	}
	columns := slices.Sorted(maps.Keys(brokers))
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "test\t%s\n", strings.Join(columns, "\t"))
	for _, test := range slices.Sorted(maps.Keys(tests)) {
		fmt.Fprint(table, test)
		for _, broker := range columns {
			fmt.Fprintf(table, "\t%s", cell(tests[test][broker]))
		}
		fmt.Fprintln(table)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if len(reasons) > 0 {
		fmt.Fprintf(w, "\nleft out:\n  %s\n", strings.Join(slices.Sorted(maps.Keys(reasons)), "\n  "))
	}
	return nil
}

func cell(outcome string) string {
	if outcome == "" {
		return "-"
	}
	return outcome
}
