package proof

import (
	_ "embed"
	"fmt"
	"strings"
	"text/template"
)

// Document is what docs/PROOF.md says.
type Document struct {
	Seeded  []Count // of the suites that are made again from seeds
	Live    []Count // of the suites that met a broker
	Mutants []Mutant
}

// Mutant is a mistake that was put into the code, and the tests that saw it.
type Mutant struct {
	Name, Harm, How string
	Command         string // the suite that must see it
	Tests           []string
}

//go:embed document.md.tmpl
var text string

// chapter is what the document says about a suite.
type chapter struct {
	suite        Suite
	live         bool // it meets a broker: what it counts is of one run
	Title, About string
	Table        string
}

func chapters() []chapter {
	return []chapter{
		{
			suite: Simulator, Title: "The simulator",
			About: "The code of coordinator, settling, permits and restore, with subtasks, storage, brokers and zombies\n" +
				"that are simulated, on one thread. A seed decides what happens next and what goes wrong, and an oracle\n" +
				"that knows the fate of every record looks on.",
		},
		{
			suite: Protocol, Title: "Schedules of the coordinator",
			About: "The coordinator alone, driven through schedules that are drawn: barriers, answers, deaths, zombies. At\n" +
				"the end of each, one last generation runs to the end of input, and what is visible is counted.",
		},
		{
			suite: Wire, live: true, Title: "Faults on the wire",
			About: "Between a job and its brokers, one request meets what networks and dying brokers do to it, and is seen\n" +
				"to meet it.",
		},
		{
			suite: CrashPoints, live: true, Title: "The binary, killed",
			About: "The binary is killed by SIGKILL at a named point and started again. What stands on the topic in the end\n" +
				"is compared with what was to be there, record by record.",
		},
		{
			suite: Outage, live: true, Title: "Brokers that are away, are killed, or lose what they acknowledged",
			About: "What a restart of a broker, an outage longer than the transaction timeout, and a commit whose markers\n" +
				"are lost do to a job.",
		},
	}
}

// Live reports whether a suite meets a broker.
func (s Suite) Live() bool {
	for _, c := range chapters() {
		if c.suite == s {
			return c.live
		}
	}
	return false
}

// Render writes the document.
func Render(d *Document) (string, error) {
	seeded, err := filled(d.Seeded, false)
	if err != nil {
		return "", err
	}
	live, err := filled(d.Live, true)
	if err != nil {
		return "", err
	}
	t, err := template.New("document").Parse(text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = t.Execute(&b, map[string]any{
		"SeededChapters": seeded, "LiveChapters": live, "MutantsTable": mutantsTable(d.Mutants),
	})
	return b.String(), err
}

// filled returns the chapters that have counts, in the order of the document.
func filled(counts []Count, live bool) ([]chapter, error) {
	bySuite := map[Suite][]Count{}
	for _, c := range counts {
		if c.Suite.Live() != live { // R3
			return nil, fmt.Errorf("%s counted for suite %q, which stands in the other part of the document", c.Test, c.Suite)
		}
		bySuite[c.Suite] = append(bySuite[c.Suite], c)
	}
	var all []chapter
	for _, ch := range chapters() {
		if rows := bySuite[ch.suite]; len(rows) > 0 {
			ch.Table = countsTable(rows, live)
			all = append(all, ch)
		}
	}
	return all, nil
}

// countsTable has a row for each count. Where brokers are met, it says which. A command that makes all of the
// counts is said once.
func countsTable(rows []Count, live bool) string {
	var b strings.Builder
	command := rows[0].command()
	for i := range rows {
		if rows[i].command() != command {
			command = ""
		}
	}
	if command != "" {
		fmt.Fprintf(&b, "Made again by `%s`.\n\n", command)
	}
	cells := func(first, on, numbers, by string) {
		fmt.Fprintf(&b, "| %s |", first)
		if live {
			fmt.Fprintf(&b, " %s |", on)
		}
		fmt.Fprintf(&b, " %s |", numbers)
		if command == "" {
			fmt.Fprintf(&b, " %s |", by)
		}
		b.WriteByte('\n')
	}
	cells("fault", "on", "put in | hit | records | missing | doubled", "made again by")
	cells("---", "---", "--: | --: | --: | --: | --:", "---")
	var sum Count
	for _, c := range rows {
		cells(cell(c.Fault), cell(c.Broker), fmt.Sprintf("%d | %d | %d | %d | %d", c.Injected, c.Hit, c.Records, c.Missing, c.Doubled),
			"`"+cell(c.command())+"`")
		sum = sum.plus(c)
	}
	// The records are not added up: those of a run stand in the row of each fault that hit in it.
	cells("**all**", "", fmt.Sprintf("%d | %d | | **%d** | **%d**", sum.Injected, sum.Hit, sum.Missing, sum.Doubled), "")
	return b.String()
}

// command is the one that makes a count again.
func (c *Count) command() string {
	_, folder, _ := strings.Cut(strings.TrimPrefix(c.Package, "example.com/"), "/")
	s := fmt.Sprintf("go test ./%s -count=1 -run '^%s$'", folder, c.Test)
	if c.Args != "" {
		s += " -args " + c.Args
	}
	return s
}

func mutantsTable(ms []Mutant) string {
	var b strings.Builder
	b.WriteString("| mistake | what it does to a user | how | seen by |\n|---|---|---|---|\n")
	for _, m := range ms {
		fmt.Fprintf(&b, "| %s | %s | %s | %s: `%s` |\n", cell(m.Name), cell(m.Harm), cell(m.How),
			strings.Join(m.Tests, ", "), cell(m.Command))
	}
	return b.String()
}

// cell keeps a text within its cell of a table.
func cell(text string) string { return strings.NewReplacer("|", `\|`, "\n", " ").Replace(text) }

// FirstDifference compares two texts. Where they differ it says at which line, and how.
func FirstDifference(want, got string) (difference string, same bool) {
	if want == got {
		return "", true
	}
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(a), len(b)) {
		was, is := "(nothing)", "(nothing)"
		if i < len(a) {
			was = a[i]
		}
		if i < len(b) {
			is = b[i]
		}
		if was != is {
			return fmt.Sprintf("line %d\n  says  %s\n  now   %s", i+1, was, is), false
		}
	}
	return "", true
}
