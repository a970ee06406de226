// Command proof writes docs/PROOF.md from what the suites count, and holds the file against it.
//
//	proof check        makes the seeded part anew, and fails where docs/PROOF.md says something else
//	proof write        writes the file, with what docs/PROOF.jsonl holds of the last live run
//	proof write -live  runs the live suites, too, on the brokers that WEIR_KAFKA_BROKERS names
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/weir/internal/mutants"
	"example.com/weir/internal/proof"
)

const (
	document = "docs/PROOF.md"
	lastLive = "docs/PROOF.jsonl"
	// atATime is how many suites run beside each other: what CI has cores for.
	atATime = 2
)

// seeded are the suites that make the same counts wherever they run.
func seeded() []mutants.Suite {
	return []mutants.Suite{
		{Package: "internal/simulation", Run: "^TestEveryWorldIsExactlyOnce$"},
		{
			Package: "internal/protocol", Run: "^TestEveryScheduleIsExactlyOnce$",
			Args: []string{"-rapid.seed=1", "-rapid.checks=3000"},
		},
	}
}

// live are the suites that meet brokers, each on its own: they are long.
func live() []mutants.Suite {
	return []mutants.Suite{
		{Package: "connectors/kafka", Run: "^TestFaultsOnTheWireLoseAndDoubleNothing$"},
		{Package: "connectors/kafka", Run: "^TestRescalingWithCommitsPendingLosesAndDoublesNothing$"},
		{Package: "connectors/kafka", Run: "^TestABrokerKilledInTheMiddleOfCommitsLosesAndDoublesNothing$"},
		{Package: "connectors/kafka", Run: "^TestAMarkerThatApacheKafkaLostIsWrittenOrNamedAndNeverDecidedByTheNextTransaction$"},
		{Package: "connectors/kafka", Run: "^TestAnOutageLongerThanTheTransactionTimeoutLosesNothing$"},
		{Package: "connectors/kafka", Run: "^TestAJobThatIsBackAfterSixteenMinutesHasLostNothing$"},
		{Package: "cmd/weir", Run: "^TestTheBinaryKilledAtAnyPointOfACommitBillsTheSame$"},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	switch args := os.Args[1:]; {
	case slices.Equal(args, []string{"check"}):
		err = check(ctx)
	case slices.Equal(args, []string{"write"}):
		err = write(ctx)
	case slices.Equal(args, []string{"write", "-live"}):
		if err = writeLive(ctx); err == nil {
			err = write(ctx)
		}
	default:
		err = errors.New("usage: proof check | proof write [-live]")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "proof:", err)
		os.Exit(1)
	}
}

func write(ctx context.Context) error {
	text, err := makeDocument(ctx)
	if err != nil {
		return err
	}
	return os.WriteFile(document, []byte(text), 0o644)
}

func check(ctx context.Context) error {
	got, err := makeDocument(ctx)
	if err != nil {
		return err
	}
	want, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	if line, ok := proof.FirstDifference(string(want), got); !ok {
		return fmt.Errorf("%s says something else than the suites say today: %s\nIf that is meant to be, write it "+
			"down with make proof", document, line)
	}
	return nil
}

// makeDocument runs what makes the same counts again, and takes the live ones from where they were left.
func makeDocument(ctx context.Context) (string, error) {
	counts, err := count(ctx, seeded())
	if err != nil {
		return "", err
	}
	kept, err := os.ReadFile(lastLive)
	if err != nil {
		return "", err
	}
	of, err := proof.ReadCounts(kept)
	if err != nil {
		return "", fmt.Errorf("%s: %w", lastLive, err)
	}
	caught, err := mutants.RunAll(ctx, ".", mutants.All(), atATime, func(what string, took time.Duration) {
		fmt.Fprintf(os.Stderr, "%7.1f s  %s\n", took.Seconds(), what)
	})
	if err != nil {
		return "", err
	}
	d := &proof.Document{Seeded: counts, Live: of}
	for _, c := range caught {
		d.Mutants = append(d.Mutants, proof.Mutant{
			Name: c.Name, Harm: string(c.Harm), How: c.How, Command: c.Suite.String(), Tests: c.Tests,
		})
	}
	return proof.Render(d)
}

// writeLive runs the live suites and keeps what they count.
func writeLive(ctx context.Context) error {
	counts, err := count(ctx, live())
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, c := range counts {
		line, err := json.Marshal(c)
		if err != nil {
			return err
		}
		b.Write(append(line, '\n'))
	}
	return os.WriteFile(lastLive, []byte(b.String()), 0o644)
}

// count runs suites, which must pass and count, and returns what they have counted.
func count(ctx context.Context, suites []mutants.Suite) ([]proof.Count, error) {
	dir, err := os.MkdirTemp("", "proof")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	var all []byte
	for i, s := range suites {
		path := filepath.Join(dir, strconv.Itoa(i))
		if err := run(ctx, s, path); err != nil {
			return nil, err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("%s has counted nothing: has its test another name now? %w", s, err)
		}
		all = append(all, text...)
	}
	return proof.ReadCounts(all)
}

// run runs a suite that counts into a file.
func run(ctx context.Context, s mutants.Suite, counts string) error {
	fmt.Fprintln(os.Stderr, s)
	args := []string{"test", "-count=1", "-vet=off", "-timeout=20m", "-run", s.Run, "./" + s.Package}
	if len(s.Args) > 0 {
		args = append(append(args, "-args"), s.Args...)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), proof.CountsVar+"="+counts)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	return nil
}
