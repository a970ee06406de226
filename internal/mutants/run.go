package mutants

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// patience is how long a suite may take. A mutant that makes its suite wait for ever is a mutant of the
// wrong kind, or has the wrong suite.
const patience = 2 * time.Minute

// Caught is a mutant with the tests that saw it.
type Caught struct {
	Mutant
	Tests []string
}

// job is one run of a suite.
type job struct {
	name string
	run  func() error
}

// RunAll runs every mutant, some at a time, and each suite without one. It returns the mutants in the order
// given, and says all that is wrong. done is told of each run; calls of it may overlap.
func RunAll(
	ctx context.Context, root string, all []Mutant, atATime int, done func(what string, took time.Duration),
) ([]Caught, error) {
	caught := make([]Caught, len(all))
	var jobs []job
	for _, s := range suites(all) {
		jobs = append(jobs, job{"no mutant: " + s.Package, func() error { return s.sound(ctx, root) }})
	}
	for i := range all {
		jobs = append(jobs, job{"mutant: " + all[i].Name, func() (err error) {
			caught[i].Mutant = all[i]
			caught[i].Tests, err = all[i].Run(ctx, root)
			return err
		}})
	}
	errs := make([]error, len(jobs))
	turn := make(chan struct{}, atATime)
	var wg sync.WaitGroup
	for i, j := range jobs {
		turn <- struct{}{}
		wg.Go(func() {
			defer func() { <-turn }()
			began := time.Now()
			errs[i] = j.run()
			done(j.name, time.Since(began))
		})
	}
	wg.Wait()
	return caught, errors.Join(errs...)
}

// suites returns what the mutants' suites run together, one for each package.
func suites(all []Mutant) []Suite {
	var merged []Suite
	for _, m := range all {
		i := slices.IndexFunc(merged, func(s Suite) bool {
			return s.Package == m.Suite.Package && slices.Equal(s.Args, m.Suite.Args)
		})
		switch {
		case i < 0:
			merged = append(merged, m.Suite)
		case !slices.Contains(strings.Split(merged[i].Run, "|"), m.Suite.Run):
			merged[i].Run += "|" + m.Suite.Run
		}
	}
	return merged
}

// Run runs the mutant's suite on the module at root with the mutant in it, and returns the tests that
// failed. No test that failed is an error: the mutant survived.
func (m *Mutant) Run(ctx context.Context, root string) ([]string, error) {
	root, err := filepath.Abs(root) // the overlay wants whole paths
	if err != nil {
		return nil, err
	}
	files, err := m.Apply(os.DirFS(root))
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	overlay, err := writeOverlay(dir, root, files)
	if err != nil {
		return nil, err
	}
	failed, said, err := m.Suite.run(ctx, root, "-overlay", overlay)
	switch {
	case err != nil:
		return nil, fmt.Errorf("mutant %q: %w", m.Name, err)
	case len(failed) > 0 && !strings.Contains(said, m.Says):
		return nil, fmt.Errorf("mutant %q: %s failed, and not over what it does: %q is not in what it said:\n%s",
			m.Name, strings.Join(failed, ", "), m.Says, said)
	case len(failed) == 0:
		return nil, fmt.Errorf("mutant %q survived: it %s, and every test passes: %s", m.Name, m.Harm, m.Suite)
	}
	return failed, nil
}

// sound runs a suite on the code as it is, which must pass (U1).
func (s *Suite) sound(ctx context.Context, root string) error {
	failed, _, err := s.run(ctx, root)
	if err == nil && len(failed) > 0 {
		err = fmt.Errorf("%s fails without any mutant: %s", s, strings.Join(failed, ", "))
	}
	return err
}

// writeOverlay writes the files and the description of them that -overlay wants, and returns its path.
func writeOverlay(dir, root string, files map[string]string) (string, error) {
	replace := map[string]string{}
	for name, text := range files {
		at := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, filepath.FromSlash(name))] = at
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, b, 0o600)
}

// run runs the suite and returns the tests that failed, and all that the tests said.
func (s *Suite) run(ctx context.Context, root string, flags ...string) (failed []string, said string, err error) {
	args := append([]string{"test", "-json", "-short", "-vet=off", "-failfast", "-timeout=" + patience.String(), "-run", s.Run}, flags...)
	args = append(args, "./"+s.Package)
	if len(s.Args) > 0 {
		args = append(append(args, "-args"), s.Args...)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	cmd.Env = environment(os.Environ())
	var out, diagnostics bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diagnostics
	exit := cmd.Run()
	if ended := (*exec.ExitError)(nil); exit != nil && !errors.As(exit, &ended) {
		return nil, "", fmt.Errorf("go test: %w", exit)
	}
	if failed, said, err = judge(out.Bytes(), exit != nil); err != nil {
		return nil, "", fmt.Errorf("%s: %w\n%s", s, err, diagnostics.String())
	}
	return failed, said, nil
}

// environment is that of a suite: it meets no brokers but those it starts itself, and counts nothing.
func environment(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(v string) bool {
		return strings.HasPrefix(v, "WEIR_") || strings.HasPrefix(v, "CI=")
	})
}

// event is a line of go test -json.
type event struct {
	Action, Test, Output string
}

// judge reads what go test -json wrote: the tests that failed and what was said, or why that is no answer (U1).
// A test that has subtests fails with them; only it is returned.
func judge(out []byte, exitedWithError bool) (failed []string, said string, err error) {
	var text strings.Builder
	ran := 0
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, "", fmt.Errorf("go test -json wrote %q: %w", lines.Text(), err)
		}
		top := e.Test != "" && !strings.Contains(e.Test, "/")
		switch e.Action {
		case "build-fail":
			return nil, "", fmt.Errorf("it does not compile:\n%s", text.String())
		case "run":
			ran++
		case "fail":
			if top && !slices.Contains(failed, e.Test) {
				failed = append(failed, e.Test)
			}
		case "output", "build-output":
			text.WriteString(e.Output)
		}
	}
	said = text.String()
	switch {
	case lines.Err() != nil:
		err = lines.Err()
	case strings.Contains(said, "panic: test timed out"):
		err = fmt.Errorf("it did not end within %s", patience)
	case ran == 0:
		err = fmt.Errorf("no test ran:\n%s", said)
	case exitedWithError != (len(failed) > 0):
		err = fmt.Errorf("the tests that failed are %q, and go test says otherwise:\n%s", failed, said)
	}
	return failed, said, err
}
