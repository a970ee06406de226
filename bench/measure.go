package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const eventsTopic = "gateway-events"

// mode is one way to run the job.
type mode struct {
	name        string
	guarantee   string
	checkpoints bool
	weir        string // the binary
}

// modes returns what is run in turn, the builds of one mode one after the other.
func modes(o options) []mode {
	var all []mode
	for _, m := range []mode{
		{"exactly-once", "exactly-once", true, o.weir},
		{"at-least-once", "at-least-once", true, o.weir},
		{"no checkpoints", "none", false, o.weir},
	} {
		if o.only != "" && o.only != m.name {
			continue
		}
		all = append(all, m)
		if o.against != "" {
			all = append(all, mode{m.name + ", other", m.guarantee, m.checkpoints, o.against})
		}
	}
	return all
}

// result is one run.
type result struct {
	wall        time.Duration
	cpu         time.Duration // user + system time of the job's process
	memory      int64         // its largest resident set, KiB
	pause50     time.Duration
	pause99     time.Duration
	checkpoints int
}

func measure(o options) error {
	ctx := context.Background()
	address, stop, err := startBroker(ctx)
	if err != nil {
		return err
	}
	defer stop()
	trace, prices := input("azure-llm-2023/code.csv", "trace.csv"), input("genai-prices/data.json", "prices.json")
	fmt.Printf("trace %s, prices %s\n", trace, prices)
	began := time.Now()
	n, err := fill(ctx, address, o, trace, prices)
	if err != nil {
		return err
	}
	fmt.Printf("topic filled with %d events in %s\n", n, time.Since(began).Round(time.Millisecond))
	results := map[string][]result{}
	for run := range o.runs {
		for _, m := range modes(o) {
			r, err := runJob(ctx, o, m, address, prices, run)
			if err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			results[m.name] = append(results[m.name], r)
			fmt.Printf("run %d %-21s %8s wall, %5.0f ns CPU an event\n", run+1, m.name,
				r.wall.Round(time.Millisecond), float64(r.cpu)/float64(n))
		}
	}
	report(o, results, n)
	return nil
}

// input prefers the real data beside the repository to its samples.
func input(real, sample string) string {
	if path := filepath.Join("..", "shared", "data", real); exists(path) {
		return path
	}
	return filepath.Join("apps", "gatewaymeter", "sample", sample)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// runJob runs the job once over the whole topic, with topics and checkpoints of its own.
func runJob(
	ctx context.Context, o options, m mode, address, prices string, run int,
) (result, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(address))
	if err != nil {
		return result{}, err
	}
	defer client.Close()
	suffix := fmt.Sprintf("-%s-%d", strings.NewReplacer(" ", "-", ",", "").Replace(m.name), run)
	for _, topic := range []string{"tenant-cost", "alerts"} {
		if err := createTopic(ctx, client, topic+suffix, o.partitions); err != nil {
			return result{}, err
		}
	}
	args := []string{
		"run", "gatewaymeter", "--until-end", "--brokers", address, "--prices", prices,
		"--parallelism", strconv.Itoa(o.parallel), "--checkpoint-interval", o.interval.String(),
		"--tenant-cost-topic", "tenant-cost" + suffix, "--alerts-topic", "alerts" + suffix,
		"--sink-guarantee", m.guarantee, "--log-format", "json",
	}
	if m.checkpoints {
		dir, err := os.MkdirTemp("", "weir-bench-")
		if err != nil {
			return result{}, err
		}
		defer os.RemoveAll(dir)
		args = append(args, "--checkpoints", "file://"+dir)
	}
	if o.profile != "" && m.name == o.profiled {
		args = append(args, "--cpuprofile", o.profile)
	}
	return execute(ctx, m.weir, args)
}

func execute(ctx context.Context, weir string, args []string) (result, error) {
	var log bytes.Buffer
	cmd := exec.CommandContext(ctx, weir, args...)
	cmd.Stderr = &log
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return result{}, fmt.Errorf("%w:\n%s", err, log.Bytes()[max(0, log.Len()-4000):])
	}
	r := result{
		wall:   time.Since(began),
		cpu:    cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(),
		memory: maxResident(cmd.ProcessState),
	}
	return r, r.readLog(log.Bytes())
}

// readLog finds what the job says of its barriers when it ends.
func (r *result) readLog(log []byte) error {
	for line := range bytes.Lines(log) {
		var l struct {
			Msg         string
			Checkpoints int           `json:"checkpoints"`
			P50         time.Duration `json:"pause_p50"`
			P99         time.Duration `json:"pause_p99"`
		}
		if err := json.Unmarshal(line, &l); err != nil {
			return fmt.Errorf("log line %q: %w", line, err)
		}
		if l.Msg == "barriers" {
			r.checkpoints, r.pause50, r.pause99 = l.Checkpoints, l.P50, l.P99
		}
	}
	return nil
}

func report(o options, results map[string][]result, events int) {
	first := modes(o)[0].name
	fmt.Printf("\n%-21s %12s %12s %8s %10s %10s %8s events/s of %s ÷ this, run by run\n", "median of runs", "events/s",
		"CPU ns/event", "ckpts", "pause p50", "pause p99", "RSS MiB", first)
	base := results[first]
	for _, m := range modes(o) {
		rs := results[m.name]
		ratios := make([]float64, len(rs))
		for i := range rs {
			ratios[i] = rs[i].wall.Seconds() / base[i].wall.Seconds()
		}
		fmt.Printf("%-21s %12.0f %12.0f %8d %10s %10s %8d %.2f\n", m.name,
			float64(events)/median(rs, func(r result) float64 { return r.wall.Seconds() }),
			median(rs, func(r result) float64 { return float64(r.cpu) })/float64(events),
			int(median(rs, func(r result) float64 { return float64(r.checkpoints) })),
			time.Duration(median(rs, func(r result) float64 { return float64(r.pause50) })).Round(time.Microsecond),
			time.Duration(median(rs, func(r result) float64 { return float64(r.pause99) })).Round(time.Microsecond),
			int(median(rs, func(r result) float64 { return float64(r.memory) }))/1024,
			median(ratios, func(r float64) float64 { return r }))
	}
}

func median[T any](all []T, of func(T) float64) float64 {
	values := make([]float64, len(all))
	for i, x := range all {
		values[i] = of(x)
	}
	slices.SortFunc(values, cmp.Compare)
	return values[len(values)/2]
}
