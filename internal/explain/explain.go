// Package explain draws the graph of a job: as text for a terminal, in the DOT language of Graphviz,
// and for Mermaid. It is not where the graph is found: package engine describes its plan.
//
// The same graph is always drawn alike, so that two drawings can be compared.
package explain

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"example.com/weir/connector"
	"example.com/weir/internal/engine"
)

// Draw draws a graph in a format: text, dot or mermaid.
func Draw(g engine.Graph, format string) (string, error) {
	switch format {
	case "text":
		return text(g), nil
	case "dot":
		return dot(g), nil
	case "mermaid":
		return mermaid(g), nil
	}
	return "", fmt.Errorf("format %q: want text, dot or mermaid", format)
}

// chains gathers the operators by chain, in the order in which the chains begin.
func chains(g engine.Graph) [][]engine.Node {
	var all [][]engine.Node
	index := map[string]int{}
	for _, n := range g.Nodes {
		i, ok := index[n.Chain]
		if !ok {
			i = len(all)
			index[n.Chain] = i
			all = append(all, nil)
		}
		all[i] = append(all[i], n)
	}
	return all
}

// promise says what a source or a sink can be relied on for; nothing for the others.
func promise(n engine.Node) string {
	switch {
	case n.Kind == "source" && n.Replayable:
		return "replayable"
	case n.Kind == "source":
		return "not replayable: after a restart what it had sent is lost"
	case n.Guarantee == connector.Unstated:
		return ""
	case n.TwoPhase:
		return n.Guarantee.String() + ", commits after the checkpoint"
	}
	return n.Guarantee.String()
}

// traits says what else is to be known of an operator.
func traits(n engine.Node) string {
	p := promise(n)
	switch {
	case !n.Stateful || n.Kind == "source":
		return p
	case p == "":
		return "keeps state"
	}
	return "keeps state; " + p
}

func text(g engine.Graph) string {
	var table, b strings.Builder
	w := tabwriter.NewWriter(&table, 0, 4, 3, ' ', 0)
	for _, chain := range chains(g) {
		for _, n := range chain {
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", n.UID, n.Kind, inputs(n), traits(n))
		}
	}
	_ = w.Flush() // into memory
	rows := strings.Split(table.String(), "\n")
	fmt.Fprintf(&b, "job %s, max parallelism %d\n", g.Job, g.MaxParallelism)
	for _, chain := range chains(g) {
		fmt.Fprintf(&b, "\nchain %s, %d subtasks\n", chain[0].Chain, chain[0].Parallelism)
		for range chain {
			b.WriteString(strings.TrimRight(rows[0], " ") + "\n")
			rows = rows[1:]
		}
	}
	return b.String()
}

// inputs writes where an operator's rows come from, and how, where that is not by a call.
func inputs(n engine.Node) string {
	var from []string
	for _, in := range n.Inputs {
		name := "◀ " + in.From
		if in.Side != "" {
			name += "/" + in.Side
		}
		if in.Exchange != engine.Chained {
			name += " (" + string(in.Exchange) + ")"
		}
		from = append(from, name)
	}
	return strings.Join(from, " ")
}

func dot(g engine.Graph) string {
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %q {\n\trankdir=LR;\n\tnode [shape=box, style=rounded];\n", g.Job)
	for i, chain := range chains(g) {
		fmt.Fprintf(&b, "\tsubgraph cluster_%d {\n\t\tlabel=%q;\n", i, chainLabel(chain))
		for _, n := range chain {
			fmt.Fprintf(&b, "\t\t%q [label=%s];\n", n.UID, quoted(n, `\n`))
		}
		b.WriteString("\t}\n")
	}
	for _, n := range g.Nodes {
		for _, in := range n.Inputs {
			if in.Exchange == engine.Chained {
				fmt.Fprintf(&b, "\t%q -> %q;\n", in.From, n.UID)
				continue
			}
			fmt.Fprintf(&b, "\t%q -> %q [label=%q, style=bold];\n", in.From, n.UID, in.Exchange)
		}
	}
	b.WriteString("}\n")
	return b.String()
}

func mermaid(g engine.Graph) string {
	var b strings.Builder
	b.WriteString("flowchart LR\n")
	ids := map[string]string{} // a uid may hold what Mermaid takes for syntax
	for i, n := range g.Nodes {
		ids[n.UID] = fmt.Sprintf("n%d", i)
	}
	for i, chain := range chains(g) {
		fmt.Fprintf(&b, "  subgraph c%d[%s]\n", i, entities(chainLabel(chain)))
		for _, n := range chain {
			fmt.Fprintf(&b, "    %s[%s]\n", ids[n.UID], entities(strings.Join(labels(n), "<br>")))
		}
		b.WriteString("  end\n")
	}
	for _, n := range g.Nodes {
		for _, in := range n.Inputs {
			if in.Exchange == engine.Chained {
				fmt.Fprintf(&b, "  %s --> %s\n", ids[in.From], ids[n.UID])
				continue
			}
			fmt.Fprintf(&b, "  %s ==>|%s| %s\n", ids[in.From], in.Exchange, ids[n.UID])
		}
	}
	return b.String()
}

func chainLabel(chain []engine.Node) string {
	return fmt.Sprintf("%s × %d", chain[0].Chain, chain[0].Parallelism)
}

// labels are the lines in an operator's box.
func labels(n engine.Node) []string {
	lines := []string{n.UID, n.Kind}
	if t := traits(n); t != "" {
		lines = append(lines, t)
	}
	return lines
}

// quoted writes an operator's box as a quoted string of DOT.
func quoted(n engine.Node, newline string) string {
	lines := labels(n)
	for i, l := range lines {
		l = strings.ReplaceAll(l, `\`, `\\`)
		lines[i] = strings.ReplaceAll(l, `"`, `\"`)
	}
	return `"` + strings.Join(lines, newline) + `"`
}

// entities writes a quoted string of Mermaid, which knows quotes as an entity alone.
func entities(s string) string { return `"` + strings.ReplaceAll(s, `"`, "#quot;") + `"` }
