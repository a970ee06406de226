package engine

import (
	"slices"

	"example.com/weir/connector"
)

// The ways from one operator to the next, in Operator.Exchanges and Edge.
const (
	Forward = "forward" // in the same subtask, by a call
	Hash    = "hash"    // to the subtask that has the key's group
)

// Graph is a plan as it is shown to people. It holds data alone.
type Graph struct {
	Job            string
	MaxParallelism int
	Nodes          []Node // in the order in which the operators were added
}

// Node is an operator in a Graph.
type Node struct {
	UID         string
	Kind        string
	Parallelism int
	Stateful    bool
	// Chain is the uid of the operator at the head of the chain: those share a goroutine.
	Chain  string
	Inputs []Edge
	// Replayable says of a source whether records after a position can be read again.
	Replayable bool
	// Guarantee is what a sink's consumer was promised; Unstated for all others.
	Guarantee connector.Guarantee
	// TwoPhase says of a sink that it commits after the checkpoint.
	TwoPhase bool
}

// Edge is an input of a node.
type Edge struct{ From, Exchange string }

// Graph describes the plan.
func (p *Plan) Graph() Graph {
	g := Graph{Job: p.name, MaxParallelism: p.maxParallelism}
	chains := map[string]string{}
	for _, o := range p.operators {
		n := Node{UID: o.UID, Kind: o.Kind, Parallelism: p.parallelism, Stateful: o.Stateful, Chain: o.UID}
		for i, from := range o.Inputs {
			n.Inputs = append(n.Inputs, Edge{From: from, Exchange: o.exchange(i)})
		}
		if len(n.Inputs) > 0 && !p.isHead(o.UID) {
			n.Chain = chains[n.Inputs[0].From]
		}
		chains[o.UID] = n.Chain
		p.describeEnds(&n)
		g.Nodes = append(g.Nodes, n)
	}
	return g
}

// exchange says how the rows of an input come to the operator.
func (o *Operator) exchange(input int) string {
	if input < len(o.Exchanges) {
		return o.Exchanges[input]
	}
	return Forward
}

func (p *Plan) isHead(uid string) bool {
	return slices.ContainsFunc(p.heads, func(h head) bool { return h.uid == uid })
}

// describeEnds adds what a source or a sink promises.
func (p *Plan) describeEnds(n *Node) {
	for _, s := range p.sources {
		if s.uid == n.UID {
			n.Replayable = s.replayable
		}
	}
	for _, s := range p.sinks {
		if s.uid == n.UID {
			n.Guarantee, n.TwoPhase = s.guarantee, s.restore != nil
		}
	}
}
